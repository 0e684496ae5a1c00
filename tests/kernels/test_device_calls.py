"""What layers ask of a device, counted where there is none; and what a captured CUDA graph keeps.

The table is of Triton's kernels, which need ``TRITON_INTERPRET=1`` from the start (``make test``
starts such a process); of torch's own kernels it holds where they read nothing.
"""

import gc

import pytest
import torch
from device_calls import CHANNELS, EDGES, LAYERS, NODES, OnDevice, Step
from versions import marked_for_graphs

from pyg_outerconv import OuterConv, clear_caches, use_backend
from pyg_outerconv import memo as memo_module
from pyg_outerconv.families import GCN, Chebyshev, Hops, Relation, Scale
from pyg_outerconv.kernels import capture, primitive
from pyg_outerconv.kernels.backend import Backend
from pyg_outerconv.kernels.backends.triton import INTERPRETED
from pyg_outerconv.kernels.edge_lists import places_of, pointers, with_missing_loops
from pyg_outerconv.memo import Memo, constant
from pyg_outerconv.nn.bases import bases, recent
from pyg_outerconv.testing import assert_near

# numpy, of which Triton's interpreter is made, warns of what masks throw away.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
BACKEND = "triton" if INTERPRETED else "native"

# Sorts of a step on a new graph, and launches, at most, of this step and of the next. All others
# are the same for all: a new graph is read once, a prepared step waits for nothing, sorts nothing.
TABLE = {
    "GCN": (2, 56, 8),
    "GCN, weights": (3, 70, 8),
    "mean": (2, 38, 8),
    "max": (2, 34, 10),
    "R-GCN": (2, 54, 12),
    "Chebyshev": (3, 74, 29),
    "walks": (2, 61, 24),
    "GAT": (2, 62, 25),
    "GATv2": (2, 80, 43),
    "Transformer": (2, 61, 37),
    "GCNConv": (2, 57, 8),
    "GCNConv, weights": (3, 71, 8),
    "SAGEConv": (2, 42, 12),
    "SAGEConv, max": (2, 38, 14),
    "GATConv": (2, 59, 22),
    "GATConv, features of edges": (2, 113, 71),
    "GATv2Conv": (2, 74, 37),
    "TransformerConv": (2, 52, 28),
    "TransformerConv, features of edges": (2, 113, 89),
    "RGCNConv": (2, 58, 16),
    "ChebConv": (3, 78, 33),
}
LACKING = {"max", "SAGEConv, max", "GATv2", "GATv2Conv"}
"""What torch's kernels do not have on CUDA, or do in tiles whose ends the CPU reads."""
COUNTED = [name for name in TABLE if INTERPRETED or name not in LACKING]


@pytest.fixture
def device():
    clear_caches()
    torch.use_deterministic_algorithms(False)  # with it torch starts other kernels
    with OnDevice() as mode, use_backend(BACKEND):
        yield mode
    clear_caches()


def test_the_table_is_of_all_layers():
    assert list(TABLE) == list(LAYERS)


@pytest.mark.parametrize("name", COUNTED)
def test_a_new_graph_is_read_once_and_a_prepared_step_waits_for_nothing(name, device):
    step = Step(name, device)
    waits, sorts, launches = step.asks()
    most_sorts, most_new, most_prepared = TABLE[name]
    assert waits == 1, device.asked.places
    assert sorts <= most_sorts, device.asked.places
    assert launches <= most_new or not INTERPRETED, device.asked.of
    waits, sorts, launches = step.asks()
    assert (waits, sorts) == (0, 0), device.asked.places
    assert launches <= most_prepared or not INTERPRETED, device.asked.of


@pytest.mark.skipif(INTERPRETED, reason="values of Triton's kernels are compared elsewhere")
@pytest.mark.parametrize("name", COUNTED)
def test_what_is_read_at_once_gives_the_results_of_a_cpu(name, device):
    step = Step(name, device)
    there = [*step(), *step()]
    for tensor in (*step.edges.values(), *step.layer.parameters()):
        device.storages.remove(tensor)  # now they are on the CPU
    device.to = lambda tensor: tensor.detach().clone()
    step.layer.zero_grad()
    clear_caches()
    with use_backend("reference"):
        here = step()
    for one, other in zip(there, (*here, *here), strict=True):
        device.storages.remove(one)
        assert_near(one, other, 1e-5)


