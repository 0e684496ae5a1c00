"""Every registered case, at a tiny scale: it can be set up, and its contenders agree."""

import re
from itertools import combinations

import pytest
import torch
from torch_geometric.io import read_tu_data
from torch_geometric.utils import coalesce, is_undirected

from pyg_outerconv.lab.bench import real_graphs
from pyg_outerconv.lab.bench.case import (
    CASES,
    FORWARD,
    OURS,
    PYG,
    PYG_CACHED,
    PYG_COMPILED,
    PYG_CSR,
    SCATTER,
    TORCH,
    Context,
)
from pyg_outerconv.lab.bench.cases import register_all
from pyg_outerconv.lab.bench.cases.attention import MASKED
from pyg_outerconv.lab.bench.cases.growth import edges_in_order
from pyg_outerconv.lab.bench.cases.orders import SHAPES
from pyg_outerconv.lab.bench.graphs import (
    Fresh,
    grid_graph,
    karate,
    random_graph,
    sampled_block,
    shuffled,
    small_graphs,
    zipf_counts,
    zipf_types,
)
from pyg_outerconv.lab.bench.run import difference
from pyg_outerconv.lab.data.graph import MASKS

register_all()
TINY = Context(scale=0.002, quick=True)
EVERY_POINT = Context(scale=0.002)

# What must be reached: (case, against) -> how many times as fast.
ASKED = {
    ("gcn-100k", PYG): 6,
    ("gcn-100k", PYG_COMPILED): 4,
    ("gcn-100k", PYG_CSR): 2,
    ("chebyshev-5", PYG): 6,
    ("walk-3", PYG): 6,
    ("rgcn-8", PYG): 1.3,
    ("rgcn-40", PYG): 2.5,
    ("rgcn-fb15k", PYG): 5,
    ("rgcn-fb15k-bases", PYG): 10,
    ("attention-100k", PYG): 5,
    ("train-cora", PYG): 10,
    ("train-citeseer", PYG): 25,
    ("grid-conv", TORCH): 0.9,
    ("attention-full", TORCH): 0.9,
    ("attention-window", MASKED): 20,
    ("gat-100k", PYG): 5,
    ("gatv2-100k", PYG): 5,
    ("transformer-100k", PYG): 5,
    ("new-karate-gcn", PYG): 0.8,
    ("new-molecules-sage", PYG): 1.3,
    ("new-molecules-gat", PYG): 1.0,
    ("new-block-gcn", PYG): 2.5,
    ("new-block-sage", PYG): 1.5,
    ("new-block-chebyshev", PYG): 2.5,
    ("new-block-rgcn", PYG): 1.5,
    ("again-karate-gcn", PYG_CACHED): 1.0,
    ("again-molecules-gat", PYG): 1.5,
    ("epoch-gat-32", PYG): 1.3,
    ("compiled-gat-middle", "outerconv, not compiled"): 1.0,
}
COMPARED_WITH_FEW = (
    "density",
    "scaling",
    "orders",
    "grid",
    "sequence",
    "complexity",
    "small",
    "compiled",
)


def points(name):
    return [(name, at) for at in CASES[name].points(EVERY_POINT)]


def every_point():
    return [point for name in CASES for point in points(name)]


@pytest.mark.parametrize(("name", "at"), every_point(), ids=str)
def test_contenders_agree_and_run(name, at):
    torch.use_deterministic_algorithms(True, warn_only=True)
    setup = CASES[name].make(TINY, at)
    ours, *others = setup.contenders
    expected = None if ours.check is None else ours.check()
    for contender in others:
        if contender.check is not None:
            gap = difference(contender.check(), expected)
            assert gap <= TINY.tolerance, (contender.name, gap)
    for contender in setup.contenders:
        for step in contender.steps.values():
            step()


def compared_with_peers():
    """The cases that are not compared with themselves alone."""
    return [
        name
        for name, case in CASES.items()
        if case.group not in COMPARED_WITH_FEW and name not in ("reorder", "prepare-relation")
    ]


@pytest.mark.parametrize("name", compared_with_peers())
def test_peers_are_run_or_absent_with_a_reason(name):
    setup = CASES[name].make(TINY, None)
    running = {contender.name for contender in setup.contenders}
    assert setup.contenders[0].name == OURS
    assert running >= {OURS, PYG}
    assert not set(setup.absent) & running
    assert set(setup.absent) <= {PYG_COMPILED, SCATTER}
    assert all(setup.absent.values())


