"""Heads of attention and matrices of a structure stand in one sum (section 4.2).

python examples/claims/mixed_heads.py
"""

import torch
from torch_geometric.datasets import KarateClub

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Identity, MultiHead, Stack


@torch.no_grad()
def main():
    """Two heads, GCN and the identity in one layer: its basis is that of its parts, stacked."""
    data = KarateClub()[0]
    conv = OuterConv(34, 8, Stack(MultiHead(2, score="cosine"), GCN(), Identity()), bias=False)
    basis = conv.basis(data.x, data.edge_index).to_dense()
    print(conv.family.labels)
    y = conv(data.x, data.edge_index)
    dense = torch.einsum("kmn,mp,kpq->nq", basis, data.x, conv.theta()[:, 0])
    assert torch.allclose(y, dense, atol=1e-5)
    assert torch.allclose(basis[:2].sum(1), torch.ones(2, 34))  # shares of a softmax
    assert torch.equal(basis[2], GCN().basis(data.edge_index).to_dense()[0])
    assert torch.equal(basis[3], torch.eye(34))


if __name__ == "__main__":
    main()
