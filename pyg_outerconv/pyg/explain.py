"""Explain a layer as Y = Σ_k A_kᵀ X Θ_k: its matrices A_k and Θ_k by name, and the rest."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module, ModuleList

from ..families import Attention, Family
from ..families.options import nested
from ..nn import OuterConv
from ..signatures import typed
from .convert import as_ours
from .layer import THEIRS
from .tie import Source

MOST = 6  # labels that are listed each; of more the first and the last


@dataclass(frozen=True)
class Step:
    """One convolution in words.

    Attributes:
        sum: the equation.
        basis: what the matrices A_k are.
        terms: the name of each A_k, and its Θ_k.
        others: the further parameters, by their part in the convolution.
    """

    sum: str
    basis: list[str]
    terms: list[tuple[str, str]]
    others: dict[str, str]


@dataclass(frozen=True)
class Explanation:
    """A layer as convolutions; printed, a text.

    Attributes:
        layer: the layer, as it prints itself.
        steps: its convolutions, one after another.
        outside: what the layer computes before or after them.
        lacks: its options that have no equal form, with which PyG's own ``forward`` runs.
        source: the paper.
    """

    layer: str
    steps: list[Step]
    outside: list[str]
    lacks: list[str]
    source: str

    def __str__(self) -> str:
        lines = [self.layer]
        for number, step in enumerate(self.steps, 1):
            lines += [f"  step {number}"] if len(self.steps) > 1 else []
            lines += [f"  {line}" for line in _lines(step)]
        lines += [f"  outside the sum: {text}" for text in self.outside]
        lines += [f"  no equal form: {text}" for text in self.lacks]
        return "\n".join([*lines, f"  {self.source}"] if self.source else lines)

    __repr__ = __str__


@typed
def explain(layer: Module) -> Explanation:
    """A layer as Y = Σ_k A_kᵀ X Θ_k, with its own A_k and Θ_k by name.

    >>> from torch_geometric.nn import GCNConv
    >>> explain(GCNConv(16, 32))
    GCNConv(16, 32)
      Y = A_0ᵀ X Θ_0 + b
      A_0 = D^-1/2 (W + I) D^-1/2, D the in-degrees of W + I
      A_0: neighbours; Θ_0 = lin.weight.T
      b = bias
      Semi-supervised Classification with Graph Convolutional Networks (arxiv.org/abs/1609.02907)

    Args:
        layer: a layer of PyG that has an equal form here, one of :mod:`pyg_outerconv.pyg`, or an
            :class:`~pyg_outerconv.OuterConv`.

    Raises:
        TypeError: the layer has no equal form; the error says why.
    """
    if isinstance(layer, OuterConv):
        own = {name: Source(name, lambda _: None) for name, _ in layer.named_parameters()}  # type: ignore[arg-type, return-value]
        return Explanation(repr(layer), [_step(layer, own)], [], [], _source(type(layer)))
    ours = as_ours(layer)
    lacks, steps = ours.lacks(), []
    if not lacks:
        with torch.device("meta"):
            module, sources = ours.recipe()
        several = isinstance(module, ModuleList)
        parts: dict[Any, Any] = dict(enumerate(module)) if several else {None: module}
        for key, conv in parts.items():
            prefix = "" if key is None else f"{key}."
            own = {
                name.removeprefix(prefix): source
                for name, source in sources.items()
                if name.startswith(prefix)
            }
            steps.append(_step(conv, own))
    return Explanation(repr(ours), steps, ours.outside(), lacks, _source(type(ours)))


def _step(conv: OuterConv, sources: Mapping[str, Source]) -> Step:
    family, count = conv.family, conv.family.num_bases
    others = {_word(name): source.text for name, source in sources.items()}
    of_theta = [name for name in sources if name.startswith("theta.")]
    theta = _thetas(count, [sources[name] for name in of_theta])
    for name in of_theta:
        if len(of_theta) == 1:
            del others[_word(name)]
    return Step(_sum(conv), _basis(family), list(zip(family.labels, theta, strict=True)), others)


def _thetas(count: int, sources: list[Source]) -> list[str]:
    """The text of each Θ_k."""
    if not sources:
        return ["I"] * count
    if len(sources) > 1:
        return ["a mixture of the matrices below"] * count
    (source,) = sources
    if len(source.linears) == count:
        return [f"{path}.weight.T" for path in source.linears]
    return [source.text if count == 1 else f"part {k} of {source.text}" for k in range(count)]


def _sum(conv: OuterConv) -> str:
    """The equation of a convolution, with its reductions, root and bias."""
    count = conv.family.num_bases
    theta = "" if conv.theta.name == "identity" else " Θ_{}"
    reduced = "A_{}ᵀ X" if conv.aggr == "sum" else conv.aggr + "_m(A_{}[m, n] X_m)"
    term = reduced + theta
    if count == 1:
        text = term.replace("{}", "0")
    else:
        sign = {"sum": "Σ_k", "mean": "1/K Σ_k", "max": "max_k", "min": "min_k"}[conv.label_aggr]
        text = f"{sign} {term.replace('{}', 'k')}"
    root = " + X Θ_root" if conv.root is not None else ""
    return f"Y = {text}{root}{' + b' if conv.bias is not None else ''}"


def _basis(family: Family) -> list[str]:
    """The equations of a family and its parts, and of scores."""
    equations = []
    for part in nested(family):
        equations.append(part.formula)
        if isinstance(part, Attention):
            equations.append(f"scores {part.score.page[0]}, by {part.normalise}")
    return list(dict.fromkeys(equations))


_WORDS = {"root.weight": "Θ_root", "bias": "b", "value_bias": "bias of values"}


def _word(name: str) -> str:
    if name in _WORDS:
        return _WORDS[name]
    return re.sub(r"^functions\.\d+\.", "", name)


def _lines(step: Step) -> list[str]:
    lines = [step.sum, *step.basis]
    terms = list(enumerate(step.terms))
    shown = terms if len(terms) <= MOST else [*terms[: MOST - 1], terms[-1]]
    for k, (label, theta) in shown:
        lines.append(f"A_{k}: {label}; Θ_{k} = {theta}")
    lines += [f"({len(terms) - MOST} labels between these)"] if len(terms) > MOST else []
    return lines + [f"{name} = {text}" for name, text in step.others.items()]


def _source(kind: type[Module]) -> str:
    """The first paper that the docstring of a class links to, or that of PyG's class."""
    text = inspect.getdoc(THEIRS.get(kind, kind)) or ""
    match = re.search(r'`"([^"]+)"\s*<https?://([^>]+)>`_', text)
    return f"{' '.join(match[1].split())} ({match[2]})" if match else ""
