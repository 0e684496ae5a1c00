"""A PyG ``Data`` of one's own: from a file, in which nothing is run, or from a function."""

from __future__ import annotations

import importlib
import inspect
import pickle
import re
import sys
import warnings
from copy import copy
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, Dataset, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.graph_store import EdgeLayout
from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

from ....errors import RefusedType, RefusedValue
from ..checks import broken_rules
from ..undirected import make_undirected
from .files import content_of
from .join import Joined, check_parts, notes_on
from .parts import PART_NAMES

# What the pickles of Data and HeteroData name, beside tensors.
SAFE = (
    *(Data, HeteroData, DataEdgeAttr, DataTensorAttr, EdgeLayout),
    *(BaseStorage, GlobalStorage, NodeStorage, EdgeStorage),
)
READ = ("x", "y", "edge_index", "edge_weight", "edge_type")


def from_file(path: Path) -> Data:
    """The ``Data`` that ``torch.save`` wrote, or the only graph of a PyG dataset's processed file.

    Raises:
        ValueError, TypeError: it is something else, or holds what could run code.
    """
    content = content_of(path)
    try:
        known = torch.serialization.get_safe_globals()  # what is known already stays so afterwards
        lacking = [kind for kind in SAFE if kind not in known]
        with warnings.catch_warnings(), torch.serialization.safe_globals(lacking):
            warnings.simplefilter("ignore")  # torch warns of foreign files that it then refuses
            held = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"Unsupported (?:global|class)\S* (?:GLOBAL )?(\S+)", str(error))
        said = re.search(r"WeightsUnpickler error:\s*([^\n]+)", str(error))
        reason = named[1] if named else f"another pickle ({said[1] if said else error})"
        rule = f"{path} holds tensors and a Data only, as anything else could run code"
        raise RefusedValue(rule, "tensors, numbers and text", reason) from error
    except Exception as error:  # of a file that is damaged or no file of torch's
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise RefusedValue(f"{path} must be whole", "a file of torch.save", reason) from error
    if isinstance(held, tuple) and len(held) == 3 and isinstance(held[0], dict):  # processed by PyG
        parts, slices, kind = held
        if slices is not None or kind is not Data:
            raise RefusedType(
                f"{path} holds one graph", "a Data", "a dataset of several, or another kind"
            )
        held = parts
    if isinstance(held, dict):
        held = Data.from_dict(held)
    return _one(held, str(path))


def from_function(name: str) -> Data:
    """What ``module:function`` returns; the module is found as ``python -m`` finds it here.

    Raises:
        ValueError, TypeError: there is no such module or function, or it returns something else.
    """
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        rule = "the module of a function can be imported"
        raise RefusedValue(rule, f"{module} in {here} or installed", "no such module") from error
    finally:
        sys.path.remove(here)
    made = getattr(imported, function, None)
    if not callable(made):
        raise RefusedValue(f"{module} has a function {function}", "a function", repr(made))
    try:
        inspect.signature(made).bind()
    except (TypeError, ValueError) as error:  # ValueError: of a builtin that does not say it
        rule = f"{name} is called without arguments"
        raise RefusedType(rule, "a function that needs none", str(error)) from None
    return _one(made(), name)


def _one(held: Any, origin: str) -> Data:
    if isinstance(held, Dataset) and len(held) == 1:
        held = held[0]
    if isinstance(held, HeteroData):
        rule = f"{origin} has one type of nodes"
        raise RefusedType(rule, "a Data, such as HeteroData.to_homogeneous() makes", "a HeteroData")
    if not isinstance(held, Data):
        raise RefusedType(f"{origin} is one graph", "a Data", type(held).__name__)
    return held


