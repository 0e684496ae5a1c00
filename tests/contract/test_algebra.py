"""Products, and whatever the algebra makes of bases: contracted as their edges, or refused."""

import random

import pytest
import torch
from contractions import KINDS, OF_PRODUCTS, REDUCTIONS, features, has_edges, normal, parameter
from oracle import assert_same_derivatives, assert_same_steps

from pyg_outerconv.basis import Pattern, Transposed
from pyg_outerconv.basis.grid_shift import Axis, GridShift
from pyg_outerconv.contract import contract, contraction_path, plan
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.families import GCN, Chebyshev, Compose, Identity, Relation, Stack, Walk
from pyg_outerconv.testing import (
    assert_contraction,
    assert_near,
    awkward_structures,
    dense_contraction,
    legal_orders,
)
from pyg_outerconv.theta import Theta

STRUCTURES = awkward_structures()
MULTI, OBLONG, LOOP = (STRUCTURES[name] for name in ("multi-edge", "rectangular", "one loop"))
WEIGHTS = [edges.edge_weight for edges in (MULTI, OBLONG, LOOP)]
MATRIX = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
FACTORS = torch.randn(3, dtype=torch.float64, requires_grad=True)


def bases():
    relation, walk, gcn = Relation(3).basis(MULTI), Walk(2).basis(MULTI), GCN().basis(MULTI)
    chebyshev, eye = Chebyshev(3).basis(MULTI), Identity().basis(MULTI)
    oblong = Relation(3, norm=None).basis(OBLONG)
    loop = GCN(add_self_loops=False).basis(LOOP)
    return {
        "two operators": gcn.compose(gcn),
        "edges, polynomial": relation.compose(chebyshev),
        "polynomial, edges": chebyshev.compose(relation),
        "identity, edges": eye.compose(relation),
        "nested left": gcn.compose(relation).compose(walk.mix(MATRIX)),
        "nested right": gcn.compose(relation.compose(walk.mix(MATRIX))),
        "rectangular": oblong.compose(oblong.transpose()),
        "transposed": relation.compose(chebyshev).transpose(),
        "transposed, not yet turned": Transposed(relation.compose(chebyshev)),
        "selected, scaled": relation.compose(chebyshev).select([3, 1, 1]).scale(FACTORS),
        "stacks": relation.compose(chebyshev.scale(FACTORS).stack(eye)).stack(gcn.compose(gcn)),
        "kronecker": oblong.kron(gcn),
        "kronecker of a polynomial, turned": chebyshev.kron(oblong).transpose(),
        "composed kroneckers": gcn.kron(loop).compose(gcn.kron(loop.transpose())),
        "kronecker of three": oblong.kron(loop.kron(gcn)),
        "restricted polynomial": chebyshev.restrict([3, 1], [0, 2, 4]),
        "restricted kronecker": gcn.kron(walk).restrict(list(range(3, 20)), None),
        "restricted factors": walk.restrict([3, 1], [0, 2]).compose(gcn.restrict([0, 2])),
    }


NAMES = list(bases())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_features_and_parameter_with_second_derivatives(name, kind):
    basis, weights = bases()[name], [*WEIGHTS, MATRIX, FACTORS]
    sources = basis.size[0]
    width = sources if kind == "none" else 4
    x = features(kind, sources, width)
    for groups, columns, matrices in ((1, 2, None), (1, 6, 2), (2, 2, None)):
        if groups == 1 or kind not in ("none", "indices"):
            theta = parameter(basis.num_bases, groups, width, columns, matrices)
            assert_contraction(basis, x, theta, weights, depth=2)


@pytest.mark.parametrize("name", NAMES)
def test_theta_that_is_the_identity_passes_through(name):
    basis = bases()[name]
    x = normal(basis.size[0], 3)
    assert_contraction(basis, x, Theta.identity(basis.num_bases, 3, x), WEIGHTS)


def test_each_order_is_legal_where_it_should_be():
    relation, gcn = Relation(3).basis(MULTI), GCN().basis(MULTI)
    x, theta = normal(5, 4), parameter(3, 1, 4, 2)

    def legal(basis, x):
        return {name for name, why in legal_orders(basis, x, theta).items() if not why}

    chains = {"chain_transform", "chain_propagate"}
    assert legal(relation.compose(gcn), x) == chains
    assert legal(relation.compose(gcn), torch.randint(4, (5,))) == chains - {"chain_propagate"}
    assert legal(relation.kron(Relation(1).basis(LOOP)), x) == chains
    assert not legal(relation, x) & set(OF_PRODUCTS)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("name", ["two operators", "edges, polynomial", "kronecker"])
