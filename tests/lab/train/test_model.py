"""The model computes what its options say, and decays what they say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pyg_outerconv.lab.train import NodeClassifier, Settings


class Mix(nn.Module):
    """A layer that is easy to follow: structure times x times a matrix."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_channels, out_channels))

    def forward(self, x: Tensor | None, structure: Tensor) -> Tensor:
        return structure @ (self.weight if x is None else x @ self.weight)


def settings(**changes: Any) -> Settings:
    given = {"dataset": "d", "family": "f", "split": "s", "hidden": 16, "dropout": 0.0}
    return Settings(**{**given, **changes})


def model(in_channels: int, **changes: Any) -> NodeClassifier:
    torch.manual_seed(0)
    return NodeClassifier(in_channels, 3, Mix, settings(**changes)).eval()


STRUCTURE = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
X = torch.randn(5, 6, generator=torch.Generator().manual_seed(2))


def test_plain() -> None:
    made = model(6, depth=3)
    one, two, three = (conv.weight for conv in made.convs)
    hidden = (STRUCTURE @ (STRUCTURE @ X @ one).relu() @ two).relu()
    assert torch.allclose(made(X, STRUCTURE), STRUCTURE @ hidden @ three, atol=1e-4)


def test_residual_adds_the_input_of_hidden_layers() -> None:
    made = model(6, depth=3, skip="residual")
    one, two, three = (conv.weight for conv in made.convs)
    first = (STRUCTURE @ X @ one).relu()
    second = (STRUCTURE @ first @ two).relu() + first
    assert torch.allclose(made(X, STRUCTURE), STRUCTURE @ second @ three, atol=1e-4)


def test_residual_never_reaches_features_of_equal_width() -> None:
    made = model(6, depth=3, skip="residual", hidden=6)
    first = made.convs[0](X, STRUCTURE).relu()
    second = made.convs[1](first, STRUCTURE).relu() + first
    assert torch.allclose(made(X, STRUCTURE), made.convs[2](second, STRUCTURE), atol=1e-4)


def test_concat_reads_every_layer() -> None:
    made = model(6, depth=2, skip="concat")
    first = (STRUCTURE @ X @ made.convs[0].weight).relu()
    second = (STRUCTURE @ first @ made.convs[1].weight).relu()
    assert made.head is not None
    assert torch.allclose(made(X, STRUCTURE), made.head(torch.cat([first, second], 1)), atol=1e-4)


@pytest.mark.parametrize(("norm", "dim"), [("layer", 1), ("batch", 0)])
def test_norms_are_over_channels_or_nodes(norm: str, dim: int) -> None:
    made = model(6, layer_norm=norm).train()
    hidden = STRUCTURE @ X @ made.convs[0].weight
    centred = hidden - hidden.mean(dim, keepdim=True)
    normed = centred / (hidden.var(dim, keepdim=True, correction=0) + 1e-5).sqrt()
    wanted = STRUCTURE @ normed.relu() @ made.convs[1].weight
    assert torch.allclose(made(X, STRUCTURE), wanted, atol=1e-5)


def test_without_features_the_first_layer_embeds_nodes() -> None:
    made = model(5)
    one, two = (conv.weight for conv in made.convs)
    assert torch.allclose(
        made(None, STRUCTURE), STRUCTURE @ (STRUCTURE @ one).relu() @ two, atol=1e-4
    )


def test_dropouts_act_in_training_alone() -> None:
    for name in ("dropout", "input_dropout"):
        made = model(6, **{name: 0.5})
        assert torch.equal(made(X, STRUCTURE), made(X, STRUCTURE))
        assert bool(made(X, STRUCTURE).any())  # else there is nothing to drop
        made.train()
        outputs = torch.stack([made(X, STRUCTURE) for _ in range(8)])
        assert bool((outputs != outputs[0]).any())


@pytest.mark.parametrize(("decay", "others"), [("all", 0.3), ("first", 0.0)])
def test_weight_decay_groups(decay: str, others: float) -> None:
    chosen = settings(decay=decay, weight_decay=0.3, depth=3)
    made = model(6, depth=3)
    first, rest = made.parameter_groups(chosen)
    assert [id(p) for p in first["params"]] == [id(made.convs[0].weight)]
    assert [id(p) for p in rest["params"]] == [id(conv.weight) for conv in made.convs[1:]]
    assert (first["weight_decay"], rest["weight_decay"]) == (0.3, others)
