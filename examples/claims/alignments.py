"""An alignment T makes the queries TᵀX (section 4): outputs may be other things than inputs.

python examples/claims/alignments.py
"""

import torch

from pyg_outerconv import AttentionConv
from pyg_outerconv.attention import LearnedQueries
from pyg_outerconv.families import Part


@torch.no_grad()
def main():
    """Ask by some of the inputs, and by learned queries that do not see their order."""
    x, options = torch.randn(9, 6), {"support": "complete", "score": "bilinear", "bias": False}
    full = AttentionConv(6, 4, **options)
    part = AttentionConv(6, 4, align=Part(3), **options)
    part.load_state_dict(full.state_dict())
    some, basis = part(x, size=(9, 3), return_attention_weights=True)
    form, t = part.family.score.form.weight[0].mT, torch.eye(9, 3)  # Λ, T
    assert torch.allclose(basis.to_dense()[0], (x @ form @ x.T @ t).softmax(dim=0), atol=1e-5)
    assert torch.allclose(some, full(x)[:3], atol=1e-5)
    print("T a rectangular identity: A = f(X Λ Xᵀ T), and 3 of 9 inputs ask, as in self-attention")

    asked = AttentionConv(6, 4, support="complete", align=LearnedQueries(2, 6), bias=False)
    order = torch.randperm(9)
    once, again = asked(x), asked(x[order])
    assert once.shape == (2, 4)
    assert torch.allclose(once, again, atol=1e-5)
    print("learned queries: 2 outputs for any number of inputs, in whatever order they come")


if __name__ == "__main__":
    main()
