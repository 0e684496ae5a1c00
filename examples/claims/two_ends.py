"""Convolutions lie between two ends (section 3.1): a linear layer on each node, and on all at once.

python examples/claims/two_ends.py
"""

import torch

from pyg_outerconv import OuterConv
from pyg_outerconv.families import Full, Identity


@torch.no_grad()
def main():
    """Compare the identity, and all unit matrices, with torch.nn.Linear."""
    x = torch.randn(6, 4)
    no_edges = torch.empty(2, 0, dtype=torch.long)
    each = OuterConv(4, 3, Identity())
    linear = torch.nn.Linear(4, 3)
    whole = OuterConv(4, 3, Full((6, 5)), bias=False)
    wide = torch.nn.Linear(6 * 4, 5 * 3, bias=False)
    with torch.no_grad():
        each.theta.weight.copy_(linear.weight.T[None])
        each.bias.copy_(linear.bias)
        blocks = wide.weight.view(5, 3, 6, 4)  # [n, q, m, p]
        whole.theta.weight.copy_(blocks.permute(2, 0, 3, 1).reshape(30, 4, 3))
    assert torch.allclose(each(x, no_edges), linear(x), atol=1e-6)
    print("K = 1, the identity: torch.nn.Linear(4, 3) on each of 6 rows")
    assert torch.allclose(whole(x, None), wide(x.flatten()).view(5, 3), atol=1e-5)
    print("K = 30, the unit matrices: torch.nn.Linear(24, 15) on all rows at once")


if __name__ == "__main__":
    main()
