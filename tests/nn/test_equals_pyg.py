"""The layer with PyG's weights is PyG's layer, in value and in every gradient."""

import pytest
import torch
from calls import named
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from peers import PEERS, PYG, P, Q, R, of_graph_conv, of_rgcn, of_sage
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Batch, Data
from torch_geometric.nn import ChebConv, GCNConv, GraphConv, RGCNConv, SAGEConv

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Chebyshev, Relation
from pyg_outerconv.testing import assert_near, awkward_structures

DTYPES = (torch.float64, torch.float32)
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
WEIGHT_TOLERANCE = {torch.float64: 1e-10, torch.float32: 5e-5}
GRAPHS = [
    "directed",
    "undirected",
    "weighted",
    "multi-edge",
    "self-loops",
    "isolated nodes",
    "zero edges",
    "one loop",
]


@pytest.fixture(autouse=True)
def means_within_a_relation(monkeypatch):
    """RGCNConv's other code path averages over all relations at once, unlike its paper."""
    monkeypatch.setattr("torch_geometric.backend.use_segment_matmul", False)


def randomised(module, dtype):
    module = module.to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return module


def features(*shape, dtype):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def assert_equal(conv, peer, mapping, call, peer_call, inputs):
    """Our layer, run on PyG's parameters, gives its values and its gradients."""
    parameters = mapping(peer)
    assert set(parameters) == {name for name, _ in conv.named_parameters()}
    for name, parameter in conv.named_parameters():
        assert parameters[name].shape == parameter.shape, name
    actual, expected = functional_call(conv, parameters, (), call), peer_call()
    dtype = expected.dtype
    assert_near(actual, expected, TOLERANCE[dtype])
    weights = list(peer.parameters())
    direction = torch.randn_like(expected)
    wanted = [*inputs, *weights]
    found = torch.autograd.grad(actual, wanted, direction, allow_unused=True)
    reference = torch.autograd.grad(expected, wanted, direction, allow_unused=True)
    for place, (tensor, mine, theirs) in enumerate(zip(wanted, found, reference, strict=True)):
        mine, theirs = (torch.zeros_like(tensor) if g is None else g for g in (mine, theirs))
        is_feature = place < len(inputs) and tensor.dim() == 2
        tolerance = (TOLERANCE if is_feature else WEIGHT_TOLERANCE)[dtype]
        assert_near(mine, theirs, tolerance, at_least=0.1)


