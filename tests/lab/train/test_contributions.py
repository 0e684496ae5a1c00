"""Contributions of labels equal those of models in which a label's matrix is set to zero."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Dropout, Module

from pyg_outerconv import OuterConv
from pyg_outerconv.lab.train import NodeClassifier, Settings, contributions
from pyg_outerconv.nn import gat_conv

N, P, C = 30, 5, 3
RANDOM = torch.Generator().manual_seed(0)
EDGES = torch.randint(N, (2, 120), generator=RANDOM)
TYPES = torch.randint(3, (120,), generator=RANDOM)
X = torch.randn(N, P, generator=RANDOM)
Y = torch.randint(C, (N,), generator=RANDOM)
MASK = torch.rand(N, generator=RANDOM) < 0.6


def classifier(family: str, in_channels: int = P, **changes: Any) -> NodeClassifier:
    options = {"dataset": "d", "family": family, "split": "s", "hidden": 7, **changes}
    torch.manual_seed(1)
    return NodeClassifier(in_channels, C, lambda p, q: OuterConv(p, q, family), Settings(**options))


def dense_terms(conv: OuterConv, x: Tensor | None, structure: Any) -> Tensor:
    """(K, N, Q) by dense matrices."""
    dense = conv.basis(x, structure).to_dense()
    rows = torch.eye(N) if x is None else x
    return torch.einsum("kmn,mp,kpq->knq", dense, rows, conv.theta()[:, 0])


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("stack(gcn, identity, walk(2))", {}),
        ("chebyshev(3)", {"depth": 3, "skip": "residual", "layer_norm": "batch"}),
        ("directed(gcn)", {"skip": "concat"}),
    ],
)
def test_a_label_is_taken_out_of_one_layer(family: str, changes: dict[str, Any]) -> None:
    model = classifier(family, **changes)
    model.norms.apply(lambda part: isinstance(part, BatchNorm1d) and part.running_var.fill_(0.3))
    found = contributions(model, X, EDGES, Y, MASK)
    assert model.training
    model.eval()
    inputs: dict[str, Tensor] = {}
    handles = [
        conv.register_forward_pre_hook(
            lambda conv, args, name=f"convs.{place}": inputs.__setitem__(name, args[0])
        )
        for place, conv in enumerate(model.convs)
    ]
    whole = model(X, EDGES)[MASK]
    for handle in handles:
        handle.remove()
    at = iter(found)
    for name in [f"convs.{place}" for place in range(len(model.convs))]:
        conv = model.get_submodule(name)
        terms = dense_terms(conv, inputs[name], EDGES)
        for k in range(conv.family.num_bases):
            one = next(at)
            assert (one.layer, one.label, one.name) == (name, k, conv.family.labels[k])
            assert one.norm == pytest.approx(float(terms[k].norm()), rel=1e-5)
            changed = copy.deepcopy(model)
            changed.get_submodule(name).theta.weight[k] = 0
            logits = changed(X, EDGES)[MASK]
            right = float((logits.argmax(-1) == Y[MASK]).float().mean())
            assert one.metric == pytest.approx(right, abs=1e-6)
            before = float((whole.argmax(-1) == Y[MASK]).float().mean())
            assert one.change == pytest.approx(right - before, abs=1e-6)
            assert one.loss == pytest.approx(float(F.cross_entropy(logits, Y[MASK])), rel=1e-4)
            gap = float(F.cross_entropy(logits, Y[MASK]) - F.cross_entropy(whole, Y[MASK]))
            assert one.loss_change == pytest.approx(gap, rel=1e-3, abs=1e-5)
    assert next(at, None) is None


class Attends(Module):
    """A layer of attention with dropout, called twice, and a layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = gat_conv(P, P, heads=2, concat=False, dropout=0.5, bias=False)
        self.dropout = Dropout(0.5)
        self.unused = OuterConv(P, P, "gcn")

    def forward(self, x: Tensor, structure: Tensor) -> Tensor:
        out, _ = self.conv(x, structure, return_attention_weights=True)
        return self.conv(self.dropout(out.relu()), structure)


@torch.no_grad()
def test_heads_of_a_layer_that_is_called_twice() -> None:
    torch.manual_seed(2)
    model = Attends()
    found = contributions(model, X, EDGES, Y % P, MASK.nonzero().view(-1))
    assert [(one.layer, one.label) for one in found] == [("conv", 0), ("conv", 1)]
    model.eval()

    def once(x: Tensor, without: int | None) -> tuple[Tensor, Tensor]:
        _, basis = model.conv(x, EDGES, return_attention_weights=True)
        dense, theta = basis.to_dense(), model.conv.theta()[:, 0] / 2
        terms = torch.einsum("kmn,mp,kpq->knq", dense, x, theta)
        kept = [k for k in range(2) if k != without]
        return terms, terms[kept].sum(0)

    for k, one in enumerate(found):
        first, out = once(X, None)
        second, _ = once(out.relu(), None)
        square = first[k].square().sum() + second[k].square().sum()
        assert one.norm == pytest.approx(float(square.sqrt()), rel=1e-5)
        _, out = once(X, k)
        _, logits = once(out.relu(), k)
        loss = float(F.cross_entropy(logits[MASK], (Y % P)[MASK]))
        assert one.loss == pytest.approx(loss, rel=1e-5)


@torch.no_grad()
def test_nodes_without_features_and_a_metric_of_ones_own() -> None:
    model = classifier("walk(1)", in_channels=N)
    found = contributions(model, None, EDGES, Y, MASK, lambda logits, y: float(logits[:, 0].sum()))
    terms = dense_terms(model.convs[0], None, EDGES)
    assert [one.norm for one in found[:2]] == pytest.approx(terms.norm(dim=(1, 2)).tolist())
    model.eval()
    whole = model(None, EDGES)[MASK][:, 0].sum()
    model.convs[1].theta.weight[1] = 0
    without = model(None, EDGES)[MASK][:, 0].sum()
    assert found[3].change == pytest.approx(float(without - whole), rel=1e-4, abs=1e-4)


def test_modes_come_back_and_hooks_go() -> None:
    model = classifier("gcn")
    model.convs[0].eval()
    model.train()
    model.convs[1].training = False
    before = [part.training for part in model.modules()]

    def fails(logits: Tensor, y: Tensor) -> float:
        raise RuntimeError("of the metric")

    with pytest.raises(RuntimeError, match="of the metric"):
        contributions(model, X, EDGES, Y, MASK, fails)
    assert [part.training for part in model.modules()] == before
    assert not any(part._forward_hooks for part in model.modules())


def test_no_node_is_refused() -> None:
    with pytest.raises(ValueError, match="measured on nodes: expected at least one, got none"):
        contributions(classifier("gcn"), X, EDGES, Y, torch.zeros(N, dtype=torch.bool))
