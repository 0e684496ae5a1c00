"""Every registered case, at a tiny scale: it can be set up, and its contenders agree."""

import json
import re
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch_geometric.io import read_tu_data
from torch_geometric.utils import coalesce, is_undirected

from pyg_outerconv.lab.bench import graphs
from pyg_outerconv.lab.bench.case import CASES, FORWARD, OURS, PYG, PYG_COMPILED, SCATTER, Context
from pyg_outerconv.lab.bench.cases import register_all
from pyg_outerconv.lab.bench.cases.orders import SHAPES
from pyg_outerconv.lab.bench.run import difference
from pyg_outerconv.lab.data.graph import MASKS

register_all()
TINY = Context(scale=0.002, quick=True)
EVERY_POINT = Context(scale=0.002)

COMPARED_WITH_FEW = ("density", "orders", "grid", "sequence", "small", "compiled")


@pytest.mark.parametrize(
    ("name", "at"),
    [(name, at) for name, case in CASES.items() for at in case.points(EVERY_POINT)],
    ids=str,
)
def test_contenders_agree_and_run_and_peers_are_named(name, at):
    torch.use_deterministic_algorithms(True, warn_only=True)
    case = CASES[name]
    setup = case.make(TINY, at)
    ours, *others = setup.contenders
    expected = None if ours.check is None else ours.check()
    for contender in others:
        if contender.check is not None:
            gap = difference(contender.check(), expected)
            assert gap <= TINY.tolerance, (contender.name, gap)
    for contender in setup.contenders:
        for step in contender.steps.values():
            step()
    running, absent = {contender.name for contender in setup.contenders}, set(setup.absent)
    assert not absent & running
    assert all(setup.absent.values())
    if case.group not in COMPARED_WITH_FEW:
        assert ours.name == OURS
        assert PYG in running
        assert absent <= {PYG_COMPILED, SCATTER}
    for target in case.targets:
        if match := re.search(r"(?:time|memory) of (?!the process)(.*?)( up to .*)?$", target.what):
            assert match[1] in running | absent
    assert set(case.memory) <= running | absent


def test_targets_are_those_of_the_kept_runs():
    """A target that is lowered is one of other figures."""
    kept = {}
    for path in (Path(__file__).resolve().parents[3] / "examples" / "bench").glob("*.json"):
        if path.stem != "small-before":
            targets = json.loads(path.read_text(encoding="utf-8"))["targets"]
            kept |= {(one["case"], one["what"]): one["asked"] for one in targets}
    measured = {name for name, _ in kept}
    asked = {
        (name, target.what): target.asked
        for name, case in CASES.items()
        for target in case.targets
        if name in measured
    }
    assert asked == {key: words for key, words in kept.items() if key[0] in CASES}
    assert {name for name, case in CASES.items() if case.targets} <= measured


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
    index = graphs.random_graph(nodes, edges, torch.Generator().manual_seed(1))
    assert index.shape == (2, edges)
    assert int(index.min()) >= 0
    assert int(index.max()) < nodes
    assert not bool((index[0] == index[1]).any())
    assert index.unique(dim=1).size(1) == edges
    again = graphs.random_graph(nodes, edges, torch.Generator().manual_seed(1))
    assert torch.equal(index, again)


def test_zipf_counts_fall_and_add_up():
    counts = graphs.zipf_counts(272_115, 237)
    assert int(counts.sum()) == 272_115
    assert bool((counts.diff() <= 0).all())
    assert int(counts[0]) == pytest.approx(2 * int(counts[1]), rel=0.01)
    types = graphs.zipf_types(1000, 10, torch.Generator().manual_seed(0))
    assert torch.equal(torch.bincount(types), graphs.zipf_counts(1000, 10))


