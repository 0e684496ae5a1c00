"""The layer where PyG puts its own: inputs, state, hooks and the cache."""

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.testing import assert_module

from pyg_outerconv import AttentionConv, OuterConv, record
from pyg_outerconv.families import GCN, Chebyshev, Directed, Identity, Relation, Stack, Walk
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1], [1, 2, 3, 0, 2, 1, 1]])
KINDS = torch.tensor([0, 1, 2, 0, 1, 2, 0])
FORMS = [
    "full",
    "shared",
    "basis-decomposed:2",
    "channelwise",
    "low-rank:2",
    "grouped:2",
    "block-diagonal:2",
    "depthwise",
    "columns",
    "value-output:3",
]


def layer(family, *channels, **options):
    conv = OuterConv(*(channels or (4, 6)), family, **options)
    with torch.no_grad():
        if conv.bias is not None:
            conv.bias.normal_()
    return conv


def x_of(*shape):
    return torch.randn(*(shape or (5, 4)))


def weights():
    return torch.rand(EDGES.size(1)) + 0.1


# What comes in -----------------------------------------------------------------------------------


def test_pyg_asserts_bipartite_layouts():
    edge_index = torch.tensor([[0, 5, 3, 2], [1, 0, 1, 1]])
    source, target = x_of(6, 4), x_of(4, 3)
    conv = layer(Relation(1), (4, 3), 6, root_weight=True)
    for ends, size in (((source, target), None), ((source, None), (6, 4))):
        assert_module(conv, ends, edge_index, expected_size=(4, 6), atol=1e-5, size=size or (6, 4))


def test_a_pair_without_targets_takes_their_number_from_size():
    edge_index = torch.tensor([[0, 5, 3, 3, 2], [1, 0, 1, 1, 2]])
    conv, source = layer(Relation(1)), x_of(6, 4)
    out = conv((source, None), edge_index, size=(6, 4))
    assert out.shape == (4, 6)
    assert_near(out, conv((source, x_of(4, 9)), edge_index))
    # As in PyG: without a size there are as many targets as sources.
    assert_near(conv((source, None), edge_index)[:4], out)
    assert conv((source, None), edge_index).shape == (6, 6)


def test_an_edge_index_object_tells_the_size():
    index = EdgeIndex([[0, 5, 3], [1, 0, 1]], sparse_size=(6, 4))
    conv, source = layer(Relation(1)), x_of(6, 4)
    out = conv((source, x_of(4, 2)), index)
    assert_near(out, conv((source, None), index.as_tensor(), size=(6, 4)))
    assert_near(out, conv((source, None), index))
    part = EdgeIndex(index.as_tensor(), sparse_size=(6, None))
    assert len(conv((source, None), part)) == 6
    other = layer(Relation(1), flow="target_to_source")
    other.load_state_dict(conv.state_dict())
    turned = EdgeIndex(index.as_tensor().flip(0), sparse_size=(4, 6))
    assert_near(out, other((None, source), turned))


def test_add_is_sum_as_in_pyg():
    conv = OuterConv(4, 6, GCN(), aggr="add", label_aggr="add")
    assert (conv.aggr, conv.label_aggr) == ("sum", "sum")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("family", ["gcn", "chebyshev", "walk", "relation", "directed"])
def test_short_integers_are_indices_too(dtype, family):
    edge_index = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 2]])
    conv, x = OuterConv(3, 2, family), torch.randn(300, 3)
    torch.testing.assert_close(conv(x, edge_index.to(dtype)), conv(x, edge_index))


# State -------------------------------------------------------------------------------------------


def test_lazy_pairs_come_from_the_first_input():
    conv = layer(Relation(1), (-1, -1), 6, root_weight=True)
    conv((x_of(6, 4), x_of(4, 3)), torch.tensor([[0, 5], [1, 0]]))
    assert conv.theta.weight.shape == (1, 4, 6)
    assert conv.root.weight.shape == (1, 3, 6)


LAZY = {
    **{form: lambda q, form=form: layer(Walk(1), -1, q, theta=form, bias=False) for form in FORMS},
    **{
        f"attention, {name}": lambda q, options=options: AttentionConv(
            -1, q, heads=2, support="complete", bias=False, **options
        )
        for name, options in {
            "key-query": {},
            "gatv2": {"score": "gatv2"},
            "additive": {"score": "additive", "channels": 3},
            "value-output": {"combine": "sum", "value_channels": 3},
            "channels of keys": {"combine": "sum"},
        }.items()
    },
    "multi-head parts": lambda q: layer("stack(gat(heads=2), gcn)", -1, q, bias=False),
    "root": lambda q: layer(GCN(), -1, q, theta="shared", root_weight=True, bias=False),
}


