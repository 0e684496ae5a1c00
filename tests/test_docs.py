"""All that the README, the guides and docstrings show is run; links lead to files and sections."""

import doctest
import importlib.util
import itertools
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from pyg_outerconv.lab import own_code
from pyg_outerconv.lab.cli import main
from pyg_outerconv.plot.canvas import LINE

pytestmark = pytest.mark.pages

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
GUIDES = {path.stem: path for path in sorted(DOCS.glob("*.md"))}
SITE = {f"site {path.stem}": path for path in sorted((ROOT / "site").glob("*.md"))}
PAGES = {"README": ROOT / "README.md", **GUIDES, **SITE}
OTHERS = [*ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md"), ROOT / "datasets" / "README.md"]
OF_THE_SITE = ROOT / "build", ROOT / "site" / "made"  # made with it, which then follows its links
LINKED = {str(path.relative_to(ROOT)): path for path in sorted({*PAGES.values(), *OTHERS})}


def with_fences(language):
    return [name for name, path in PAGES.items() if f"```{language}\n" in path.read_text()]


def commands(text):
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line]
    assert all(line.startswith("$ outerconv ") for line in lines)
    return [shlex.split(line)[2:] for line in lines]


@pytest.mark.parametrize("name", with_fences("python"))
def test_python_blocks_of_a_page_run_as_one_program(name, registries, capsys):
    """And print the block of text that stands next, if one does."""
    namespace = {"__name__": name}
    blocks = re.findall(
        r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", PAGES[name].read_text(), re.S
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support")
        for block, shown in blocks:
            exec(compile(block, f"{name}.md", "exec"), namespace)
            assert shown in capsys.readouterr().out


MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "pyg_outerconv").rglob("*.py"))
    if ">>>" in path.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_right(name):
    test_results = doctest.testmod(importlib.import_module(name))
    assert test_results.attempted
    assert test_results.failed == 0


QUOTED = re.compile(r"```python (pyg_outerconv/\S+)\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(
    "name", [name for name, path in PAGES.items() if QUOTED.search(path.read_text())]
)
def test_code_that_a_page_quotes_is_in_the_file(name):
    for file, quoted in QUOTED.findall(PAGES[name].read_text()):
        assert quoted in (ROOT / file).read_text(), file


@pytest.mark.parametrize("name", with_fences("console"))
def test_commands_of_a_page_run_in_order(name, registries, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own_code, "_imported", {})
    monkeypatch.setenv("PYG_OUTERCONV_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYG_OUTERCONV_DATA", raising=False)
    files = re.findall(r"```(?:csv|python) (\S+)\n(.*?)```", PAGES[name].read_text(), re.S)
    for file, content in files:
        Path(file).write_text(content)
        monkeypatch.setitem(sys.modules, Path(file).stem, None)  # imported for this test alone
    command_lines = [one for one in commands(PAGES[name].read_text()) if "--root" not in one]
    assert command_lines
    for arguments in command_lines:
        assert main(arguments) == 0, arguments
        for flag, path in itertools.pairwise(arguments):
            if flag == "--out" and Path(path).suffix:
                assert Path(path).stat().st_size > 100


def test_the_commands_with_a_root_run_where_the_data_is(tmp_path, monkeypatch, shared_data):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYG_OUTERCONV_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").symlink_to(shared_data)
    rooted = [one for one in commands(GUIDES["train"].read_text()) if "--root" in one]
    assert rooted
    for arguments in rooted:
        assert main([*arguments, "--epochs", "3", "--seeds", "1"]) == 0, arguments


@pytest.mark.parametrize("target", ["demo", "test"])
def test_make_commands_are_those_of_the_makefile(target):
    assert f"    make {target} " in README
    assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)


@pytest.mark.parametrize(("target", "compiles"), [("demo", False), ("test", True)])
def test_only_tests_wait_for_what_is_compiled(target, compiles):
    line = ["make", "-n", "-C", str(ROOT), "VENV=nowhere", target]
    steps = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert ("scatter" in steps) == compiles


