"""Parameters do not depend on the size of the data (section 2): one layer on graphs of any size.

python examples/claims/size_of_theta.py
"""

import torch

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Full


@torch.no_grad()
def main():
    """Run one layer on rings of three sizes, and count what a fully connected layer would have."""
    conv = OuterConv(4, 3, GCN(), bias=False)
    for nodes in (5, 50, 500):
        ring = torch.arange(nodes)
        edges = torch.stack([ring, (ring + 1) % nodes])
        out = conv(torch.randn(nodes, 4), edges)
        all_pairs = OuterConv(4, 3, Full((nodes, nodes)), bias=False).theta.weight.numel()
        ours = conv.theta.weight.numel()
        print(f"{nodes:>3} nodes: {ours} parameters; fully connected {all_pairs:,}")
        assert out.shape == (nodes, 3)
        assert (ours, all_pairs) == (12, 12 * nodes**2)


if __name__ == "__main__":
    main()
