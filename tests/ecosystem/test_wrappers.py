"""What PyG and torch wrap around a layer takes ours as it takes PyG's, with the same numbers."""

import copy

import pytest
import torch
from against_pyg import copy_weights, pair_of
from torch.nn.utils import parametrizations, prune
from torch.optim.swa_utils import AveragedModel
from torch_geometric.nn import (
    GAE,
    VGAE,
    ASAPooling,
    DeepGCNLayer,
    DeepGraphInfomax,
    DirGNNConv,
    GATConv,
    GCNConv,
    GPSConv,
    GroupAddRev,
    SAGPooling,
    summary,
)
from torch_geometric.profile import count_parameters, get_model_size

from pyg_outerconv.graph import SparseFeatures
from pyg_outerconv.nn import AttentionConv, OuterConv, gat_conv
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1], [1, 2, 3, 0, 2, 1, 4]])


# Ours and PyG's layer with the same parameters.
PAIRS = {
    "convolution": lambda p, q: pair_of(OuterConv(p, q, "gcn"), GCNConv(p, q)),
    "attention": lambda p, q: pair_of(gat_conv(p, q // 2, 2), GATConv(p, q // 2, 2)),
}
of_each_pair = pytest.mark.parametrize("kind", PAIRS)


def x_of(*shape):
    return torch.randn(*(shape or (5, 8)))


def seeded(make, *arguments, **options):
    torch.manual_seed(3)
    return make(*arguments, **options)


def assert_same(ours, theirs, *arguments):
    """Outputs, and gradients of the features."""
    x = x_of().requires_grad_()
    out, expected = ours(x, *arguments), theirs(x, *arguments)
    assert_near(out, expected, 1e-5)
    direction = torch.randn_like(out)
    (gradient,) = torch.autograd.grad(out, x, direction)
    assert_near(gradient, torch.autograd.grad(expected, x, direction)[0], 5e-5)


@pytest.mark.parametrize("theta", ["full", "grouped(groups=2)", "low-rank(rank=2)"])
@pytest.mark.parametrize("family", ["gcn", "identity", "stack(gcn, identity)", "walk(2)"])
@pytest.mark.parametrize("layout", ["dense", "csr", "SparseFeatures"])
def test_gradients_have_the_strides_of_their_parameters(layout, family, theta):
    """DistributedDataParallel warns of others, and copies them."""
    x = (torch.rand(5, 8) < 0.4).float()
    if layout != "dense":
        x = x.to_sparse_csr() if layout == "csr" else SparseFeatures.of(x)
    for width in (4, 32):
        conv = OuterConv(8, width, family, theta=theta)
        parameters = dict(conv.named_parameters())
        gradients = torch.autograd.grad(conv(x, EDGES).sin().sum(), list(parameters.values()))
        for gradient, (name, parameter) in zip(gradients, parameters.items(), strict=True):
            assert gradient.stride() == parameter.stride(), (name, gradient.shape)


@pytest.mark.parametrize("block", ["res+", "res", "dense", "plain"])
@of_each_pair
def test_deep_layers_are_pygs(kind, block):
    ours, theirs = (
        DeepGCNLayer(conv, torch.nn.LayerNorm(8), torch.nn.ReLU(), block=block)
        for conv in PAIRS[kind](8, 8)
    )
    assert_same(ours, theirs, EDGES)


@of_each_pair
def test_both_directions_are_pygs_whose_loops_and_root_weights_are_switched_off(kind):
    ours, theirs = {
        "convolution": (OuterConv(8, 8, "gcn", root_weight=True), GCNConv(8, 8)),
        "attention": (gat_conv(8, 8), GATConv(8, 8)),
    }[kind]
    ours, theirs = DirGNNConv(ours, alpha=0.3), DirGNNConv(theirs, alpha=0.3)
    for mine, its in ((ours.conv_in, theirs.conv_in), (ours.conv_out, theirs.conv_out)):
        assert mine.add_self_loops is its.add_self_loops is False
        assert mine.root is None
        copy_weights(mine, its)
    ours.lin.load_state_dict(theirs.lin.state_dict())
    assert_same(ours, theirs, EDGES)


@of_each_pair
def test_layers_beside_global_attention_are_pygs(kind):
    ours, theirs = (seeded(GPSConv, 8, conv, heads=2) for conv in PAIRS[kind](8, 8))
    assert_same(ours, theirs, EDGES, torch.tensor([0, 0, 0, 1, 1]))
    before = copy.deepcopy(ours.conv.state_dict())
    ours.reset_parameters()
    assert not torch.equal(ours.conv.theta.weight, before["theta.weight"])


@of_each_pair
def test_reversible_groups_are_pygs(kind):
    ours, theirs = (GroupAddRev(conv, num_groups=2) for conv in PAIRS[kind](4, 4))
    for mine, its in zip(ours.convs, theirs.convs, strict=True):
        copy_weights(mine, its)  # the copy that each group gets draws parameters of its own
    x = x_of()
    results = []
    for model in (ours, theirs):
        features = x.clone().requires_grad_()
        out = model(features, EDGES)
        expected = out.detach().clone()
        out.square().sum().backward()
        results.append((expected, features.grad))
    assert_near(results[0][0], results[1][0])
    assert_near(results[0][1], results[1][1], 5e-5)


def test_pooling_by_a_score_of_ours_is_that_of_pygs():
    batch = torch.tensor([0, 0, 0, 0, 0])
    ours = SAGPooling(8, ratio=0.6, GNN=OuterConv, family="gcn")
    theirs = SAGPooling(8, ratio=0.6, GNN=GCNConv)
    copy_weights(ours.gnn, theirs.gnn)
    x = x_of()
    both = (pool(x, EDGES, None, batch) for pool in (ours, theirs))
    for actual, expected in zip(*both, strict=True):
        assert (actual is None) == (expected is None)
        if actual is not None:
            assert_near(actual.float(), expected.float())


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_cluster_pooling_by_a_layer_of_ours_is_that_of_pygs():
    ours = seeded(ASAPooling, 8, GNN=OuterConv, family="gcn")
    theirs = seeded(ASAPooling, 8, GNN=GCNConv)
    theirs.load_state_dict(
        {k: v for k, v in ours.state_dict().items() if not k.startswith("gnn_intra")}, strict=False
    )
    copy_weights(ours.gnn_intra_cluster, theirs.gnn_intra_cluster)
    x = x_of()
    assert_near(ours(x, EDGES)[0], theirs(x, EDGES)[0])


class Encoder(torch.nn.Module):
    """Means and logarithms of deviations."""

    def __init__(self, make):
        super().__init__()
        self.mean, self.deviation = make(), make()

    def forward(self, x, edge_index):
        return self.mean(x, edge_index), self.deviation(x, edge_index)


MAKE = {
    "convolution": lambda: OuterConv(8, 8, "walk(2)"),
    "attention": lambda: AttentionConv(8, 8, heads=2),
}


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("model", ["GAE", "VGAE", "DGI"])
def test_unsupervised_models_train(model, kind):
    make = MAKE[kind]
    if model == "DGI":
        model = DeepGraphInfomax(
            8,
            make(),
            summary=lambda z, *_: z.mean(0).sigmoid(),
            corruption=lambda x, e: (x[torch.randperm(5)], e),
        )
        step = lambda x: model.loss(*model(x, EDGES))  # noqa: E731
    else:
        model = {"GAE": GAE, "VGAE": VGAE}[model](make() if model == "GAE" else Encoder(make))
        step = lambda x: model.recon_loss(model.encode(x, EDGES), EDGES)  # noqa: E731
    x, optimizer, losses = x_of(), torch.optim.Adam(model.parameters(), lr=0.05), []
    for _ in range(30):
        optimizer.zero_grad()
        torch.manual_seed(1)  # the same noise and negative edges in each step
        loss = step(x)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


# torch's own -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKE)
def test_averages_of_models_move_towards_them(kind):
    conv, x = MAKE[kind](), x_of()
    average = AveragedModel(conv)
    average.update_parameters(conv)
    before = conv(x, EDGES).detach()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.zero_()
    assert_near(average(x, EDGES), before)
    average.update_parameters(conv)
    half = [parameter for parameter in average.module.parameters() if parameter.any()]
    assert half
    assert not torch.equal(average(x, EDGES), before)


@pytest.mark.parametrize("kind", MAKE)
def test_weights_are_normed_and_pruned(kind):
    conv, x = MAKE[kind](), x_of()
    expected = conv(x, EDGES).detach()
    parametrizations.weight_norm(conv.theta, "weight")
    assert_near(conv(x, EDGES), expected)
    conv(x, EDGES).sum().backward()
    assert conv.theta.parametrizations.weight.original0.grad is not None
    conv = MAKE[kind]()
    prune.l1_unstructured(conv.theta, "weight", 0.5)
    kept = copy.deepcopy(conv(x, EDGES).detach())
    prune.remove(conv.theta, "weight")
    assert int((conv.theta.weight == 0).sum()) == conv.theta.weight.numel() // 2
    assert_near(conv(x, EDGES), kept)


@of_each_pair
def test_counts_are_those_of_pygs_and_summaries_list_the_layer(kind):
    ours, theirs = PAIRS[kind](8, 8)
    assert count_parameters(ours) == count_parameters(theirs)
    assert get_model_size(ours) > 4 * count_parameters(ours)
    assert "[5, 8], [2, 7]" in summary(ours, x_of(), EDGES)
