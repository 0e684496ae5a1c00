"""What parity does not see of the layers of attention: losses, dropout, types, copies, memory."""

import copy
import io

import pytest
import torch
from probes import Largest
from pyg.parity import assert_close, by_size, contracted
from torch_geometric import nn as theirs

from pyg_outerconv import pyg as ours

P, H, Q, NODES, EDGES = 6, 2, 4, 12, 50
DRAWS = 120


def inputs(name, dtype=torch.float32, nodes=NODES, edges=EDGES, channels=P):
    """The arguments of a call on a random graph without self-loops."""
    torch.manual_seed(2)
    x = torch.randn(nodes, channels, dtype=dtype, requires_grad=True)
    source = torch.randint(nodes, (edges,))
    edge_index = torch.stack([source, (source + torch.randint(1, nodes, (edges,))) % nodes])
    if name == "FAConv":
        return x, x.detach(), edge_index
    return (x, edge_index, torch.randint(3, (edges,))) if name == "RGATConv" else (x, edge_index)


MADE = {
    "GATConv": lambda cls, **options: cls(P, Q, H, **options),
    "GATv2Conv": lambda cls, **options: cls(P, Q, H, **options),
    "TransformerConv": lambda cls, **options: cls(P, Q, H, beta=True, **options),
    "SuperGATConv": lambda cls, **options: cls(P, Q, H, **options),
    "AGNNConv": lambda cls, **options: cls(**options),
    "FAConv": lambda cls, **options: cls(P, **options),
    "RGATConv": lambda cls, **options: cls(P, Q, 3, heads=H, **options),
}
each = pytest.mark.parametrize("name", MADE)


def both(name, **options):
    """PyG's layer and ours, with equal weights."""
    made = []
    for library in (theirs, ours):
        torch.manual_seed(4)
        made.append(MADE[name](getattr(library, name), **options))
    made[1].load_state_dict(made[0].state_dict())
    return made


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "RGATConv"])
def test_a_number_for_each_edge_is_an_attribute(name):
    its, mine = both(name, edge_dim=1)
    arguments, attribute = inputs(name), torch.randn(EDGES)
    assert_close(mine(*arguments, attribute), its(*arguments, attribute), 1e-5, "values")


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_an_edge_dim_without_attributes_adds_nothing(name):
    its, mine = both(name, edge_dim=3)
    assert_close(mine(*inputs(name)), its(*inputs(name)), 1e-5, "values")


def test_an_attribute_that_no_option_reads_is_ignored_by_gat_alone():
    its, mine = both("GATConv")
    arguments, attribute = inputs("GATConv"), torch.randn(EDGES, 3)
    assert_close(mine(*arguments, attribute), its(*arguments, attribute), 1e-5, "values")
    for name in ("GATv2Conv", "TransformerConv", "RGATConv"):
        for layer in both(name):
            with pytest.raises((AssertionError, RuntimeError)):
                layer(*inputs(name), attribute)


@pytest.mark.parametrize("options", [{}, {"edge_sample_ratio": 0.5}, {"is_undirected": True}])
@pytest.mark.parametrize("attention_type", ["MX", "SD"])
def test_super_gat_samples_and_loses_as_pyg(attention_type, options):
    found = []
    for layer in both("SuperGATConv", attention_type=attention_type, **options):
        torch.manual_seed(8)
        x, edge_index = inputs("SuperGATConv")
        out = layer(x, edge_index, batch=torch.arange(NODES) // 4)
        loss = out.square().sum() + layer.get_attention_loss()
        gradients = torch.autograd.grad(loss, [x, *layer.parameters()])
        found.append((out, layer.att_x, layer.att_y, loss, *gradients, torch.rand(1)))
        assert int(layer.eval().get_attention_loss()) == 0
    for one, other in zip(*found, strict=True):
        assert_close(other, one, 1e-4, "outputs, samples, loss, gradients, the next random number")


@each
def test_a_call_in_training_keeps_the_recipe(name):
    layer = both(name)[1]
    layer(*inputs(name))
    kept = layer.outer_conv()
    layer(*inputs(name))
    assert layer.outer_conv() is kept


LAZY = {
    "GATConv": ((-1, Q), ((-1, -1), Q)),
    "GATv2Conv": ((-1, Q), ((-1, -1), Q)),
    "TransformerConv": ((-1, Q), ((-1, -1), Q)),
    "SuperGATConv": ((-1, Q),),
    "FAConv": ((-1,),),
}


@pytest.mark.parametrize(("name", "sizes"), [(name, one) for name in LAZY for one in LAZY[name]])
def test_sizes_that_the_first_input_gives(name, sizes):
    its, mine = (getattr(library, name)(*sizes) for library in (theirs, ours))
    assert mine.why_not() == ["parameters have no shapes before the first input"]
    mine(*inputs(name)), its(*inputs(name))
    mine.load_state_dict(its.state_dict())
    assert mine.why_not() == []
    assert_close(mine(*inputs(name)), its(*inputs(name)), 1e-5, "values")


def test_agnn_takes_features_of_any_width():
    its, mine = both("AGNNConv")
    for channels in (P, 3, P):
        arguments = inputs("AGNNConv", channels=channels)
        assert_close(mine(*arguments), its(*arguments), 1e-5, "values")


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "SuperGATConv", "FAConv", "RGATConv"])
def test_dropout_keeps_the_mean_of_the_output(name):
    arguments, layer = inputs(name), both(name, dropout=0.4)[1]
    dropped = torch.stack([layer.train()(*arguments).detach() for _ in range(DRAWS)])
    assert not torch.equal(dropped[0], dropped[1])
    expected = layer.eval()(*arguments).detach()
    assert ((dropped.mean(0) - expected).abs() <= 6 * dropped.std(0) / DRAWS**0.5 + 1e-5).all()


