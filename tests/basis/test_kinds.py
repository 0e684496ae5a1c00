"""What a kind of basis does in its own way is what its matrices do, and a new kind needs no way."""

import copy
import operator
import pickle
from dataclasses import dataclass

import pytest
import torch
from attention_bases import Shares, attention_basis, heads_of, pattern_of
from feature_products import feature_product
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from pyg_outerconv.basis import (
    Band,
    Basis,
    ChannelPolynomial,
    EdgeBasis,
    Eye,
    Pattern,
    Repeated,
    Restricted,
    SameBlock,
    Transposed,
    UnitMatrices,
    to_networkx,
    to_scipy,
    to_torch_sparse,
)
from pyg_outerconv.basis.algebra import is_identity, transposed
from pyg_outerconv.basis.edge_sets import drop_edges, hidden_part, reached
from pyg_outerconv.basis.grid_shift import Axis, GridShift
from pyg_outerconv.basis.multi_head_edges import item
from pyg_outerconv.basis.products import factors
from pyg_outerconv.contract import contract
from pyg_outerconv.contract.orders.products import sparse_products
from pyg_outerconv.families import GCN, Chebyshev, Relation, Walk
from pyg_outerconv.nn import OuterConv
from pyg_outerconv.nn.messages import convolve_by_messages
from pyg_outerconv.plot.shapes import grids_of
from pyg_outerconv.testing import (
    assert_adjoint,
    assert_contraction,
    assert_lazy_equals_explicit,
    assert_near,
    assert_receptive_field,
    assert_stack,
    assert_transpose,
    awkward_structures,
)
from pyg_outerconv.theta import as_theta

EDGES = awkward_structures()["multi-edge"]
CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False, repr=False)
class Ring(Basis):
    """Every node sees the next one; all that a new kind has to say."""

    nodes: int

    @property
    def num_bases(self):
        return 1

    @property
    def size(self):
        return self.nodes, self.nodes

    def edges(self):
        nodes = torch.arange(self.nodes)
        return EdgeBasis(Pattern.build(torch.stack([nodes.roll(-1), nodes]), size=self.size))


@dataclass(frozen=True, eq=False, repr=False)
class Diagonals(Basis):
    """A diagonal matrix before and one behind another basis; what is not said follows."""

    base: Basis
    ends: tuple[Basis, ...]
    values: torch.Tensor

    @property
    def num_bases(self):
        return self.base.num_bases

    @property
    def size(self):
        return self.base.size

    def edges(self):
        first, last = (end.edges() for end in self.ends)
        return first.compose(self.base.edges()).compose(last).scale(self.values).edges()


def kinds():
    torch.manual_seed(0)
    families = Relation(3), Walk(2), Chebyshev(3)
    relation, walk, chebyshev = (family.basis(EDGES) for family in families)
    nodes, factors = relation.size[0], torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    pattern = relation.pattern
    grid = GridShift(
        on=CPU,
        axes=(Axis(4, 4, (-1, 1)), Axis(3, 2, (0, 1), stride=2, padding_mode="circular")),
        taps=((0, 1), (1, 0), (1, 1)),
    )
    return {
        "new": Ring(5),
        "edges": relation,
        "polynomial": chebyshev,
        "polynomials of channels": ChannelPolynomial(
            chebyshev.operator, *torch.randn(3, 3, 2, dtype=torch.float64)
        ),
        "identity": Eye((5, 5), CPU),
        "wide identity": Eye((3, 5), CPU),
        "grid": grid,
        "turned grid": grid.transpose(),
        "band": Band(6, 5, left=2, right=1, on=CPU),
        "blocks": SameBlock(torch.tensor([0, 1, 0, -1]), torch.tensor([1, 0, 2])),
        "units": UnitMatrices((2, 3), on=CPU),
        "heads": heads_of(pattern, 6)[0],
        "attention": attention_basis(pattern, 6, present=True)[0],
        "heads of two sets": heads_of(pattern_of("rectangular", 3), 6)[0],
        "attention by another f": attention_basis(pattern, 3, normalise=Shares(is_softmax=False))[
            0
        ],
        "factors": feature_product((4, 6)),
        "factors of a sequence": feature_product((5, 5), causal="inclusive"),
        "factors of graphs": feature_product((4, 5), blocks=True, causal="inclusive"),
        "stack": relation.stack(chebyshev, Eye(relation.size, CPU)),
        "scaled": chebyshev.scale(factors),
        "mixed": relation.mix(factors.expand(2, 3)),
        "selected": chebyshev.select([1, 0, 1]),
        "selected edges": relation.select([2, 2]),
        "transposed": Transposed(relation.stack(walk)),
        "transposed product": Transposed(relation.compose(chebyshev)),
        "composed": relation.compose(walk),
        "kronecker": relation.kron(Ring(3)),
        "repeated": Repeated(chebyshev, before=2, after=2),
        "restricted": Restricted(chebyshev, torch.arange(nodes - 1), None),
    }