@pytest.mark.parametrize("name", CASES)
def test_targets_and_memory_name_contenders(name):
    setup = CASES[name].make(TINY, CASES[name].points(TINY)[0])
    known = {contender.name for contender in setup.contenders} | set(setup.absent)
    for target in CASES[name].targets:
        if found := re.search(r"(?:time|memory) of (?!the process)(.*?)( up to .*)?$", target.what):
            assert found[1] in known
    assert set(CASES[name].memory) <= known


def test_the_table_of_what_must_be_reached_is_registered():
    def asked(words):
        """What is asked of each case against a peer, in the text of its targets."""
        return {
            (name, target.what.partition(words)[2]): float(target.asked.removesuffix("×"))
            for name, case in CASES.items()
            for target in case.targets
            if words in target.what and target.asked.endswith("×") and " up to " not in target.what
        }

    assert ASKED.items() <= asked(", time of ").items()
    assert asked("peak memory of ") == {
        ("rgcn-fb15k", PYG): 3,
        ("attention-100k", PYG): 4,
        ("attention-window", MASKED): 20,
        ("gat-100k", PYG): 4,
        ("gatv2-100k", PYG): 4,
        ("transformer-100k", PYG): 4,
    }


def test_full_sizes_are_those_of_the_table(monkeypatch):
    from pyg_outerconv.lab.bench.cases import growth

    monkeypatch.setattr(growth, "free_memory", lambda device: 1 << 45)
    assert growth.edge_counts(Context()) == [1e6, 3e6, 1e7, 3e7, 1e8]
    assert growth.edge_counts(Context(quick=True)) == [1e6, 2e6, 4e6]
    monkeypatch.setattr(growth, "free_memory", lambda device: growth.BYTES_AN_EDGE * 2 * 10**7)
    assert growth.edge_counts(Context()) == [1e6, 3e6, 1e7]


def test_orders_are_measured_on_a_third_of_the_problems_in_a_quick_run():
    assert len(CASES["orders"].points(Context())) == len(SHAPES) >= 20
    assert 1 < len(CASES["orders"].points(Context(quick=True))) <= len(SHAPES) / 2


@pytest.mark.slow
def test_compiled_layers_agree():
    full = Context(scale=0.002)
    setup = CASES["gcn-100k"].make(full, None)
    by_name = {contender.name: contender for contender in setup.contenders}
    assert PYG_COMPILED in by_name
    assert difference(by_name[PYG_COMPILED].check(), by_name[OURS].check()) < 1e-4


# Graphs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "edges"), [(50, 600), (30, 870), (1000, 12_000)])
def test_random_graphs_have_distinct_edges_and_no_loops(nodes, edges):
    index = random_graph(nodes, edges, torch.Generator().manual_seed(1))
    assert index.shape == (2, edges)
    assert int(index.min()) >= 0
    assert int(index.max()) < nodes
    assert not bool((index[0] == index[1]).any())
    assert index.unique(dim=1).size(1) == edges
    again = random_graph(nodes, edges, torch.Generator().manual_seed(1))
    assert torch.equal(index, again)


def test_a_grid_has_its_neighbours():
    index = grid_graph(4)
    assert index.size(1) == 4 * 4 * 8 - 6 * 4 * 2 + 4
    assert index.unique(dim=1).size(1) == index.size(1)
    rows, columns = index // 4, index % 4
    assert int((rows[0] - rows[1]).abs().max()) == 1
    assert int((columns[0] - columns[1]).abs().max()) == 1
    assert not bool((index[0] == index[1]).any())


def test_a_shuffled_graph_is_the_same_graph():
    index = grid_graph(5)
    other = shuffled(index, 25, torch.Generator().manual_seed(0))
    assert not torch.equal(index, other)
    degrees = [torch.bincount(found[1], minlength=25).sort().values for found in (index, other)]
    assert torch.equal(*degrees)


def test_zipf_counts_fall_and_add_up():
    counts = zipf_counts(272_115, 237)
    assert int(counts.sum()) == 272_115
    assert bool((counts.diff() <= 0).all())
    assert int(counts[0]) == pytest.approx(2 * int(counts[1]), rel=0.01)
    types = zipf_types(1000, 10, torch.Generator().manual_seed(0))
    assert torch.equal(torch.bincount(types), zipf_counts(1000, 10))


@pytest.mark.parametrize("local", [True, False])
def test_growing_graphs_are_sorted_by_target(local):
    index, nodes = edges_in_order(12_000, local, torch.Generator().manual_seed(0))
    assert (index.shape, nodes, index.dtype) == ((2, 12_000), 1000, torch.int32)
    assert torch.equal(index[1], torch.arange(1000, dtype=torch.int32).repeat_interleave(12))
    assert int(index[0].min()) >= 0
    assert int(index[0].max()) < 1000
    apart = (index[0] - index[1] + 500) % 1000 - 500
    assert bool((apart.abs() <= 32).all()) == local