def test_dropout_drops_whole_shares_and_scales_the_others():
    layer = ours.GATConv(NODES, NODES, dropout=0.25, bias=False)
    with torch.no_grad():
        layer.lin.weight.copy_(torch.eye(NODES))  # the output is A transposed
    x, edge_index = torch.eye(NODES), inputs("GATConv")[1].unique(dim=1)
    kept = layer.eval()(x, edge_index)
    found = torch.stack([layer.train()(x, edge_index) for _ in range(DRAWS)])
    is_dropped = found == 0
    torch.testing.assert_close(
        torch.where(is_dropped, kept / 0.75, found), (kept / 0.75).expand_as(found)
    )
    share = is_dropped[:, kept != 0].float().mean()
    assert abs(float(share) - 0.25) < 0.03


@contracted
@each
def test_copies_have_weights_of_their_own(name):
    layer, arguments = both(name)[1].eval(), inputs(name)
    expected = layer(*arguments)
    stored = io.BytesIO()
    torch.save(layer, stored)
    stored.seek(0)
    for copied in (copy.deepcopy(layer), torch.load(stored, weights_only=False)):
        assert torch.equal(copied(*arguments), expected)
        assert copied.why_not(*arguments) == []
        with torch.no_grad():
            for parameter in copied.parameters():
                parameter.add_(1.0)
        assert torch.equal(layer(*arguments), expected)


@each
def test_autocast_is_as_close_to_the_truth_as_pygs(name):
    its, mine = (layer.eval() for layer in both(name))
    exact = copy.deepcopy(its).double()(*inputs(name, torch.float64)).detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outs = [layer(*inputs(name)) for layer in (its, mine)]
    of_pyg, of_ours = ((out.double() - exact).abs().max() for out in outs)
    assert of_ours <= 3 * of_pyg + 0.01 * exact.abs().max()
    for out in outs:
        out.float().sum().backward()
    learned = [[one.grad is not None for one in layer.parameters()] for layer in (its, mine)]
    assert learned[0] == learned[1]


@by_size
@each
def test_small_graphs_are_left_to_pyg(name):
    layer, arguments = both(name)[1], inputs(name)
    reasons = layer.why_not(*arguments)
    assert reasons == ["a graph so small that PyG's own layer is faster"]


@contracted
@each
def test_no_tensor_of_edges_times_channels_is_made(name):
    wide, nodes, edges = 64, 150, 6000
    options = {
        "GATConv": (wide, wide),
        "AGNNConv": (),
        "FAConv": (wide,),
        "RGATConv": (wide, wide, 3),
    }
    layer = getattr(ours, name)(*options.get(name, (wide, wide)))
    arguments = inputs(name, nodes=nodes, edges=edges, channels=wide)
    with Largest() as largest:
        layer(*arguments).sum().backward()
    assert largest.nbytes < edges * wide * 4 / 2


COMPILED = {
    "GATConv-attributes": {"edge_dim": 3},
    "GATConv": {},
    "GATv2Conv": {},
    "TransformerConv": {},
    "SuperGATConv": {},
    "AGNNConv": {},
}


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("case", COMPILED)
def test_torch_compile_equals_and_breaks_the_graph_no_more_often_than_with_pyg(case):
    name, breaks = case.partition("-")[0], []
    x, edge_index = inputs(name)
    edge_index = torch.cat([edge_index, torch.tensor([[3, 3, 5], [3, 3, 5]])], dim=1)
    attributes = (torch.randn(edge_index.size(1), 3),) if COMPILED[case] else ()
    its, mine = (layer.eval() for layer in both(name, **COMPILED[case]))
    for layer in (its, mine):
        torch._dynamo.reset()
        layer(x, edge_index, *attributes)
        found = torch._dynamo.explain(layer)(x, edge_index, *attributes)
        # A break within a call breaks the frame that calls, too: the same place is counted once.
        places = [reason.user_stack[-1] for reason in found.break_reasons]
        breaks.append(len({(place.filename, place.lineno) for place in places}))
    assert breaks[1] <= breaks[0]
    torch._dynamo.reset()
    out = torch.compile(mine, backend="aot_eager")(x, edge_index, *attributes)
    expected = its(x, edge_index, *attributes)
    assert_close(out, expected, 1e-5, "values")
    ahead = torch.randn_like(expected)
    for layer, one in ((mine, out), (its, expected)):
        one.backward(ahead, inputs=[x, *layer.parameters()])
    for (place, of_mine), of_its in zip(mine.named_parameters(), its.parameters(), strict=True):
        assert_close(of_mine.grad, of_its.grad, 1e-4, place)


@pytest.mark.slow(cases=2)
@each
def test_an_exported_program_gives_the_values_of_the_layer(name):
    _, layer = both(name)
    arguments = inputs(name)
    program = torch.export.export(layer.eval(), arguments).module()
    assert_close(program(*arguments), layer(*arguments), 1e-5, "values")


@contracted
def test_edge_types_out_of_range_are_refused():
    x, edge_index, types = inputs("RGATConv")
    for relations in (1, 2):
        layer = ours.RGATConv(P, Q, relations)
        with pytest.raises(ValueError, match="edge types must be below num_relations"):
            layer(x, edge_index, types)
