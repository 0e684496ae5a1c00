"""What laws do not see of the layers of attention: losses, dropout, attributes, sizes."""

import pytest
import torch
from pyg.cases import CASES
from pyg.parity import assert_close, contracted, layers
from torch_geometric import nn as theirs

from pyg_outerconv import pyg as ours

P, H, Q, NODES, EDGES = 6, 2, 4, 12, 50
DRAWS = 120


def inputs(name, channels=P):
    """The arguments of a call on a random graph without self-loops."""
    torch.manual_seed(2)
    x = torch.randn(NODES, channels, requires_grad=True)
    source = torch.randint(NODES, (EDGES,))
    edge_index = torch.stack([source, (source + torch.randint(1, NODES, (EDGES,))) % NODES])
    if name == "FAConv":
        return x, x.detach(), edge_index
    return (x, edge_index, torch.randint(3, (EDGES,))) if name == "RGATConv" else (x, edge_index)


def both(name, **options):
    """PyG's layer and ours, with equal weights, and several heads if they have heads."""
    heads = {"heads": H} if "heads" in CASES[name].options else {}
    return layers(CASES[name], {**heads, **options}, torch.float32)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "RGATConv"])
def test_a_number_for_each_edge_is_an_attribute(name):
    its, mine = both(name, edge_dim=1)
    arguments, attribute = inputs(name), torch.randn(EDGES)
    assert_close(mine(*arguments, attribute), its(*arguments, attribute), 1e-5, "values")


@pytest.mark.parametrize("options", [{}, {"edge_sample_ratio": 0.5}, {"is_undirected": True}])
@pytest.mark.parametrize("attention_type", ["MX", "SD"])
def test_super_gat_samples_and_loses_as_pyg(attention_type, options):
    outputs = []
    for layer in both("SuperGATConv", attention_type=attention_type, **options):
        torch.manual_seed(8)
        x, edge_index = inputs("SuperGATConv")
        out = layer(x, edge_index, batch=torch.arange(NODES) // 4)
        loss = out.square().sum() + layer.get_attention_loss()
        gradients = torch.autograd.grad(loss, [x, *layer.parameters()])
        outputs.append((out, layer.att_x, layer.att_y, loss, *gradients, torch.rand(1)))
        assert int(layer.eval().get_attention_loss()) == 0
    for one, other in zip(*outputs, strict=True):
        assert_close(other, one, 1e-4, "outputs, samples, loss, gradients, the next random number")


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
    outputs = torch.stack([layer.train()(x, edge_index) for _ in range(DRAWS)])
    is_dropped = outputs == 0
    torch.testing.assert_close(
        torch.where(is_dropped, kept / 0.75, outputs), (kept / 0.75).expand_as(outputs)
    )
    share = is_dropped[:, kept != 0].float().mean()
    assert abs(float(share) - 0.25) < 0.03


@contracted
def test_edge_types_out_of_range_are_refused():
    x, edge_index, types = inputs("RGATConv")
    for relations in (1, 2):
        layer = ours.RGATConv(P, Q, relations)
        with pytest.raises(ValueError, match="edge types must be below num_relations"):
            layer(x, edge_index, types)
