"""Attention is a convolution whose basis comes from the content (section 4, equation 6).

python examples/claims/attention.py
"""

import torch
from torch_geometric.datasets import KarateClub
from torch_geometric.nn import GATConv

from pyg_outerconv import AttentionConv
from pyg_outerconv.nn.convert import from_torch
from pyg_outerconv.pyg import outer_conv


@torch.no_grad()
def main():
    """Compare with equation 6, with torch's multi-head attention, and with PyG's GAT."""
    x = torch.randn(7, 8)
    edges = torch.ones(7, 7).nonzero().t()
    conv = AttentionConv(8, 5, heads=2, score="bilinear", combine="sum", bias=False)
    y, basis = conv(x, edges, return_attention_weights=True)
    form = conv.family.score.form.weight.mT  # Λ
    a = torch.einsum("mp,hpr,nr->hmn", x, form, x).softmax(dim=1)  # f(X Λ Xᵀ)
    assert torch.allclose(basis.to_dense(), a, atol=1e-5)
    assert torch.allclose(
        y, torch.einsum("hmn,mp,hpq->nq", a, x, conv.theta.weight), atol=1e-4, rtol=1e-4
    )
    print("equation 6: A_h = f(X Λ_h Xᵀ), and Y = Σ_h A_hᵀ X Θ_h")

    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    tokens = x[None]
    assert torch.allclose(from_torch(theirs)(tokens), theirs(tokens, tokens, tokens)[0], atol=1e-5)
    print("torch.nn.MultiheadAttention: all pairs, keys and queries of rank D")

    data = KarateClub()[0]
    gat = GATConv(34, 8, heads=2)
    ours = outer_conv(gat)
    expected = gat(data.x, data.edge_index)
    assert torch.allclose(ours(data.x, data.edge_index), expected, atol=1e-5)
    print("PyG's GATConv: the edges of a graph, additive scores")


if __name__ == "__main__":
    main()
