"""PyG's own GCN example on Cora, with one import exchanged and one transform added.

The model, the optimiser with its two weight decays, and an epoch (a step of training, then a test
of the whole graph) are those of PyG's ``examples/gcn.py``. Options exchange its layers for ours
and its dense features for sparse ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GCNConv as PyGsConv

from pyg_outerconv import ToSparseFeatures
from pyg_outerconv.pyg import GCNConv


class GCN(torch.nn.Module):
    """Two layers with dropout of their inputs."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, layers: str):
        super().__init__()

        def layer(before: int, after: int) -> torch.nn.Module:
            return (GCNConv if layers == "ours" else PyGsConv)(before, after, cached=True)

        self.conv1 = layer(in_channels, hidden_channels)
        self.conv2 = layer(hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits of the classes of each node."""
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        out: Tensor = self.conv2(x, edge_index)
        return out


class Run:
    """A model in training on one graph."""

    def __init__(self, data: Data, num_classes: int, layers: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.data = data
        self.model = GCN(data.x.size(-1), 16, num_classes, layers)
        decays = ((self.model.conv1, 5e-4), (self.model.conv2, 0.0))
        groups = [{"params": [*conv.parameters()], "weight_decay": decay} for conv, decay in decays]
        self.optimizer = torch.optim.Adam(groups, lr=0.01)
        self.best = self.accuracy = 0.0
        self.milliseconds: list[float] = []

    def epoch(self) -> None:
        """A step of training and a test, timed; keeps the accuracy at the best validation."""
        start = perf_counter()
        self._train()
        val, test = self._test()
        self.milliseconds.append(1e3 * (perf_counter() - start))
        if val > self.best:
            self.best, self.accuracy = val, test

    def _train(self) -> None:
        data = self.data
        self.model.train()
        self.optimizer.zero_grad()
        out = self.model(data.x, data.edge_index)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        self.optimizer.step()

    @torch.no_grad()
    def _test(self) -> list[float]:
        data = self.data
        self.model.eval()
        predictions = self.model(data.x, data.edge_index).argmax(dim=-1)
        masks = data.val_mask, data.test_mask
        return [int((predictions[m] == data.y[m]).sum()) / int(m.sum()) for m in masks]


def main() -> None:
    """Train, and print milliseconds an epoch and accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", choices=["pyg", "ours"], default="ours")
    parser.add_argument("--dataset", default="Cora")
    parser.add_argument("--root", type=Path, default=Path("data"), help="of Planetoid")
    parser.add_argument("--sparse", action="store_true", help="store features sparse")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--compare", action="store_true", help="in turns with PyG and dense x")
    options = parser.parse_args()

    dense = T.NormalizeFeatures()
    sparse = T.Compose([T.NormalizeFeatures(), ToSparseFeatures()])
    dataset = Planetoid(str(options.root), options.dataset, transform=dense)
    peer = dataset[0]
    dataset.transform = sparse if options.sparse else dense
    data = dataset[0]

    accuracies: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    for seed in range(options.runs):
        runs = {"this": Run(data, dataset.num_classes, options.layers, seed)}
        if options.compare:
            runs["pyg, dense"] = Run(peer, dataset.num_classes, "pyg", seed)
        for _ in range(options.epochs):
            for run in runs.values():
                run.epoch()
        for name, run in runs.items():
            accuracies.setdefault(name, []).append(run.accuracy)
            times.setdefault(name, []).append(median(run.milliseconds))
    for name, test_accuracies in accuracies.items():
        accuracy, spread = (
            torch.tensor(test_accuracies).mean(),
            torch.tensor(test_accuracies).std(correction=0),
        )
        shown = f"{100 * accuracy:.2f} ± {100 * spread:.2f} %"
        print(f"{name}: {median(times[name]):.2f} ms an epoch, test {shown}")
    if options.compare:
        print(f"ratio: {median(times['pyg, dense']) / median(times['this']):.1f}")


if __name__ == "__main__":
    main()
