"""Whatever the algebra makes of bases, with whatever reduction: as its edges give, or refused."""

import random

import pytest
import torch
from contractions import normal, parameter

from pyg_outerconv.basis.grid_shift import Axis, GridShift
from pyg_outerconv.contract import contract
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Walk
from pyg_outerconv.testing import assert_near, awkward_structures, dense_contraction
from pyg_outerconv.testing.reference import derivatives

EDGES = awkward_structures()["multi-edge"]
REDUCTIONS = ("sum", "mean", "max", "min")


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
    basis = family.basis(EDGES, dtype=torch.float64)
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


def hides(basis):
    return any(name in repr(basis) for name in ("Polynomial", "Composed"))


def sources(basis, seen):
    """The tensors of an expression that want gradients."""
    for name, part in vars(basis).items():
        if name in ("value", "factor", "matrix") and part is not None and part.requires_grad:
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

    if hides(basis) and (aggr, label_aggr) != ("sum", "sum"):
        if "labels=[]" not in repr(basis):  # a selection that takes nothing hides nothing
            with pytest.raises(RefusedValue, match="edges must be explicit"):
                run()
        return
    out = run()
    expected = dense_contraction(basis.edges(), x, theta, aggr, label_aggr)
    inputs = [x, theta, *sources(basis, [])]
    for found, wanted in zip(
        derivatives(out, inputs, 1), derivatives(expected, inputs, 1), strict=True
    ):
        assert_near(found, wanted, at_least=0.1)


@pytest.mark.parametrize("aggr", REDUCTIONS)
@pytest.mark.parametrize("label_aggr", ["sum", "max"])
def test_no_labels_give_zeros_that_have_gradients(aggr, label_aggr):
    relation = Relation(3).basis(EDGES, dtype=torch.float64)
    walk = Walk(2).basis(EDGES, dtype=torch.float64)
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
        if label_aggr != "sum" and hides(basis):
            continue
        for shape in ((5, 4), (5, 2, 4)):
            x, theta, bias = normal(*shape), parameter(0, 1, 4, 2), normal(2)
            out = contract(basis, x, theta, aggr=aggr, label_aggr=label_aggr, bias=bias)
            assert_near(out, bias.expand(*shape[:-1], 2))
            gradients = torch.autograd.grad(out.sum(), [x, theta], materialize_grads=True)
            assert [g.shape for g in gradients] == [x.shape, theta.shape]
            assert not any(g.any() for g in gradients)