def compounds():
    """Bases that the algebra makes of others, of each other too; factors of some learn."""
    relation, walk = Relation(3).basis(EDGES), Walk(2).basis(EDGES)
    chebyshev, gcn = Chebyshev(3).basis(EDGES), GCN().basis(EDGES)
    factors = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    return {
        "stack of stacks": relation.stack(walk.stack(gcn), chebyshev),
        "scaled polynomial": walk.scale(factors),
        "scaled scaled edges": relation.scale(2.0).scale(factors),
        "edges selected twice": relation.select([2, 0, 2]),
        "selected polynomial": chebyshev.select([2, 2, 0]),
        "selected slice": walk.stack(gcn).select(slice(1, None, 2)),
        "selected from the end": walk.select(-1),
        "transposed stack": walk.stack(relation).transpose(),
        "transposed scaled selected": chebyshev.select([1, 0]).scale(3.0).transpose(),
        "selected transposed": relation.transpose().select([1, 1]),
        "mixed, turned": relation.mix(factors.expand(2, 3)).scale(2.0).transpose(),
        "mixed polynomial": chebyshev.mix(torch.eye(3, dtype=torch.float64)[[2, 0]]).select([1, 0]),
        "composed of a stack": relation.compose(chebyshev.stack(gcn)),
        "selected from a composition": gcn.compose(walk).select([2, 0]).scale(0.5),
        "kronecker of a selection": gcn.kron(relation.select([0, 2])),
        "repeated both ways": Repeated(relation, before=2, after=3),
        "restricted stack": walk.stack(relation).restrict([4, 1, 0], [3, 0]),
        "restricted twice": chebyshev.restrict([4, 1, 0], None).restrict([2, 0], [1, 2, 4]),
        "restricted, transposed": relation.compose(walk).transpose().restrict(None, [2, 3]),
        "transposed twice": relation.stack(walk).transpose().select([4, 0]).transpose(),
    }


OPEN = {  # those of which everybody knows the edges
    *("new", "edges", "identity", "wide identity", "grid", "turned grid", "band", "blocks"),
    *("units", "heads", "heads of two sets", "attention", "attention by another f", "mixed"),
    "selected edges",
}
every_kind = pytest.mark.parametrize("name", kinds())
every_basis = pytest.mark.parametrize("name", [*kinds(), *compounds()])


def basis_of(name):
    """A kind of basis, or a compound."""
    return (kinds() | compounds())[name]


@every_basis
def test_the_laws_of_bases_hold(name):
    basis = basis_of(name)
    laws = assert_lazy_equals_explicit, assert_transpose, assert_adjoint, assert_receptive_field
    for law in laws:
        law(basis)
    assert_stack(basis, basis.scale(2.0))
    x = torch.randn(basis.size[0], 4, dtype=torch.float64, requires_grad=True)
    theta = torch.randn(basis.num_bases, 1, 4, 3, dtype=torch.float64, requires_grad=True)
    assert_contraction(basis, x, theta)


