"""Layers in one graph: torch.compile and torch.export, from edges, kept, and from a basis."""

import pytest
import torch
from cases import named
from nn.layers import compiled, module_and_inputs
from oracle import assert_same
from torch._dynamo.testing import CompileCounter
from torch.export import Dim, export
from versions import one_graph_since

from pyg_outerconv import AttentionConv, OuterConv
from pyg_outerconv.contract import order
from pyg_outerconv.families import GCN, Mean, Relation, Stack, Walk
from pyg_outerconv.kernels import dispatch
from pyg_outerconv.nn.attention import gat_conv, transformer_conv
from pyg_outerconv.testing import assert_near

FAMILIES = [GCN(), Relation(3), Walk(2)]
SIZES = [(7, 20), (9, 31), (12, 17), (5, 40)]


def graph(family, nodes, edges):
    """x, and random edges with loops and parallel ones, their weights and types."""
    index, weight = torch.randint(nodes, (2, edges)), torch.rand(edges).double() + 0.1
    index[:, 0] = index[:, 1] = 0
    kinds = torch.randint(3, (edges,)) if isinstance(family, Relation) else None
    return torch.randn(nodes, 4).double(), (index, weight, kinds)


def results(call, conv, x, edges):
    """The output, and the gradients of x and of every parameter."""
    conv.zero_grad()
    x = x.clone().requires_grad_()
    out = call(x, **named(*edges))
    out.square().sum().backward()
    return [out.detach(), x.grad, *(parameter.grad.clone() for parameter in conv.parameters())]


COUNTING = [
    OuterConv(4, 3, GCN(), aggr="mean"),
    OuterConv(4, 3, GCN(), aggr="max"),
    OuterConv(4, 3, Stack(GCN(), Mean(GCN()))),
]


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("conv", COUNTING, ids=["mean", "max", "mean within a family"])
def test_what_counts_or_compares_edges_gets_no_edge_of_weight_zero(conv):
    conv = conv.double()
    x, (index, weight, _) = graph(GCN(), 6, 15)
    expected = conv(x, index, weight)
    call, _ = compiled(conv)
    assert_near(call(x, index, weight), expected)


@pytest.mark.slow
@pytest.mark.parametrize("add_self_loops", [True, False])
def test_exported_graph_attention_is_one_operator_for_any_size(add_self_loops):
    conv = gat_conv(4, 3, heads=2, add_self_loops=add_self_loops).double()
    x, (index, _, _) = graph(GCN(), *SIZES[0])
    sizes = {0: Dim("N")}, {1: Dim("E")}
    traced = export(conv, (x, index), dynamic_shapes=sizes).module()
    assert "pyg_outerconv.sums_of" in traced.code
    for nodes, count in SIZES[1:]:
        x, (index, _, _) = graph(GCN(), nodes, count)
        assert_near(traced(x, index), conv(x, index))


@pytest.mark.slow
def test_attention_over_no_edges_is_zero_when_compiled():
    conv = gat_conv(4, 3, heads=2, add_self_loops=False, bias=False).double()
    x, (index, _, _) = graph(GCN(), 6, 15)
    call, _ = compiled(conv)
    call(x, index)
    for tensor in results(call, conv, x, (index[:, :0],)):
        assert not tensor.any()


@pytest.mark.slow
def test_a_compiled_layer_is_never_differentiated_forwards_in_silence():
    conv = gat_conv(4, 3, heads=2).double()
    x, (index, _, _) = graph(GCN(), 6, 15)
    call, along = torch.compile(lambda x: conv(x, index), backend="aot_eager"), torch.ones_like(x)
    _, expected = torch.func.jvp(lambda x: conv(x, index), (x,), (along,))
    torch._dynamo.reset()
    try:
        _, actual = torch.func.jvp(call, (x,), (along,))
    except (NotImplementedError, RuntimeError):
        return  # refused
    assert_near(actual, expected)


