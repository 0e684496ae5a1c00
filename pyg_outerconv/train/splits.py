"""Training, validation and test nodes: three masks, from a protocol and a seed."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data import Entry
from ..errors import RefusedValue, unknown

TRAIN_PER_CLASS, NUM_VALIDATION, NUM_TEST = 20, 500, 1000
VALIDATION_SHARE = 0.2

_SHARES = re.compile(r"random-(\d{1,3})-(\d{1,3})-(\d{1,3})")


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

    def to(self, device: torch.device | str) -> Split:
        """The same split on another device."""
        return Split(self.train.to(device), self.validation.to(device), self.test.to(device))


def check_protocol(entry: Entry, protocol: str) -> str:
    """The protocol, if the dataset has it.

    ``'public'`` and ``'geom-gcn'`` are what comes with a dataset; ``'random'`` is Planetoid's: 20
    nodes a class to train, 500 to validate, 1000 to test; ``'random-60-20-20'`` takes percentages.

    Raises:
        ValueError: the dataset has no such protocol, or percentages do not add up.
    """
    shares = _SHARES.fullmatch(protocol)
    if shares:
        numbers = [int(share) for share in shares.groups()]
        if sum(numbers) > 100 or not all(numbers):
            raise RefusedValue(
                "the percentages of a random split must be positive and add up to at most 100",
                "such as random-60-20-20",
                protocol,
            )
    elif protocol not in (*entry.splits, "random"):
        names = dict.fromkeys((*entry.splits, "random", "random-60-20-20"))
        raise RefusedValue(unknown(f"split of {entry.name}", protocol, names))
    return protocol


def make_split(data: Data, protocol: str, seed: int) -> Split:
    """The split of a seed. Where a dataset has several, seed s takes the s-th, in a cycle.

    Raises:
        ValueError: the dataset is too small for the protocol.
    """
    generator = torch.Generator().manual_seed(seed)
    shares = _SHARES.fullmatch(protocol)
    if shares:
        return _by_share(data.y, [int(share) / 100 for share in shares.groups()], generator)
    if protocol == "random":
        return _by_class(data.y, generator)
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


def _by_class(y: Tensor, generator: torch.Generator) -> Split:
    train = []
    for label in range(int(y.max()) + 1):
        nodes = _nodes(y == label, generator)
        if nodes.numel() < TRAIN_PER_CLASS:
            raise RefusedValue(
                "the split 'random' trains on 20 nodes of each class",
                f"at least {TRAIN_PER_CLASS} nodes of class {label}",
                nodes.numel(),
            )
        train.append(nodes[:TRAIN_PER_CLASS])
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


def _by_share(y: Tensor, shares: list[float], generator: torch.Generator) -> Split:
    nodes = _nodes(y >= 0, generator)
    ends = [round(sum(shares[: part + 1]) * nodes.numel()) for part in range(3)]
    return Split(*_masks(y, (nodes[: ends[0]], nodes[ends[0] : ends[1]], nodes[ends[1] : ends[2]])))


def _nodes(mask: Tensor, generator: torch.Generator) -> Tensor:
    """The nodes of a mask, shuffled."""
    nodes = mask.nonzero().flatten()
    return nodes[torch.randperm(nodes.numel(), generator=generator)]


def _masks(y: Tensor, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    masks = tuple(torch.zeros(y.numel(), dtype=torch.bool) for _ in parts)
    for mask, nodes in zip(masks, parts, strict=True):
        mask[nodes] = True
    return masks
