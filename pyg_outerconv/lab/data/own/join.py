"""From edges, features and labels with names to one PyG ``Data`` with numbers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from ....errors import RefusedValue
from ..undirected import both_ways, group_of
from .parts import PART_NAMES, Edges, Features, Labels, Where, arrow, refuse

UNLABELLED = ("", "-1")
_DIGITS = 1000  # of an integer; Python reads a few thousand


@dataclass
class Joined:
    """A graph, the names of its nodes, classes and edge types, and lines on what was counted."""

    data: Data
    nodes: tuple[str, ...]
    classes: tuple[str, ...]
    edge_types: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def join(edges: Edges, features: Features | None, labels: Labels, undirected: bool) -> Joined:
    """One graph. The features' rows are its nodes; without features, those of the labels are.

    Raises:
        ValueError: the parts do not fit together; the first row that does not is named.
    """
    names = _node_names(edges, features, labels)
    if edges.num_nodes not in (None, len(names)):
        rule = "a matrix of edges has a row for each node"
        raise refuse(edges.where(-1), rule, f"{len(names)}, as there are nodes", edges.num_nodes)
    y, classes, rows = _classes(names, features, labels)
    masks = _masks(labels, rows, y)
    ends = [
        _places(names, end, edges.where, "an edge joins nodes of the graph") for end in edges.ends
    ]
    types, type_names = (None, ()) if edges.types is None else _types(edges.types, edges.where)
    weights = None if edges.weights is None else _single(edges.weights, edges.where, "edge weights")
    index = torch.from_numpy(np.stack(ends))
    if undirected or edges.both_ways:
        index, weights, types = both_ways(index, weights, types, edges.where)
    data = Data(edge_index=index, y=y, num_nodes=len(names), **masks)
    if features is not None:
        data.x = _single(features.x, features.where, "features")
    for key, value in (("edge_weight", weights), ("edge_type", types)):
        if value is not None:
            data[key] = value
    joined = Joined(data, tuple(names.to_pylist()), classes, type_names)
    joined.notes = [*notes_on(data), *_unread(edges, features, labels)]
    return joined


def _single(numbers: NDArray[np.float64], where: Where, what: str) -> Tensor:
    """Finite numbers as float32."""
    made = torch.from_numpy(numbers).float()
    fits = torch.isfinite(made) if made.dim() == 1 else torch.isfinite(made).all(dim=1)
    if not bool(fits.all()):
        row = int((~fits).nonzero()[0])
        expected = f"at most {torch.finfo().max:.3g}"
        raise refuse(where(row), f"{what} fit float32", expected, f"{abs(numbers[row]).max():.3g}")
    return made


def notes_on(data: Data) -> list[str]:
    """What a user should know is in a graph."""
    index, num_nodes = data.edge_index, int(data.num_nodes or 0)
    group = group_of(index, data.get("edge_type"))
    parallel = group.numel() - (int(group.max()) + 1 if group.numel() else 0)
    touched = torch.zeros(num_nodes, dtype=torch.bool)
    touched[index.flatten()] = True
    loops = int((index[0] == index[1]).sum())
    found = [
        f"{index.size(1)} edges, of which {parallel} are parallel to another and {loops} are "
        f"self-loops; {int((~touched).sum())} nodes without an edge"
    ]
    if unlabelled := int((data.y < 0).sum()):
        found.append(f"{unlabelled} of {num_nodes} nodes have no label: they are in no part")
    if "train_mask" in data and "test_mask" not in data:
        found.append(
            "the split has train nodes alone: of the other nodes with a label one half validates, "
            "the other tests, drawn by seed"
        )
    elif "train_mask" in data and "val_mask" not in data:
        found.append("the split has no val nodes: a fifth of the train nodes, drawn by seed")
    return found


def _unread(edges: Edges, features: Features | None, labels: Labels) -> list[str]:
    parts = {"edges": edges.unread, "features": features.unread if features else ()}
    parts["labels"] = labels.unread
    return [f"not read of {part}: {', '.join(names)}" for part, names in parts.items() if names]


def _node_names(edges: Edges, features: Features | None, labels: Labels) -> Any:
    """The names of all nodes in their order; numbers where the files name none."""
    pa = arrow()
    rows: Features | Labels = labels if features is None else features
    if rows.names is None:
        count = len(features.x) if features is not None else len(labels.classes)
        numbers = np.arange(edges.first, edges.first + count)
        return pa.array(numbers).cast(pa.string())
    _require_distinct(rows.names, rows.where)
    return rows.names


def _require_distinct(names: Any, where: Where) -> None:
    pa = arrow()
    codes = pa.compute.dictionary_encode(names)
    if len(codes.dictionary) < len(names):
        first, row = _repeated(codes.indices.to_numpy())
        rule = "a node has one row"
        got = f"{names[row].as_py()!r} again, as in {where(first)}"
        raise refuse(where(row), rule, "each name once", got)
    empty = pa.compute.index(names, value="").as_py()
    if empty >= 0:
        raise refuse(where(empty), "a node has a name", "a name or a number", "an empty cell")


def _repeated(codes: NDArray[np.int64]) -> tuple[int, int]:
    """The first row whose code was there before, after the row where it was."""
    _, firsts, inverse = np.unique(codes, return_index=True, return_inverse=True)
    row = int((firsts[inverse] != np.arange(len(codes))).argmax())
    return int(firsts[inverse[row]]), row


def _places(names: Any, wanted: Any, where: Where, rule: str) -> NDArray[np.int64]:
    """The numbers of nodes by their names."""
    pa = arrow()
    found = pa.compute.index_in(wanted, value_set=names)
    if found.null_count:
        row = pa.compute.index(pa.compute.is_null(found), value=True).as_py()
        expected = f"one of {len(names)} names, such as {names[0].as_py()!r}"
        raise refuse(where(row), rule, expected, repr(wanted[row].as_py()))
    places: NDArray[np.int64] = found.to_numpy().astype(np.int64)
    return places


def _classes(
    names: Any, features: Features | None, labels: Labels
) -> tuple[Tensor, tuple[str, ...], NDArray[np.int64]]:
    """``y`` (N,), the names of classes, and the node of each row of the labels."""
    if labels.names is None:
        if features is not None and features.names is not None:
            rule = "labels without names go with features without names"
            raise refuse(labels.where(0), rule, "a name for each label", "features with names")
        if len(labels.classes) != len(names):
            rule = "labels without names are of all nodes"
            raise refuse(labels.where(0), rule, len(names), f"{len(labels.classes)} labels")
        rows = np.arange(len(names))
    else:
        _require_distinct(labels.names, labels.where)
        rows = _places(names, labels.names, labels.where, "a label is of a node with features")
    words = np.array(labels.classes.to_pylist(), dtype=object)
    has = np.array([word not in UNLABELLED for word in words], dtype=bool)
    classes = _sorted_classes(words, has, labels.where)
    number = {name: place for place, name in enumerate(classes)}
    y = torch.full((len(names),), -1, dtype=torch.long)
    y[torch.from_numpy(rows[has])] = torch.tensor([number[word] for word in words[has]])
    return y, classes, rows


def _sorted_classes(words: NDArray[Any], has: NDArray[np.bool_], where: Where) -> tuple[str, ...]:
    """Classes in the order of their numbers if all are integers, else of the alphabet."""
    found = set(words[has])
    for word in found:
        if not _is_integer(word) and _is_real(word):
            row = int((words == word).argmax())
            rule = "a class is a word or an integer"
            raise refuse(where(row), rule, "such as 'physics' or 3", repr(word))
    if len(found) < 2:
        rule = "there are classes to tell apart"
        raise refuse(where(0), rule, "at least 2 classes", ", ".join(found) or "no label")
    integers = all(map(_is_integer, found))
    return tuple(sorted(found, key=(lambda word: (int(word), word)) if integers else None))


def _is_integer(word: str) -> bool:
    return word.removeprefix("-").isdecimal() and len(word) <= _DIGITS


def _is_real(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _types(column: Any, where: Where) -> tuple[Tensor, tuple[str, ...]]:
    pa = arrow()
    words = np.array(column.to_pylist(), dtype=object)
    empty = pa.compute.index(column, value="").as_py()
    if empty >= 0:
        raise refuse(where(empty), "every edge has a type", "a word or a number", "an empty cell")
    found = set(words)
    key = (lambda word: (int(word), word)) if all(map(_is_integer, found)) else None
    names = tuple(sorted(found, key=key))
    number = {name: place for place, name in enumerate(names)}
    return torch.tensor([number[word] for word in words], dtype=torch.long), names


def _masks(labels: Labels, rows: NDArray[np.int64], y: Tensor) -> dict[str, Tensor]:
    """Masks of the parts that the labels name, (N,), or (N, S) of S splits; none without any."""
    splits = [_split(labels, column, rows, y) for column in labels.splits]
    for number, masks in enumerate(splits):
        check_parts(masks)
        if masks.keys() != splits[0].keys():
            expected, got = (", ".join(names) for names in (splits[0], masks))
            rule = "all splits have the same parts"
            raise RefusedValue(rule, expected, f"{got} in split {number}")
    if len(splits) < 2:
        return splits[0] if splits else {}
    return {name: torch.stack([masks[name] for masks in splits], dim=1) for name in splits[0]}


def _split(labels: Labels, column: Any, rows: NDArray[np.int64], y: Tensor) -> dict[str, Tensor]:
    """The masks (N,) of one split, a column of the names of parts."""
    words = np.array(column.to_pylist(), dtype=object)
    for row, word in enumerate(words):
        if word not in ("", *PART_NAMES):
            expected = f"{', '.join(PART_NAMES)} or nothing"
            raise refuse(labels.where(row), "a part of the split has a name", expected, repr(word))
        if word and y[rows[row]] < 0:
            rule = "a node in a part of the split has a label"
            raise refuse(labels.where(row), rule, "a class", f"none, in {word}")
    masks = {}
    for part in PART_NAMES:
        mask = torch.zeros(y.numel(), dtype=torch.bool)
        mask[torch.from_numpy(rows[words == part])] = True
        if bool(mask.any()):
            masks[f"{part}_mask"] = mask
    return masks


def check_parts(masks: Collection[str]) -> None:
    """Refuse masks of which one is missing that cannot be drawn.

    Raises:
        ValueError: nobody trains, or there are validation nodes and no test nodes.
    """
    if "train_mask" not in masks:
        raise RefusedValue("a split has train nodes", "nodes of the part train", "none")
    if "val_mask" in masks and "test_mask" not in masks:
        raise RefusedValue(
            "a split that has val nodes has test nodes", "nodes of the part test", "none"
        )
