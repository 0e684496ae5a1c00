"""Marks of tests that older versions of torch cannot pass; docs/install.md tells users of it."""

import pytest
import torch

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])


def one_graph_since(*version: int) -> pytest.MarkDecorator:
    """Its compiler records the call without a break."""
    since = ".".join(map(str, version))
    return pytest.mark.skipif(version > TORCH, reason=f"compilers break it before torch {since}")


marked_for_graphs = pytest.mark.skipif(
    not hasattr(torch.Tag, "cudagraph_unsafe"), reason="this torch has no such mark"
)