@every_basis
def test_it_is_moved_cast_pickled_copied_and_printed(name):
    basis = basis_of(name).detach()
    assert not basis.learns
    dense = basis.to_dense(torch.float64)
    for twin in (
        pickle.loads(pickle.dumps(basis)),
        copy.deepcopy(basis),
        basis.cpu(),
        basis.to("cpu", torch.float64),
        basis.double(),
    ):
        assert type(twin) is type(basis)
        assert_near(twin.to_dense(torch.float64), dense)
    if basis.dtype is not None:
        assert basis.half().dtype == torch.float16
        single = basis.float()
        assert single.dtype == single.to_dense().dtype == torch.float32
        assert_near(single.to_dense(), dense.float(), 1e-5)
    with pytest.raises(TypeError, match="floating point"):
        basis.to(torch.int64)
    assert f"size={basis.size}" in repr(basis) or isinstance(basis, Repeated)
    assert repr(basis).startswith(type(basis).__name__)


@pytest.mark.parametrize("name", ["grid", "turned grid", "band", "blocks", "units"])
def test_a_rule_is_moved_and_pickled_without_the_edges_that_it_has_made(name):
    rule = kinds()[name]
    assert rule.to("cpu") is rule
    assert rule.double() is rule
    assert rule.to("meta").device.type == "meta"
    assert not rule.has_edges
    rule.edges()
    assert not any(
        twin.has_edges for twin in (copy.deepcopy(rule), pickle.loads(pickle.dumps(rule)))
    )


@every_basis
def test_it_is_a_tree_of_its_tensors(name):
    basis = basis_of(name)
    leaves, tree = tree_flatten(basis)
    assert all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    again = tree_unflatten(leaves, tree)
    assert type(again) is type(basis)
    assert again.size == basis.size
    assert (again.nesting, again.pieces) == (basis.nesting, basis.pieces)
    assert_near(again.to_dense(torch.float64), basis.to_dense(torch.float64))
    doubled = tree_map(lambda leaf: 2 * leaf if leaf.is_floating_point() else leaf, basis)
    assert (doubled.nesting, doubled.pieces) == (basis.nesting, basis.pieces)
    if type(basis) is EdgeBasis:
        assert_near(doubled.to_dense(), 2 * basis.to_dense())


@pytest.mark.parametrize("leaf", [0, None], ids=str)
@every_basis
def test_a_tree_of_anything_else_is_flattened_again_as_it_was(name, leaf):
    leaves, tree = tree_flatten(basis_of(name))
    others, same = tree_flatten(tree_map(lambda _: leaf, tree_unflatten(leaves, tree)))
    assert others == [leaf] * len(leaves)
    assert same == tree
    assert all(map(operator.is_, tree_flatten(tree_unflatten(leaves, same))[0], leaves))


@every_basis
def test_it_leaves_by_every_door(name):
    basis = basis_of(name).detach()
    dense = basis.to_dense(torch.float64)
    with torch.sparse.check_sparse_tensor_invariants():
        matrices = to_torch_sparse(basis)
    for label, (sparse, scipy) in enumerate(zip(matrices, to_scipy(basis), strict=True)):
        assert_near(sparse.to_dense().t().double(), dense[label])
        assert_near(torch.from_numpy(scipy.toarray()).double(), dense[label])
    if basis.size[0] == basis.size[1]:
        assert to_networkx(basis).number_of_nodes() == basis.size[0]


@every_basis
def test_features_are_propagated_as_by_matrices(name):
    basis = basis_of(name)
    dense = basis.to_dense(torch.float64)
    x = torch.randn(basis.size[0], 2, dtype=torch.float64)
    assert_near(basis.propagate(x), torch.einsum("kmn,mp->nkp", dense, x))
    wide = torch.randn(basis.size[0], 3, 2, dtype=torch.float64)
    assert_near(basis.propagate(wide), torch.einsum("kmn,mbp->nkbp", dense, wide))


