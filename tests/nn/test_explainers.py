"""Explainers mask the edges that the user gave, wherever a family uses them."""

import pytest
import torch
from torch_geometric.explain import (
    CaptumExplainer,
    Explainer,
    GNNExplainer,
    GraphMaskExplainer,
    PGExplainer,
)
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Chebyshev, Directed, Identity, Relation, Stack, Walk
from pyg_outerconv.graph import Graph
from pyg_outerconv.testing import assert_near

# Two components and a lonely node: 0 to 4 with a loop at 1 and parallel edges 0 → 2; 5 and 6; 7.
EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1, 0, 5, 6], [1, 2, 3, 0, 2, 1, 1, 2, 6, 5]])
KINDS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 2, 1, 0])
FAMILIES = [
    GCN(),
    Walk(2),
    Walk(2, direction="both", powers=(0, 2)),
    Chebyshev(3),
    Relation(3),
    Directed(GCN(add_self_loops=False)),
    Directed(Walk(2)),
]
of_each_family = pytest.mark.parametrize("family", FAMILIES, ids=str)


def kinds_of(family):
    return KINDS if isinstance(family, Relation) else None


class Model(torch.nn.Module):
    def __init__(self, family):
        super().__init__()
        self.first, self.second = OuterConv(4, 8, family), OuterConv(8, 3, family)

    def forward(self, x, edge_index, edge_type=None):
        hidden = self.first(x, edge_index, edge_type=edge_type).relu()
        return self.second(hidden, edge_index, edge_type=edge_type)


def masked_basis(family, mask):
    """The basis with the value of every edge times the mask of the edge it stems from."""
    edges = Graph.read(EDGES, None, kinds_of(family), size=(8, 8))
    scale = torch.cat([mask, mask.new_ones(1)])  # -1: edges that the family added
    basis = family.basis_on(edges, torch.float32)
    return basis.with_edges(lambda one: one.with_values(one.values() * scale[one.pattern.origin]))


def influence(model, x, family, node):
    """(E,) whether the value of each edge changes the output of the node."""
    mask = torch.ones(10, requires_grad=True)
    basis = masked_basis(family, mask)
    hidden = model.first(x, basis).relu()
    return torch.autograd.grad(model.second(hidden, basis)[node].square().sum(), mask)[0] != 0


def explainer(model, algorithm, *, node_mask_type, explanation_type="model"):
    return Explainer(
        model,
        algorithm=algorithm,
        explanation_type=explanation_type,
        node_mask_type=node_mask_type,
        edge_mask_type="object",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "raw",
        },
    )


def options(family):
    kinds = kinds_of(family)
    return {} if kinds is None else {"edge_type": kinds}


@of_each_family
def test_gnn_explainer_masks_the_edges_that_matter_and_no_others(family):
    model, x = Model(family), torch.randn(8, 4)
    before = model(x, EDGES, **options(family)).detach()
    explain = explainer(model, GNNExplainer(epochs=4), node_mask_type="attributes")
    explanation = explain(x, EDGES, index=2, **options(family))
    assert torch.equal(explanation.edge_mask > 0, influence(model, x, family, 2))
    assert not explanation.edge_mask[8:].any()
    assert not explanation.node_mask[5:].any()
    assert_near(model(x, EDGES, **options(family)), before)


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@of_each_family
def test_pg_explainer_trains_and_masks_within_the_component(family):
    model, x = Model(family), torch.randn(8, 4)
    target = torch.randint(3, (8,))
    explain = explainer(
        model, PGExplainer(epochs=2), node_mask_type=None, explanation_type="phenomenon"
    )
    for epoch in range(2):
        loss = explain.algorithm.train(
            epoch, model, x, EDGES, target=target, index=2, **options(family)
        )
        assert loss == loss
    assert any(bool(p.grad.any()) for p in explain.algorithm.mlp.parameters())
    explanation = explain(x, EDGES, target=target, index=2, **options(family))
    assert bool((explanation.edge_mask[:3] > 0).all())
    assert not explanation.edge_mask[8:].any()


@of_each_family
def test_graph_mask_explainer_weighs_every_edge(family):
    model, x = Model(family), torch.randn(8, 4)
    explain = explainer(
        model, GraphMaskExplainer(2, epochs=2, log=False), node_mask_type="attributes"
    )
    explanation = explain(x, EDGES, index=2, **options(family))
    assert explanation.edge_mask.shape == (10,)
    assert bool(((explanation.edge_mask >= 0) & (explanation.edge_mask <= 1)).all())


@pytest.mark.filterwarnings("ignore:Input Tensor . did not already require")
@of_each_family
def test_captum_explainer_attributes_only_edges_that_matter(family):
    pytest.importorskip("captum", reason="captum is not installed")
    model, x = Model(family), torch.randn(8, 4)
    explain = explainer(model, CaptumExplainer("Saliency"), node_mask_type="attributes")
    explanation = explain(x, EDGES, index=2, **options(family))
    assert torch.equal(explanation.edge_mask != 0, influence(model, x, family, 2))


@pytest.mark.parametrize(
    "family", [Walk(2, aggr="max"), Stack(Walk(1), Walk(2, None, "forward", "mean"))], ids=str
)
def test_products_of_edges_are_refused(family):
    conv, x = OuterConv(4, 6, family), torch.randn(8, 4)
    set_masks(conv, torch.ones(10), EDGES)
    with pytest.raises(ValueError, match="every edge of the basis must stem from one"):
        conv(x, EDGES)
    clear_masks(conv)


def test_a_mask_that_was_never_set_is_asked_for():
    conv = OuterConv(4, 6, Stack(GCN(), Identity()))
    conv.explain = True
    with pytest.raises(ValueError, match="set_masks was not called"):
        conv(torch.randn(8, 4), EDGES)


@pytest.mark.xfail(strict=True, reason="GraphMask keeps one scale a layer, for one set of edges")
def test_graph_mask_explainer_weighs_edge_sets_of_different_sizes():
    # The first family sends messages along self-loops, the second does not.
    model, x = Model(Stack(GCN(), Walk(1))), torch.randn(8, 4)
    algorithm = GraphMaskExplainer(2, epochs=2, log=False)
    explain = explainer(model, algorithm, node_mask_type="attributes")
    assert explain(x, EDGES, index=2).edge_mask.shape == (10,)
