"""Labels and nodes are chosen by indices or a mask, in their usual forms; nothing else is taken."""

import random

import numpy as np
import pytest
import torch

from pyg_outerconv.errors import RefusedIndex, RefusedType, RefusedValue
from pyg_outerconv.families import GCN, Chebyshev, Relation
from pyg_outerconv.testing import assert_near, awkward_structures

EDGES = awkward_structures()["multi-edge"]
FORMS = (
    list,
    tuple,
    torch.tensor,
    lambda labels: torch.tensor(labels, dtype=torch.int32),
    np.array,
    lambda labels: [np.int64(label) for label in labels],
    lambda labels: list(torch.tensor(labels)),
)


def bases():
    relation = Relation(3).basis(EDGES, dtype=torch.float64)
    return [
        relation,
        Chebyshev(4).basis(EDGES, dtype=torch.float64),
        relation.stack(GCN().basis(EDGES, dtype=torch.float64)).transpose(),
        relation.select([2, 0, 1]),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_indices_in_all_their_forms_are_the_same_choice(seed):
    pick = random.Random(seed)
    for basis in bases():
        count, dense = basis.num_bases, basis.to_dense()
        labels = [pick.randrange(-count, count) for _ in range(pick.randint(1, 5))]
        mask = [pick.random() < 0.5 for _ in range(count)]
        for form in FORMS:
            assert_near(basis.select(form(labels)).to_dense(), dense[labels])
        for form in (list, tuple, torch.tensor, np.array):
            assert_near(basis.select(form(mask)).to_dense(), dense[mask])
        start, stop = sorted(pick.randint(-count, count) for _ in range(2))
        assert_near(basis.select(slice(start, stop)).to_dense(), dense[start:stop])
        assert_near(basis.select(range(count)).to_dense(), dense)
        assert_near(basis.select(labels[0]).to_dense(), dense[[labels[0]]])
        nodes = pick.sample(range(5), 3)
        for form in FORMS:
            restricted = basis.restrict(form(nodes), form(nodes[:2])).to_dense()
            assert_near(restricted, dense[:, nodes][:, :, nodes[:2]])
            assert torch.equal(basis.receptive_field(form(nodes)), basis.receptive_field(nodes))


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ([1.0], RefusedType),
        ([0, 1.5], RefusedType),
        (torch.tensor([1.0]), RefusedType),
        (np.array([1.5]), RefusedType),
        (np.array(["a"]), RefusedType),
        (np.array([None]), RefusedType),
        (torch.tensor([1j]), RefusedType),
        ("01", RefusedType),
        (["0"], RefusedType),
        ({0, 1}, RefusedType),
        ({0: 1}, RefusedType),
        (1.0, RefusedType),
        (True, RefusedType),
        ([True, 1], RefusedType),
        ([None], RefusedType),
        ([[0, 1]], RefusedType),
        ((label for label in (0, 1)), RefusedType),
        (torch.tensor([[0, 1]]), RefusedValue),
        ([True, False], RefusedValue),
        (torch.ones(7, dtype=torch.bool), RefusedValue),
        ([9], RefusedIndex),
    ],
)
def test_what_is_no_choice_is_refused_with_the_rule(bad, error):
    for basis in bases():
        for call in (basis.select, basis.restrict, basis.receptive_field):
            with pytest.raises(error, match="expected .*, got "):
                call(bad)


def test_a_label_that_comes_twice_is_two_and_no_label_is_none():
    basis = bases()[0]
    assert basis.select([1, 1]).num_bases == 2
    assert basis.select([-1, 0]).matrix == (2, 0)
    for nothing in ([], (), slice(0, 0), torch.tensor([], dtype=torch.long), [False] * 3):
        assert basis.select(nothing).num_bases == 0