@every_basis
def test_every_product_of_propagation_is_told(name):
    basis = basis_of(name)
    for part, shape, learns in sparse_products(basis, (basis.size[0], 2), False):
        assert part.size[0] == shape[0]
        assert not learns or basis.learns


@every_basis
def test_what_is_absorbed_is_still_there(name):
    basis = basis_of(name)
    theta = torch.randn(basis.num_bases, 1, 2, 3, dtype=torch.float64)
    actual = sum(
        torch.einsum("kmn,kgpq->mngpq", leaf.to_dense(torch.float64), part.full())
        for leaf, part in basis.absorb(as_theta(theta))
    )
    dense = basis.to_dense(torch.float64)
    assert_near(actual, torch.einsum("kmn,kgpq->mngpq", dense, theta))
    x = torch.randn(basis.size[0], 2, dtype=torch.float64)
    assert_near(contract(basis, x, theta), torch.einsum("kmn,mp,kpq->nq", dense, x, theta[:, 0]))


@every_basis
def test_what_is_turned_is_the_transpose(name):
    basis = basis_of(name)
    dense = basis.to_dense(torch.float64).transpose(1, 2)
    assert not isinstance(transposed(basis), Transposed), "one level further in"
    for turned in (transposed(basis), basis.transpose()):
        assert turned.size == basis.size[::-1]
        assert_near(turned.to_dense(torch.float64), dense)


@every_basis
def test_rows_and_columns_are_those_of_the_matrices(name):
    basis = basis_of(name)
    dense = basis.to_dense(torch.float64)
    rows, columns = torch.tensor([2, 0]), torch.tensor([1, 2])
    if min(basis.size) < 3:
        rows, columns = rows[1:], columns[:1]
    actual = basis.restrict(rows, columns).to_dense(torch.float64)
    assert_near(actual, dense[:, rows][:, :, columns])
    assert_near(basis.restrict(None, columns).to_dense(torch.float64), dense[:, :, columns])
    assert basis.restrict() is basis


@every_basis
def test_what_is_reached_is_where_edges_run(name):
    basis = basis_of(name)
    support = basis.support()
    for labels in ([0], list(range(basis.num_bases)), []):
        for forwards in (False, True):
            here = basis.size[0 if forwards else 1]
            seen = torch.rand(here) < 0.4
            along = support[labels].any(0)
            along = along[seen].any(0) if forwards else along[:, seen].any(1)
            assert torch.equal(reached(basis, seen, labels, forwards), along), (labels, forwards)


@every_kind
def test_what_hides_edges_is_found_inside(name):
    basis = kinds()[name]
    hidden = hidden_part(basis)
    assert hidden is None or hidden.hides_edges
    assert (hidden is not None) == (name not in OPEN)
    assert is_identity(basis) == ("identity" in name)


def test_where_a_basis_is_and_whether_it_learns_follow_from_its_fields():
    ring, eye = Ring(3), Eye((3, 3), CPU)
    assert (ring.device, ring.dtype, ring.learns) == (CPU, None, False)
    values = torch.tensor([2.0], requires_grad=True)
    basis = Diagonals(ring, (eye, eye), values)
    assert (basis.device, basis.dtype, basis.learns) == (CPU, torch.float32, True)
    assert basis.double().dtype == torch.float64
    assert basis.double().base is ring
    assert not basis.detach().learns
    assert Diagonals(eye, (eye, eye), values).to("meta").device.type == "meta"
    learned = EdgeBasis(ring.edges().pattern, torch.ones(3, dtype=torch.float64).requires_grad_())
    for parts in ((learned, (eye, eye)), (ring, (eye, learned))):
        inside = Diagonals(*parts, values.detach().double())
        assert (inside.dtype, inside.learns) == (torch.float64, True)
    leaves, spec = torch.utils._pytree.tree_flatten(basis)
    assert any(leaf is values for leaf in leaves)
    assert_near(torch.utils._pytree.tree_unflatten(leaves, spec).to_dense(), 2 * ring.to_dense())


