"""Marks of tests that older versions of torch cannot pass; docs/install.md tells users of it."""

import pytest
import torch

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])


def since(*version: int, why: str) -> pytest.MarkDecorator:
    """It passes from that version of torch on."""
    before = f"before torch {'.'.join(map(str, version))}"
    return pytest.mark.skipif(version > TORCH, reason=f"{why} {before}")


def one_graph_since(*version: int) -> pytest.MarkDecorator:
    """Its compiler records the call without a break."""
    return since(*version, why="compilers break it")


marked_for_graphs = pytest.mark.skipif(
    not hasattr(torch.Tag, "cudagraph_unsafe"), reason="this torch has no such mark"
)
