"""What the algebra makes of bases, on those of every family and on drawn ones."""

from dataclasses import fields
from itertools import pairwise

import pytest
import torch
from cases import PAIRS, edges_for, over
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from pyg_outerconv import testing
from pyg_outerconv.basis import (
    Basis,
    Composed,
    EdgeBasis,
    Eye,
    Kronecker,
    Pattern,
    Polynomial,
    Restricted,
)
from pyg_outerconv.basis.products import diagonal_block
from pyg_outerconv.families import GCN, Chebyshev, Diffusion, Grid, Relation, Walk
from pyg_outerconv.testing import assert_near, awkward_structures

EDGES = awkward_structures()["multi-edge"]


def test_mean_of_a_product_is_refused_by_name_and_of_what_is_made_of_one():
    product = Relation(3).basis(EDGES).compose(GCN().basis(EDGES))
    mixing = torch.ones(1, 3, dtype=torch.float64)
    for basis in (product, product.mix(mixing), Restricted(product, None, torch.tensor([1]))):
        with pytest.raises(ValueError, match=r"a Composed does not store.*basis\.edges\(\)"):
            basis.mean()
    mixed = Relation(3, None).basis(EDGES).mix(mixing)
    counts = mixed.support().sum(1, keepdim=True).clamp(min=1)
    testing.assert_near(mixed.mean().to_dense(), mixed.to_dense() / counts)


def test_products_stay_lazy_through_the_algebra():
    gcn, walk = GCN().basis(EDGES), Walk(2).basis(EDGES)
    product = walk.compose(gcn)
    assert isinstance(product, Composed)
    assert isinstance(product.transpose(), Composed)
    assert isinstance(walk.compose(walk).transpose().base, Composed)
    assert isinstance(product.to(torch.float32), Composed)
    assert product.float().dtype == torch.float32
    assert product.restrict([1, 2]).first.base is walk
    assert isinstance(gcn.kron(walk).transpose(), Kronecker)
    moved = product.reorder()
    assert isinstance(moved.basis, Composed)
    testing.assert_near(
        moved.basis.to_dense()[:, moved.place][:, :, moved.place], product.to_dense()
    )


@pytest.mark.parametrize("nodes", [[0, 1, 3], [], [0, 1, 2, 3, 4], [2]], ids=str)
def test_a_restriction_in_order_has_the_pattern_that_sorting_makes(nodes):
    relation = Relation(3, None).basis(EDGES)
    assert relation.restrict() is relation
    for pattern in (
        relation.restrict(nodes, nodes).pattern,
        relation.restrict(nodes).pattern,
        relation.restrict(None, nodes).pattern,
    ):
        expected = Pattern.build(
            pattern.index, pattern.label, size=pattern.size, num_labels=3, origin=pattern.origin
        )
        for field in fields(Pattern):
            one, other = getattr(pattern, field.name), getattr(expected, field.name)
            same = one.equal(other) if isinstance(one, torch.Tensor) else one == other
            assert same, field.name
            assert getattr(one, "dtype", None) == getattr(other, "dtype", None), field.name


# Components {0, 1}, {2}, {3, 4, 5, 6}.
PARTS_OF_GRAPH = torch.tensor([[0, 1, 1, 3, 4, 5, 6, 4], [1, 0, 1, 4, 5, 3, 4, 6]])
TYPES_OF_PARTS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
NODES = torch.tensor([2, 3, 4, 5, 6])
SIZE_OF_PARTS = (7, 7)


def bases_of_components() -> dict[str, tuple[Basis, type[Basis]]]:
    gcn, walk = (
        GCN().basis(PARTS_OF_GRAPH, size=SIZE_OF_PARTS),
        Walk(3).basis(PARTS_OF_GRAPH, size=SIZE_OF_PARTS),
    )
    relation = Relation(3).basis(PARTS_OF_GRAPH, edge_type=TYPES_OF_PARTS, size=SIZE_OF_PARTS)
    chebyshev = Chebyshev(3).basis(PARTS_OF_GRAPH, size=SIZE_OF_PARTS)
    eye = Eye(SIZE_OF_PARTS, torch.device("cpu"))
    return {
        "edges": (relation, EdgeBasis),
        "polynomial": (chebyshev, Polynomial),
        "identity": (eye, Eye),
        "stack": (gcn.stack(walk, eye), Basis),
        "scaled": (walk.scale(0.5), Basis),
        "selected": (chebyshev.select([2, 0]), Basis),
        "mixed": (relation.mix(torch.tensor([[1.0, -1.0, 2.0]])), Basis),
        "transposed": (walk.stack(relation).transpose(), Basis),
        "composed": (relation.compose(walk), Composed),
        "composed of a narrow one": (
            relation.restrict(None, [0, 4]).compose(gcn.restrict([0, 4], None)),
            Basis,
        ),
    }


@pytest.mark.parametrize("name", bases_of_components())
def test_it_is_rows_and_columns(name: str) -> None:
    basis, kind = bases_of_components()[name]
    block = diagonal_block(basis, NODES)
    assert isinstance(block, kind)
    assert block.size == (5, 5)
    wanted = basis.to_dense(torch.float64)[:, NODES][:, :, NODES]
    assert_near(block.to_dense(torch.float64), wanted)
    x = torch.randn(5, 2, dtype=torch.float64)
    x = x.to(basis.dtype or torch.float64)
    assert_near(block.propagate(x), torch.einsum("kmn,mp->nkp", wanted.to(x), x))


