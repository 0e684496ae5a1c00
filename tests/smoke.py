"""``python tests/smoke.py``: what a user of an installed package does first, in a minute.

It runs in any environment that has the package, with the extra ``train`` or without, and needs
neither the checkout nor pytest. The working directory is written to.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.testing import assert_close
from torch_geometric.datasets import KarateClub
from torch_geometric.nn import GAT

import pyg_outerconv
from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Identity, Stack, Walk
from pyg_outerconv.pyg import accelerate


def a_layer_is_the_sum_over_labels() -> None:
    """Y = Σ_k A_kᵀ X Θ_k, with dense matrices."""
    data = KarateClub()[0]
    conv = OuterConv(34, 16, Stack(Identity(), GCN(), Walk(2, powers=(2,))))
    a = conv.basis(data.x, data.edge_index).to_dense()
    dense = torch.einsum("kmn,mp,kpq->nq", a, data.x, conv.theta.weight) + conv.bias
    assert_close(conv(data.x, data.edge_index), dense)


def a_model_is_accelerated_and_stays_equal() -> None:
    """PyG's GAT, value and gradients."""
    data = KarateClub()[0]
    model = GAT(in_channels=34, hidden_channels=64, num_layers=2, out_channels=4, heads=4)

    def step() -> list[torch.Tensor]:
        out = model(data.x, data.edge_index)
        return [out, *torch.autograd.grad(out.square().sum(), list(model.parameters()))]

    before = step()
    assert "pyg_outerconv.pyg.GATConv" in str(accelerate(model))
    for now, then in zip(step(), before, strict=True):
        assert_close(now, then)


def outerconv(*arguments: str, fails: bool = False) -> str:
    """What the command prints."""
    command = shutil.which("outerconv", path=sysconfig.get_path("scripts"))
    assert command, "the command outerconv is not installed with the package"
    done = subprocess.run([command, *arguments], capture_output=True, text=True)
    printed = done.stdout + done.stderr
    assert (done.returncode != 0) is fails, printed
    assert "Traceback" not in printed
    return printed


def commands_read_what_comes_with_the_package() -> None:
    """The registry of data sets and the tables."""
    assert pyg_outerconv.__version__ in outerconv("--version")
    assert "chebyshev" in outerconv("families")
    assert "Planetoid" in outerconv("datasets", "Cora")
    assert "planetoid" in outerconv("reproduce")


def cora_is_trained_on() -> None:
    """Without a file, a network or a checkout; a picture says which extra it needs."""
    outerconv("train", "Cora", "--seeds", "1", "--epochs", "3", "--out", "run")
    outerconv("predict", "run", "--out", "classes.csv")
    assert len(Path("classes.csv").read_text().splitlines()) > 2708
    pictured = find_spec("matplotlib") is not None
    shown = outerconv("show", "--family", "gcn", "--dataset", "KarateClub", fails=not pictured)
    assert pictured or "pip install 'pyg_outerconv[plot]'" in shown


def main() -> None:
    """Try all, and say so."""
    print(f"pyg_outerconv {pyg_outerconv.__version__} of {Path(pyg_outerconv.__file__).parent}")
    for trial in (
        a_layer_is_the_sum_over_labels,
        a_model_is_accelerated_and_stays_equal,
        commands_read_what_comes_with_the_package,
        cora_is_trained_on,
    ):
        trial()
        print(f"  {trial.__name__.replace('_', ' ')}")


if __name__ == "__main__":
    main()
