"""AddBasis: a family's basis, stored on a graph under a name."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from ..basis import Basis
from ..errors import RefusedType, RefusedValue, unknown
from ..families import Family, parse_family
from ..families.stored import check_storable
from ..graph.edge_index import require_data

FAMILY = "family"

_MEANT = ("adj_t", "edge_type", "ptr")  # attributes that PyG knows, beside those of the class Data


@functional_transform("add_basis")
class AddBasis(BaseTransform):
    r"""Stores the basis :math:`\mathbf{A}_0, \dots, \mathbf{A}_{K-1}` that a family makes of a
    graph, under a name (functional name: :obj:`add_basis`).

    The attribute :obj:`data[name]` holds the text of the family, beside the edges of the basis as
    plain tensors, so that what is stored collates, batches, moves and pickles. :func:`basis_of`
    reads it back under its name: the stored edges, or, where nodes or edges have changed since (a
    subgraph, a sampler, a split), the basis of the graph as it is. Several bases are stored by
    several transforms with different names.

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.transforms import Compose
    >>> data = Data(x=torch.ones(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
    >>> data = Compose([AddBasis("gcn", name="near"), AddBasis("walk(3)", name="far")])(data)
    >>> basis_of(data, "far").num_bases
    4

    Args:
        family (Family or str): The recipe for the basis, or text such as :obj:`"walk(3)"`.
        name (str, optional): The name of the attribute. (default: :obj:`"basis"`)

    Raises:
        TypeError: an argument has the wrong type; at a call, the graph is heterogeneous.
        ValueError: values depend on parameters or features, targets are not the nodes of the
            graph, text does not describe the family, or the name is no identifier or has a meaning
            in PyG; at a call, the graph has another attribute of this name.
    """

    def __init__(self, family: Family | str, name: str = "basis") -> None:
        self.family, self.name = parse_family(family), name
        check_storable(self.family)
        _check_text(self.family)
        if not isinstance(name, str):
            raise RefusedType("a basis is stored under a name", "text", type(name).__name__)
        if not name.isidentifier() or hasattr(Data, name) or name in _MEANT:
            raise RefusedValue(
                "a basis is stored under a name of its own",
                "an identifier that Data gives no meaning",
                repr(name),
            )

    def forward(self, data: Data) -> Data:
        require_data(data)
        taken = data.get(self.name)
        if taken is not None and not is_entry(taken):
            raise RefusedValue(
                "a basis takes no other attribute's place",
                "a name that the graph does not have",
                f"{self.name!r}, which holds {type(taken).__name__}",
            )
        data = self.family(data)
        data[self.name] = {FAMILY: repr(self.family)}
        return data

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.family}, name={self.name!r})"


def basis_of(data: Data, name: str = "basis") -> Basis:
    """The basis that :class:`AddBasis` stored under a name, of a ``Data`` or ``Batch`` object.

    Where nodes, edges or weights have changed since, it is the basis of the graph as it is.

    Raises:
        TypeError: ``data`` is not a homogeneous graph.
        ValueError: no basis has this name, or the graphs of a batch have bases of different
            families under it.
    """
    require_data(data)
    entry = data.get(name) if isinstance(name, str) else None
    if not is_entry(entry):
        names = [key for key, value in data.to_dict().items() if is_entry(value)]
        raise RefusedValue(unknown("basis", name, names))
    texts = entry[FAMILY]
    family_texts = {texts} if isinstance(texts, str) else set(texts)
    if len(family_texts) != 1:
        raise RefusedValue(
            f"the graphs of a batch have one family under {name!r}", "one", sorted(family_texts)
        )
    return parse_family(family_texts.pop()).basis_of(data)


def is_entry(value: Any) -> bool:
    """Whether an attribute is what :class:`AddBasis` stores under its name."""
    return isinstance(value, dict) and set(value) == {FAMILY}


def _check_text(family: Family) -> None:
    """Refuse a family that its text does not describe."""
    try:
        same = parse_family(repr(family)) == family
    except ValueError:
        same = False
    if not same:
        raise RefusedValue(
            "a stored basis is found again by the text of its family",
            "a registered family whose options are plain values",
            repr(family),
        )
