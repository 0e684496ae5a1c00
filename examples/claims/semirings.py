"""The sum over inputs may be another reduction (section 3.4), and Θ then comes after it.

python examples/claims/semirings.py
"""

import torch
from torch_geometric.datasets import KarateClub

from pyg_outerconv import OuterConv
from pyg_outerconv.families import Relation


@torch.no_grad()
def main():
    """Compare the maximum over neighbours with the dense one, and with Θ before the maximum."""
    torch.manual_seed(0)
    data = KarateClub()[0]
    x = torch.randn(34, 6)
    conv = OuterConv(6, 4, Relation(1, None), aggr="max", bias=False)
    theta = conv.theta.weight[0]
    there = Relation(1, None).basis(data.edge_index, size=(34, 34)).support()[0]

    def largest(values):
        pairs = values[:, None].expand(34, 34, -1)  # [m, n]
        return pairs.masked_fill(~there[..., None], -torch.inf).amax(dim=0)

    y = conv(x, data.edge_index)
    assert torch.allclose(y, largest(x) @ theta, atol=1e-5)
    other = float((y - largest(x @ theta)).abs().max())
    print(f"max, then Θ: the layer. Θ, then max: another function, by up to {other:.2f}")
    assert other > 0.1


if __name__ == "__main__":
    main()
