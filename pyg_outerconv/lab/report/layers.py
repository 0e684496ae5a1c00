"""What the layers of a trained model see: the basis of each, learned values included."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...basis import Basis
from ...families.options import nested
from ...nn import LabelTerms, OuterConv, label_terms
from ...nn.evaluation import evaluating
from ..train import Trained
from ..train.model import on_backend


def layer_terms(trained: Trained) -> dict[str, LabelTerms]:
    """The terms of the labels of each ``OuterConv`` in a pass over the data, by the layer's name.

    Of a layer that is called several times those of the first call.
    """
    found: dict[str, LabelTerms] = {}
    handles = []
    for name, layer in trained.model.named_modules():
        if isinstance(layer, OuterConv):

            def note(layer: OuterConv, args: Any, kwargs: Any, out: Any, name: str = name) -> None:
                if name not in found:
                    found[name] = label_terms(layer, *args, **kwargs)

            handles.append(layer.register_forward_hook(note, with_kwargs=True))
    try:
        with evaluating(trained.model), on_backend(trained.settings):
            trained.model(*trained.whole_graph())
    finally:
        for handle in handles:
            handle.remove()
    return found


def learns_values(layer: OuterConv) -> bool:
    """Whether the values of a layer's basis depend on parameters or on features."""
    return any(part.learns for part in nested(layer.family))


def column(basis: Basis, target: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The values (K, M) of the edges to a target, and where edges are (K, M)."""
    chosen = basis.restricted(None, torch.tensor([target], device=basis.device))
    values = chosen.to_dense(torch.double).detach()
    return _array(values), np.asarray(chosen.support().cpu().numpy()[:, :, 0], dtype=bool)


def _array(values: Tensor) -> NDArray[np.float64]:
    found: NDArray[np.float64] = values[:, :, 0].double().cpu().numpy()
    return found
