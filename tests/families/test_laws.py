"""Every family, every law: on every awkward graph, and those it declares on whatever is drawn."""

from dataclasses import dataclass

import pytest
import torch
from cases import ALL_CASES, ALL_PAIRS, MISFITS, STRUCTURES, over, structure_for
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from pyg_outerconv import testing
from pyg_outerconv.families import (
    GCN,
    Cluster,
    Full,
    Grid,
    Identity,
    Kernel,
    Pool,
    Stack,
    Walk,
    parse_family,
)
from pyg_outerconv.nn import OuterConv
from pyg_outerconv.testing import LAWS, assert_declared_laws, assert_translation_equivariant


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


@over(MISFITS)
def test_a_pair_is_refused_by_families_of_one_set_of_nodes(family, name):
    rule = r"that are the same nodes.* for a pair .*M = \d sources and N = \d targets"
    with pytest.raises(ValueError, match=rule):
        basis_of(family, name)


@pytest.mark.parametrize("family", ALL_CASES, ids=str)
def test_text_names_the_family(family):
    assert parse_family(repr(family)) == family


KERNELS = [
    Kernel(torch.nn.Linear(2, 3).double(), 3),
    Stack(Kernel(torch.nn.Linear(2, 1).double(), 1), Identity()),
]
GRIDS = [
    Grid((3, 3), padding=1, padding_mode="circular"),
    Grid((3, 2), (2, 3), 1, padding_mode=("circular", "zeros"), growth="full"),
    Grid(4, 2, padding_mode="circular", transposed=True, growth="full", dim=1),
    Grid((3, 3, 2), padding="same"),
    Grid(offsets=((0,), (5,), (-3,)), padding_mode="circular"),
]


@pytest.mark.parametrize("family", [*ALL_CASES, *KERNELS, *GRIDS], ids=repr)
@draws(8)
@given(seed=st.integers(0, 2**31))
def test_declared_laws_hold(family, seed):
    assert_declared_laws(family, seed)


def test_families_declare_the_symmetries_that_all_their_parts_have():
    for family in (GCN(), Walk(2), Identity(), Stack(GCN(), Identity()), *KERNELS):
        assert "permutation-equivariant" in family.laws
    for family in (Grid(3, dim=1), Pool(2, dim=1)):
        assert "translation-equivariant" in family.laws
        assert "permutation-equivariant" not in family.laws
    for family in (Stack(Grid(3, dim=1), Identity()), Full((2, 2)), Cluster()):
        assert not set(family.laws) & {"permutation-equivariant", "translation-equivariant"}
    assert {law for family in ALL_CASES for law in family.laws} == set(LAWS)


def test_structures_are_of_two_sets_of_nodes_where_their_names_say_so():
    for name, edges in STRUCTURES.items():
        assert edges.bipartite is ("rectangular" in name or "pair" in name)


@dataclass(frozen=True)
class Numbered(GCN):
    """A family that breaks what it declares: it looks at the numbers of nodes."""

    def basis_on(self, structure, dtype=None):
        """Weights that are the number of their source."""
        edges = super().basis_on(structure, dtype)
        return edges.with_values(edges.index[0].to(edges.dtype))


def test_a_law_that_does_not_hold_is_named():
    with pytest.raises(AssertionError, match=r"Numbered.* is not permutation-equivariant"):
        for seed in range(20):
            assert_declared_laws(Numbered(), seed)


def test_what_depends_on_the_place_is_not_translation_equivariant():
    class Placed(OuterConv):
        """A layer that adds the number of each cell."""

        def forward(self, x, edge_index):
            """The convolution, and the numbers."""
            out = super().forward(x, edge_index)
            return out + torch.arange(len(out)).unsqueeze(-1)

    conv, x = Placed(2, 2, Grid((3, 3), padding=1)).double(), torch.randn(81, 2).double()
    with pytest.raises(AssertionError):
        assert_translation_equivariant(conv, x, (9, 9), (1, 0))
    assert_translation_equivariant(OuterConv(2, 2, conv.family).double(), x, (9, 9), (1, 0))


def test_nothing_to_compare_is_no_proof():
    conv, x = OuterConv(2, 2, Grid((3, 3), padding=1)).double(), torch.randn(9, 2).double()
    with pytest.raises(AssertionError, match="no output"):
        assert_translation_equivariant(conv, x, (3, 3), (2, 0))
