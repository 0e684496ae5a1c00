"""AttentionConv where PyG puts its own layers: wrappers, explainers, copies, compilers, types."""

import pytest
import torch
from against_pyg import EDGES, NODES, P, Q, copy_gat, copy_gatv2, copy_transformer
from torch_geometric.data import HeteroData
from torch_geometric.explain import AttentionExplainer, Explainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import (
    DirGNNConv,
    GATConv,
    GATv2Conv,
    TransformerConv,
    to_hetero,
)

from pyg_outerconv.attention import LearnedQueries, RelativeBias
from pyg_outerconv.families import Hops
from pyg_outerconv.nn.attention.blocks import DecoderBlock, EncoderBlock
from pyg_outerconv.nn.attention.graph_attention import (
    agnn_conv,
    gat_conv,
    gatv2_conv,
    super_gat_conv,
    transformer_conv,
)
from pyg_outerconv.nn.attention.multi_head import set_pooling
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.testing import assert_near

LAYERS = {
    "plain": lambda i=P, o=Q: AttentionConv(i, o, 2),
    "sum": lambda i=P, o=Q: AttentionConv(
        i, o, 2, combine="sum", value_channels=3, value_bias=True
    ),
    "gat": lambda i=P, o=Q: gat_conv(i, o, 2, concat=False),
    "gatv2": lambda i=P, o=Q: gatv2_conv(i, o, 2, concat=False),
    "supergat": lambda i=P, o=Q: super_gat_conv(i, o, 2, concat=False),
    "transformer": lambda i=P, o=Q: transformer_conv(i, o, 2, concat=False, beta=True),
}


def x_of(*shape):
    return torch.randn(*(shape or (NODES, P)))


# What comes in and out ---------------------------------------------------------------------------


def test_means_are_those_of_a_given_support_too():
    conv, x = AttentionConv(P, Q, 2, aggr="mean"), x_of()
    support = Hops().basis(EDGES, size=(NODES, NODES))
    assert_near(conv(x, support), conv(x, EDGES))


def test_a_support_given_with_edge_features_and_positions():
    conv, x, attr = transformer_conv(P, Q, 2, edge_dim=3), x_of(), x_of(EDGES.size(1), 3)
    support = Hops().basis(EDGES, size=(NODES, NODES))
    assert_near(conv(x, support, edge_attr=attr), conv(x, EDGES, edge_attr=attr))
    conv, pos = AttentionConv(P, Q, 2, terms=(RelativeBias(2, 3),)), torch.arange(9.0).view(-1, 1)
    assert_near(conv(x, support, pos=pos), conv(x, EDGES, pos=pos))
    conv = AttentionConv(P, Q, 2, support="causal")
    assert_near(conv(x, conv.family.support.basis(None, size=(NODES, NODES))), conv(x))


@pytest.mark.parametrize(
    "score", ["key-query", "bilinear", "additive", "gatv2", "feature-map", "gatv2(own=True)"]
)
def test_queries_may_be_of_another_width(score):
    fits = AttentionConv((P, P + 2), Q, 2, "complete", LearnedQueries(3, P + 2), score)
    assert fits(x_of(5, P)).shape == (3, Q)


# Wrappers ----------------------------------------------------------------------------------------


def hetero(edge_dim=None):
    data = HeteroData()
    data["a"].x, data["b"].x = x_of(4, 5), x_of(3, 7)
    ends = {("a", "b"): [[0, 1, 3], [0, 2, 2]], ("b", "a"): [[0, 1, 2], [0, 2, 1]]}
    for (source, target), index in ends.items():
        store = data[source, "to", target]
        store.edge_index = torch.tensor(index)
        if edge_dim:
            store.edge_attr = x_of(3, edge_dim)
    return data


@pytest.mark.parametrize("kind", ["plain", "sum", "gat", "gatv2", "transformer"])
def test_to_hetero_makes_a_layer_for_each_edge_type(kind):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = make((-1, -1), 6)
            self.second = make((-1, -1), 4)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    def make(i, o):
        conv = LAYERS[kind](i, o)
        if kind.startswith("gat"):
            conv = {"gat": gat_conv, "gatv2": gatv2_conv}[kind](
                i, o, 2, concat=False, add_self_loops=False
            )
        return conv

    data = hetero()
    model = to_hetero(Two(), data.metadata(), aggr="sum")
    out = model(data.x_dict, data.edge_index_dict)
    assert {name: value.shape for name, value in out.items()} == {"a": (4, 4), "b": (3, 4)}
    first = {key: model.first["__".join(key)] for key in data.edge_types}
    hidden = {}
    for (source, _, target), conv in first.items():
        ends = data.x_dict[source], data.x_dict[target]
        hidden[target] = conv(ends, data.edge_index_dict[source, "to", target]).relu()
    for source, target in (("a", "b"), ("b", "a")):
        conv = model.second[f"{source}__to__{target}"]
        index = data.edge_index_dict[source, "to", target]
        assert_near(conv((hidden[source], hidden[target]), index), out[target])


