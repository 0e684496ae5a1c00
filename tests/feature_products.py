"""What the tests of products of features share: some bases, and the dense truth."""

import torch

from pyg_outerconv.basis.feature_product import FeatureProduct

HEADS, CHANNELS = 2, 5
TIMES = (None, "inclusive", "strict")


def positive(*shape, dtype=torch.float64):
    return torch.rand(shape, dtype=dtype).requires_grad_()


def normal(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def feature_product(ends, batch=(), blocks=False, dtype=torch.float64, **options):
    """A basis of positive factors; with blocks, some of which lack sources or targets."""
    key, query = (positive(end, *batch, HEADS, CHANNELS, dtype=dtype) for end in ends)
    graphs = [torch.randint(number, (end,)) for number, end in zip((4, 5), ends, strict=True)]
    source, target = graphs if blocks else (None, None)
    return FeatureProduct(key, query, source_block=source, target_block=target, **options)


def places(block, count):
    """The place of each node among those of its block."""
    if block is None:
        return torch.arange(count)
    earlier = torch.ones(count, count).tril(-1).bool()
    return ((block[:, None] == block) & earlier).sum(1)


def dense(basis):
    """(*batch, H, M, N) by the formula, differentiable in the factors."""
    weight = torch.einsum("m...hd,n...hd->...hmn", basis.key, basis.query)
    seen = torch.ones(basis.size, dtype=torch.bool)
    if basis.source_block is not None:
        seen = basis.source_block[:, None] == basis.target_block
    if basis.causal is not None:
        source = places(basis.source_block, basis.size[0])[:, None]
        target = places(basis.target_block, basis.size[1])
        seen = seen & (source < target if basis.causal == "strict" else source <= target)
    weight = weight * seen
    if not basis.normalised:
        return weight
    total = weight.sum(-2, keepdim=True)
    return torch.where(total == 0, 0.0, weight / torch.where(total == 0, 1.0, total))
