"""The algebra's laws, on bases drawn at random and on those of every family."""

from itertools import pairwise

import torch
from cases import PAIRS, edges_for, over
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from pyg_outerconv import testing
from pyg_outerconv.basis import EdgeBasis, Pattern
from pyg_outerconv.families import Walk

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