def test_it_compiles_into_one_graph_with_its_backward(name):
    basis = bases()[name].detach()
    inputs = [normal(basis.size[0], 4), parameter(basis.num_bases, 1, 4, 2)]

    def run(x, theta):
        return contract(basis, x, theta)

    for order in ("chain_transform", "chain_propagate"):
        contract(basis, *inputs, order)  # matrices are made
    torch._dynamo.reset()
    assert_same_steps(torch.compile(run, fullgraph=True, backend="aot_eager"), run, inputs)
    torch._dynamo.reset()


@pytest.mark.parametrize("batch", [(0,), (2, 0), (1, 2)], ids=str)
def test_batches_of_any_size(batch):
    for name in ("edges, polynomial", "kronecker"):
        basis = bases()[name]
        x, theta = normal(basis.size[0], *batch, 4), parameter(basis.num_bases, 2, 4, 2)
        assert_contraction(basis, x, theta, WEIGHTS)


def test_nothing_to_do_is_done():
    for size, inner in (((0, 3), 2), ((3, 0), 2), ((2, 2), 0), ((0, 0), 0)):
        ends = [(size[0], inner), (inner, size[1])]
        first, second = (
            Pattern.build(torch.zeros(2, 0).long(), size=end, num_labels=2).with_values(normal(0))
            for end in ends
        )
        for basis in (first.compose(second), first.kron(second)):
            x, theta = normal(basis.size[0], 3), parameter(4, 1, 3, 2)
            out = contract(basis, x, theta)
            assert_near(out, x.new_zeros(basis.size[1], 2))
            assert not any(g.any() for g in torch.autograd.grad(out.sum(), [x, theta]))


def large(count, nodes=2000):
    pattern = Pattern.build(torch.randint(nodes, (2, count)), size=(nodes, nodes))
    return pattern.with_values(torch.rand(count))


def test_the_narrow_way_is_taken():
    product = large(20_000).compose(large(20_000))
    x = torch.randn(2000, 64)
    narrow = contraction_path(product, x, torch.randn(1, 1, 64, 4))
    wide = contraction_path(product, x[:, :4], torch.randn(1, 1, 4, 64))
    assert narrow.chosen == ["chain_transform"]
    assert wide.chosen == ["chain_propagate"]


def test_the_cost_is_that_of_the_nested_contractions():
    first, second = large(20_000), large(10_000)
    x, theta = torch.randn(2000, 64), torch.randn(1, 1, 64, 16)
    step = contraction_path(first.compose(second), x, theta).steps[0]
    costs = {c.order.name: c.cost for c in step.candidates if c.cost is not None}
    line = 16 * 4
    assert costs["chain_transform"].work.dense_flops == 2 * 2000 * 64 * 16
    assert costs["chain_transform"].work.gathered == (20_000 + 10_000) * line
    assert costs["chain_propagate"].work.gathered == 20_000 * 64 * 4 + 10_000 * line
    assert costs["chain_transform"].memory >= 2000 * line


def test_products_are_refused_by_name_where_inputs_are_compared():
    product = Relation(3).basis(MULTI).compose(GCN().basis(MULTI))
    x, theta = normal(5, 4), parameter(3, 1, 4, 2)
    for basis in (product, product.scale(2.0), Transposed(product)):
        with pytest.raises(ValueError, match=r"max over the inputs.*basis\.edges\(\).*Composed"):
            contract(basis, x, theta, aggr="max")
    explicit = contract(product.edges(), x, theta, aggr="max")
    assert explicit.shape == (5, 2)


def plans():
    """The plans that are kept."""
    return [entry.result for entry in plan.PLANS._shelves[id(None)].entries.values()]


def test_a_choice_is_kept_for_products_of_a_class():
    x, theta = normal(5, 4), parameter(2, 1, 4, 2)
    plan.PLANS.clear()
    for _ in range(3):
        contract(Compose(GCN(), Stack(GCN(), Identity())).basis(MULTI), x, theta)
    names = [one.order.name for one in plans()]
    assert sum(name in ("chain_transform", "chain_propagate") for name in names) == 1


def shifts(pick):
    mode = pick.choice(("zeros", "circular", "replicate"))
    taps = tuple((t,) for t in range(3))
    on = torch.device("cpu")
    return GridShift(
        (Axis(5, 5, (1, 0, -1), 1, mode),), taps, on=on, is_transposed=pick.random() < 0.5
    )


