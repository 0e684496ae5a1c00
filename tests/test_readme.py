"""Everything that the README shows is run."""

import re
import shlex
from pathlib import Path

import pytest

from pyg_outerconv.cli import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands():
    lines = [line for block in blocks("console") for line in block.splitlines() if line]
    assert all(line.startswith("$ outerconv ") for line in lines)
    return [shlex.split(line)[2:] for line in lines]


def test_python_blocks_run_in_order_as_one_program(capsys):
    namespace = {}
    assert len(blocks("python")) >= 5
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)
    printed = capsys.readouterr().out
    assert "Polynomial(bases=4, size=(34, 34), monomial in EdgeBasis(" in printed
    assert "('spmm', 'reference')" in printed
    assert "Napoleon (77, 77)" in printed


def test_commands_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYG_OUTERCONV_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYG_OUTERCONV_DATA", raising=False)
    for arguments in commands():
        if "Cora" in arguments:
            continue
        assert main(arguments) == 0, arguments
    printed = capsys.readouterr().out
    assert "KarateClub" in printed
    assert (tmp_path / "predictions.csv").read_text().count("\n") == 35
    assert (tmp_path / "runs" / "karate" / "curves.png").stat().st_size > 1000


def test_the_cora_command_runs_where_cora_is(tmp_path, monkeypatch, shared_data):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYG_OUTERCONV_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").symlink_to(shared_data)
    (cora,) = [arguments for arguments in commands() if "Cora" in arguments]
    assert main([*cora, "--epochs", "3", "--seeds", "1"]) == 0


@pytest.mark.parametrize("target", ["demo", "test"])
def test_make_commands_are_those_of_the_makefile(target):
    assert f"    make {target} " in README
    assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)


def test_make_demo_is_a_command_that_is_tested():
    demo = re.search(r"^demo:.*\n\t\$\(BIN\)/outerconv (.*)$", MAKEFILE, re.MULTILINE)
    assert demo
    assert shlex.split(demo[1]) == commands()[0]


def test_files_that_it_points_to_exist():
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / target).exists(), target
    table = README.split("## From the paper to the files")[1]
    for name in re.findall(r"`((?:basis|nn|contract)/[\w.]*)`", table):
        assert (ROOT / "pyg_outerconv" / name).exists(), name
