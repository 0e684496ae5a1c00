"""Importing the package does nothing but import."""

import ast
import importlib
from pathlib import Path

import pyg_outerconv

ROOT = Path(__file__).resolve().parents[1]

CODE = """
import random, sys, warnings
import torch, torch_geometric.nn
from importlib.machinery import all_suffixes

opened, imported = [], tuple(all_suffixes())
sys.addaudithook(lambda event, found: opened.append(str(found[0])) if event == "open" else None)


def state():
    return list(warnings.filters), torch.get_rng_state().tolist(), random.getstate()


def unchanged(before):
    assert warnings.filters == before[0], "a warning filter was set, scipy.sparse sets one"
    assert state()[1:] == before[1:], "a number was drawn"


modules, before = set(sys.modules), state()
opened.clear()
import pyg_outerconv.nn
files = [name for name in opened if not name.endswith(imported)]
assert not files, files
unchanged(before)
brought = {name.split(".")[0] for name in set(sys.modules) - modules}
assert brought == {"pyg_outerconv"}, brought

import numpy, scipy.sparse
import torch_geometric.transforms, torch_geometric.data, torch_geometric.utils
before = state()
opened.clear()
import pyg_outerconv.attention, pyg_outerconv.lab.cli
unchanged(before)
own = sys.prefix, sys.base_prefix  # of Python and its packages, which torch looks into
files = [name for name in opened if not name.endswith(imported) and not name.startswith(own)]
assert not files, files
"""


def test_an_import_brings_no_other_package_reads_no_file_and_changes_no_setting(fresh, tmp_path):
    done = fresh(CODE, HOME=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")
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