@pytest.mark.parametrize("name", LAZY)
def test_a_lazy_layer_refuses_state_of_other_output_channels(name):
    lazy, first, other = LAZY[name](8), LAZY[name](8), LAZY[name](4)
    x = x_of(5, 2)
    for conv in (first, other):
        conv(x, EDGES)
    with pytest.raises(RuntimeError, match="Error.* in loading state_dict"):
        lazy.load_state_dict(other.state_dict())
    lazy.load_state_dict(first.state_dict())  # the refused state has settled nothing
    assert_near(lazy(x, EDGES), first(x, EDGES))


def test_repr_says_channels_and_family():
    family = Directed(GCN())
    assert repr(family).startswith("Directed(family=GCN(norm='sym', add_self_loops=True, ")
    assert repr(OuterConv(4, 6, family)) == f"OuterConv(4, 6, {family})"
    assert repr(OuterConv((-1, -1), 6, "identity")) == "OuterConv((-1, -1), 6, Identity())"


def test_self_loops_can_be_set_only_where_the_family_has_them():
    conv = layer(Walk(2))
    assert not conv.add_self_loops
    conv.add_self_loops = True
    assert conv.family == Walk(2, add_self_loops=True)
    conv = layer(Chebyshev(2))
    conv.add_self_loops = False
    with pytest.raises(ValueError, match="the family must have the option add_self_loops"):
        conv.add_self_loops = True
    assert conv.family == Chebyshev(2)
    with pytest.raises(ValueError, match="the layer was made without its parameters"):
        conv.root_weight = True


# Hooks -------------------------------------------------------------------------------------------


def test_message_hooks_see_and_change_messages_in_the_order_of_the_edges():
    conv, x, weight = layer(Relation(1, None)), x_of(), weights()
    plain, seen = conv(x, EDGES, weight), []
    handles = [
        conv.register_message_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])),
        conv.register_message_forward_hook(lambda _, __, out: seen.append(out)),
        conv.register_propagate_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])),
        conv.register_aggregate_forward_hook(lambda _, __, out: seen.append(out)),
        conv.register_propagate_forward_hook(lambda _, __, out: seen.append(out)),
    ]
    assert_near(conv(x, EDGES, weight), plain)
    edge_index, sent, message, aggregated, propagated = seen
    assert torch.equal(edge_index, EDGES)
    z = x @ conv.theta.weight[0]
    assert_near(sent["x_j"], z[EDGES[0]])
    assert_near(message, weight[:, None] * z[EDGES[0]])
    assert_near(aggregated, plain - conv.bias)
    assert_near(propagated, plain - conv.bias)
    for handle in handles:
        handle.remove()
    handle = conv.register_message_forward_hook(lambda _, __, out: torch.zeros_like(out))
    assert_near(conv(x, EDGES, weight), conv.bias.expand(5, 6))
    handle.remove()
    with record() as calls:
        conv(x, EDGES, weight)
    assert [call.primitive for call in calls] == ["spmm"]


def test_a_message_runs_along_every_edge_of_every_label():
    conv, counts = layer(Stack(Relation(3), Identity(), Walk(2))), []
    conv.register_message_forward_hook(lambda _, __, out: counts.append(out.size(0)))
    conv(x_of(), EDGES, None, edge_type=KINDS)
    # The relations' edges once, the walk's once for each step; the identity sends none.
    assert counts == [7, 7, 7]


def test_hooks_of_the_fused_step_see_the_basis_and_change_the_result():
    conv, x, seen = layer(Walk(2)), x_of(), []
    plain = conv(x, EDGES)
    conv.register_message_and_aggregate_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    handle = conv.register_message_and_aggregate_forward_hook(lambda _, __, out: 2 * out)
    assert_near(conv(x, EDGES), 2 * plain - conv.bias)
    ((basis, inputs),) = seen
    assert basis.num_bases == 3
    assert inputs["x"] is x
    handle.remove()
    conv.register_message_and_aggregate_forward_pre_hook(
        lambda _, inputs: (inputs[0].scale(3.0), inputs[1])
    )
    conv.register_message_and_aggregate_forward_hook(lambda _, __, out: seen.append(out))
    with torch.no_grad():
        out = conv(x, EDGES)
    assert_near(out, 3 * plain - 2 * conv.bias)
    assert_near(seen[-1], out - conv.bias)  # a hook keeps what it was given
