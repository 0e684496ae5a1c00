"""The example scripts run."""

import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lab.bench.fakes import record, timing

pytestmark = pytest.mark.pages

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_layer_many_convolutions(capsys):
    load("one_layer_many_convolutions").main()
    assert capsys.readouterr().out.count(" = ") == 6


def test_layers_beside_pygs_on_a_gpu(capsys):
    gpu = load("gpu")
    x, edges, kinds = torch.randn(9, 64), torch.randint(9, (2, 20)), torch.randint(8, (20,))
    for ours, theirs, has_kinds in gpu.LAYERS.values():
        for layer in (ours(), theirs()):
            is_typed = has_kinds or "RGCN" in type(layer).__name__
            assert layer(x, edges, **({"edge_type": kinds} if is_typed else {})).shape == (9, 64)
    small = ["--nodes", "34", "--edges", "156"]
    if torch.cuda.is_available():
        gpu.main(small)
        assert capsys.readouterr().out.count("\n| ") == len(gpu.LAYERS) + 1
    else:
        with pytest.raises(SystemExit, match="1"):
            gpu.main(small)
        assert "no CUDA device" in capsys.readouterr().err


def test_digits_are_recognised_by_us_and_by_torch_with_our_weights(capsys):
    pytest.importorskip("sklearn")
    assert load("digits").main(["--epochs", "15"]) >= 0.97
    printed = capsys.readouterr().out
    total = int(re.search(r"of (\d+) images", printed)[1])
    assert f"agrees on {total} of them" in printed


def test_digits_with_holes_are_computed_on_the_cells_that_are_there(capsys, monkeypatch):
    pytest.importorskip("sklearn")
    digits = load("digits")
    rows, forward = [], digits.DigitNet.forward

    def watched(net, x, cells):
        """The number of rows that each layer before the first maximum computes."""
        handles = [
            layer.register_forward_hook(lambda _, inputs, out: rows.append((x, cells, out)))
            for layer in net.layers[:4]
        ]
        out = forward(net, x, cells)
        [handle.remove() for handle in handles]
        return out

    monkeypatch.setattr(digits.DigitNet, "forward", watched)
    assert digits.main(["--drop", "0.7", "--epochs", "4"]) > 0.3
    assert "% of the cells, and no others" in capsys.readouterr().out
    assert rows
    for x, cells, out in rows:
        assert len(x) == len(out) == cells.num_cells < 0.4 * 64 * cells.num_grids


QUICK = ["--seeds", "1", "--epochs", "1", "--windows", "32", "--hidden", "4"]


def write_traffic(root, steps=300, detectors=4):
    """Speeds with gaps of both kinds, zeros and blanks, and roads in one direction."""
    rng = np.random.default_rng(0)
    speed = 50 + 10 * rng.random((steps, detectors))
    speed[250:260, 1], speed[270, 2] = 0, np.nan
    (root / "los_loop").mkdir()
    rows = [",".join("" if np.isnan(one) else f"{one:.4f}" for one in row) for row in speed]
    head = ",".join(map(str, range(detectors)))
    (root / "los_loop" / "los_speed.csv").write_text("\n".join([head, *rows, ""]))
    np.savetxt(root / "los_loop" / "los_adj.csv", np.eye(detectors, k=1), delimiter=",")
    return speed


def test_traffic_that_is_unknown_counts_neither_in_training_nor_in_errors(tmp_path, capsys):
    traffic, speed = load("traffic"), write_traffic(tmp_path)
    out, picture = tmp_path / "traffic.md", tmp_path / "traffic.png"
    errors = traffic.main(
        ["--root", str(tmp_path), *QUICK, "--out", str(out), "--picture", str(picture)]
    )
    assert "Unknown speeds (absent or zero), left out of loss and error: 11." in out.read_text()
    assert "weight both ways" not in out.read_text()
    assert picture.stat().st_size > 0
    assert capsys.readouterr().out.count(" at 3, 6, 12 steps") == 3
    assert all(seed_errors.isfinite().all() for seed_errors in errors.values())

    mask = ~np.isnan(speed) & (speed > 0)
    assert traffic.read(tmp_path).mask.sum() == mask.sum() == 1200 - 11
    mean = speed[:210][mask[:210]].mean()
    gaps = []
    for start in range(240, 300 - 24 + 1):
        last = np.where(mask[start + 11], speed[start + 11], mean)
        there = mask[start + 12 + 5]
        gaps.append(np.abs(last - speed[start + 12 + 5])[there])
    assert errors["last value"][0, 5] == pytest.approx(np.concatenate(gaps).mean(), rel=1e-4)