def test_a_karate_club_is_renamed_and_sorted_as_data_sets_are():
    one, other = (graphs.karate(torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert one.shape == other.shape == (2, 156)
    assert not torch.equal(one, other)
    assert torch.equal(one, coalesce(one))
    degrees = [torch.bincount(edge_index[1]).sort().values for edge_index in (one, other)]
    assert torch.equal(*degrees)


def test_small_graphs_are_undirected_and_apart():
    index, graph = graphs.small_graphs(64, torch.Generator().manual_seed(0))
    assert 2_300 < graph.numel() < 2_700
    assert 8_500 < index.size(1) < 10_500
    assert torch.equal(graph[index[0]], graph[index[1]])
    assert torch.equal(index, coalesce(index))
    assert is_undirected(index)
    assert int(graph.bincount().min()) >= 20


def test_a_sampled_block_is_sorted_by_target():
    index = graphs.sampled_block(100, 10, torch.Generator().manual_seed(0))
    assert torch.equal(index[1], torch.arange(60).repeat_interleave(10))
    assert 60 <= int(index[0].max()) < 100
    assert index.unique(dim=1).size(1) == 600
    assert not bool((index[0] == index[1]).any())


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("new-")])
def test_a_new_graph_at_each_call_is_one(name, monkeypatch):
    taken = []
    take = graphs.Fresh.take

    def watched(self):
        taken.append(take(self))
        return taken[-1]

    monkeypatch.setattr(graphs.Fresh, "take", watched)
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
    real_graphs, origin = graphs.proteins(Context(root=str(shared_data)))
    assert (len(real_graphs), origin) == (1113, "real")
    raw = shared_data / "TUDataset" / "PROTEINS" / "raw"
    data, slices, _ = read_tu_data(str(raw), "PROTEINS")
    assert torch.equal(torch.cat([graph.x for graph in real_graphs]), data.x[:, -3:])
    assert torch.equal(
        torch.cat([graph.edge_index for graph in real_graphs], dim=1), data.edge_index
    )
    assert torch.equal(torch.cat([graph.y for graph in real_graphs]), data.y)
    counts = torch.tensor([graph.num_edges for graph in real_graphs])
    assert torch.equal(counts, slices["edge_index"].diff())
    random_graphs, origin = graphs.proteins(Context(root="nowhere"))
    assert (len(random_graphs), random_graphs[0].x.size(1)) == (1113, 3)
    assert origin.startswith("random")


def test_triples_are_numbered_over_all_files(tmp_path, monkeypatch):
    raw = tmp_path / "FB15k_237" / "raw"
    raw.mkdir(parents=True)
    (raw / "train.txt").write_text("a\tlikes\tb\nc\tknows\ta\n")
    (raw / "valid.txt").write_text("d\tknows\ta\n")
    (raw / "test.txt").write_text("a\tlikes\td\n")
    index, types, nodes, labels, origin = graphs.fb15k_237(Context(root=str(tmp_path)))
    assert index.tolist() == [[0, 2, 1, 0], [1, 0, 0, 2]]
    assert types.tolist() == [0, 1, 237, 238]
    assert (nodes, labels, origin) == (4, 474, "real, training triples")
    _, _, nodes, _, origin = graphs.fb15k_237(Context(scale=0.01, root=str(tmp_path)))
    assert (nodes, origin) == (145, "random, with the counts of FB15k-237")


def test_citation_graphs_are_real_where_they_are(shared_data):
    def read(root, name):
        return graphs.citation_graph(Context(root=str(root)), name)

    graph, origin = read(shared_data, "Cora")
    assert (graph.x.shape, graph.num_edges, origin) == ((2708, 1433), 10556, "real")
    assert torch.equal(read("nowhere", "Cora")[0].edge_index, graph.edge_index)
    (graph, _), (random_graph, origin) = read(shared_data, "CiteSeer"), read("nowhere", "CiteSeer")
    assert (random_graph.x.shape, random_graph.num_edges) == ((3327, 3703), 9104)
    assert origin.startswith("random")
    real, fake = (float((one.x != 0).float().mean()) for one in (graph, random_graph))
    assert fake == pytest.approx(real, rel=0.05)
    assert [int(graph[key].sum()) for key in MASKS] == [120, 500, 1000]