def assert_peer(name, edge_index, weight, edge_type, num_nodes, dtype):
    peer = PEERS[name]
    theirs = randomised(peer.make(), dtype)
    x = features(num_nodes, P, dtype=dtype)
    size = (num_nodes, num_nodes)
    if weight is not None:
        weight = weight.detach().to(dtype).requires_grad_() if peer.weighted else None
    edge_type = edge_type if peer.typed else None
    options = peer.extra(edge_index, weight, num_nodes, dtype)
    if weight is not None:
        options["edge_weight"] = weight
    if edge_type is not None:
        options["edge_type"] = edge_type
    assert_equal(
        randomised(peer.ours(), dtype),
        theirs,
        peer.mapping,
        dict(named(edge_index, weight, edge_type, size), x=x),
        lambda: theirs(x, edge_index, **options),
        [x] if weight is None else [x, weight],
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", PEERS)
def test_equals_pyg(name, graph, dtype):
    edges = awkward_structures(dtype)[graph]
    edge_index, weight, kinds = edges.edge_index, edges.edge_weight, edges.edge_type
    if not PEERS[name].loops:
        keep = first_loops(edge_index)
        edge_index, kinds = edge_index[:, keep], kinds[keep]
        weight = None if weight is None else weight[keep]
    assert_peer(name, edge_index, weight, kinds, edges.size[0], dtype)


def first_loops(edge_index):
    """All edges but the second self-loop of any node."""
    seen, keep = set(), []
    for source, target in edge_index.t().tolist():
        keep.append(source != target or source not in seen)
        if source == target:
            seen.add(source)
    return torch.tensor(keep, dtype=torch.bool)


@st.composite
def graphs(draw):
    """Directed multigraphs with self-loops and isolated nodes: pairs, weights, types, N."""
    num_nodes = draw(st.integers(1, 7))
    node = st.integers(0, num_nodes - 1)
    edges = draw(
        st.lists(st.tuples(node, node, st.floats(0.1, 2.0), st.integers(0, R - 1)), max_size=14)
    )
    edge_index = torch.tensor([edge[:2] for edge in edges], dtype=torch.long).reshape(-1, 2).t()
    weight = torch.tensor([edge[2] for edge in edges], dtype=torch.float64)
    kinds = torch.tensor([edge[3] for edge in edges], dtype=torch.long)
    return edge_index.contiguous(), weight, kinds, num_nodes


@pytest.mark.parametrize("name", PEERS)
@draws(12)
@given(graph=graphs(), weighted=st.booleans(), seed=st.integers(0, 2**16))
def test_equals_pyg_on_any_graph(name, graph, weighted, seed):
    torch.manual_seed(seed)
    edge_index, weight, kinds, num_nodes = graph
    if not PEERS[name].loops:
        keep = first_loops(edge_index)
        edge_index, weight, kinds = edge_index[:, keep], weight[keep], kinds[keep]
    weight = weight if weighted else None
    assert_peer(name, edge_index, weight, kinds, num_nodes, torch.float64)


def test_gcn_norm_keeps_one_of_several_self_loops_and_gcn_all():
    edge_index = torch.tensor([[0, 1, 1], [1, 1, 1]])
    theirs = randomised(GCNConv(P, Q), torch.float64)
    ours = OuterConv(P, Q, GCN(), bias=False).double()
    x = features(2, P, dtype=torch.float64)
    both = ours.basis(x, edge_index).to_dense()[0]
    # The in-degree of node 1: one edge and two loops.
    torch.testing.assert_close(both[1, 1], torch.tensor(2 / 3, dtype=torch.float64))
    once = ours.basis(x, edge_index[:, :2]).to_dense()[0]
    expected = once.t() @ x @ theirs.lin.weight.t() + theirs.bias
    assert_near(theirs(x, edge_index), expected)


def test_gcn_norm_forgets_improved_without_weights_and_gcn_does_not():
    edge_index = torch.tensor([[0], [1]])
    x = torch.eye(2, P, dtype=torch.float64)
    theirs = randomised(GCNConv(P, Q, improved=True), torch.float64)
    ones = torch.ones(1, dtype=torch.float64)
    bare, given = theirs(x, edge_index), theirs(x, edge_index, ones)
    ours = GCN(improved=True).basis(edge_index, dtype=torch.float64)
    assert_near(ours.to_dense()[0].t() @ x @ theirs.lin.weight.t() + theirs.bias, given)
    plain = GCN().basis(edge_index, dtype=torch.float64)
    assert_near(plain.to_dense()[0].t() @ x @ theirs.lin.weight.t() + theirs.bias, bare)


# Two sets of nodes -------------------------------------------------------------------------------


def bipartite(dtype):
    edge_index = torch.tensor([[0, 5, 3, 3, 2, 4], [1, 0, 1, 1, 2, 2]])
    return edge_index, features(6, P, dtype=dtype), features(4, 3, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("aggr", ["add", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_bipartite_graph_conv(aggr, weighted, dtype):
    edge_index, source, target = bipartite(dtype)
    weight = torch.rand(6, dtype=dtype).add(0.1).requires_grad_() if weighted else None
    theirs = randomised(GraphConv((P, 3), Q, aggr=aggr), dtype)
    ours = OuterConv((P, 3), Q, Relation(1, None), aggr=aggr, root_weight=True).to(dtype)
    assert_equal(
        ours,
        theirs,
        of_graph_conv,
        {"x": (source, target), "edge_index": edge_index, "edge_weight": weight},
        lambda: theirs((source, target), edge_index, weight),
        [source, target] + ([weight] if weighted else []),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bipartite_sage_conv(dtype):
    edge_index, source, target = bipartite(dtype)
    theirs = randomised(SAGEConv((P, 3), Q, aggr="mean"), dtype)
    ours = OuterConv((P, 3), Q, Relation(1, "mean"), root_weight=True).to(dtype)
    assert_equal(
        ours,
        theirs,
        of_sage,
        {"x": (source, target), "edge_index": edge_index},
        lambda: theirs((source, target), edge_index),
        [source, target],
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bipartite_sage_conv_without_targets(dtype):
    edge_index, source, _ = bipartite(dtype)
    theirs = randomised(SAGEConv(P, Q, aggr="mean", root_weight=False), dtype)
    ours = OuterConv(P, Q, Relation(1, "mean")).to(dtype)
    assert_equal(
        ours,
        theirs,
        lambda peer: {"theta.weight": peer.lin_l.weight.t()[None], "bias": peer.lin_l.bias},
        {"x": (source, None), "edge_index": edge_index, "size": (6, 4)},
        lambda: theirs((source, None), edge_index, size=(6, 4)),
        [source],
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("aggr", ["add", "mean"])
def test_bipartite_rgcn_conv(aggr, dtype):
    edge_index, source, target = bipartite(dtype)
    kinds = torch.tensor([0, 2, 1, 2, 0, 0])
    theirs = randomised(RGCNConv((P, 3), Q, R, aggr=aggr), dtype)
    family = Relation(R, None if aggr == "add" else "mean")
    ours = OuterConv((P, 3), Q, family, root_weight=True).to(dtype)
    assert_equal(
        ours,
        theirs,
        of_rgcn,
        {"x": (source, target), "edge_index": edge_index, "edge_type": kinds},
        lambda: theirs((source, target), edge_index, kinds),
        [source, target],
    )


# No features -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("aggr", ["add", "mean"])
@pytest.mark.parametrize("num_bases", [None, 2])
@pytest.mark.parametrize("given_as", ["None", "indices"])
def test_rgcn_conv_without_features(given_as, num_bases, aggr, dtype):
    edges = awkward_structures()["multi-edge"]
    edge_index, kinds = edges.edge_index, edges.edge_type
    x = None if given_as == "None" else torch.tensor([3, 1, 0, 4, 1])
    theirs = randomised(RGCNConv(5, Q, R, aggr=aggr, num_bases=num_bases), dtype)
    ours = OuterConv(
        5,
        Q,
        Relation(R, None if aggr == "add" else "mean"),
        theta="full" if num_bases is None else f"basis-decomposed:{num_bases}",
        root_weight=True,
    ).to(dtype)
    assert_equal(
        ours,
        theirs,
        of_rgcn,
        {"x": x, "edge_index": edge_index, "edge_type": kinds},
        lambda: theirs(x, edge_index, kinds),
        [],
    )


# Batches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm", ["sym", "source", None])
@pytest.mark.parametrize("given_by", ["exact", "numbers"])
def test_cheb_conv_with_an_eigenvalue_for_each_graph(given_by, norm, dtype):
    names = ("directed", "undirected", "self-loops", "isolated nodes")
    structures = [awkward_structures(dtype)[name] for name in names]
    extra = PEERS[f"ChebConv({norm}, exact)"].extra
    data, largest = [], []
    for edges in structures:
        weight = torch.rand(edges.num_edges, dtype=dtype) + 0.1
        data.append(Data(edge_index=edges.edge_index, edge_weight=weight, num_nodes=edges.size[0]))
        largest.append(extra(edges.edge_index, weight, edges.size[0], dtype)["lambda_max"])
    batch = Batch.from_data_list(data)
    weight = batch.edge_weight.requires_grad_()
    lambdas = torch.stack(largest)
    lambda_max = "exact" if given_by == "exact" else tuple(lambdas.tolist())
    theirs = randomised(ChebConv(P, Q, 3, normalization=PYG.get(norm, norm)), dtype)
    ours = OuterConv(P, Q, Chebyshev(3, lambda_max, norm)).to(dtype)
    x = features(batch.num_nodes, P, dtype=dtype)
    assert_equal(
        ours,
        theirs,
        PEERS["TAGConv"].mapping,
        dict(named(batch.edge_index, weight, batch=batch.batch), x=x),
        lambda: theirs(x, batch.edge_index, weight, batch=batch.batch, lambda_max=lambdas),
        [x, weight],
    )


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda: OuterConv(5, 3, GCN()), lambda: GCNConv(5, 3)),
        (lambda: OuterConv(5, 3, Chebyshev(3)), lambda: ChebConv(5, 3, K=3)),
        (lambda: OuterConv(600, 400, Chebyshev(9)), lambda: ChebConv(600, 400, K=9)),
    ],
)
def test_a_seed_gives_the_same_initial_weights(ours, theirs):
    torch.manual_seed(3)
    peer = theirs()
    after = torch.rand(1)
    torch.manual_seed(3)
    conv = ours()
    assert torch.equal(torch.rand(1), after)
    lins = getattr(peer, "lins", None) or [peer.lin]
    assert torch.equal(conv.theta.weight, torch.stack([lin.weight.t() for lin in lins]))


class Draws(TorchDispatchMode):
    """Counts draws of random numbers."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.uniform_.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_many_labels_are_drawn_at_once(device):
    with Draws() as draws, torch.device(device):
        OuterConv(3, 4, Relation(3_000), bias=False)
    assert 0 < draws.count <= 4
