"""GraphML, by networkx: edges and all that is known of nodes in one file."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError, iterparse

import numpy as np

from ....errors import RefusedValue
from .files import content_of
from .parts import Edges, Features, Labels, arrow, as_text, finite, refuse

LABEL, PART = "label", "split"


class GraphML:
    """What a GraphML file says; every numeric attribute of nodes but label and split is a feature.

    Edges have the attributes ``weight`` and ``type``, or those that are named. In an undirected
    graph each edge goes both ways.
    """

    def __init__(self, path: Path) -> None:
        import networkx as nx

        self.path = path
        content = content_of(path)
        try:
            _require_one_graph(path, content)
            self.graph: Any = nx.read_graphml(BytesIO(content), force_multigraph=True)
        except (ParseError, nx.NetworkXError, KeyError, ValueError, TypeError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise RefusedValue(f"{path} must be whole", "GraphML", reason) from error
        self.nodes = list(self.graph)
        self.names = arrow().array(self.nodes, arrow().string())
        self.known = sorted({key for _, held in self.graph.nodes(data=True) for key in held})

    def edges(self, weight: str | None, edge_type: str | None) -> Edges:
        """The edges, in the order of the file's nodes."""
        found = list(self.graph.edges(data=True))
        held = sorted({key for *_, data in found for key in data} - {"id"})
        for name in (weight, edge_type):
            if name is not None and name not in held:
                rule, known = "edges have an attribute", ", ".join(held) or "none"
                raise refuse(str(self.path), rule, known, repr(name))

        def where(row: int) -> str:
            return f"{self.path}, edge {found[row][0]!r} to {found[row][1]!r}"

        def values(name: str) -> list[Any]:
            rows = [data.get(name) for *_, data in found]
            if None in rows:
                rule = f"every edge has the attribute {name}, where one has"
                raise refuse(where(rows.index(None)), rule, "a value", "none")
            return rows

        columns = {
            name: values(name) for name in (weight or "weight", edge_type or "type") if name in held
        }
        weights, types = columns.get(weight or "weight"), columns.get(edge_type or "type")
        numbers = None
        if weights is not None:
            numbers = self._numbers(weights, where, "an edge weight is a number")
        pa = arrow()
        ends = [pa.array([str(edge[end]) for edge in found], pa.string()) for end in (0, 1)]
        return Edges(
            (ends[0], ends[1]),
            where,
            numbers,
            None if types is None else pa.array(list(map(str, types)), pa.string()),
            both_ways=not self.graph.is_directed(),
            unread=tuple(name for name in held if name not in columns),
        )

    def features(self) -> Features | None:
        """The numeric attributes of nodes in the order of their names; None without any."""
        columns = {key: self._attribute(key) for key in self.known if key not in (LABEL, PART)}
        text = [key for key, values in columns.items() if any(isinstance(v, str) for v in values)]
        numeric = [key for key in columns if key not in text]
        if not numeric:
            return None
        x = np.empty((len(self.nodes), len(numeric)))
        for number, key in enumerate(numeric):
            x[:, number] = self._numbers(
                columns[key], self._where, f"the feature {key!r} is a number"
            )
        return Features(self.names, x, self._where, tuple(text))

    def labels(self) -> Labels | None:
        """The attributes ``label`` and ``split`` of nodes; None where no node has a label."""
        if LABEL not in self.known:
            return None
        classes = arrow().array(self._attribute(LABEL))
        part = [as_text(arrow().array(self._attribute(PART)))] if PART in self.known else []
        return Labels(self.names, as_text(classes), self._where, tuple(part))

    def _attribute(self, key: str) -> list[Any]:
        return [held.get(key) for _, held in self.graph.nodes(data=True)]

    def _where(self, row: int) -> str:
        return f"{self.path}, node {self.nodes[row]!r}"

    def _numbers(self, values: list[Any], where: Any, rule: str) -> Any:
        for row, value in enumerate(values):
            if value is None or isinstance(value, str):
                raise refuse(where(row), rule, "a number", "none" if value is None else repr(value))
        return finite(np.array(values, np.float64), where, rule)


def _require_one_graph(path: Path, content: bytes) -> None:
    """Refuse what networkx's reader drops or makes up: a second graph, a node twice, or nowhere."""
    nodes: set[str | None] = set()
    ends: list[str | None] = []
    graphs = 0
    for _, element in iterparse(BytesIO(content)):
        kind = element.tag.rpartition("}")[2]
        if kind == "node":
            name = element.get("id")
            if name in nodes:
                raise refuse(str(path), "a node is described once", "each id once", repr(name))
            nodes.add(name)
        elif kind == "edge":
            ends += [element.get("source"), element.get("target")]
        elif kind == "graph":
            graphs += 1
    if graphs != 1:
        raise refuse(str(path), "a file has one graph, and no graph in a node", "1", graphs)
    if strange := next((end for end in ends if end not in nodes), None):
        raise refuse(
            str(path), "an edge joins nodes of the graph", "the id of a node", repr(strange)
        )
