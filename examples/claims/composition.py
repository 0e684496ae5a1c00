"""Two convolutions in a row are one (section 2, proposition 2): products of A, products of Θ.

python examples/claims/composition.py
"""

import torch
from torch_geometric.datasets import KarateClub

from pyg_outerconv import OuterConv, compose


@torch.no_grad()
def main():
    """Compose layers of 1 and of 2 labels, and compare with one after the other."""
    data = KarateClub()[0]
    first, second = OuterConv(34, 8, "gcn"), OuterConv(8, 4, "walk(1)")
    both = compose(first, second)
    chain = second(first(data.x, data.edge_index), data.edge_index)
    gap = float((both(data.x, data.edge_index) - chain).abs().max() / chain.abs().max())
    basis = both.basis(data.x, data.edge_index).to_dense()
    a = first.basis(data.x, data.edge_index).to_dense()
    b = second.basis(data.x, data.edge_index).to_dense()
    products = torch.stack([a[0] @ b[0], a[0] @ b[1]])
    print(f"{both.family.labels}: up to {gap:.0e}")
    assert gap < 1e-5
    assert torch.allclose(basis, products, atol=1e-6)
    theta = torch.matmul(first.theta()[0], second.theta()[:, 0])  # Θ_0 Θ'_j
    assert torch.allclose(both.theta()[:, 0], theta, atol=1e-6)


if __name__ == "__main__":
    main()
