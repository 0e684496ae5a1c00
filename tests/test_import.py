"""Importing the package does nothing but import."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pyg_outerconv

ROOT = Path(__file__).resolve().parents[1]

CODE = """
import importlib.machinery, random, sys, warnings
import numpy, scipy.sparse, torch, torch_geometric, torch_geometric.nn, torch_geometric.utils
import torch_geometric.transforms, torch_geometric.data
opened = []
imported = tuple(importlib.machinery.all_suffixes())

def hear(event, arguments):
    if event == "open":
        opened.append(str(arguments[0]))

before = list(warnings.filters), torch.get_rng_state(), random.getstate()
sys.addaudithook(hear)
import pyg_outerconv.nn, pyg_outerconv.attention, pyg_outerconv.cli
assert warnings.filters == before[0], "a warning filter was set"
assert torch.equal(torch.get_rng_state(), before[1]), "a number was drawn"
assert random.getstate() == before[2], "a number was drawn"
own = sys.prefix, sys.base_prefix  # of Python and its packages, which torch looks into
files = [name for name in opened if not name.endswith(imported) and not name.startswith(own)]
assert not files, files
"""


def test_an_import_reads_no_file_and_changes_no_setting(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "HOME": str(tmp_path),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    assert done.returncode == 0, done.stderr


def test_an_import_brings_no_other_package_and_reads_none():
    code = """
import sys, warnings
import torch_geometric.nn
modules, filters, opened = set(sys.modules), list(warnings.filters), []
sys.addaudithook(lambda event, found: opened.append(str(found[0])) if event == "open" else None)
import pyg_outerconv.nn
read = [name for name in opened if not name.endswith((".py", ".pyc"))]
assert not read, read
assert warnings.filters == filters, "scipy.sparse sets one"
brought = {name.split(".")[0] for name in set(sys.modules) - modules}
assert brought == {"pyg_outerconv"}, brought
"""
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_names_are_those_that_type_checkers_see():
    names = {}
    source = ast.parse((ROOT / "pyg_outerconv" / "__init__.py").read_text())
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom) and node.level:
            module = importlib.import_module(f"pyg_outerconv.{node.module}")
            names |= {alias.name: getattr(module, alias.name) for alias in node.names}
    assert set(names) | {"__version__"} == set(pyg_outerconv.__all__)
    for name, value in names.items():
        assert getattr(pyg_outerconv, name) is value