def test_it_counts_what_waits_and_refuses_what_a_device_does(device):
    x, here = device.to(torch.arange(4.0)), torch.arange(4.0)
    assert (x.is_cuda, x.is_cpu, x.device.type) == (True, False, "cuda")
    assert (here.is_cuda, here.is_cpu, here.device.type) == (False, True, "cpu")
    assert (x + 1).is_cuda
    assert torch.zeros(2, device=x.device).is_cuda
    calls = {
        "item": lambda: x[0].item(),
        "bool": lambda: bool((x > 1).any()),
        "tolist": lambda: x.tolist(),
        "cpu": lambda: x.cpu(),
        "to": lambda: x.to("cpu"),
        "nonzero": lambda: x.nonzero(),
        "mask": lambda: x[x > 1],
        "unique": lambda: x.unique(),
        "equal": lambda: torch.equal(x, x),
        "repeat": lambda: x.repeat_interleave(x.long()),
        "tensor": lambda: torch.tensor([1.0], device=x.device),
    }
    for name, call in calls.items():
        device.clear()
        call()
        assert device.asked.waits == 1, name
    device.clear()
    x.masked_fill(x > 1, 0.0).sort().values.repeat_interleave(2)
    assert device.asked.numbers[:2] == (0, 1)
    assert not x.cpu().is_cuda
    with pytest.raises(TypeError, match="numpy"):
        x.numpy()
    with pytest.raises(RuntimeError, match="on the CPU"):
        _ = x + here
    device.captures = True
    with pytest.raises(RuntimeError, match="captured"):
        x.sum().item()


# One read of a graph ------------------------------------------------------------------------------