def test_traffic_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SystemExit, match=r"los_speed.csv and los_adj.csv not in .*--root"):
        load("traffic").main(["--root", str(tmp_path)])


def test_traffic_of_los_angeles(shared_data):
    if not (shared_data / "los_loop").is_dir():
        pytest.skip("los_loop is not in ../shared/data")
    traffic = load("traffic")
    there = traffic.read(shared_data)
    assert there.speed.shape == (2016, 207)
    assert there.mask.all()
    test = traffic.Windows(there, there.parts()[2])
    errors = test.errors(None)[[step - 1 for step in (3, 6, 12)]]
    assert errors.tolist() == pytest.approx([3.578, 4.382, 5.795], abs=1e-3)
    options = SimpleNamespace(hidden=4, epochs=1, windows=16, batch=16, lr=1e-2)
    model = traffic.train(there, traffic.ROADS, 0, options)
    assert test.forecast(model, test.starts[:2]).shape == (12, 2, 207)


def test_a_word_is_copied_over_a_gap(monkeypatch, tmp_path, capsys):
    copying = load("copy_over_a_gap")
    monkeypatch.setattr(copying, "WORD", 4)
    monkeypatch.setattr(copying, "GAP", (5, 8))
    monkeypatch.setattr(copying, "LONGEST", 16)
    picture = tmp_path / "basis.png"
    assert copying.main(["--steps", "250", "--picture", str(picture)]) > 0.6
    assert picture.stat().st_size > 0
    assert "letters are copied over gaps of 5 to 8" in capsys.readouterr().out


def test_a_short_window_cannot_see_the_letter_that_is_to_be_copied():
    copying = load("copy_over_a_gap")
    shortest = copying.GAP[0]
    sequence, _ = copying.draw(2, torch.Generator().manual_seed(0), shortest)
    changed, mark = sequence.clone(), copying.WORD + shortest
    changed[:, 0] = (changed[:, 0] + 1) % copying.LETTERS
    for window, sees_it in ((None, True), (16, False)):
        net = copying.Copier(window)
        assert (net(sequence)[:, mark] != net(changed)[:, mark]).any() == sees_it


def test_a_copier_does_not_see_what_is_to_come():
    copying = load("copy_over_a_gap")
    sequence, _ = copying.draw(2, torch.Generator().manual_seed(0))
    for window in (None, 16):
        net = copying.Copier(window)
        before, changed = net(sequence), sequence.clone()
        changed[:, 40:] = (changed[:, 40:] + 1) % copying.LETTERS
        after = net(changed)
        torch.testing.assert_close(after[:, :40], before[:, :40])
        assert (after[:, 40:] != before[:, 40:]).any()


def test_sets_of_points_are_recognised_in_any_order(tmp_path, capsys):
    pytest.importorskip("sklearn")
    picture = tmp_path / "queries.png"
    assert load("digit_sets").main(["--epochs", "4", "--picture", str(picture)]) > 0.5
    printed = capsys.readouterr().out
    change = re.search(
        r"shuffled points: 450 of 450 answers are the same, scores to (\S+)", printed
    )
    assert float(change[1]) < 1e-5
    assert picture.stat().st_size > 0


def test_papers_are_classified_by_graph_attention(shared_data, tmp_path, capsys):
    out, picture = tmp_path / "gat.md", tmp_path / "gat.png"
    options = ["--root", str(shared_data), "--seeds", "1", "--epochs", "25", "--peer"]
    reached = load("gat_cora").main([*options, "--out", str(out), "--picture", str(picture)])
    assert reached > 0.7
    assert re.search(r"PyG GATConv seed 0: [78]\d\.\d % after 25 epochs", capsys.readouterr().out)
    assert f"{100 * reached:.2f}" in out.read_text()
    assert picture.stat().st_size > 0


