"""Attention: a pair without an edge, or with a bias of -inf, carries nothing, NaN included."""

from itertools import product
from math import inf, nan

import pytest
import torch
from torch.func import grad, hessian, jvp, vjp
from versions import one_graph_since

from pyg_outerconv.attention import NORMALISERS
from pyg_outerconv.basis import Pattern
from pyg_outerconv.basis.attention_basis import AttentionBasis
from pyg_outerconv.kernels import (
    BACKENDS,
    attend,
    attend_all,
    attend_band,
    attend_blocks,
    blocks_of,
    dense_attention,
    use_backend,
)
from pyg_outerconv.kernels.absent_pairs import are_finite
from pyg_outerconv.kernels.linear_attention import Chunks, scan, scan_exponentials
from pyg_outerconv.testing import assert_near, assert_seen_alone

NODES, HEADS = 7, 2
DOUBLE = torch.float64
AHEAD = torch.arange(NODES) - torch.arange(NODES).unsqueeze(1)  # of targets and sources
EVERY = torch.ones(NODES, NODES, dtype=torch.bool)
PRESENT = torch.tensor([1, 1, 0, 1, 0, 1, 1]).bool()
HIDDEN = torch.rand(NODES, NODES, generator=torch.Generator().manual_seed(1)) < 0.4
BLOCK = torch.tensor([0, 0, 1, 1, 1, 2, 2])
BLOCKS = blocks_of(BLOCK, BLOCK.flip(0))


def pattern_where(visible):
    target, source = visible.nonzero(as_tuple=True)
    return Pattern.build(torch.stack([source, target]), size=visible.shape[::-1])


def csr_where(visible):
    return pattern_where(visible).by_target


