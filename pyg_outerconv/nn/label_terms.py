"""The term A_kᵀ X Θ_k of each label of a layer, and the layer's output without a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..basis import Basis
from ..contract.plan import solve
from ..contract.problem import Problem
from ..errors import RefusedIndex, RefusedValue
from ..graph import Features
from ..signatures import typed
from ..theta import Theta, as_theta
from .attention_conv import AttentionConv
from .call import Call, nodes_first
from .checks import COMPARISONS
from .outer_conv import OuterConv


@dataclass(frozen=True)
class LabelTerms:
    """The terms of one call of a layer, T_k = A_kᵀ X Θ_k of shape (*batch, N, Q).

    The output of the layer is ``label_reduce_k T_k`` plus bias and root term; with
    ``label_aggr='mean'`` the factor 1/K is in each T_k. Attention shares are those of the call:
    removing a head changes no score. Terms are contracted label by label, so that memory holds one
    of them, and no tensor of edges × channels.

    Made by :func:`label_terms`.

    Attributes:
        conv: the layer.
        basis: K matrices A_k (M, N), for attention with the learned values.
        x: the features of the sources, nodes first.
        theta: Θ (K, G, P/G, Q/G).
    """

    conv: OuterConv
    basis: Basis
    x: Features
    theta: Theta

    @property
    def num_labels(self) -> int:
        """K."""
        return self.basis.num_bases

    def term(self, label: int) -> Tensor:
        """T_k (*batch, N, Q) of a label k.

        Raises:
            IndexError: there is no such label.
        """
        self._require(label)
        return self._contract([label])

    def without(self, label: int, out: Tensor) -> Tensor:
        """The layer's output if A_k had no edge, with bias and root term: (*batch, N, Q).

        Args:
            label: k.
            out: the layer's output with all labels.

        Raises:
            IndexError: there is no such label.
        """
        self._require(label)
        if self.conv.label_reduce not in COMPARISONS or self.num_labels == 1:
            return out - self._contract([label])
        every = list(range(self.num_labels))
        others = every[:label] + every[label + 1 :]
        return out - self._contract(every) + self._contract(others)

    def _require(self, label: int) -> None:
        if not 0 <= label < self.num_labels:
            raise RefusedIndex("a label must exist", f"[0, {self.num_labels})", label)

    def _contract(self, labels: list[int]) -> Tensor:
        """The reduced terms of some labels."""
        theta = self.theta
        if len(labels) == 1:
            theta = theta.labels(labels[0], labels[0] + 1)
        elif len(labels) < self.num_labels:
            every = torch.eye(self.num_labels, dtype=theta.dtype, device=theta.device)
            theta = theta.mixed(every[:, labels])
        over_labels = "sum" if len(labels) == 1 else self.conv.label_reduce
        terms = Problem(self.basis.select(labels), self.x, theta, self.conv.reduce, over_labels)
        out = solve(terms)
        return out if out.dim() == 2 else out.movedim(0, -2)


@typed
def label_terms(conv: OuterConv, x: Any, *args: Any, **kwargs: Any) -> LabelTerms:
    """The terms of the labels in a call ``conv(x, *args, **kwargs)``.

    >>> import torch
    >>> from pyg_outerconv import OuterConv
    >>> conv = OuterConv(3, 2, "walk(2)", bias=False)
    >>> x, edge_index = torch.ones(2, 3), torch.tensor([[0], [1]])
    >>> terms = label_terms(conv, x, edge_index)
    >>> total = sum(terms.term(k) for k in range(terms.num_labels))
    >>> torch.allclose(total, conv(x, edge_index))
    True

    Args:
        conv: an ``OuterConv`` or ``AttentionConv``, in evaluation mode if it has dropout.
        x, *args, **kwargs: the arguments of its ``forward``.

    Raises:
        ValueError: the layer's values have edge features, its class overrides messages, or the
            arguments are refused as by ``forward``.
        IndexError: see :meth:`LabelTerms.term`.
    """
    if conv.sends_own_messages:
        raise RefusedValue(
            "a layer whose class overrides messages has no terms A_kᵀ X Θ_k", "OuterConv", conv
        )
    if isinstance(conv, AttentionConv):
        if conv.edge_dim is not None:
            raise RefusedValue(
                "values with edge features are no terms A_hᵀ X Θ_h", "edge_dim=None", conv.edge_dim
            )
        shown = {**kwargs, "return_attention_weights": True}
        _, basis = conv.forward(x, *args, **shown)  # past the hooks of the caller
    else:
        basis = conv.basis(x, *args, **kwargs)
    call = Call(x, flow=conv.flow)
    sent, theta = conv._sent(call, basis, conv._parameter(call))
    return LabelTerms(conv, basis, nodes_first(sent), as_theta(theta))