@one_graph_since(2, 11)
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_basis_is_an_input_of_what_is_exported(family):
    conv = OuterConv(4, 3, family).double()
    x, inputs = graph(family, 7, 20)
    basis = family.basis(*inputs, size=(7, 7))
    traced = export(conv, (x, basis)).module()
    assert_near(traced(x, basis), conv(x, basis))
    assert_near(traced(2 * x, basis), conv(2 * x, basis))


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    "family", ["gcn", "walk(length=2)", "stack(gcn, identity)", "bernstein(num_terms=3)"]
)
def test_equal_calls_are_compiled_once(family, monkeypatch):
    """Also the first ones of a process, which fill what is cached."""
    monkeypatch.setattr(order, "_of_kind", {})
    monkeypatch.setattr(dispatch, "CHOSEN", {})
    torch._dynamo.reset()
    conv, counter = OuterConv(4, 3, family), CompileCounter()
    call, (x, (index, _, _)) = torch.compile(conv, backend=counter), graph(GCN(), 6, 15)
    for _ in range(3):
        call(x.float(), index).sum().backward()
    assert counter.frame_count == 1


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("name", ["gat, features", "gru", "pyg.GATConv"])
def test_channels_may_be_symbols(name):
    module, inputs = module_and_inputs(name)
    torch._dynamo.reset()
    call = torch.compile(module, backend="aot_eager", dynamic=True)
    assert_near(call(**inputs), module(**inputs))


TRACED = {
    "selected": lambda: OuterConv(4, 3, "walk(3, powers=(3,))"),
    "combined": lambda: OuterConv(4, 3, "sub(gcn, walk(2, powers=(2,)))"),
    "shares": lambda: gat_conv(4, 3, heads=2),
}


@pytest.mark.parametrize("name", TRACED)
def test_what_depends_on_the_kind_of_a_basis_is_one_graph(name):
    torch.manual_seed(0)
    conv = TRACED[name]().double()
    x, inputs = graph(conv.family, 9, 31)
    inputs = inputs[:1] if name == "shares" else inputs
    beside = {"return_attention_weights": True} if name == "shares" else {}

    def run(x, **edges):
        out = conv(x, **edges, **beside)
        return out[0] + out[1].propagate(x).sum() if beside else out

    torch._dynamo.reset()
    call = torch.compile(run, backend="aot_eager", fullgraph=True)
    expected = results(run, conv, x, inputs)
    for actual, reference in zip(results(call, conv, x, inputs), expected, strict=True):
        assert_near(actual, reference)


# Sums over edges as one operator ---------------------------------------------------------------

SERVED = {
    "gcn": lambda: OuterConv(4, 3, GCN()),
    "gcn, P < Q": lambda: OuterConv(4, 9, GCN("both", add_self_loops=False)),
    "relation": lambda: OuterConv(4, 3, Relation(3)),
    "relation, P < Q": lambda: OuterConv(4, 9, Relation(3, None), root_weight=True),
    "blocks": lambda: OuterConv(4, 6, Relation(3), theta="block-diagonal(num_blocks=2)"),
    "mixture": lambda: OuterConv(4, 3, Relation(3), theta="basis-decomposed(num_bases=2)"),
    "identity": lambda: OuterConv(4, 4, GCN(), theta="identity", bias=False),
    "mean": lambda: OuterConv(4, 3, Relation(3, None), aggr="mean", label_aggr="mean"),
    "backwards": lambda: OuterConv(4, 3, GCN("target"), flow="target_to_source"),
    "gat": lambda: gat_conv(4, 3, heads=2),
    "gat, mean of heads": lambda: gat_conv(4, 3, heads=2, concat=False, residual=True),
    "gat, by name": lambda: OuterConv(4, 6, "gat(2)", root_weight=True),
    "gat without loops": lambda: gat_conv(4, 3, heads=2, add_self_loops=False),
    "key-query": lambda: AttentionConv(4, 6, 2, value_bias=True),
    "key-query, transformer": lambda: transformer_conv(4, 3, heads=2, beta=True),
    "key-query, backwards": lambda: AttentionConv(
        4, 5, 2, "hops(add_self_loops=True)", combine="mean", flow="target_to_source", bias=False
    ),
}
OF_NODES = "gat", "key-query"
"""Whose operators sum values of attention, and read no weights of edges."""


