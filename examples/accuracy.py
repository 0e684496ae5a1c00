"""Measure what every family reaches on real graphs, beside PyG's own layer where there is one.

    python examples/accuracy.py --root data --seeds 10 --out examples/accuracy.md

Settings are those that `outerconv train` takes for each data set. Where PyG has a layer that is the
same convolution, it is trained on the same seeds and splits in the same run. A table is written
after each data set, so that an interrupted run keeps what it had.
"""

import argparse
import platform
import tempfile
from pathlib import Path

import torch
import torch_geometric

from pyg_outerconv import data, parse_family
from pyg_outerconv.train.experiment import Experiment
from pyg_outerconv.train.settings import resolve

CITATIONS = (
    "identity",
    "gcn",
    "gcn(norm='target')",
    "chebyshev(3)",
    "walk(2)",
    "walk(2, norm='sym')",
    "walk(2, norm='sym', add_self_loops=True, powers=(2,))",
    "relation(1)",
    "directed(gcn)",
    "stack(gcn, identity)",
)

# Data set, split, family, whether PyG has the same layer, further settings.
DIRECTED = "directed(gcn(add_self_loops=False))"
CASES = [
    *(
        (name, "public", family, family == "gcn", {})
        for name in ("Cora", "CiteSeer", "PubMed")
        for family in CITATIONS
    ),
    ("chameleon", "geom-gcn", "identity", False, {}),
    ("chameleon", "geom-gcn", "gcn", True, {}),
    ("chameleon", "geom-gcn", "chebyshev(3)", False, {}),
    ("chameleon", "geom-gcn", "walk(2)", False, {}),
    ("chameleon", "geom-gcn", "walk(2, direction='both')", False, {}),
    ("chameleon", "geom-gcn", DIRECTED, True, {"root_weight": True}),
    ("AIFB", "public", "relation(90)", True, {"root_weight": True, "theta": "full"}),
    (
        "AIFB",
        "public",
        "relation(90)",
        True,
        {"root_weight": True, "theta": "basis-decomposed(num_bases=30)"},
    ),
]


def measure(case, root, seeds):
    """The row of one case."""
    name, split, family, has_peer, options = case
    entry = data.entry(name).for_split(split)
    asked = {
        "dataset": name,
        "family": repr(parse_family(family)),
        "split": split,
        "seeds": seeds,
        "peer": has_peer,
        **options,
    }
    with tempfile.TemporaryDirectory() as folder:
        run = Experiment(resolve(entry, asked), Path(folder) / "run", root, log=lambda line: None)
        return case, run.run()


def row(case, summary):
    """A line of the table: mean ± standard deviation over seeds, in percent."""
    name, _, family, _, options = case
    ours, peer = summary["outerconv"], summary.get("peer")
    theta = f", {options['theta']}" if "theta" in options else ""
    cells = [name, f"`{family}`{theta}", accuracy(ours), f"{ours['seconds']['mean']:.1f}"]
    if peer is None:
        return f"| {' | '.join([*cells, '', '', '', ''])} |"
    gap = summary["difference"]
    cells += [peer["name"].removeprefix("PyG "), accuracy(peer), f"{peer['seconds']['mean']:.1f}"]
    cells += [f"{100 * gap['mean']:+.2f} ± {100 * (gap['standard_error'] or 0):.2f}"]
    return f"| {' | '.join(cells)} |"


def accuracy(summary):
    """Mean ± standard deviation in percent."""
    found = summary["test_accuracy"]
    return f"{100 * found['mean']:.1f} ± {100 * (found['std'] or 0):.1f}"


def page(rows, seeds):
    """The whole page."""
    return "\n".join(
        [
            "# Measured accuracies",
            "",
            f"Test accuracy in percent, mean ± standard deviation over {seeds} seeds; seconds for "
            "one seed, training and evaluation; the difference to PyG's own layer, paired by seed, "
            "with its standard error.",
            "",
            f"torch {torch.__version__}, torch-geometric {torch_geometric.__version__}, "
            f"{torch.get_num_threads()} thread(s) of a {platform.machine()} CPU. Written by "
            "`python examples/accuracy.py --out examples/accuracy.md`.",
            "",
            "The splits are the public ones, of chameleon the ten of Geom-GCN.",
            "",
            "Both models get the same features, and begin as the same function. `DirGNNConv` adds "
            "up a half of each direction: its weights begin twice as large, and a step of Adam "
            "moves it half as far.",
            "",
            "| data set | family | accuracy | s/seed | PyG's layer | accuracy | s/seed | gap |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main():
    """Measure the cases one by one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", help="folder of the data sets")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", help="measure this data set alone")
    parser.add_argument("--out", type=Path, help="write the page here")
    arguments = parser.parse_args()
    rows = []
    for case in CASES:
        if arguments.only not in (None, case[0]):
            continue
        rows.append(row(*measure(case, arguments.root, arguments.seeds)))
        print(rows[-1], flush=True)
        if arguments.out:
            arguments.out.write_text(page(rows, arguments.seeds))


if __name__ == "__main__":
    main()