def checked(held: Data, origin: str, undirected: bool) -> Joined:
    """The parts of a ``Data`` that training reads, if they fit together.

    Raises:
        ValueError, TypeError: they do not.
    """
    for key, what in (("edge_index", "edges"), ("y", "classes")):
        if held.get(key) is None:
            raise RefusedValue(f"{origin} has {what}", f"a tensor {key}", "none")
    masks = [f"{part}_mask" for part in PART_NAMES if held.get(f"{part}_mask") is not None]
    held = copy(held)
    for key in (*READ, *masks):
        if held.get(key) is not None:
            held[key] = _numbers(held[key], key, origin)
    data = Data(edge_index=_integers(held.edge_index, "edge_index", origin))
    data.num_nodes = held.num_nodes
    data.y = _integers(held.y, "y", origin)
    if data.y.dim() == 2 and data.y.size(1) == 1:  # as OGB has them
        data.y = data.y.flatten()
    if held.get("x") is not None:
        data.x = held.x
        if data.x.dim() != 2 or data.x.is_complex():
            rule = f"{origin} has a row of features for each node"
            raise RefusedValue(rule, "real numbers (N, P)", data.x)
        data.x = data.x.float()
    for name in masks:
        mask = held[name]
        if mask.dtype != torch.bool or mask.dim() not in (1, 2) or not mask.numel():
            raise RefusedType(
                f"{name} of {origin} says which nodes are in it", "booleans", held[name]
            )
        data[name] = held[name]
    _edge_values(held, data, origin)
    for _, rule, expected, got in broken_rules(data):
        raise RefusedValue(f"{origin}: {rule}", expected, got)
    if len(data.y[data.y >= 0].unique()) < 2:
        raise RefusedValue(f"{origin}: there are classes to tell apart", "at least 2", "fewer")
    if masks:
        check_parts(masks)
    for name in masks:
        if bool((data[name].view(data.y.numel(), -1).any(dim=1) & (data.y < 0)).any()):
            raise RefusedValue(f"{origin}: a node of {name} has a label", "a class", "-1")
    if undirected:
        make_undirected(data, origin)
    types = data.get("edge_type")
    number = [str(one) for one in range(int(data.num_nodes or 0))]
    kinds = 0 if types is None or not types.numel() else int(types.max()) + 1
    classes = int(data.y.max()) + 1
    joined = Joined(data, tuple(number), tuple(number[:classes]), tuple(map(str, range(kinds))))
    unread = sorted(set(held.keys()) - {*READ, *masks, "num_nodes"})
    joined.notes = notes_on(data) + ([f"not read: {', '.join(unread)}"] if unread else [])
    return joined


def _numbers(value: Any, key: str, origin: str) -> Tensor:
    """The tensor without gradients, dense."""
    if not isinstance(value, Tensor):
        raise RefusedType(f"{key} of {origin} is a tensor", "a tensor", type(value).__name__)
    for kind, has in (
        ("meta", value.is_meta),
        ("quantized", value.is_quantized),
        ("nested", value.is_nested),
        ("0-dimensional", not value.dim()),
    ):
        if has:
            rule = f"{key} of {origin} holds numbers"
            raise RefusedType(rule, "rows with a number in each place", f"a {kind} tensor")
    dense = value if value.layout == torch.strided else value.to_dense()
    return dense.detach().resolve_conj().resolve_neg()


def _edge_values(held: Data, data: Data, origin: str) -> None:
    count = data.edge_index.size(-1)
    if held.get("edge_type") is not None:
        data.edge_type = _integers(held.edge_type, "edge_type", origin)
        if data.edge_type.shape != (count,) or (count and int(data.edge_type.min()) < 0):
            rule = f"{origin} has a type for each edge"
            raise RefusedValue(rule, f"numbers from 0, ({count},)", data.edge_type)
        if count and int(data.edge_type.max()) >= count:  # each has a matrix, and parameters
            rule = f"{origin} has no more types of edges than edges"
            raise RefusedValue(rule, f"numbers < {count}", int(data.edge_type.max()))
    if held.get("edge_weight") is not None:
        weight = held.edge_weight
        if weight.shape not in ((count,), (count, 1)) or weight.is_complex():
            rule = f"{origin} has a weight for each edge"
            raise RefusedValue(rule, f"real numbers ({count},)", weight)
        data.edge_weight = weight.float().flatten()
        if not bool((fits := torch.isfinite(data.edge_weight)).all()):
            edge = int((~fits).nonzero()[0])
            rule = f"edge weights of {origin} are finite in float32"
            raise RefusedValue(rule, "numbers", f"{weight[edge].item()} of edge {edge}")


def _integers(tensor: Tensor, key: str, origin: str) -> Tensor:
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise RefusedType(f"{key} of {origin} holds integers", "int64", tensor)
    return tensor.long()