def test_make_demo_is_a_command_that_is_tested():
    demo = re.search(r"^demo:.*\n\t\$\(BIN\)/outerconv (.*)$", MAKEFILE, re.MULTILINE)
    assert demo
    assert shlex.split(demo[1]) == commands(GUIDES["train"].read_text())[0]


def outputs(name):
    """The run folders that commands of a page begin."""
    for arguments in commands(PAGES[name].read_text()):
        out = arguments[arguments.index("--out") + 1] if "--out" in arguments else "a file.svg"
        if not Path(out).suffix and "--resume" not in arguments:
            yield out


def test_pages_do_not_write_into_folders_of_each_other():
    """So that whoever tries the README and then a guide, in one folder, is not refused."""
    owners = [(out, name) for name in with_fences("console") for out in outputs(name)]
    assert len(owners) > 8
    assert [one for one in owners if [out for out, _ in owners].count(one[0]) > 1] == []


@pytest.mark.parametrize("name", PAGES)
def test_paragraphs_end_with_a_sentence(name):
    text = re.sub(r"^```.*?^```", "", PAGES[name].read_text(), flags=re.DOTALL | re.MULTILINE)
    for part in re.split(r"\n\s*\n", text):
        if part.strip() and not re.match(r"\n*([#|<!:]|    |\d+\. |- )", part):
            assert re.search(r"[.:!?`)\]]\**$", part.rstrip()), part


# Links ----------------------------------------------------------------------------------------


def anchors(path):
    """The names of a page's sections, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", LINKED)
def test_links_lead_to_files_and_sections(name):
    page = LINKED[name]
    for target in re.findall(r"\]\((?!http)([^)\s]+)\)", page.read_text()):
        path, _, section = target.partition("#")
        there = page.parent / path if path else page
        if any(folder in there.resolve().parents for folder in OF_THE_SITE):
            continue
        assert there.exists(), target
        assert not section or section in anchors(there), target


def test_the_readme_is_a_page_that_links_to_every_guide():
    assert README.count("\n") <= 165
    for path in GUIDES.values():
        assert f"](docs/{path.name})" in README, path.name


def test_the_tests_that_pages_name_exist():
    there = [f"/{path.relative_to(ROOT)}" for path in (ROOT / "tests").rglob("test_*.py")]
    pages = "".join(page.read_text() for page in LINKED.values())
    named = re.findall(r"`((?:\w+/)*test_\w+\.py)`", pages)
    assert len(named) >= 15
    assert [file for file in named if not any(one.endswith(f"/{file}") for one in there)] == []


def test_options_of_graphgym_exist():
    pytest.importorskip("yacs")
    options_here = importlib.import_module("pyg_outerconv.graphgym").cfg.outerconv
    (text,) = re.findall(r"```yaml\n(.*?)```", GUIDES["ecosystem"].read_text(), re.DOTALL)
    options = [*re.findall(r"^  (\w+):", text.partition("outerconv:\n")[2], re.MULTILINE)]
    options += re.findall(r"\w+", text.partition("of outerattention:")[2])
    assert len(options) >= 10
    for option in options:
        assert option in options_here


def test_files_of_the_map_of_the_paper_exist():
    names = re.findall(r"`([a-z_]+/[\w./]*)`", GUIDES["paper"].read_text())
    assert len(names) > 20
    for name in names:
        assert (ROOT / "pyg_outerconv" / name).exists(), name


def test_the_picture_is_drawn_by_its_script(tmp_path):
    spec = importlib.util.spec_from_file_location("basis_picture", DOCS / "basis.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main([str(tmp_path / "basis.png")])
    for path in (tmp_path / "basis.png", DOCS / "basis.png"):
        assert 10_000 < path.stat().st_size < 80_000
        pixels = imread(path)[..., :3]
        between = np.abs(pixels - to_rgb(LINE)).max(axis=-1) < 0.1
        assert between.sum() > 3 * 12 * 200 / 2, "three matrices with six lines each way"