@pytest.mark.parametrize("seed", range(12))
def test_a_receptive_field_is_that_of_walks(seed):
    generator = torch.Generator().manual_seed(seed)
    nodes = 3 + seed
    index = torch.randint(nodes, (2, nodes + seed % 4), generator=generator)
    adjacency = torch.zeros(nodes, nodes, dtype=torch.float64)
    adjacency[index[0], index[1]] = 1
    basis = Relation(1, None).basis(index, size=(nodes, nodes))
    targets = [0, 3] if seed % 2 else [2]
    for reach in (0, 1, 2, 3, 5, 8):
        there = (adjacency.matrix_power(reach)[:, targets] > 0).any(1)
        assert basis.receptive_field(targets, reach).equal(there.nonzero().view(-1))


def test_a_receptive_field_is_followed_until_it_stays_as_it_is():
    index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    assert Walk(1).basis(index).receptive_field(0, 10**5).tolist() == [0, 1, 2]
    assert Walk(2, powers=(2,)).basis(index).receptive_field(0, 4).tolist() == [1]
    assert Grid(3, padding=1, dim=1).basis((9,)).receptive_field(4, 10**5).tolist() == [*range(9)]


def test_as_many_places_and_axes_as_are_allowed():
    assert Grid(316, dim=2).num_bases == 316**2
    assert Grid(1, dim=64).num_bases == 1
    longest = Walk(10_000), Diffusion(length=10_000), Chebyshev(10_000)
    assert [family.num_bases for family in longest] == [10_001, 1, 10_000]


SIZES = st.integers(0, 4)


def drawn(draw, size, most=3):
    """A basis of that size: edges that may be parallel, with values that learn, or ones."""
    num_labels = draw(st.integers(1, most))
    count = draw(st.integers(0, 7)) if min(size) else 0
    seed = draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)

    def numbers(below):
        return torch.randint(max(below, 1), (count,), generator=generator)

    pattern = Pattern.build(
        torch.stack([numbers(size[0]), numbers(size[1])]),
        numbers(num_labels),
        size=size,
        num_labels=num_labels,
    )
    if draw(st.booleans()):
        return EdgeBasis(pattern)
    value = torch.randn(count, dtype=torch.float64, generator=generator)
    return EdgeBasis(pattern, value.requires_grad_())


@st.composite
def chains(draw, length, most=3):
    """Bases of which each fits the one before."""
    sizes = draw(st.lists(SIZES, min_size=length + 1, max_size=length + 1))
    return [drawn(draw, size, most) for size in pairwise(sizes)]


@st.composite
def singles(draw):
    return drawn(draw, (draw(SIZES), draw(SIZES)))


def values_of(*bases):
    return [basis.value for basis in bases if basis.value is not None]


@given(chains(2))
def test_a_composition_has_the_products_of_the_matrices(bases):
    testing.assert_compose(*bases, weights=values_of(*bases))
    testing.assert_transpose_of_product(*bases)
    testing.assert_adjoint(bases[0].compose(bases[1]))
    testing.assert_receptive_field(bases[0].compose(bases[1]))


@given(chains(3))
def test_composition_is_associative(bases):
    testing.assert_associative(*bases)


@given(singles(), singles())
def test_a_kronecker_product_has_those_of_the_matrices(first, second):
    testing.assert_kron(first, second, values_of(first, second))
    testing.assert_receptive_field(first.kron(second))


@draws(20)
@given(chains(2, most=2), chains(2, most=2))
def test_products_of_kronecker_products_are_kronecker_products_of_products(outer, inner):
    testing.assert_mixed_product(outer[0], inner[0], outer[1], inner[1])


@given(singles(), st.integers(0, 3), st.data())
def test_mixed_and_restricted_bases_are_what_they_say(basis, rows, data):
    matrix = torch.randn(rows, basis.num_bases, dtype=torch.float64, requires_grad=True)
    testing.assert_mix(basis, matrix, values_of(basis))
    chosen = [
        data.draw(st.none() | st.lists(st.integers(0, size - 1), unique=True))
        if size
        else data.draw(st.sampled_from([None, []]))
        for size in basis.size
    ]
    chosen = [None if nodes is None else torch.tensor(nodes).long() for nodes in chosen]
    testing.assert_restrict(basis, *chosen, values_of(basis))
    testing.assert_restrict(basis.mix(matrix).transpose(), *chosen[::-1], values_of(basis))


@over(PAIRS)
def test_every_family_obeys_them(family, name):
    edges = edges_for(family, name)
    basis = family.basis(edges, dtype=torch.float64)
    weights = [] if edges.edge_weight is None else [edges.edge_weight]
    sources, targets = basis.size
    transposed = basis.transpose()
    if basis.num_bases <= 4:
        testing.assert_compose(basis, transposed, weights)
        testing.assert_transpose_of_product(transposed, basis)
    small = Walk(1).basis(torch.tensor([[0, 1], [1, 1]]), dtype=torch.float64)
    testing.assert_kron(basis, small, weights)
    matrix = torch.randn(2, basis.num_bases, dtype=torch.float64, requires_grad=True)
    testing.assert_mix(basis, matrix, weights)
    rows, columns = torch.randperm(sources)[: sources // 2], torch.arange(targets) % 2 == 0
    testing.assert_restrict(basis, rows, columns, weights)
    testing.assert_restrict(transposed, None, rows, weights)
    testing.assert_receptive_field(basis)
    testing.assert_receptive_field(transposed)
