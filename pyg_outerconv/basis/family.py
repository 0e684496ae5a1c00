"""What a family is: a recipe that makes a basis out of structure, and a PyG transform."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from ..errors import RefusedType, RefusedValue, refusal
from .base import Basis
from .edges import EdgeBasis
from .options import check_options
from .pattern import Pattern
from .structure import Structure, structure

FAMILIES: dict[str, type[Family]] = {}


class Family(BaseTransform):
    """A recipe for a basis. Subclasses are frozen dataclasses whose fields are the options.

    A family works in two steps: :meth:`operators` turns structure into a few explicit edge sets
    (all that depends on data), :meth:`assemble` turns these into the basis (all that is a rule).
    Called as a transform, it stores the first step's result on a ``Data`` object as plain
    tensors that collate, batch and move as PyG's own do; :meth:`basis_of` reads them back.
    Transforms that drop or reorder nodes or edges come before it.

    Attributes:
        equation: the matrices A_k, in one line of text.
        add_self_loops: whether the recipe adds self-loops, which needs M = N (PyG asks this).
    """

    equation: ClassVar[str]
    add_self_loops: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        FAMILIES[cls.__name__.lower()] = cls

    def __post_init__(self) -> None:
        check_options(self)

    @property
    @abstractmethod
    def num_bases(self) -> int:
        """K, known before any data is seen."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """What each label k means."""

    @abstractmethod
    def operators(self, edges: Structure, dtype: torch.dtype | None) -> list[EdgeBasis]:
        """The explicit edge sets of the basis; of type ``dtype`` where no weights are given."""

    def operator_labels(self) -> list[int]:
        """The number of labels of each edge set; by default there is one that has them all."""
        return [self.num_bases]

    @property
    def num_operators(self) -> int:
        """How many edge sets :meth:`operators` makes."""
        return len(self.operator_labels())

    def assemble(
        self, operators: Sequence[EdgeBasis], size: tuple[int, int], device: torch.device
    ) -> Basis:
        """The basis of these edge sets; by default there is one, and it is the basis."""
        return operators[0]

    def basis(
        self,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        edge_type: Tensor | None = None,
        *,
        size: tuple[int | None, int | None] | None = None,
        batch: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> Basis:
        """Make the basis of an edge list (or of a :class:`Structure`).

        Args:
            edge_index: (2, E), an ``EdgeIndex``, a transposed ``torch.sparse`` matrix (N × M), or
                a :class:`Structure`.
            edge_weight: (E,) floating point, may carry gradients.
            edge_type: (E,) integers.
            size: (M, N).
            batch: (N,) the graph of each node, for families that treat graphs one by one.
            dtype: type of the values where no weights are given; torch's default if None.

        Raises:
            TypeError, ValueError: see :func:`structure`, and the family's own rules.
        """
        edges = structure(edge_index, edge_weight, edge_type, size=size, batch=batch)
        return self.assemble(self.operators(edges, dtype), edges.size, edges.device)

    def set_self_loops(self, add: bool) -> Family:
        """The same recipe with or without added self-loops.

        Raises:
            ValueError: they are asked for, and the recipe has no such option.
        """
        if "add_self_loops" in {field.name for field in fields(self)}:
            return replace(self, add_self_loops=add)
        if add:
            raise RefusedValue(
                refusal(
                    "self-loops are added by families that have the option",
                    "GCN or Walk",
                    repr(self),
                )
            )
        return self

    # As a transform ---------------------------------------------------------------------------

    def forward(self, data: Data) -> Data:
        """Store the edge sets of this family on ``data`` (see :meth:`basis_of`)."""
        edges = structure_of(data)
        for number, operator in enumerate(self.operators(edges, None)):
            data[self._key(number, "edge_index")] = operator.index.long()
            data[self._key(number, "label")] = operator.label.long()
            data[self._key(number, "value")] = operator.values()
        return data

    def basis_of(self, data: Data) -> Basis:
        """The basis of a ``Data`` or ``Batch`` object: of what the transform stored, else afresh.

        Raises:
            TypeError: ``data`` is not a homogeneous graph.
            ValueError: see :meth:`basis`.
        """
        _require_data(data)
        if self.num_operators and self._key(0, "edge_index") not in data:
            return self.basis(structure_of(data))
        size = (int(data.num_nodes), int(data.num_nodes))
        operators, kinds = [], self.operator_labels()
        for number in range(self.num_operators):
            pattern = Pattern.build(
                data[self._key(number, "edge_index")],
                data[self._key(number, "label")],
                size=size,
                num_labels=kinds[number],
            )
            value = pattern.sort_values(data[self._key(number, "value")])
            operators.append(pattern.with_values(value))
        return self.assemble(operators, size, structure_of(data).device)

    def _key(self, number: int, what: str) -> str:
        # "index" in the name makes PyG shift it by the number of nodes when it collates.
        return (
            f"{type(self).__name__.lower()}_{zlib.crc32(repr(self).encode()):08x}_{number}_{what}"
        )


def structure_of(data: Data) -> Structure:
    """The structure of a PyG ``Data`` or ``Batch``: edge_index (or adj_t), edge_weight, edge_type.

    Raises:
        TypeError: ``data`` is not a homogeneous graph.
        ValueError: it has no edges, or no number of nodes; see :func:`structure`.
    """
    _require_data(data)
    edge_index = data.get("edge_index")
    if edge_index is None:
        edge_index = data.get("adj_t")
    if edge_index is None:
        raise RefusedValue(
            refusal(
                "a graph needs edges",
                "data.edge_index or data.adj_t",
                f"a Data object with {sorted(data.keys())}",
            )
        )
    return structure(
        edge_index,
        data.get("edge_weight"),
        data.get("edge_type"),
        size=(data.num_nodes, data.num_nodes),
        batch=data.get("batch"),
    )


def _require_data(data: Any) -> None:
    if not isinstance(data, Data):
        raise RefusedType(
            refusal(
                "a family reads a homogeneous graph",
                "torch_geometric.data.Data (for HeteroData see from_hetero)",
                type(data).__name__,
            )
        )
