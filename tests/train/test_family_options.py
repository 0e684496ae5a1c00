"""Flags of families come from their fields, and values are checked against their types."""

from __future__ import annotations

import argparse
from dataclasses import MISSING
from typing import Any

import pytest

from pyg_outerconv.families import (
    FAMILIES,
    GCN,
    Chebyshev,
    Directed,
    Explicit,
    Family,
    Grid,
    Identity,
    Relation,
    Stack,
    Union,
    Walk,
    parse_family,
)
from pyg_outerconv.train.family_options import (
    add_flags,
    defaults,
    given,
    make_family,
    needs_python,
    short_name,
)


def parse(line: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return given(parser.parse_args(line))


@pytest.mark.parametrize(
    ("name", "line", "wanted"),
    [
        ("gcn", [], GCN()),
        ("GCN", ["--norm", "rw", "--no-add-self-loops"], GCN(norm="rw", add_self_loops=False)),
        ("walk", ["--length", "3", "--norm", "none"], Walk(3, norm=None)),
        (
            "walk",
            ["--powers", "0,2", "--direction", "both"],
            Walk(2, direction="both", powers=(0, 2)),
        ),
        ("walk", ["--powers", "1"], Walk(2, powers=(1,))),
        ("chebyshev", ["--num-terms", "2", "--lambda-max", "2"], Chebyshev(2, 2)),
        ("chebyshev", ["--lambda-max", "bound"], Chebyshev(lambda_max="bound")),
        ("relation", [], Relation(7)),
        ("relation", ["--num-relations", "9", "--norm", "sum"], Relation(9, "sum")),
        ("stack(gcn, walk(1))", [], Stack(GCN(), Walk(1))),
        ("identity", [], Identity()),
    ],
)
def test_flags_make_families(name: str, line: list[str], wanted: Family) -> None:
    assert make_family(name, parse(line), num_relations=7) == wanted
    assert make_family(name, parse(line), directed=True, num_relations=7) == Directed(wanted)


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("wolk", [], "did you mean 'walk'"),
        ("walk", ["--improved"], "--length, --norm, --direction"),
        ("identity", ["--norm", "sym"], "no flags"),
        ("walk", ["--length", "two"], "expected integer, got 'two'"),
        ("walk", ["--length", "2.5"], "expected integer, got '2.5'"),
        ("walk", ["--length", "True"], "expected integer, got 'True'"),
        ("walk", ["--powers", "0,x"], "integers with commas or none"),
        ("gcn(norm='rw')", ["--improved"], "not both"),
        ("gcn(", [], "walk"),
    ],
)
def test_bad_flags_are_refused(name: str, line: list[str], words: str) -> None:
    with pytest.raises(ValueError, match="expected") as refused:
        make_family(name, parse(line))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("family", "wanted"),
    [
        (GCN(), "gcn"),
        (Walk(2), "walk(length=2)"),
        (Walk(3, norm=None), "walk(length=3, norm=None)"),
        (Directed(), "directed"),
        (Directed(Walk(1)), "directed(walk(length=1))"),
        (Stack(GCN(norm="rw"), Identity()), "stack(gcn(norm='rw'), identity)"),
    ],
)
def test_short_names_name_the_family(family: Family, wanted: str) -> None:
    assert short_name(family) == wanted
    assert parse_family(wanted) == family


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_its_flags(name: str) -> None:
    family = FAMILIES[name]
    if family in (Stack, Union, Directed):
        assert defaults(family) == {}
    elif needs_python(family):
        with pytest.raises(ValueError, match=rf"expected {family.__name__}\(...\) in Python"):
            make_family(name, {})
    elif MISSING in defaults(family).values() or family in (Explicit, Grid):
        with pytest.raises(ValueError, match="must be told|one of kernel_size and offsets"):
            make_family(name, {})
    else:
        assert family(**defaults(family)) == family()


def test_families_of_content_are_refused() -> None:
    for text in ("linearattention(2, 4)", "stack(gcn, linearattention(2, 4))"):
        with pytest.raises(ValueError, match="without features: .* got .*linearattention"):
            make_family(text, {})


def test_families_of_grids_are_refused_for_graphs() -> None:
    with pytest.raises(ValueError, match=r"families of edges: .* got pool\(kernel_size=\(2, 2\)"):
        make_family("pool((2, 2))", {})
