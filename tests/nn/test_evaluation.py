"""A model that was looked at in evaluation mode is as it was."""

from __future__ import annotations

import pytest
import torch
from torch.nn import BatchNorm1d, Dropout, Linear, Sequential

from pyg_outerconv.nn.models import evaluating


def partly_frozen() -> Sequential:
    """A model in training whose norm is in evaluation mode, as when it is fine-tuned."""
    model = Sequential(Linear(3, 4), BatchNorm1d(4), Dropout(0.5)).train()
    model[1].eval()
    return model


def modes(model: Sequential) -> list[bool]:
    return [part.training for part in model.modules()]


def test_no_part_trains_and_no_gradient_is_noted() -> None:
    model, x = partly_frozen(), torch.randn(5, 3)
    with evaluating(model):
        assert not any(modes(model))
        assert not model(x).requires_grad
        assert torch.equal(model(x), model(x))
        with torch.enable_grad():
            assert model(x).requires_grad
    assert torch.is_grad_enabled()


def test_each_part_has_its_own_mode_again_after_errors_too() -> None:
    model = partly_frozen()
    before = modes(model)
    assert len(set(before)) == 2
    with evaluating(model):
        pass
    assert modes(model) == before
    with pytest.raises(ZeroDivisionError), evaluating(model):
        raise ZeroDivisionError
    assert modes(model) == before
    assert torch.is_grad_enabled()


def test_blocks_within_each_other() -> None:
    model = partly_frozen()
    before = modes(model)
    with torch.no_grad(), evaluating(model):
        with evaluating(model):
            pass
        assert not any(modes(model))
        assert not torch.is_grad_enabled()
    assert modes(model) == before