def biased(function):
    """The function with a bias (N, M, H) that is -inf at hidden pairs."""

    drawn = torch.randn(
        NODES, NODES, HEADS, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    bias = drawn.masked_fill(HIDDEN.unsqueeze(-1), -inf)
    return lambda query, key, value: function(query, key, value, bias.to(query.dtype))


def on_edges(visible):
    return lambda q, k, v: attend(csr_where(visible), q, k, v)


ALL_EDGES = pattern_where(EVERY)
PAIRS = ALL_EDGES.by_target


def flat(query, key, value, bias):
    return attend(PAIRS, query, key, value, bias.flatten(0, 1))


def by_shares(name, **options):
    """The product of values with a share of each edge and head, from a normaliser."""
    normalise, over = NORMALISERS[name](**options), ALL_EDGES.with_values(None)

    def run(query, key, value, bias):
        return AttentionBasis(over, query, key, normalise, 0.7, bias.flatten(0, 1)).times(value)

    return run


def of_one_head(function):
    """The function with the first head's values for all heads, as of features."""
    return lambda q, k, v: function(q, k, v[:, :1].expand(-1, HEADS, -1))


def window(**options):
    return lambda q, k, v: attend_band(q, k, v, **options)


# Each way to attend, with the pairs (target, source) that have an edge.
WAYS = {
    "edges": (on_edges(AHEAD.abs() <= 2), AHEAD.abs() <= 2),
    "edges with a bias": (biased(flat), ~HIDDEN),
    "all": (attend_all, EVERY),
    "all with a bias": (biased(attend_all), ~HIDDEN),
    "causal": (lambda *x: attend_all(*x, causal=0), AHEAD <= 0),
    "two ahead": (lambda *x: attend_all(*x, causal=2), AHEAD <= 2),
    "two behind": (lambda *x: attend_all(*x, causal=-2), AHEAD <= -2),
    "present": (lambda *x: attend_all(*x, source_mask=PRESENT), EVERY & PRESENT),
    "present and causal": (
        lambda *x: attend_all(*x, source_mask=PRESENT, causal=0),
        (AHEAD <= 0) & PRESENT,
    ),
    "window": (window(left=2, right=1), (AHEAD >= -2) & (AHEAD <= 1)),
    "window of the present": (
        window(left=2, right=1, source_mask=PRESENT),
        (AHEAD >= -2) & (AHEAD <= 1) & PRESENT,
    ),
    "dilated": (window(left=1, right=1, dilation=2), (AHEAD.abs() <= 2) & (AHEAD % 2 == 0)),
    "later": (window(left=1, right=None), AHEAD >= -1),
    "blocks": (
        lambda *x: attend_blocks(*x, BLOCKS),
        BLOCK.flip(0).unsqueeze(1) == BLOCK,
    ),
    **{f"{name} of edges": (biased(by_shares(name)), ~HIDDEN) for name in NORMALISERS},
    "shared values": (of_one_head(biased(by_shares("l1"))), ~HIDDEN),
}


# Causal sums over one sequence in chunks of some size, and over two of them.
SEQUENCE = torch.tensor([0, 0, 0, 1, 1, 1, 1])
OWN_PLACES = torch.tensor([0, 1, 2, 4, 5, 6, 7])
SEQUENCES = {
    **{f"chunks of {c}": (Chunks(c, -(-NODES // c)), EVERY) for c in (1, 2, 4, 8)},
    **{
        f"two sequences in chunks of {c}": (
            Chunks(c, 8 // c, torch.arange(8 // c) // (4 // c), 2, OWN_PLACES, OWN_PLACES),
            SEQUENCE.unsqueeze(1) == SEQUENCE,
        )
        for c in (1, 4)
    },
}


def operands(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = (NODES, HEADS, 3), (NODES, HEADS, 3), (NODES, HEADS, 2)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("number", [nan, inf], ids=str)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("small", [0, 1 << 17], ids=["in blocks", "by one mask"])
def test_each_way_to_attend(way, number, dtype, small, monkeypatch):
    monkeypatch.setattr(dense_attention, "_SMALL", small)
    assert_attends(*WAYS[way], number, dtype)


@pytest.mark.parametrize("way", ["edges", "edges with a bias"])
@pytest.mark.parametrize("backend", ["scatter", "reference"])
def test_each_backend(way, backend):
    if missing := BACKENDS[backend].missing():
        pytest.skip(missing[0])
    with use_backend(backend):
        assert_attends(*WAYS[way], nan, torch.float64)


def assert_attends(function, visible, number, dtype):
    query, key, value = operands(dtype)
    own = torch.eye(NODES, dtype=torch.bool) & visible.any(1)
    sure = number != number  # a score of infinity may give a share of 0, and no gradient
    for run, x, seen, arrives in (
        (lambda q: function(q, key, value), query, own, sure),
        (lambda k: function(query, k, value), key, visible.t(), sure),
        (lambda v: function(query, key, v), value, visible.t(), True),
    ):
        backward = arrives and x is value
        assert_seen_alone(run, x, seen, number, arrives, backward)


@pytest.mark.parametrize("strict", [False, True], ids=["inclusive", "strict"])
@pytest.mark.parametrize("number", [nan, inf], ids=str)
@pytest.mark.parametrize("name", [*SEQUENCES, "chunks of 5"])
@pytest.mark.parametrize("run", [scan, scan_exponentials])
def test_sums_over_what_comes_before(run, name, number, strict):
    if run is scan_exponentials and name == "chunks of 5":
        return  # exponentials halve their chunks
    chunks, together = SEQUENCES.get(name) or (Chunks(5, 2), EVERY)
    visible = together & (AHEAD < 0 if strict else AHEAD <= 0)
    query, key, value = operands()
    value = value[..., :1].expand(-1, -1, 2)
    own = torch.eye(NODES, dtype=torch.bool)
    for of_one, x, seen, arrives in (
        (lambda q: run(q, key, value, chunks, strict), query, own, False),
        (lambda k: run(query, k, value, chunks, strict), key, visible.t(), number != number),
        (lambda v: run(query, key, v, chunks, strict), value, visible.t(), True),
    ):
        assert_seen_alone(of_one, x, seen, number, arrives, arrives and x is value)


def test_a_sum_over_what_comes_before_where_numbers_cannot_be_looked_at():
    query, key, value = operands()
    for chunks, together in SEQUENCES.values():
        unseen = ~(together & (AHEAD <= 0))[:, 3]
        expected = scan(query, key, value, chunks)
        broken = value.index_fill(0, torch.tensor(3), nan)[None]
        actual = torch.vmap(lambda v, chunks=chunks: scan(query, key, v, chunks))(broken)[0]
        assert actual[~unseen].isnan().all()
        assert_near(actual[unseen], expected[unseen])


@pytest.mark.parametrize("number", [nan, inf], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_attend_within_torch_func(way, number):
    """An item for each node that is not finite: in an operand, a tangent, or a gradient."""
    function, visible = WAYS[way]
    inputs, own = operands(), torch.eye(NODES, dtype=torch.bool) & visible.any(1)
    is_node = torch.eye(NODES, dtype=torch.bool)[:, :, None, None]
    for place, seen in enumerate((own, visible.t(), visible.t())):
        arrives = place == 2 or number != number  # a score of infinity may give a share of 0

        def run(x, place=place):
            return function(*inputs[:place], x, *inputs[place + 1 :])

        def back(above, run=run, x=inputs[place]):
            return vjp(run, x)[1](above)[0]

        spoilt = torch.where(is_node, number, inputs[place])
        above = torch.where(is_node, number, torch.zeros_like(inputs[2]))
        for out, wanted, sure in (
            (torch.vmap(run)(spoilt), seen, arrives),
            (torch.vmap(back)(above), seen.t(), place == 2),
        ):
            actual = ~out.isfinite().flatten(2).all(2)
            assert torch.equal(actual, wanted) if sure else not (actual & ~wanted).any()

    def along(tangent):
        return jvp(run, (inputs[2],), (tangent,))[1]

    # Of the values, which run, back and above are of by now: also without vmap, and outside it.
    for ways, wanted in ((along, visible.t()), (back, visible)):
        actual = torch.vmap(ways)(above).isfinite()
        assert torch.equal(~actual.flatten(2).all(2), wanted)
        assert torch.equal(ways(above[3]).isfinite(), actual[3])
    leaf = inputs[2].clone().requires_grad_()
    (actual,) = torch.autograd.grad(torch.vmap(run)(leaf[None]), leaf, above[3:4])
    assert torch.equal(~actual.isfinite().flatten(1).all(1), visible[3])


@pytest.mark.parametrize("function", [attend_all, flat], ids=["all", "edges"])
def test_a_bias_of_each_item_within_torch_func(function):
    query, key, value = operands()
    value[3] = nan
    hidden = torch.rand(5, NODES, NODES, generator=torch.Generator().manual_seed(3)) < 0.4
    bias = torch.zeros(5, NODES, NODES, HEADS, dtype=DOUBLE).masked_fill(hidden[..., None], -inf)

    def run(query, bias):
        return function(query, key, value, bias)

    actual = torch.vmap(run, (None, 0))(query, bias)
    assert_near(*(x.nan_to_num(7.0) for x in (actual, torch.stack([run(query, b) for b in bias]))))
    assert torch.equal(actual.isnan().flatten(2).all(2), ~hidden[:, :, 3])

    rows = hidden[0, :, 3].nonzero().view(-1)  # those that do not see it

    def total(few):
        return run(query.index_copy(0, rows, few), bias[0])[rows].square().sum()

    few = query[rows].requires_grad_()
    assert_near(grad(total)(few.detach()), torch.autograd.grad(total(few), few)[0])
    expected = torch.autograd.functional.hessian(total, few.detach())
    assert_near(hessian(total)(few.detach()), expected, at_least=0.1)


def compiled(function, backend="aot_eager"):
    """The function in one graph, of whose operands all learn or none: a graph of each kind."""
    torch._dynamo.reset()
    graph = torch.compile(function, backend=backend, fullgraph=True, dynamic=False)

    def run(*inputs):
        learns = any(x.requires_grad for x in inputs)
        return graph(*(x if x.requires_grad else x.detach().requires_grad_(learns) for x in inputs))

    return run


OVER_PAIRS = [way for way in WAYS if way != "edges"]
# Ways along edges have no blocks and no mask, so that one case of the two is enough.
ALONG_EDGES = {"edges with a bias", "shared values", *(f"{name} of edges" for name in NORMALISERS)}


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("number", [nan, inf], ids=str)
@pytest.mark.parametrize(
    ("way", "small"),
    [(way, 0) for way in OVER_PAIRS]
    + [(way, 1 << 17) for way in OVER_PAIRS if way not in ALONG_EDGES],
)
def test_each_way_to_attend_in_a_compiled_graph(way, number, small, backend, monkeypatch):
    monkeypatch.setattr(dense_attention, "_SMALL", small)
    function, visible = WAYS[way]
    assert_attends(compiled(function, backend), visible, number, torch.float64)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_is_not_finite_arrives_within_blocks_of_a_compiled_graph(backend):
    blocks = torch.tensor([0, 0, 1, 1])
    blocks = blocks_of(blocks, blocks)

    def function(query, key, value):
        return attend_blocks(query, key, value, blocks)

    runs = function, compiled(function, backend)
    for place, number in product(range(3), (nan, inf)):
        inputs, reached = [torch.randn(4, 2, 4) for _ in range(3)], []
        inputs[place][1, :, 0] = number
        for run in runs:
            operands = [one.clone().requires_grad_() for one in inputs]
            out = run(*operands)
            out_and_gradients = [out, *torch.autograd.grad(out.sum(), operands)]
            reached.append(
                torch.stack([~one.isfinite().flatten(1).all(1) for one in out_and_gradients])
            )
        assert torch.equal(*reached)
        assert reached[0][0, 1]
        assert not reached[0][:, 2:].any()


@pytest.mark.parametrize("number", [nan, inf], ids=str)
@pytest.mark.parametrize("way", OVER_PAIRS)
def test_each_way_to_attend_in_a_trace(way, number):
    function, visible = WAYS[way]
    query, key, value = operands()
    traced = torch.jit.trace(function, (query, key, value), check_trace=False)
    spoilt = value.index_fill(0, torch.tensor(4), number)
    reached = ~traced(query, key, spoilt).isfinite().flatten(1).all(1)
    assert torch.equal(reached, visible[:, 4])


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("way", OVER_PAIRS)
def test_a_compiled_graph_has_the_values_and_gradients_of_a_plain_call(way):
    function, _ = WAYS[way]
    runs = function, compiled(function)
    for spoilt in (None, 3):
        results = []
        for run in runs:
            inputs = operands()
            if spoilt is not None:
                inputs[2][spoilt] = nan
            inputs = [x.requires_grad_() for x in inputs]
            out = run(*inputs)
            grads = torch.autograd.grad(
                out, inputs, torch.linspace(1, 2, out.numel()).view_as(out).to(out)
            )
            results.append([out, *grads])
        for one, other in zip(*results, strict=True):
            assert_near(*(x.nan_to_num(7.0) for x in (other, one)))


@pytest.mark.parametrize("way", WAYS)
def test_numbers_that_are_finite_stay_as_they_are(way):
    """Those of targets that see no NaN, by edges, and all gradients of other targets."""
    function, visible = WAYS[way]
    inputs = [x.requires_grad_() for x in operands()]
    broken = [inputs[0], inputs[1], inputs[2].detach().index_fill(0, torch.tensor(3), nan)]
    expected, actual = function(*inputs), function(*broken)
    unseen = ~visible[:, 3]
    assert_near(actual[unseen], expected[unseen])
    above = torch.randn_like(expected)
    plain = torch.autograd.grad(expected[unseen], inputs, above[unseen], retain_graph=True)
    above[~unseen] = nan
    mixed = torch.autograd.grad(expected, inputs, above)
    for part, whole, reached in zip(
        mixed, plain, (~unseen & visible.any(1), *[visible[~unseen].any(0)] * 2), strict=True
    ):
        assert_near(part[~reached], whole[~reached], at_least=1.0)


@pytest.mark.slow(cases=2)
@one_graph_since(2, 11)
@pytest.mark.parametrize("name", NORMALISERS)
def test_dropped_shares_of_edges_reach_no_one_else_where_they_are_recorded(name):
    run, seen = biased(by_shares(name, dropout=0.4)), ~HIDDEN.t()
    query, key, value = operands()
    graph = compiled(run)
    for of_one, x in (
        (lambda v: graph(query, key, v), value),
        (lambda k: graph(query, k, value), key),
    ):
        assert_seen_alone(of_one, x, seen, nan, False, False)
    traced = torch.jit.trace(run, (query, key, value), check_trace=False)
    for source in range(NODES):
        out = traced(query, key, value.index_fill(0, torch.tensor(source), nan))
        assert out[~seen[source]].isfinite().all()


def test_dropped_shares_reach_no_one_else_either():
    visible = WAYS["causal"][1]
    query, key, value = operands()
    for options in ({}, {"source_mask": PRESENT}):
        seen = visible & PRESENT if options else visible

        def run(v, options=options):
            return attend_all(query, key, v, causal=0, dropout_p=0.5, **options)

        assert_seen_alone(run, value, seen.t(), nan)


def test_what_can_be_looked_at():
    x = torch.ones(3)
    assert are_finite(x, None, x.requires_grad_(), x.new_empty(0))
    for number in (nan, inf, -inf):
        assert not are_finite(x, torch.tensor([1.0, number]))
    seen = []
    torch.vmap(lambda row: seen.append(are_finite(row)) or row)(torch.ones(2, 3))
    assert seen == [False]
    assert not are_finite(x.to("meta"))


def test_functions_that_see_no_target_or_source():
    empty, some = torch.randn(0, HEADS, 3), torch.full((4, HEADS, 3), nan)
    nowhere = blocks_of(torch.zeros(4).long(), torch.zeros(0).long())
    assert attend_blocks(empty, some, some, nowhere).shape == empty.shape
    assert attend_all(empty, some, some).shape == empty.shape
    assert not attend_all(some, empty, empty).any()
