"""PyG's explainers on attention, and on heterogeneous models of our layers."""

import pytest
import torch
from against_pyg import copy_gat
from torch_geometric.data import HeteroData
from torch_geometric.explain import (
    AttentionExplainer,
    CaptumExplainer,
    Explainer,
    GNNExplainer,
    PGExplainer,
    fidelity,
    unfaithfulness,
)
from torch_geometric.nn import GATConv, SAGEConv, to_hetero

from pyg_outerconv.nn import AttentionGNN, OuterConv, OuterGNN, gat_conv
from pyg_outerconv.testing import assert_near

# Two components: 0 to 4, and 5 and 6.
EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1, 5, 6], [1, 2, 3, 0, 2, 1, 4, 6, 5]])
MODELS = {
    "convolution": lambda: OuterGNN(4, 8, 2, 3, family="walk(1)"),
    "attention": lambda: AttentionGNN(4, 8, 2, 3, heads=2),
    "gat": lambda: AttentionGNN(
        4, 8, 2, 3, heads=2, score="additive", support="hops(add_self_loops=True)"
    ),
}
of_each_model = pytest.mark.parametrize("kind", MODELS)


def explained(model, algorithm, **options):
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    options = {"explanation_type": "model", "edge_mask_type": "object", **options}
    return Explainer(model, algorithm=algorithm, model_config=config, **options)


def assert_explains_node_2(mask):
    assert mask.shape == (9,)
    assert bool(mask.isfinite().all())
    assert bool(mask[:7].any())
    assert not mask[7:].any(), "edges of another component"


@of_each_model
def test_masks_of_gnn_explainer_are_of_edges_that_matter(kind):
    model, x = MODELS[kind](), torch.randn(7, 4)
    explain = explained(model, GNNExplainer(epochs=5), node_mask_type="attributes")
    explanation = explain(x, EDGES, index=2)
    assert_explains_node_2(explanation.edge_mask)
    assert not explanation.node_mask[5:].any()
    assert all(0 <= value <= 1 for value in fidelity(explain, explanation))
    assert 0 <= unfaithfulness(explain, explanation) <= 1


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@of_each_model
def test_pg_explainer_trains_on_each_model(kind):
    model, x, target = MODELS[kind](), torch.randn(7, 4), torch.randint(3, (7,))
    explain = explained(model, PGExplainer(epochs=2), explanation_type="phenomenon")
    for epoch in range(2):
        explain.algorithm.train(epoch, model, x, EDGES, target=target, index=2)
    assert_explains_node_2(explain(x, EDGES, target=target, index=2).edge_mask)


@pytest.mark.filterwarnings("ignore:Input Tensor 0 did not already require")
@pytest.mark.parametrize("method", ["Saliency", "InputXGradient", "IntegratedGradients"])
@of_each_model
def test_captum_attributes_edges_that_matter(kind, method):
    pytest.importorskip("captum", reason="captum is not installed")
    model, x = MODELS[kind](), torch.randn(7, 4)
    explain = explained(model, CaptumExplainer(method), node_mask_type="attributes")
    explanation = explain(x, EDGES, index=2)
    assert_explains_node_2(explanation.edge_mask)
    assert not explanation.node_mask[5:].any()


# Several types of nodes ---------------------------------------------------------------------------


def graph():
    data = HeteroData()
    data["a"].x, data["b"].x = torch.randn(5, 4), torch.randn(3, 6)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1, 4, 3], [0, 2, 2, 2]])
    data["b", "to", "a"].edge_index = torch.tensor([[0, 1, 2], [0, 4, 1]])
    return data


class Outputs(torch.nn.Module):
    """A heterogeneous model, of which the outputs of one type of nodes are explained."""

    def __init__(self, conv, metadata):
        super().__init__()
        self.model = to_hetero(Two(conv), metadata)

    def forward(self, x, edge_index):
        return self.model(x, edge_index)["a"]


class Two(torch.nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.first, self.second = conv(8), conv(3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


CONVS = {
    "convolution": lambda q: OuterConv((-1, -1), q, "relation(1)", root_weight=True),
    "attention": lambda q: gat_conv((-1, -1), q, add_self_loops=False),
}
PEERS = {
    "convolution": lambda q: SAGEConv((-1, -1), q),
    "attention": lambda q: GATConv((-1, -1), q, add_self_loops=False),
}
HETERO = {
    "GNNExplainer": (lambda: GNNExplainer(epochs=5), {"node_mask_type": "attributes"}),
    "CaptumExplainer": (lambda: CaptumExplainer("Saliency"), {"node_mask_type": "attributes"}),
    "PGExplainer": (lambda: PGExplainer(epochs=1), {"explanation_type": "phenomenon"}),
}


@pytest.mark.filterwarnings("ignore:Input Tensor . did not already require")
@pytest.mark.parametrize("algorithm", HETERO)
@pytest.mark.parametrize("kind", CONVS)
def test_in_several_types_those_edges_matter_that_matter_to_pygs_layers(kind, algorithm):
    if algorithm == "CaptumExplainer":
        pytest.importorskip("captum", reason="captum is not installed")
    data, found = graph(), []
    for conv in (CONVS[kind], PEERS[kind]):
        model = Outputs(conv, data.metadata())
        model(data.x_dict, data.edge_index_dict)
        make, options = HETERO[algorithm]
        explain, beside = explained(model, make(), **options), {}
        if algorithm == "PGExplainer":
            beside = {"target": torch.randint(3, (5,))}
            given = (model, data.x_dict, data.edge_index_dict)
            explain.algorithm.train(0, *given, index=1, **beside)
        explanation = explain(data.x_dict, data.edge_index_dict, index=1, **beside)
        found.append({kind: explanation[kind].edge_mask != 0 for kind in data.edge_types})
    ours, theirs = found
    for kind in data.edge_types:
        assert torch.equal(ours[kind], theirs[kind])
    # Node a1 hears b2.
    assert ours["b", "to", "a"].tolist() == [False, False, True]
    if algorithm != "PGExplainer":  # and b2 hears a1, a4 and a3
        assert ours["a", "to", "b"].tolist() == [False, True, True, True]


def test_shares_of_each_relation_are_those_that_explainers_see_of_gat():
    data, masks = graph(), []
    models = [Outputs(make["attention"], data.metadata()) for make in (CONVS, PEERS)]
    for model in models:
        model(data.x_dict, data.edge_index_dict)
    for layer in ("first", "second"):
        for name in ("a__to__b", "b__to__a"):
            ours, theirs = (getattr(model.model, layer)[name] for model in models)
            copy_gat(ours, theirs)
    for model in models:
        explain = explained(model, AttentionExplainer())
        explanation = explain(data.x_dict, data.edge_index_dict, index=2)
        masks.append({kind: explanation[kind].edge_mask for kind in data.edge_types})
    for kind in data.edge_types:
        assert_near(masks[0][kind], masks[1][kind])
    assert ((masks[0]["a", "to", "b"] > 0) & (masks[0]["a", "to", "b"] < 1)).sum() == 3
