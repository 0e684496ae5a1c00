"""No structure: numbers of nodes alone, for families that ask for no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch_geometric.data import Data

from ..errors import RefusedValue, refusal
from .any_structure import AnyStructure, refuse_beside
from .checks import check_size
from .graph import require_data


@dataclass(frozen=True)
class Unstructured(AnyStructure):
    """What ``None`` in the place of ``edge_index`` says: nodes, and nothing about them.

    Attributes:
        known: (M, N), each of them None if nobody said.
        device: where a basis will be.
    """

    noun: ClassVar[str] = "nodes without structure"
    expects: ClassVar[str] = "None"

    known: tuple[int | None, int | None]
    device: torch.device

    @classmethod
    def recognises(cls, given: Any) -> bool:
        """None, or one that was read."""
        return given is None or isinstance(given, Unstructured)

    @classmethod
    def read(cls, given: Any, *, device: torch.device | None = None, **beside: Any) -> Unstructured:
        """The sizes that came beside nothing.

        Raises:
            ValueError: weights or the like came too, which belong to edges.
        """
        if isinstance(given, Unstructured):
            return given
        size = beside.pop("size", None)
        check_size(size)
        refuse_beside(cls.noun, beside)
        known = (None, None) if size is None else (size[0], size[1])
        return Unstructured(known, device or torch.get_default_device())

    @classmethod
    def is_in(cls, data: Data) -> bool:
        """Never: a graph that has no edges is more likely to have lost them."""
        return False

    @classmethod
    def of_data(cls, data: Data) -> Unstructured:
        """The nodes of a ``Data`` object."""
        require_data(data)
        nodes = int(data.num_nodes or 0)
        return cls.read(None, size=(nodes, nodes))

    @property
    def size(self) -> tuple[int, int]:
        """(M, N), with N = M where nobody said.

        Raises:
            ValueError: M is not known.
        """
        sources, targets = self.known
        if sources is None:
            raise RefusedValue(
                refusal("a basis without structure needs its nodes counted", "size=(M, N)", "None")
            )
        return sources, sources if targets is None else targets