def operators(call, *inputs, **beside):
    """The operators of ours in the graph that a compiler makes of a call."""
    torch._dynamo.reset()
    seen = []

    def backend(module, inputs):
        seen.extend(str(node.target) for node in module.graph.nodes)
        return module.forward

    def whole(gm, inputs):
        from torch._dynamo.backends.common import aot_autograd

        return aot_autograd(fw_compiler=backend)(gm, inputs)

    torch.compile(call, backend=whole, fullgraph=True)(*inputs, **beside)
    return [name.split(".")[1] for name in seen if name.startswith("pyg_outerconv.")]


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("name", SERVED)
def test_sums_over_edges_are_one_operator_and_what_is_eager(name):
    torch.manual_seed(0)
    conv = SERVED[name]().double()
    family = conv.family if name.startswith(("gcn", "relation", "blocks", "mix", "mean")) else GCN()
    x, inputs = graph(family, 9, 31)
    inputs = inputs[:1] if name.startswith(OF_NODES) else inputs
    actual = operators(conv, x, **named(*inputs))
    (kind,) = [one for one in (*OF_NODES, "") if name.startswith(one)][:1]
    of_kind = {"gat": "sums_of_ends_of_graph", "key-query": "sums_of_products_of_graph"}
    assert actual == [of_kind.get(kind, "sum_over_edges")]
    call, _ = compiled(conv)
    for nodes, edges in SIZES:
        x, inputs = graph(family, nodes, edges)
        inputs = inputs[:1] if name.startswith(OF_NODES) else inputs
        expected = results(conv, conv, x, inputs)
        for _ in range(2):  # made, and cached
            for actual, reference in zip(results(call, conv, x, inputs), expected, strict=True):
                assert_near(actual, reference)


@pytest.mark.slow
def test_a_batch_and_half_precision_go_the_same_way():
    conv = OuterConv(4, 3, GCN()).double()
    _, (index, weight, _) = graph(GCN(), 9, 31)
    x = torch.randn(2, 3, 9, 4).double()
    call, _ = compiled(conv)
    assert_near(call(x, index, weight), conv(x, index, weight))
    conv, x = conv.float(), x.float()
    with torch.autocast("cpu", torch.bfloat16):
        out, expected = torch.compile(conv, backend="aot_eager")(x, index), conv(x, index)
    assert out.dtype == expected.dtype
    torch.testing.assert_close(out, expected, atol=2e-2, rtol=2e-2)


@pytest.mark.slow
def test_a_changed_graph_is_noticed_and_a_wrong_one_refused_when_compiled():
    conv = OuterConv(4, 3, GCN()).double()
    x, (index, weight, _) = graph(GCN(), 9, 31)
    call, _ = compiled(conv)
    call(x, index, weight)
    index[0, 5], weight[7] = (index[0, 5] + 1) % 9, 3.0
    assert_near(call(x, index, weight), conv(x, index, weight))
    with pytest.raises(ValueError, match="expected an index below 9"):
        call(x, index + 9, weight)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flow", "add_self_loops", "aggr"])
def test_an_option_that_is_changed_is_seen_by_what_was_compiled(name):
    conv = OuterConv(4, 3, GCN()).double()
    x, (index, weight, _) = graph(GCN(), 9, 31)
    call, _ = compiled(conv)
    call(x, index, weight)
    if name == "aggr":
        conv.aggr, conv.folds_mean = "mean", True
    else:
        setattr(conv, name, {"flow": "target_to_source", "add_self_loops": False}[name])
    assert_near(call(x, index, weight), conv(x, index, weight))


@pytest.mark.slow
def test_backward_passes_know_their_graph_after_many_others():
    """More graphs than bases are cached for, all forwards before any backwards."""
    conv = OuterConv(4, 3, GCN(), bias=False).double()
    call, _ = compiled(conv)
    calls = [graph(GCN(), 9, 31) for _ in range(7)]
    leaves = [x.requires_grad_() for x, _ in calls]
    total = sum(call(x, index, weight).square().sum() for x, (index, weight, _) in calls)
    gradients = torch.autograd.grad(total, leaves)
    total = sum(conv(x, index, weight).square().sum() for x, (index, weight, _) in calls)
    for one, expected in zip(gradients, torch.autograd.grad(total, leaves), strict=True):
        assert_near(one, expected)


@pytest.mark.slow
def test_a_map_over_x_is_compiled_as_more_channels():
    conv = OuterConv(4, 3, GCN()).double()
    x, (index, weight, _) = graph(GCN(), 9, 31)
    many = torch.stack([x, -x, 2 * x]).requires_grad_()
    call = torch.compile(torch.func.vmap(lambda x: conv(x, index, weight)), backend="aot_eager")
    assert_same(call(many), conv(many, index, weight), [many, *conv.parameters()])
