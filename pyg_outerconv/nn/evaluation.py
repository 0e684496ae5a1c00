"""A model looked at without being changed: evaluation mode, no gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import Module


@contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """A block in which a model is in evaluation mode, and without gradients.

    When the block ends, by an error too, each module has its own mode again: parts of a model that
    is in training may be in evaluation mode. ``torch.enable_grad()`` inside brings gradients back.
    """
    before = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in before:
            part.training = training
