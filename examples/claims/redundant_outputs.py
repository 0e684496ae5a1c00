"""An output projection is redundant where values are projected (section 4.2): Θ_h = V_h O_h.

python examples/claims/redundant_outputs.py
"""

import torch

from pyg_outerconv.nn import factor_output, fold_output
from pyg_outerconv.nn.attention import multi_head_attention


@torch.no_grad()
def main():
    """Multiply both projections of each head out, and factor the product again."""
    torch.manual_seed(0)
    tokens = torch.randn(2, 7, 16)
    conv = multi_head_attention(16, 4)
    folded = fold_output(conv)
    again = factor_output(folded, rank=4)
    y = conv(tokens)
    for name, one in {"folded": folded, "factored again": again}.items():
        gap = float((one(tokens) - y).abs().max() / y.abs().max())
        numbers = sum(part.numel() for part in one.theta.parameters())
        print(f"{name:<15} {numbers:>4} numbers in Θ, up to {gap:.0e}")
        assert gap < 1e-4


if __name__ == "__main__":
    main()
