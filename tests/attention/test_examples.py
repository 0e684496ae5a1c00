"""Examples in docstrings of layers, and of what they are made of, run; and modules compile."""

import doctest
import importlib
from pathlib import Path

import pytest
import torch

import pyg_outerconv
from pyg_outerconv.attention import (
    ALiBi,
    LearnedPositions,
    RelativeBias,
    Rotary,
    SinusoidalPositions,
)

PACKAGE = Path(pyg_outerconv.__file__).parent
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for room in ("attention", "families", "graph", "nn")
    for path in sorted((PACKAGE / room).rglob("*.py"))
    if ">>>" in path.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_right(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted
    assert found.failed == 0


X = torch.randn(5, 8)
RELATIVE = torch.arange(-3.0, 4.0).unsqueeze(1)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    ("module", "given"),
    [
        (SinusoidalPositions(8), (X,)),
        (LearnedPositions(5, 8), (X,)),
        (LearnedPositions((5, 2), 8, separable=True), (X, torch.ones(5, 2))),
        (RelativeBias(3, reach=2), (RELATIVE,)),
        (RelativeBias(3, reach=16, buckets=8), (RELATIVE,)),
        (ALiBi(3), (RELATIVE,)),
        (ALiBi(3, learned=True), (RELATIVE,)),
        (Rotary(8), (X, torch.arange(5))),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_compiler_sees_one_graph(module, given):
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    assert torch.equal(compiled(*given), module(*given))