def test_a_karate_club_is_renamed_and_sorted_as_data_sets_are():
    one, other = (karate(torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert one.shape == other.shape == (2, 156)
    assert not torch.equal(one, other)
    assert torch.equal(one, coalesce(one))
    degrees = [torch.bincount(found[1]).sort().values for found in (one, other)]
    assert torch.equal(*degrees)


def test_small_graphs_are_undirected_and_apart():
    index, graph = small_graphs(64, torch.Generator().manual_seed(0))
    assert 2_300 < graph.numel() < 2_700
    assert 8_500 < index.size(1) < 10_500
    assert torch.equal(graph[index[0]], graph[index[1]])
    assert torch.equal(index, coalesce(index))
    assert is_undirected(index)
    assert int(graph.bincount().min()) >= 20


def test_a_sampled_block_is_sorted_by_target():
    index = sampled_block(100, 10, torch.Generator().manual_seed(0))
    assert torch.equal(index[1], torch.arange(60).repeat_interleave(10))
    assert 60 <= int(index[0].max()) < 100
    assert index.unique(dim=1).size(1) == 600
    assert not bool((index[0] == index[1]).any())


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("new-")])
def test_a_new_graph_at_each_call_is_one(name, monkeypatch):
    taken = []
    take = Fresh.take

    def watched(self):
        taken.append(take(self))
        return taken[-1]

    monkeypatch.setattr(Fresh, "take", watched)
    for contender in CASES[name].make(TINY, None).contenders:
        taken.clear()
        contender.ready(3)
        for _ in range(3):
            contender.steps[FORWARD]()
        places = {tensor.data_ptr() for graph in taken for tensor in graph}
        assert len(places) == 3 * len(taken[0])
        edges = [graph[1] for graph in taken]
        assert not any(torch.equal(one, other) for one, other in combinations(edges, 2))


def test_proteins_are_real_where_they_are(shared_data):
    graphs, origin = real_graphs.proteins(Context(root=str(shared_data)))
    assert (len(graphs), origin) == (1113, "real")
    raw = shared_data / "TUDataset" / "PROTEINS" / "raw"
    data, slices, _ = read_tu_data(str(raw), "PROTEINS")
    assert torch.equal(torch.cat([graph.x for graph in graphs]), data.x[:, -3:])
    assert torch.equal(torch.cat([graph.edge_index for graph in graphs], dim=1), data.edge_index)
    assert torch.equal(torch.cat([graph.y for graph in graphs]), data.y)
    counts = torch.tensor([graph.num_edges for graph in graphs])
    assert torch.equal(counts, slices["edge_index"].diff())
    made, origin = real_graphs.proteins(Context(root="nowhere"))
    assert (len(made), made[0].x.size(1)) == (1113, 3)
    assert origin.startswith("random")


def test_triples_are_numbered_over_all_files(tmp_path, monkeypatch):
    raw = tmp_path / "FB15k_237" / "raw"
    raw.mkdir(parents=True)
    (raw / "train.txt").write_text("a\tlikes\tb\nc\tknows\ta\n")
    (raw / "valid.txt").write_text("d\tknows\ta\n")
    (raw / "test.txt").write_text("a\tlikes\td\n")
    index, types, nodes, labels, origin = real_graphs.fb15k_237(Context(root=str(tmp_path)))
    assert index.tolist() == [[0, 2, 1, 0], [1, 0, 0, 2]]
    assert types.tolist() == [0, 1, 237, 238]
    assert (nodes, labels, origin) == (4, 474, "real, training triples")
    _, _, nodes, _, origin = real_graphs.fb15k_237(Context(scale=0.01, root=str(tmp_path)))
    assert (nodes, origin) == (145, "random, with the counts of FB15k-237")


def test_citation_graphs_are_real_where_they_are(shared_data):
    def read(root, name):
        return real_graphs.citation_graph(Context(root=str(root)), name)

    graph, origin = read(shared_data, "Cora")
    assert (graph.x.shape, graph.num_edges, origin) == ((2708, 1433), 10556, "real")
    assert torch.equal(read("nowhere", "Cora")[0].edge_index, graph.edge_index)
    (graph, _), (made, origin) = read(shared_data, "CiteSeer"), read("nowhere", "CiteSeer")
    assert (made.x.shape, made.num_edges) == ((3327, 3703), 9104)
    assert origin.startswith("random")
    real, fake = (float((one.x != 0).float().mean()) for one in (graph, made))
    assert fake == pytest.approx(real, rel=0.05)
    assert [int(graph[key].sum()) for key in MASKS] == [120, 500, 1000]