def test_a_new_kind_has_the_whole_algebra():
    ring = Ring(5)
    twice = ring.stack(ring).scale(2.0).mix(torch.ones(1, 2)).select([0, 0])
    assert_near(twice.to_dense(), ring.to_dense().repeat(2, 1, 1) * 4.0)
    reordered = ring.reorder()
    x = torch.randn(5, 2)
    theta = torch.randn(1, 1, 2, 3)
    there = contract(reordered.basis, x[reordered.nodes], theta)[reordered.place]
    assert_near(there, contract(ring, x, theta))
    assert ring.receptive_field(0, reach=2).tolist() == [2]
    assert drop_edges(ring, 0.5).num_edges == 5
    assert grids_of(ring) is None
    assert len(torch.utils._pytree.tree_leaves(ring)) == 0


@every_basis
def test_a_plan_tells_apart_what_learns_and_of_which_dtype(name):
    basis = basis_of(name)
    labels, targets = basis.num_bases, basis.size[1]
    learned = torch.ones(labels, dtype=torch.float64, requires_grad=True)
    for own in (basis, basis.scale(learned), basis.mix(learned.expand(2, labels))):
        for variant in (own, own.compose(Eye((targets, targets), CPU)), Repeated(own, 2, 2)):
            if variant.learns:
                assert variant.plan_key() != variant.detach().plan_key()
            if variant.dtype is not None:
                assert variant.plan_key() != variant.float().plan_key()


@every_basis
def test_messages_add_up_to_the_contraction(name):
    basis = basis_of(name)
    x = torch.randn(basis.size[0], 2, dtype=torch.float64)
    theta = torch.randn(basis.num_bases, 1, 2, 3, dtype=torch.float64)
    sent = convolve_by_messages(OuterConv(2, 3, "gcn").double(), basis, x, theta)
    assert_near(sent, contract(basis, x, theta))


@every_kind
def test_factors_are_what_a_basis_is_a_product_of(name):
    basis = kinds()[name]
    one, *more = factors(basis)
    composed = one
    for factor in more:
        composed = composed.compose(factor)
    assert len(more) == (name == "composed")
    assert_near(composed.to_dense(torch.float64), basis.to_dense(torch.float64))


@every_kind
def test_the_items_of_no_batch_are_the_basis(name):
    basis = kinds()[name]
    assert basis.batch == ()
    assert_near(item(basis).to_dense(torch.float64), basis.to_dense(torch.float64))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_edges_times_a_function_of_both_ends(is_sorted, weighted):
    index, size = EDGES.edge_index, EDGES.size
    weight = torch.rand(index.size(1), dtype=torch.float64) if weighted else None
    edges = Relation(1, None).basis(index, weight, size=size).edges()
    if is_sorted:
        edges, size = edges.transposed_edges(), size[::-1]
    assert (edges.pattern.listed is None) == is_sorted
    a, b = (torch.randn(count, dtype=torch.float64) for count in size)
    actual = edges.times_of_ends(a, b, torch.tanh)
    assert_near(actual.to_dense(), edges.to_dense(torch.float64) * torch.tanh(a[:, None] + b))


@every_kind
def test_a_mean_is_that_of_its_edges_and_refused_only_where_they_are_hidden(name):
    basis = kinds()[name]
    try:
        mean = basis.mean(torch.float64)
    except ValueError:
        assert hidden_part(basis) is not None
    else:
        dense = basis.edges().mean(torch.float64).to_dense(torch.float64)
        assert_near(mean.to_dense(torch.float64), dense)
