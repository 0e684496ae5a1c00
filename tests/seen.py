"""Supports of attention as tables of who sees whom, and the dense truth of layers over them."""

import torch
from scores import FORMULAS, TRIED, VALUES, random_score

from pyg_outerconv.nn import AttentionConv

P, Q, HEADS = 4, 6, 2


def _away(nodes):
    """(M, N) how far each source is behind each target."""
    return torch.arange(nodes) - torch.arange(nodes)[:, None]


# By what a user writes: (M, N) booleans.
SEEN = {
    "complete": lambda n: _away(n) == _away(n),
    "causal": lambda n: _away(n) >= 0,
    "causal(strict=True)": lambda n: _away(n) > 0,
    "slidingwindow(window=2)": lambda n: _away(n).abs() <= 2,
    "slidingwindow(window=1, dilation=3)": lambda n: (_away(n).abs() <= 3) & (_away(n) % 3 == 0),
    "slidingwindow(window=3, causal=True)": lambda n: (_away(n) >= 0) & (_away(n) <= 3),
    "blocks(window=3)": lambda n: torch.arange(n)[:, None] // 3 == torch.arange(n) // 3,
    "globaltokens(1)": lambda n: (torch.arange(n)[:, None] == 0) | (torch.arange(n) == 0),
}


PLAIN = [text for text in TRIED if "edge" not in text]


def edges_of(seen):
    """(2, E) the pairs of a table."""
    return seen.nonzero().t()


def layer(score, normalise="softmax", support=None, **options):
    """A layer of random parameters in float64, over a support or edges, of a score by its name."""
    score = random_score(score, heads=HEADS, per_end=False)[0] if isinstance(score, str) else score
    options = {"support": support, "score": score, "normalise": normalise, **options}
    conv = AttentionConv(P, Q, HEADS, **options).double()
    for parameter in conv.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return conv


def truth(conv, x, targets, seen):
    """(N, Q) of a layer, target by target: the score's formula, f of it, and a sum of values.

    ``x`` (M, P), ``targets`` (N, P) whose rows ask, and ``seen`` (M, N) booleans.
    """
    family, theta = conv.family, conv.theta.weight
    source, target = (
        end.flatten() for end in torch.meshgrid(*map(torch.arange, seen.shape), indexing="ij")
    )
    ends = (end.unsqueeze(1).expand(-1, HEADS, -1) for end in (x[source], targets[target]))
    scores = FORMULAS[family.score.name](family.score, *ends, None, theta)
    scores = scores.view(*seen.shape, HEADS) / family.normalise.temperature
    value, rows = torch.einsum("mp,hpv->mhv", x, theta), []
    for n, table in enumerate(seen.t()):
        share = VALUES[family.normalise.name](scores[table, n])
        rows.append(torch.einsum("mh,mhv->hv", share, value[table]).flatten())
    return torch.stack(rows) + conv.bias


def legal_orders(conv, ends, edge_index=None):
    """The orders that can run a layer on these inputs."""
    (step,) = conv.contraction_path(ends, edge_index).steps
    return [one.order.name for one in step.candidates if not one.reasons]