WRONG = {
    "an index too large": {"edge_index": torch.tensor([[0, NODES], [1, 2]])},
    "a negative index": {"edge_index": torch.tensor([[0, -1], [1, 2]])},
    "NaN": {"edge_weight": torch.tensor([1.0, torch.nan])},
    "types": {"edge_type": torch.tensor([0, 3])},
    "negative types": {"edge_type": torch.tensor([0, -1])},
    "degrees": {"edge_weight": torch.tensor([-1.0, -1.0])},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_cpu_refuses_is_refused_on_a_device_in_the_same_words(name, device):
    family = Relation(3) if "types" in name else GCN(add_self_loops=False)
    arguments = {"edge_index": torch.tensor([[0, 1], [1, 1]]), **WRONG[name]}
    layer, x = OuterConv(CHANNELS, CHANNELS, family), torch.randn(NODES, CHANNELS)
    with pytest.raises(ValueError) as here:
        layer(x, **arguments)
    device.move(layer)
    with pytest.raises(ValueError) as there:
        layer(device.to(x), **{key: device.to(part) for key, part in arguments.items()})
    assert str(there.value) == str(here.value)


def test_edges_that_were_written_to_are_read_again(device):
    layer = device.move(OuterConv(CHANNELS, CHANNELS, GCN()))
    x, edges = device.to(torch.randn(NODES, CHANNELS)), device.to(torch.randint(9, (2, 30)))
    layer(x, edges)
    device.clear()
    layer(x, edges)
    assert device.asked.waits == 0
    edges[0, 0] = NODES
    with pytest.raises(ValueError, match="one of the source nodes"):
        layer(x, edges)


@pytest.mark.parametrize("loops", [[], [0, 3, 0], range(9)], ids=["none", "some", "all"])
def test_lists_of_a_known_length_are_made_as_on_a_cpu(loops, device):
    loops = torch.tensor(list(loops), dtype=torch.long)
    edges = torch.cat([torch.tensor([[0, 1, 8], [1, 2, 0]]), loops.expand(2, -1)], dim=1)
    there, missing = device.to(edges), 9 - loops.unique().numel()
    stays = edges[0] != edges[1]
    lists = {
        "loops": (with_missing_loops(there, 9, missing), with_missing_loops(edges, 9)),
        "places": (places_of(device.to(stays), int(stays.sum())), stays.nonzero().view(-1)),
        "pointers": (pointers(there[1], 9), pointers(edges[1], 9)),
    }
    for name, (one, other) in lists.items():
        assert one.is_cuda, name
        device.storages.remove(one)
        assert one.equal(other), name


def test_without_a_size_a_graph_is_read_once_too(device):
    edges = device.to(torch.tensor([[0, 1], [1, 4]]))
    device.clear()
    assert Hops(1).basis(edges).size == (5, 5)
    assert device.asked.waits == 1


def test_a_family_copies_its_numbers_to_a_device_once(device):
    layer = device.move(OuterConv(CHANNELS, CHANNELS, Scale(GCN(), 0.5)))
    x = device.to(torch.randn(NODES, CHANNELS))
    for waits in (2, 1):  # a new graph, and the factor
        device.clear()
        layer(x, device.to(torch.randint(NODES, (2, 30))))
        assert device.asked.waits == waits, device.asked.places
    assert constant((1, 2), torch.long, torch.device("cpu")).tolist() == [1, 2]


# Capture ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COUNTED)
def test_a_prepared_step_is_captured_as_it_runs(name, device):
    step = Step(name, device)
    step()
    launches, before = step.asks()[2], step.outputs
    device.captures = True
    device.stream = 7  # of its own, as torch.cuda.graph has
    memos = [*memo_module._memos]  # held, so that none is collected meanwhile
    kept = [len(memo) for memo in memos]
    assert step.asks() == (0, 0, launches)
    assert [len(memo) for memo in memos] == kept
    for one, other in zip(step.outputs, before, strict=True):
        device.storages.remove(one)
        device.storages.remove(other)
        assert one.equal(other)


def test_what_a_graph_reads_is_kept_as_long_as_its_edges(device):
    step = Step("GCN", device)
    step()
    device.captures = True
    step()
    device.captures = False
    clear_caches()
    (entries,) = memo_module._captured.values()
    assert len(entries) == 1
    step()
    assert len(memo_module._captured) == 1
    del step
    gc.collect()
    assert len(memo_module._captured) == 0


def test_without_a_cache_a_basis_is_made_in_the_graph(device):
    inputs = {"edge_index": torch.randint(NODES, (2, EDGES)), "x": torch.randn(NODES, CHANNELS)}
    inputs["edge_index"][:, :3] = 1
    for family in (GCN(), Relation(1), Chebyshev(3)):
        layer = OuterConv(CHANNELS, CHANNELS, family, cached=False)
        with use_backend("reference"):
            here = layer(**inputs)
        device.move(layer)
        there = {name: device.to(part) for name, part in inputs.items()}
        device.captures = True
        out = layer(**there)
        device.captures = False
        for part in (out, *layer.parameters()):
            device.storages.remove(part)
        assert_near(out, here, 1e-5)
    assert len(recent) == len(bases) == 0


def test_what_has_to_be_counted_is_refused_in_a_graph(device):
    edges, x = device.to(torch.randint(NODES, (2, 30))), device.to(torch.randn(NODES, CHANNELS))
    layers = {
        "nodes without a self-loop": OuterConv(CHANNELS, CHANNELS, GCN(), aggr="max"),
        "self-loops": OuterConv(CHANNELS, CHANNELS, Hops(1, add_self_loops=True)),
    }
    device.captures = True
    for what, layer in layers.items():
        with pytest.raises(ValueError, match=f"{what} are not counted while"):
            device.move(layer)(x, edges)
    with pytest.raises(ValueError, match="nodes that no argument tells are not counted"):
        GCN().basis(edges)


def test_a_basis_that_was_not_sorted_before_keeps_nothing_of_a_graph(device):
    edges = device.to(torch.randint(NODES, (2, 30)))
    pattern = Hops(1).basis(edges, size=(NODES, NODES)).pattern
    device.captures = True
    captured = pattern.source_ptr
    assert not {"source", "order", "target_ptr", "source_ptr", "by_target"} & set(vars(pattern))
    assert pattern.by_target.T.index.is_cuda
    new_pattern = Hops(1).basis(edges, size=(NODES, NODES)).pattern
    assert new_pattern.by_target is new_pattern.by_target  # its own graph computes it
    assert new_pattern.by_target.columns is new_pattern.by_target.columns
    device.captures = False
    assert pattern.source_ptr is pattern.source_ptr
    assert torch.equal(pattern.source_ptr, captured)


def test_each_stream_has_results_of_its_own(device):
    memo, edges, streams = Memo(), device.to(torch.ones(3)), []

    def get(key="key", *tensors):
        return memo.get(key, lambda: streams.append(device.stream) or len(streams), *tensors)

    assert [get("key", edges), get("key", edges)] == [1, 1]
    device.stream = 5
    assert [get("key", edges), get("key", edges)] == [2, 2]
    device.captures, device.stream = True, 9
    assert get("key", edges) == 2  # what was used last
    assert [get("other", edges), get("other", edges)] == [3, 4]
    device.captures, device.stream = False, 0
    assert get("key", edges) == 1
    assert len(memo) == 2


def test_plans_have_no_stream_and_what_has_tensors_is_not_kept_of_a_graph(device):
    plans, rules = Memo(holds_tensors=False), Memo()
    device.captures = True
    assert plans.get("key", object) is plans.get("key", object)
    assert rules.get("key", object) is not rules.get("key", object)


def test_a_process_without_a_device_asks_none_whether_it_captures(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(asked))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: asked.append(1) or True)
    assert not capture._is_capturing()
    assert asked == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert capture._is_capturing()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not capture._is_capturing()
    assert asked == [1]


@marked_for_graphs
def test_operators_that_read_numbers_are_marked_for_compilers():
    marked = torch.Tag.cudagraph_unsafe
    ours = torch.ops.pyg_outerconv
    for operator in (ours.mended, ours.mended_gradients, ours.kept_product):
        assert marked in operator.default.tags
    for operator in (ours.spmm, ours.attend, ours.segment_softmax):
        assert marked not in operator.default.tags


@marked_for_graphs
@pytest.mark.parametrize("has_triton", [True, False])
def test_grouped_products_of_torch_are_marked_where_triton_is_missing(has_triton, monkeypatch):
    monkeypatch.setattr(primitive, "find_spec", lambda name: name if has_triton else None)
    registrations = []
    monkeypatch.setattr(
        torch.library,
        "custom_op",
        lambda *arguments, **options: registrations.append(options) or _Registered(),
    )
    primitive.operator(Backend.grouped_outer, reads=True)
    primitive.operator(Backend.spmm)
    marks = [torch.Tag.cudagraph_unsafe in options.get("tags", ()) for options in registrations]
    assert marks == [not has_triton, False]


class _Registered:
    def register_fake(self, function):
        """Nothing is registered."""