def leaf(pick):
    kind = pick.choice(("edges", "edges", "edges", "gcn", "ones", "walk", "cheb", "eye", "shift"))
    if kind == "shift":
        return shifts(pick)
    family = {
        "edges": Relation(3, None),
        "gcn": GCN(),
        "ones": Relation(3, None),
        "walk": Walk(2),
        "cheb": Chebyshev(3),
        "eye": Identity(),
    }[kind]
    basis = family.basis(MULTI, dtype=torch.float64)
    if kind == "ones":
        return basis.pattern.with_values(None)
    return basis.pattern.with_values(normal(basis.num_edges)) if kind == "edges" else basis


def draw(pick, depth):
    """A nested expression over the algebra, of at most some 12 labels."""
    if depth == 0:
        return leaf(pick)
    basis = draw(pick, depth - 1)
    step = pick.choice(("stack", "scale", "scale", "select", "mix", "mix", "T", "compose"))
    count = basis.num_bases
    if step == "stack":
        return basis.stack(draw(pick, pick.randrange(depth)))
    if step == "scale":
        number = torch.tensor(-2.0).double() if basis.dtype is None else -2.0
        return basis.scale(pick.choice((number, normal(count), normal())))
    if step == "select":
        return basis.select(
            [pick.randrange(-count, count) for _ in range(pick.randint(0, 3) * (count > 0))]
        )
    if step == "mix":
        return basis.mix(normal(pick.randint(1, 4), count))
    if step == "T" or count > 4:
        return basis.transpose()
    return basis.compose(leaf(pick))


def sources(basis, seen):
    """The tensors of an expression that want gradients."""
    for name, part in vars(basis).items():
        if name in ("value", "matrix") and isinstance(part, torch.Tensor) and part.requires_grad:
            seen.append(part)
        if name in ("base", "first", "second"):
            sources(part, seen)
        if name == "parts":
            for one in part:
                sources(one, seen)
    return seen


@pytest.mark.parametrize("seed", range(120))
def test_lazy_is_explicit_under_every_reduction_or_refused(seed):
    torch.manual_seed(seed)
    pick = random.Random(seed)
    basis = draw(pick, pick.randint(1, 4))
    aggr, label_aggr = pick.choice(REDUCTIONS), pick.choice(("sum", "sum", "max", "min"))
    x, theta = normal(5, 2), parameter(basis.num_bases, 1, 2, 3)

    def run():
        return contract(basis, x, theta, aggr=aggr, label_aggr=label_aggr)

    if not has_edges(basis) and (aggr, label_aggr) != ("sum", "sum"):
        if "matrix=()" not in repr(basis):  # a selection that takes nothing hides nothing
            with pytest.raises(RefusedValue, match="edges must be explicit"):
                run()
        return
    out = run()
    expected = dense_contraction(basis.edges(), x, theta, aggr, label_aggr)
    assert_same_derivatives(out, expected, [x, theta, *sources(basis, [])])


@pytest.mark.parametrize("aggr", REDUCTIONS)
@pytest.mark.parametrize("label_aggr", ["sum", "max"])
def test_no_labels_give_zeros_that_have_gradients(aggr, label_aggr):
    relation = Relation(3).basis(MULTI, dtype=torch.float64)
    walk = Walk(2).basis(MULTI, dtype=torch.float64)
    for basis in (
        relation.select([]),
        relation.select([]).scale(2.0).transpose(),
        walk.select([]),
        walk.transpose().select([]),
        relation.stack(walk).select([]),
        relation.mix(torch.zeros(0, 3, dtype=torch.float64)),
        walk.mix(torch.zeros(0, 3, dtype=torch.float64)),
        relation.compose(walk).select([]),
    ):
        if label_aggr != "sum" and not has_edges(basis):
            continue
        for shape in ((5, 4), (5, 2, 4)):
            x, theta, bias = normal(*shape), parameter(0, 1, 4, 2), normal(2)
            out = contract(basis, x, theta, aggr=aggr, label_aggr=label_aggr, bias=bias)
            assert_near(out, bias.expand(*shape[:-1], 2))
            gradients = torch.autograd.grad(out.sum(), [x, theta], materialize_grads=True)
            assert [g.shape for g in gradients] == [x.shape, theta.shape]
            assert not any(g.any() for g in gradients)
