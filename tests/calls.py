"""The arguments of a layer beside x by name, for tests that hand them on together."""

from typing import Any


def named(
    edge_index: Any = None,
    edge_weight: Any = None,
    edge_type: Any = None,
    size: Any = None,
    batch: Any = None,
) -> dict[str, Any]:
    """The arguments by name, without those that are None."""
    given = {
        "edge_index": edge_index,
        "edge_weight": edge_weight,
        "edge_type": edge_type,
        "size": size,
        "batch": batch,
    }
    return {name: part for name, part in given.items() if part is not None}
