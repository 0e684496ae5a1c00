"""Families are read from text, and what a text must have is said where it lacks it."""

from __future__ import annotations

from dataclasses import MISSING

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
from pyg_outerconv.lab.train.family_options import (
    any_family,
    defaults,
    describe_family,
    make_family,
    needs_python,
    short_name,
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gcn", GCN()),
        ("GCN(norm='target', add_self_loops=False)", GCN(norm="target", add_self_loops=False)),
        ("walk(3, norm=None)", Walk(3, norm=None)),
        ("chebyshev(2, 2)", Chebyshev(2, 2)),
        ("relation", Relation(7)),
        ("relation(9, None)", Relation(9, None)),
        ("stack(gcn, walk(1))", Stack(GCN(), Walk(1))),
        ("identity", Identity()),
    ],
)
def test_text_makes_families(text: str, wanted: Family) -> None:
    assert make_family(text, num_relations=7) == wanted
    assert make_family(text, directed=True, num_relations=7) == Directed(wanted)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wolk", "did you mean 'walk'"),
        ("full", "must be told size: expected full(size=...)"),
        ("gcn(", "walk"),
    ],
)
def test_bad_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="expected") as refused:
        make_family(text)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("family", "wanted"),
    [
        (GCN(), "gcn"),
        (Walk(2), "walk(length=2)"),
        (Walk(3, norm=None), "walk(length=3, norm=None)"),
        (Directed(), "directed"),
        (Directed(Walk(1)), "directed(walk(length=1))"),
        (Stack(GCN(norm="target"), Identity()), "stack(gcn(norm='target'), identity)"),
    ],
)
def test_short_names_name_the_family(family: Family, wanted: str) -> None:
    assert short_name(family) == wanted
    assert parse_family(wanted) == family


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_its_defaults(name: str) -> None:
    family = FAMILIES[name]
    if family in (Stack, Union, Directed):
        assert defaults(family) == {}
    elif needs_python(family):
        with pytest.raises(ValueError, match=rf"expected {family.__name__}\(...\) in Python"):
            make_family(name)
    elif MISSING in defaults(family).values() or family in (Explicit, Grid):
        with pytest.raises(ValueError, match="must be told|its number of axes|one of window"):
            make_family(name)
    else:
        assert family(**defaults(family)) == family()


def test_families_of_content_are_for_training_alone() -> None:
    for text in ("linearattention(2, 4)", "stack(gcn, linearattention(2, 4))", "gat", "gat(2)"):
        assert make_family(text).makes_use_of("x")
        with pytest.raises(ValueError, match="without features: .* got .*(linear_attention|gat)"):
            any_family(text, {})


def test_families_of_grids_are_refused_for_graphs() -> None:
    with pytest.raises(ValueError, match=r"families of edges: .* got pool\(window=\(2, 2\)"):
        make_family("pool((2, 2))")


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_description_stands_alone(name: str) -> None:
    assert "above" not in describe_family(name)