def test_the_table_of_orders_says_whose_pick_is_good():
    def record(at, rule, costs):
        times = {"a": {"median": 1e-3}, "b": {"median": 1.1e-3}, "c": {"median": 2e-3}}
        modes = ("forward", "forward + backward")
        sizes = {f"{who}, {mode}": pick for mode in modes for who, pick in
                 (("chosen", rule), ("cheapest by costs", costs))}  # fmt: skip
        return {"case": "orders", "at": at, "modes": dict.fromkeys(modes, times), "sizes": sizes}

    page = load("bench/orders").page([record("one", "b", "c"), record("two", "a", "a")])
    assert page.count("the rule in 2 of 2 problems, costs in 1.") == 2
    assert page.count("| one | 1.00 | a 1.00, b 1.10, c 2.00 | b yes | c **no** |") == 2


def test_tables_of_the_benchmark_are_what_kept_runs_say(tmp_path):
    tables = load("bench/tables")
    page = (EXAMPLES / "bench" / "README.md").read_text(encoding="utf-8")
    assert tables.written(page, EXAMPLES / "bench") == page, "`python examples/bench/tables.py`"
    small = (EXAMPLES / "bench" / "small.md").read_text(encoding="utf-8")
    assert tables.written(small, EXAMPLES / "bench") == small, "`python examples/bench/tables.py`"
    assert "| new-karate-gcn | forward, time of PyG | 0.8× |" in small
    run = tmp_path / "run"
    run.mkdir()
    kept = json.loads((EXAMPLES / "bench" / "grids.json").read_text(encoding="utf-8"))
    (run / "bench.json").write_text(json.dumps(kept))
    (run / "bench.html").write_text("a page")
    mode = "forward"
    old = f"before\n<!-- grid, {mode} -->\nold\n<!-- end -->\nafter\n"
    (tmp_path / "README.md").write_text(old)
    tables.main(["grid", str(run)], tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert text.startswith(f"before\n<!-- grid, {mode} -->\n| contender |")
    assert text.endswith("|\n<!-- end -->\nafter\n")
    assert "old" not in text
    assert (tmp_path / "grid.html").read_text() == "a page"


def test_a_table_of_the_benchmark_has_a_row_for_each_contender():
    tables = load("bench/tables")
    other = record(case="other", modes={"forward": {"outerconv": timing(2e-3)}})
    apart = record(case="apart", ratios={"forward": {"PyG": [3.0, 5.0, 4.0]}})
    table = tables.markdown_table({"records": [record(), other, apart]}, "fakes", "forward")
    assert table.splitlines() == [
        "| contender | fake | other | apart |",
        "| --- | --- | --- | --- |",
        "| outerconv | 1 s | 2 ms | 1 s |",
        "| PyG | 4 s (4.00×) | – | 4 s (4.00×, 3.00–5.00) |",
    ]
    with pytest.raises(ValueError, match=r"fakes, forward.*got fakes, epoch"):
        tables.markdown_table({"records": [record()]}, "fakes", "epoch")


def test_models_are_timed_before_and_after(capsys):
    load("accelerate").main(["--quick", "--only", "samples", "--repeats", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["GCN", "GraphSAGE", "GAT", "RGCN"]
    assert all(float(line.split("|")[6]) > 0 for line in lines[2:])


def test_graphs_in_files_are_measured_and_drawn(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    scale = load("scale")
    monkeypatch.setattr(scale, "BLOCK", 100)
    monkeypatch.setattr(scale, "TOGETHER", 5)
    monkeypatch.setattr(scale, "HERE", tmp_path)
    figures = scale.measure(40_000, tmp_path)
    assert (figures["nodes"], list(figures["steps"])[-2:]) == (
        4000,
        ["an epoch of samples", "layer-wise inference"],
    )
    assert 1 / 16 < figures["test_accuracy"] <= 1
    seconds, speed = (
        figures["steps"]["layer-wise inference"][k] for k in ("seconds", "edges_per_second")
    )
    assert speed * (seconds + 0.01) > 2 * 40_000  # of two layers, over rounded seconds
    scale.write([figures])
    assert "| 40,000 | 4,000 | making the basis |" in (tmp_path / "scale.md").read_text()
    assert (tmp_path / "scale.png").stat().st_size > 1000
