"""What stands beside the code says what the code and its bounds are: no two places disagree."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import pyg_outerconv
from pyg_outerconv.lab.fields import read_toml

ROOT = Path(__file__).resolve().parents[1]
PROJECT = read_toml(ROOT / "pyproject.toml")["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
OLDEST = "3.10"


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def jobs():
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            yield f"{path.stem}: {name}", job


def lower_bounds(lines):
    """The lowest version of each package that lines of pyproject.toml admit."""
    for one in map(Requirement, lines):
        if one.specifier:
            (bound,) = one.specifier
            assert bound.operator == ">=", f"{one}: a bound from above has a reason beside it"
            yield one.name, bound.version


def pinned(name):
    """The versions of a file of constraints."""
    lines = [line for line in read(name).splitlines() if line and not line.startswith("#")]
    return {one.name: next(iter(one.specifier)).version for one in map(Requirement, lines)}


def numbers(version):
    """A version as numbers, without zeros at its end."""
    release = [int(part) for part in version.split(".")]
    while release and release[-1] == 0:
        release.pop()
    return release


def test_the_oldest_versions_are_the_bounds_of_the_core_and_of_training_and_search():
    extra = PROJECT["optional-dependencies"]
    bounds = lower_bounds([*PROJECT["dependencies"], *extra["train"], *extra["search"]])
    oldest = pinned("constraints-oldest.txt")
    for name, version in bounds:
        assert numbers(oldest[name]) == numbers(version), name


def test_a_package_has_one_bound_in_all_extras():
    lines = sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])
    bounds = list(lower_bounds(lines))
    assert len(dict(bounds)) == len(set(bounds))


def test_pythons_are_those_of_the_matrix():
    (job,) = (job for name, job in jobs() if name == "tests: pairs")
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == classified
    assert PROJECT["requires-python"] == f">={OLDEST}"
    assert classified[0] == OLDEST
    assert all(int(b.split(".")[1]) - int(a.split(".")[1]) == 1 for a, b in pairwise(classified))


@pytest.mark.parametrize(
    ("name", "job"), list(jobs()), ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_job_has_a_limit_and_actions_that_cannot_change(name, job):
    assert job["timeout-minutes"] <= 180
    for step in job["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", step["uses"])


def test_files_that_workflows_name_are_there():
    text = "\n".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    named = set(re.findall(r"(?:-c |python3? (?:-I )?(?:\.\./)?)([\w/-]+\.(?:txt|py))", text))
    constraints = {"constraints.txt", "constraints-oldest.txt"}
    assert named == constraints | {"tests/smoke.py", "site/versions.py"}
    assert all((ROOT / one).is_file() for one in named)
    asked = set(re.findall(r"run: make ([\w-]+)", text))
    assert asked == {"test", "build", "docs", "links"}
    assert asked <= set(re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE))
    rooms = set(re.findall(r" (tests/\w+)\b(?!/|\.)", text))
    assert rooms
    assert all((ROOT / one).is_dir() for one in rooms)
    extras = set(re.findall(r"'\.\[([\w,]+)\]'", text))
    assert {one for asked in extras for one in asked.split(",")} <= set(
        PROJECT["optional-dependencies"]
    )


def test_one_version_stands_everywhere():
    version = pyg_outerconv.__version__
    citation = yaml.safe_load(read("CITATION.cff"))
    assert (citation["title"], citation["version"]) == (pyg_outerconv.__name__, version)
    assert citation["license"] == PROJECT["license"]
    assert [one["name"] for one in citation["authors"]] == [
        one["name"] for one in PROJECT["authors"]
    ]
    top = re.search(r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", read("CHANGELOG.md"), re.M)
    assert top.group(1) == version


def test_the_changelog_names_what_this_version_needs():
    needs = re.search(r"\*\*Needs\*\*(.*?), or newer", read("CHANGELOG.md"), re.DOTALL).group(1)
    words = " ".join(needs.split())
    for name, version in [("Python", OLDEST), *lower_bounds(PROJECT["dependencies"])]:
        assert f"{name} {version}" in words


def test_hooks_are_of_the_versions_that_tests_run_with():
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    (ruff,) = (one for one in hooks if one["repo"].endswith("ruff-pre-commit"))
    assert ruff["rev"] == f"v{pinned('constraints.txt')['ruff']}"
