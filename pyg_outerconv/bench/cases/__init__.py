"""The cases, one file a group. Importing a file registers its cases."""

from __future__ import annotations

import importlib

GROUPS = (
    "gcn",
    "polynomial",
    "relation",
    "attention",
    "attention_layers",
    "sequence",
    "complexity",
    "citation",
    "scaling",
    "density",
    "preparation",
    "orders",
    "grid",
    "composition",
    "small",
    "epochs",
)


def register_all() -> None:
    """Register the cases of every group, once."""
    for group in GROUPS:
        importlib.import_module(f".{group}", __name__)
