"""A convolution is a sum of outer products (section 2): a layer, its Φ, and both flattenings agree.

python examples/claims/outer_product.py
"""

import torch
from torch_geometric.datasets import KarateClub

from pyg_outerconv import OuterConv, nn


@torch.no_grad()
def main():
    """Compare the layer on the karate club with Φ and with both Kronecker products."""
    data = KarateClub()[0]
    conv = OuterConv(34, 8, "walk(2)", bias=False)
    y = conv(data.x, data.edge_index)
    phi = nn.quadri_tensor(conv, data.edge_index)  # (M, N, P, Q)
    a = conv.basis(data.x, data.edge_index).to_dense()
    terms = zip(a, conv.theta.weight, strict=True)  # Σ_k A_k ⊗ Θ_k
    total = sum(torch.tensordot(a_k, theta_k, dims=0) for a_k, theta_k in terms)
    assert torch.allclose(phi, total, atol=1e-6)
    hat, check = nn.phi_hat(conv, data.edge_index), nn.phi_check(conv, data.edge_index)
    others = {
        "Φ": torch.einsum("mnpq,mp->nq", phi, data.x),
        "Φ̂": (data.x.flatten() @ hat).view(34, 8),  # rows of X one after another
        "Φ̌": (data.x.T.flatten() @ check).view(8, 34).T,  # columns of X one after another
    }
    for name, other in others.items():
        gap = float((other - y).abs().max() / y.abs().max())
        print(f"the layer and {name}: up to {gap:.0e}")
        assert gap < 1e-5
    print(f"{conv.theta.weight.numel()} parameters, where Φ has {phi.numel()} numbers")


if __name__ == "__main__":
    main()
