"""Every family, every law, on every awkward graph."""

from dataclasses import replace

import pytest
import torch
from cases import ALL_CASES, ALL_PAIRS, MISFITS, STRUCTURES, over, structure_for

from pyg_outerconv import testing
from pyg_outerconv.families import Walk, parse_family


def basis_of(family, name):
    return family.basis(structure_for(family, name), dtype=torch.float64)


@over(ALL_PAIRS)
def test_a_family_keeps_its_promises_and_its_basis_the_laws(family, name):
    basis = basis_of(family, name)
    assert basis.num_bases == family.num_bases == len(family.labels)
    structure = structure_for(family, name)
    assert basis.size[0] == structure.size[0]
    if family.keeps_nodes and not getattr(structure, "is_full", False):
        assert basis.size == structure.size
    assert basis.dtype in (None, torch.float64)
    assert basis.to_dense(torch.float64).shape == (basis.num_bases, *basis.size)
    assert bool(basis.to_dense(torch.float64).isfinite().all())
    testing.assert_lazy_equals_explicit(basis_of(family, name))
    testing.assert_transpose(basis_of(family, name))
    testing.assert_adjoint(basis_of(family, name))
    testing.assert_stack(basis, basis.scale(-0.5))


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_walks_are_counted_where_edges_have_no_weights(length, direction):
    edges = replace(STRUCTURES["multi-edge"], edge_weight=None, edge_type=None)
    basis = Walk(length, norm=None, direction=direction).basis(edges)
    stacked = basis.stack(basis.T)
    for lazy in (basis, stacked):
        testing.assert_near(lazy.edges().to_dense().double(), lazy.to_dense(torch.float64))


@over(MISFITS)
def test_a_pair_is_refused_by_families_of_one_set_of_nodes(family, name):
    rule = r"that are the same nodes.* for a pair .*M = \d sources and N = \d targets"
    with pytest.raises(ValueError, match=rule):
        basis_of(family, name)


@pytest.mark.parametrize("family", ALL_CASES, ids=str)
def test_text_names_the_family(family):
    assert parse_family(repr(family)) == family
