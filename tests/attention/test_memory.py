"""No score holds a tensor of edges × channels, forwards or backwards."""

import pytest
import torch
from probes import Kept, Largest
from scores import TRIED

from pyg_outerconv.attention import sums
from pyg_outerconv.kernels import tiles
from pyg_outerconv.nn.attention_conv import AttentionConv

NODES, EDGES, HEADS, D = 40, 6000, 2, 16
NUMBERS = EDGES * HEADS  # one for each edge and head, which are allowed


@pytest.mark.parametrize("text", [*TRIED, "edges in values"])
def test_nothing_is_held_for_edges_but_a_few_numbers(text, monkeypatch):
    for module in (tiles, sums):
        monkeypatch.setattr(module, "TILE_ELEMENTS", 4 * NUMBERS)
    options = {"edge_dim": 2} if text == "edges in values" else {"score": text}
    conv = AttentionConv(HEADS * D, HEADS * D, HEADS, order="heads_transform_first", **options)
    edges = torch.randint(0, NODES, (2, EDGES))
    x = torch.randn(NODES, HEADS * D, requires_grad=True)
    attr = torch.randn(EDGES, 2, requires_grad=True) if "edge" in text else None
    conv(x, edges, edge_attr=attr)  # edges are sorted, and matrices made
    with Kept() as kept:
        out = conv(x, edges, edge_attr=attr)
    with Largest() as largest:
        conv(x, edges, edge_attr=attr).sum().backward()
    out.sum().backward()
    assert largest.nbytes <= 4 * 4 * NUMBERS
    assert max(t.untyped_storage().nbytes() for t in kept._tensors.values()) <= 8 * NUMBERS