@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_self_loops_can_be_switched_as_in_pyg(kind, edge_dim):
    make, peer, copied = {
        "gat": (gat_conv, GATConv, copy_gat),
        "gatv2": (gatv2_conv, GATv2Conv, copy_gatv2),
    }[kind]
    ours, theirs = make(P, Q, edge_dim=edge_dim), peer(P, Q, edge_dim=edge_dim)
    copied(ours, theirs)
    x, beside = x_of(), {} if edge_dim is None else {"edge_attr": x_of(EDGES.size(1), 3)}
    for add in (True, False, True):
        ours.add_self_loops = theirs.add_self_loops = add
        assert ours.add_self_loops == add
        assert_near(ours(x, EDGES, **beside), theirs(x, EDGES, **beside))


def test_dir_gnn_conv_switches_loops_off():
    ours, theirs = gat_conv(P, Q), GATConv(P, Q)
    copy_gat(ours, theirs)
    ours, theirs = DirGNNConv(ours), DirGNNConv(theirs)
    ours.lin.load_state_dict(theirs.lin.state_dict())
    for mine, its in ((ours.conv_in, theirs.conv_in), (ours.conv_out, theirs.conv_out)):
        assert mine.add_self_loops == its.add_self_loops
        copy_gat(mine, its)
    x = x_of()
    assert_near(ours(x, EDGES), theirs(x, EDGES))


# Explainers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gat", "transformer"])
def test_masks_reach_what_edge_features_add(kind):
    make = {"gat": gat_conv, "transformer": transformer_conv}[kind]
    conv, x, attr = make(P, Q, edge_dim=3), x_of(), x_of(EDGES.size(1), 3)
    plain, ones = conv(x, EDGES, edge_attr=attr), torch.ones(EDGES.size(1))
    set_masks(conv, ones, EDGES, apply_sigmoid=False)
    assert_near(conv(x, EDGES, edge_attr=attr), plain)
    set_masks(conv, 0 * ones, EDGES, apply_sigmoid=False)
    nothing = conv(x, EDGES, edge_attr=attr)
    clear_masks(conv)
    if kind == "transformer":
        assert_near(nothing, conv.skip(x))
    else:  # what the loops bring, which were added
        _, basis = conv(x, EDGES, edge_attr=attr, return_attention_weights=True)
        own = basis.to_dense()[0].diagonal()[:, None] * (x @ conv.theta.weight[0])
        assert_near(nothing, own + conv.bias)


@pytest.mark.parametrize("edge", [0, 4, 7])
def test_masking_one_edge_with_features_is_pygs(edge):
    ours, theirs = transformer_conv(P, Q, 2, edge_dim=3), TransformerConv(P, Q, 2, edge_dim=3)
    copy_transformer(ours, theirs)
    x, attr, mask = x_of(), x_of(EDGES.size(1), 3), torch.ones(EDGES.size(1))
    mask[edge] = 0.25
    for conv in (ours, theirs):
        set_masks(conv, mask, EDGES, apply_sigmoid=False)
    assert_near(ours(x, EDGES, edge_attr=attr), theirs(x, EDGES, attr))


def explained(model, algorithm, **options):
    config = {
        "mode": "multiclass_classification",
        "task_level": "node",
        "return_type": "raw",
    }
    return Explainer(
        model,
        algorithm=algorithm,
        explanation_type="model",
        edge_mask_type="object",
        model_config=config,
        **options,
    )


class TwoLayers(torch.nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("add_self_loops", [True, False])
def test_attention_explainers_see_what_they_see_of_pyg(add_self_loops):
    edges = EDGES[:, EDGES[0] != EDGES[1]]
    options = {"heads": 2, "add_self_loops": add_self_loops, "concat": False}
    ours = TwoLayers(gat_conv(P, Q, **options), gat_conv(Q, 3, **options))
    theirs = TwoLayers(GATConv(P, Q, **options), GATConv(Q, 3, **options))
    with torch.no_grad():
        for mine, its in ((ours.first, theirs.first), (ours.second, theirs.second)):
            mine.theta.weight.copy_(its.lin.weight.t().unflatten(1, (2, -1)).transpose(0, 1))
            mine.family.score.att_source.copy_(its.att_src[0])
            mine.family.score.att_target.copy_(its.att_dst[0])
    x = x_of()
    found, expected = (explained(model, AttentionExplainer())(x, edges) for model in (ours, theirs))
    assert_near(found.edge_mask, expected.edge_mask)
    assert ours.first._alpha is None


# State -------------------------------------------------------------------------------------------


# Little to see -----------------------------------------------------------------------------------


def test_blocks_and_pools_of_one_node_or_none():
    for nodes in (0, 1):
        x = x_of(2, nodes, 8)
        assert EncoderBlock(8, 2, support="causal")(x).shape == (2, nodes, 8)
        assert DecoderBlock(8, 2)(x, x).shape == (2, nodes, 8)
        pooled = set_pooling(8, 8, 2, num_queries=3)(x)
        assert pooled.shape == (2, 3, 8)
        assert bool(pooled.isfinite().all())


def test_repr_says_what_attention_is_made_of():
    assert repr(agnn_conv()) == (
        "AttentionConv(-1, -1, heads=1, support=Hops(length=1, add_self_loops=True), "
        "score='cosine', normalise=Softmax(), combine='sum')"
    )
