"""Training, validation and test nodes: three masks, from a protocol and a seed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from ...errors import RefusedValue, unknown
from ..data import Entry

TRAIN_PER_CLASS, NUM_VALIDATION, NUM_TEST = 20, 500, 1000
VALIDATION_SHARE = 0.2
FOLDS = 10
HELD_OUT = 0  # the seed by which test nodes are drawn that no seed trains on

_SHARES = re.compile(r"(?:random|held-out)-(\d{1,3})-(\d{1,3})-(\d{1,3})")
_PER_CLASS = re.compile(r"per-class-(\d{1,6})-(\d{1,6})")


@dataclass(frozen=True)
class Split:
    """Three disjoint boolean masks over the nodes, (N,) each."""

    train: Tensor
    validation: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            if not bool(getattr(self, name).any()):
                raise RefusedValue("every part of a split needs a node", f"{name} nodes", "none")


def check_protocol(entry: Entry, protocol: str) -> str:
    """The protocol, if the dataset has it.

    ``'public'`` and ``'geom-gcn'`` are what comes with a dataset; ``'random'`` is Planetoid's: 20
    nodes a class to train, 500 to validate, 1000 to test; ``'per-class-20-30'`` takes 20 nodes of
    each class to train, 30 to validate, and all others to test, as the `"Pitfalls"
    <https://arxiv.org/abs/1811.05868>`_ paper does; ``'random-60-20-20'`` takes percentages, and so
    does ``'held-out-60-20-20'``, whose test nodes are the same for every seed: no seed trains or
    validates on a node that another one tests.
    ``'ten-fold'`` is cross-validation: classes are in equal shares in each of ten folds, of which
    seed s tests the s-th, validates on the next, and trains on the other eight; seeds from 10 on
    take folds that are drawn anew.
    """
    if not entry.draws_splits and protocol not in entry.splits:
        rule = f"the split of {entry.name} is the one that its files hold"
        raise RefusedValue(rule, " or ".join(entry.splits), protocol)
    shares = _SHARES.fullmatch(protocol)
    if shares:
        numbers = [int(share) for share in shares.groups()]
        if sum(numbers) > 100 or not all(numbers):
            raise RefusedValue(
                "the percentages of a random split must be positive and add up to at most 100",
                "such as random-60-20-20",
                protocol,
            )
    elif per_class := _PER_CLASS.fullmatch(protocol):
        if not all(int(number) for number in per_class.groups()):
            raise RefusedValue(
                "every class needs nodes to train and to validate",
                "such as per-class-20-30",
                protocol,
            )
    elif protocol not in (*entry.splits, "random", "ten-fold"):
        drawn_protocols = ("random", "per-class-20-30", "random-60-20-20", "ten-fold")
        names = dict.fromkeys((*entry.splits, *drawn_protocols))
        raise RefusedValue(unknown(f"split of {entry.name}", protocol, names))
    return protocol


def make_split(data: Data, protocol: str, seed: int) -> Split:
    """The split of a seed. Where a dataset has several, seed s takes the s-th, in a cycle."""
    generator = torch.Generator().manual_seed(seed)
    shares = _SHARES.fullmatch(protocol)
    if shares:
        held_out = torch.Generator().manual_seed(HELD_OUT) if protocol.startswith("held") else None
        return _by_share(
            data.y, [int(share) / 100 for share in shares.groups()], generator, held_out
        )
    if per_class := _PER_CLASS.fullmatch(protocol):
        return _rest_tests(data.y, int(per_class[1]), int(per_class[2]), generator)
    if protocol == "random":
        return _by_class(data.y, generator)
    if protocol == "ten-fold":
        return _by_fold(data.y, seed)
    return _shipped(data, seed, generator)


def _shipped(data: Data, seed: int, generator: torch.Generator) -> Split:
    """The masks that come with a dataset; a part that is missing is drawn from the others."""
    masks = {}
    for part in ("train", "val", "test"):
        mask = data.get(f"{part}_mask")
        if mask is not None:
            masks[part] = (mask if mask.dim() == 1 else mask[:, seed % mask.size(1)]).bool()
    if "test" not in masks:
        rest = _nodes(~masks["train"] & (data.y >= 0), generator)
        masks["val"], masks["test"] = _masks(data.y, rest.tensor_split(2))
    elif "val" not in masks:
        nodes = _nodes(masks["train"], generator)
        number = round(VALIDATION_SHARE * nodes.numel())
        masks["val"], masks["train"] = _masks(data.y, (nodes[:number], nodes[number:]))
    return Split(masks["train"], masks["val"], masks["test"])


def _rest_tests(y: Tensor, train: int, validation: int, generator: torch.Generator) -> Split:
    """Fixed numbers of each class train and validate; all other labelled nodes test."""
    classes = _classes(y, train + validation, generator)
    sizes = [(train, validation, len(nodes) - train - validation) for nodes in classes]
    pieces = [nodes.split(size) for nodes, size in zip(classes, sizes, strict=True)]
    parts = [torch.cat(part) for part in zip(*pieces, strict=True)]
    return Split(*_masks(y, tuple(parts)))


def _classes(y: Tensor, least: int, generator: torch.Generator) -> list[Tensor]:
    """The nodes of each class, shuffled."""
    classes = [_nodes(y == label, generator) for label in range(int(y.max()) + 1)]
    for label, nodes in enumerate(classes):
        if nodes.numel() < least:
            raise RefusedValue(
                f"the split takes {least} nodes of each class",
                f"at least {least} nodes of class {label}",
                nodes.numel(),
            )
    return classes


def _by_class(y: Tensor, generator: torch.Generator) -> Split:
    train = [nodes[:TRAIN_PER_CLASS] for nodes in _classes(y, TRAIN_PER_CLASS, generator)]
    (train_mask,) = _masks(y, (torch.cat(train),))
    rest = _nodes((y >= 0) & ~train_mask, generator)
    if rest.numel() <= NUM_VALIDATION:
        raise RefusedValue(
            "the split 'random' validates on 500 nodes and tests on others",
            f"more than {NUM_VALIDATION} nodes beside those that train",
            rest.numel(),
        )
    parts = rest[:NUM_VALIDATION], rest[NUM_VALIDATION : NUM_VALIDATION + NUM_TEST]
    return Split(train_mask, *_masks(y, parts))


def _by_fold(y: Tensor, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed // FOLDS)
    shuffled = torch.cat([_nodes(y == label, generator) for label in range(int(y.max()) + 1)])
    fold = torch.full_like(y, -1)  # dealt out class by class, as cards are
    fold[shuffled] = torch.arange(shuffled.numel()) % FOLDS
    test, validation = fold == seed % FOLDS, fold == (seed + 1) % FOLDS
    return Split((fold >= 0) & ~test & ~validation, validation, test)


def _by_share(
    y: Tensor,
    shares: list[float],
    generator: torch.Generator,
    held_out: torch.Generator | None = None,
) -> Split:
    nodes = _nodes(y >= 0, held_out or generator)
    ends = [round(sum(shares[: part + 1]) * nodes.numel()) for part in range(3)]
    others, test = nodes[: ends[1]], nodes[ends[1] : ends[2]]
    if held_out is not None:
        others = others[torch.randperm(others.numel(), generator=generator)]
    return Split(*_masks(y, (others[: ends[0]], others[ends[0] :], test)))


def check_classes(
    y: Tensor, split: Split, metric: str, class_name: Callable[[int], str] = str
) -> None:
    """Refuse a split on which the metric has no value; ``class_name`` is for the message."""
    for part in ("train", "validation", "test") if metric == "auroc" else ():
        if (classes := y[getattr(split, part)].unique()).numel() < 2:
            raise RefusedValue(
                "the area under the ROC curve compares classes",
                f"two of them among the {part} nodes",
                f"class {class_name(int(classes[0]))} alone",
            )


def absent_classes(y: Tensor, split: Split) -> list[int]:
    """The classes of validation and test nodes that no training node has."""
    trained = set(y[split.train].unique().tolist())
    return sorted(set(y[split.validation | split.test].unique().tolist()) - trained)


def _nodes(mask: Tensor, generator: torch.Generator) -> Tensor:
    """The nodes of a mask, shuffled."""
    nodes = mask.nonzero().flatten()
    return nodes[torch.randperm(nodes.numel(), generator=generator)]


def _masks(y: Tensor, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    masks = tuple(torch.zeros(y.numel(), dtype=torch.bool) for _ in parts)
    for mask, nodes in zip(masks, parts, strict=True):
        mask[nodes] = True
    return masks
