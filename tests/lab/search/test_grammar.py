"""The grammar of bases: each mix is a family that training takes, with the matrices it names."""

from itertools import product

import pytest
import torch

from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.families import parse_family
from pyg_outerconv.lab import data
from pyg_outerconv.lab.family_options import make_family
from pyg_outerconv.lab.search.space import (
    BOTH,
    DIRECTIONS,
    FORWARD,
    HEADS,
    MOST_STEPS,
    NEIGHBOURS,
    NONE,
    REVERSE,
    Mix,
    neighbours_for,
    stacked,
    terms_of,
    terms_text,
)

EDGES = torch.tensor([[0, 1, 2, 3, 3, 1], [1, 2, 0, 0, 2, 3]])
N = 4


def dense(text):
    made = parse_family(text)
    return made.basis_of(
        data.load("KarateClub").data.__class__(edge_index=EDGES, num_nodes=N)
    ).to_dense()


def adjacency():
    a = torch.zeros(N, N)
    a[EDGES[0], EDGES[1]] = 1.0
    return a


@pytest.mark.parametrize("neighbours", [NONE, *NEIGHBOURS])
def test_every_mix_is_a_family_that_training_takes(neighbours):
    for direction, high_pass, heads, identity, steps in product(
        DIRECTIONS, (False, True), HEADS, (False, True), range(1, MOST_STEPS + 1)
    ):
        mix = Mix(neighbours, steps, direction, high_pass, heads, identity)
        made = make_family(mix.text)
        ways = 2 if direction == BOTH else 1
        labels = ways * (steps * (neighbours != NONE) + high_pass + heads)
        assert made.num_bases == (labels + identity or 1)
        assert parse_family(terms_text(repr(made))) == made
        assert parse_family(stacked(terms_of(repr(made)))) == made
        assert len(terms_of(repr(made))) == len(mix.terms)


def test_matrices_of_the_terms():
    a = adjacency()
    mean = a / a.sum(0, keepdim=True)
    walk = a / a.sum(1, keepdim=True)
    loops = a + torch.eye(N)
    scale = loops.sum(0).rsqrt()
    gcn = scale[:, None] * loops * scale[None]
    for name, step in {"mean": mean, "walk": walk, "sum": a, "gcn": gcn}.items():
        for steps in (1, 2):
            found = dense(Mix(name, steps, identity=False).text)
            wanted = torch.stack([torch.linalg.matrix_power(step, n + 1) for n in range(steps)])
            torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(
        dense(Mix(high_pass=True, identity=False).text)[0], torch.eye(N) - gcn
    )


def test_directions_turn_the_edges():
    forward, reverse, both = (
        dense(Mix("mean", direction=way, identity=False).text) for way in (FORWARD, REVERSE, BOTH)
    )
    against = adjacency().t()
    torch.testing.assert_close(reverse[0], against / against.sum(0, keepdim=True))
    torch.testing.assert_close(both, torch.cat([forward, reverse]))


def test_a_mix_without_terms_is_the_identity():
    assert Mix(identity=False).text == "identity"
    assert stacked([]) == "identity"


@pytest.mark.parametrize(
    "wrong", [{"neighbours": "cousins"}, {"direction": "up"}, {"steps": 4}, {"heads": 3}]
)
def test_what_is_no_mix_is_refused(wrong):
    with pytest.raises(RefusedValue, match=next(iter(wrong))):
        Mix(**wrong)


def test_relations_stand_where_edges_have_types():
    karate = data.load("KarateClub")
    assert neighbours_for(karate) == (NONE, *NEIGHBOURS)
    karate.data.edge_type = torch.arange(karate.data.num_edges) % 3
    assert "relation" in neighbours_for(karate)
    assert make_family(Mix("relation", num_relations=3).text).num_bases == 4
