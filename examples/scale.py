"""Memory and speed at 1M, 10M and 100M edges: sampled training, exact layer-wise inference.

    python examples/scale.py --edges 1e6 1e7 --folder FOLDER

Each size runs in a process of its own, on a graph of 'outerconv generate blocks' in FOLDER, which
is kept and used again. Writes examples/scale.json, scale.md and scale.png; sizes that are not asked
for stay in them.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from pyg_outerconv.families import parse_family
from pyg_outerconv.files import load_json, save_json
from pyg_outerconv.files import replace as write_file
from pyg_outerconv.lab.data import Source, load_own
from pyg_outerconv.lab.train import Settings, make_split
from pyg_outerconv.lab.train.loop import SeedRun
from pyg_outerconv.lab.train.model import ours
from pyg_outerconv.scale import Blocks, Sample, carried_by, generate
from pyg_outerconv.scale.layerwise import MOST_EDGES
from pyg_outerconv.scale.mapped import HEADER

HERE = Path(__file__).parent
FEATURES, HIDDEN = 64, 64
BLOCK, TOGETHER = 2000, 25  # nodes of a block, blocks of a sample


class Peak:
    """The largest memory of this process within a block, in bytes.

    ``private`` is what it allocated, ``mapped`` what of mapped files was in memory, which the
    system takes back when it is short.
    """

    def __enter__(self) -> Peak:
        self.private = self.mapped = 0
        self.began, self._on = time.perf_counter(), True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._on = False
        self._thread.join()
        self.seconds = time.perf_counter() - self.began

    def _watch(self) -> None:
        while self._on:
            lines = Path("/proc/self/status").read_text().splitlines()
            status = {line.split(":")[0]: line.split()[1] for line in lines if line.endswith("kB")}
            self.private = max(self.private, 1024 * int(status["RssAnon"]))
            mapped = int(status["RssFile"]) + int(status["RssShmem"])
            self.mapped = max(self.mapped, 1024 * mapped)
            time.sleep(0.02)

    def as_dict(self, edges: int) -> dict[str, float]:
        speed = edges / self.seconds
        memory = {"private": self.private, "mapped": self.mapped}
        return {**memory, "seconds": round(self.seconds, 2), "edges_per_second": round(speed)}


class Counted(Blocks):
    """Blocks that add up the edges of the samples they draw."""

    edges = 0

    def draw(self, *wanted) -> Iterator[Sample]:
        for sample in super().draw(*wanted):
            self.edges += sample.basis.num_edges
            yield sample


def measure(edges: int, folder: Path) -> dict[str, object]:
    """The figures of one size: what ``outerconv train --batches blocks`` does, step by step."""
    place, steps = folder / f"blocks-{edges}", {}
    if not (place / HEADER).exists():
        with Peak() as peak:
            generate(
                place, nodes=edges // 10, edges=edges, features=FEATURES, log=lambda line: None
            )
        steps["writing the graph"] = peak.as_dict(edges)
    dataset = load_own(Source(data=str(place)))
    graph = dataset.mapped
    with Peak() as peak:
        carried_by(graph, parse_family("gcn"))
    steps["making the basis"] = peak.as_dict(edges)
    parts = -(-graph.num_nodes // BLOCK)
    settings = Settings(
        dataset.entry.name, "gcn", "public", hidden=HIDDEN, dropout=0.0, lr=0.01, epochs=2,
        evaluate_every=2, batches="blocks", parts=parts, parts_per_batch=min(parts, TOGETHER),
    )  # fmt: skip
    with Peak() as peak:
        contender = ours(dataset, settings)
    steps["opening it"] = peak.as_dict(edges)
    sampler = Counted(contender.inputs.sampler.carried, parts, settings.parts_per_batch)
    contender = replace(contender, inputs=replace(contender.inputs, sampler=sampler))
    split, y = make_split(dataset.data, "public", 0), dataset.data.y
    run = SeedRun(contender, y, dataset.num_classes, split, settings, 0)
    with Peak() as peak:
        run.step()
    layers = len(run.model.convs)
    steps["an epoch of samples"] = peak.as_dict(layers * sampler.edges)
    with Peak() as peak:
        logits = contender.inputs.predicted(run.model)
    steps["layer-wise inference"] = peak.as_dict(layers * contender.inputs.basis.num_edges)
    test_nodes = split.test.nonzero().view(-1)
    hits = (logits[test_nodes].argmax(-1) == y[test_nodes]).double().mean()
    return {"edges": edges, "nodes": graph.num_nodes, "test_accuracy": float(hits), "steps": steps}


def write(results: list[dict]) -> None:
    lines = [
        "# Graphs that outgrow memory",
        "",
        f"`python examples/scale.py` on {machine()}: two GCN layers, {FEATURES} features, {HIDDEN} "
        f"hidden channels, 16 classes, float32, one thread; samples of {TOGETHER} blocks of "
        f"{BLOCK} nodes, chunks of {MOST_EDGES} edges. Private memory is what the process "
        "allocated (300 MB of it are torch), mapped memory what it had of files, which the system "
        "takes back when it is short. Edges a second count an edge once for each layer.",
        "",
        "| edges | nodes | step | s | edges a second | private MB | mapped MB |",
        "|---:|---:|---|---:|---:|---:|---:|",
    ]
    for result in results:
        for step, figures in result["steps"].items():
            lines.append(
                f"| {result['edges']:,} | {result['nodes']:,} | {step} | {figures['seconds']} "
                f"| {figures['edges_per_second']:,} | {figures['private'] / 1e6:,.0f} "
                f"| {figures['mapped'] / 1e6:,.0f} |"
            )
    lines += ["", "Test accuracy after one epoch: " + ", ".join(
        f"{100 * r['test_accuracy']:.1f} % at {r['edges']:,} edges" for r in results
    ) + ".", "", "![memory and speed](scale.png)", ""]  # fmt: skip
    write_file(HERE / "scale.md", "\n".join(lines).encode())
    draw(results)


def draw(results: list[dict]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    memory, speed = figure.subplots(1, 2)
    for step in ("an epoch of samples", "layer-wise inference"):
        points = [(r["edges"], r["steps"][step]) for r in results]
        sizes = [edges for edges, _ in points]
        memory.plot(sizes, [k["private"] / 1e9 for _, k in points], "o-", label=step)
        speed.plot(sizes, [k["edges_per_second"] / 1e6 for _, k in points], "o-", label=step)
    whole = [4 * (r["edges"] + 3 * HIDDEN * r["nodes"]) / 1e9 for r in results]
    memory.plot(sizes, whole, "k:", label="values and three matrices of features in memory")
    memory.set(xscale="log", yscale="log", xlabel="edges", ylabel="private memory, GB")
    speed.set(xscale="log", xlabel="edges", ylabel="million edges a second", ylim=(0, None))
    for axes in (memory, speed):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(HERE / "scale.png", dpi=110)


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.split(":")[1].strip() for line in lines if "model name" in line), "a CPU")
    return f"{name}, torch {torch.__version__}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(size) for size in options.edges]
    if options.one:
        torch.set_num_threads(1)
        print(json.dumps(measure(sizes[0], options.folder)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = HERE / "scale.json"
    results_by_edges = {r["edges"]: r for r in load_json(kept)["results"]} if kept.exists() else {}
    for size in sizes:
        command = [sys.executable, __file__, "--one", "--edges", str(size)]
        command += ["--folder", str(options.folder)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results_by_edges[size] = json.loads(done.stdout)
        print(json.dumps(results_by_edges[size], indent=1))
        results = [results_by_edges[size] for size in sorted(results_by_edges)]
        save_json(kept, {"results": results})
        write(results)


if __name__ == "__main__":
    main()
