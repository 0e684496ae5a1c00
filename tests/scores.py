"""Scores and normalisers as formulas over gathered edges, and structures to try them on."""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F

from pyg_outerconv.attention import SCORES, Softmax, make_score
from pyg_outerconv.attention.products import DotProduct, Similarity
from pyg_outerconv.attention.queries import Content
from pyg_outerconv.basis.multi_head_edges import MultiHeadEdges
from pyg_outerconv.families import Attention, Relation
from pyg_outerconv.theta import Theta

HEADS, D, P, P_TARGET, D_EDGE = 2, 3, 4, 5, 2


@dataclass
class Case:
    """Edges between nodes, and what a test needs to know of them."""

    name: str
    edges: list
    size: tuple
    labels: int = 1
    batch: tuple = ()

    @property
    def index(self):
        return torch.tensor(self.edges, dtype=torch.long).view(-1, 2).t().contiguous()

    @property
    def type(self):
        if self.labels == 1:
            return None
        return torch.arange(len(self.edges)) % self.labels


RING = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (2, 0), (4, 1), (3, 1)]
CASES = [
    Case("directed", RING, (5, 5)),
    Case("self-loops", [*RING, (0, 0), (3, 3)], (5, 5)),
    Case("parallel edges", [*RING, (0, 1), (0, 1)], (5, 5)),
    Case("rectangular", [(5, 0), (0, 1), (3, 1), (2, 2), (5, 2)], (6, 3)),
    Case("empty rows", [(0, 1), (2, 1)], (4, 4)),
    Case("no edges", [], (3, 2)),
    Case("one node", [(0, 0)], (1, 1)),
    Case("a support of each head", [*RING, (0, 1), (1, 0)], (5, 5), labels=2),
    Case("batch", RING, (5, 5), batch=(3,)),
    Case("two batches and a support of each head", RING, (5, 5), labels=2, batch=(2, 3)),
]


def shown(case):
    """The name of a case."""
    return case.name


# Formulas: x (E, *batch, H, P), q (E, *batch, H, P_q) and e (E, D_e) of the ends of edges, theta.


def _lin(x, weight, bias=None):
    out = torch.einsum("e...hp,hpd->e...hd", x, weight)
    return out if bias is None else out + bias


def _of_edges(e, weight, like):
    out = torch.einsum("ed,hdc->ehc", e, weight)
    return out.view(out.size(0), *(1,) * (like.dim() - 3), *out.shape[1:])


def _far(score, q, theta):
    end = score.ends.target or score.ends.source
    return _lin(q, theta) if end is None else _lin(q, end.weight, end.bias)


def _near(score, x, theta):
    end = score.ends.source
    return _lin(x, theta) if end is None else _lin(x, end.weight, end.bias)


def _additive(score, x, q, e, theta):
    out = (_near(score, x, theta) * score.att_source).sum(-1)
    out = out + (_far(score, q, theta) * score.att_target).sum(-1)
    if score.edge is not None:
        sent = _of_edges(e, score.edge.projection.weight, x)
        out = out + (sent * score.edge.att).sum(-1)
    return F.leaky_relu(out, score.negative_slope)


def _neurons(score, x, q, e, theta):
    z = _near(score, x, theta) + _far(score, q, theta)
    z = z if score.edge is None else z + _of_edges(e, score.edge.weight, x)
    bent = torch.tanh(z) if score.name == "bahdanau" else F.leaky_relu(z, score.negative_slope)
    return (bent * score.att).sum(-1)


def _key_query(score, x, q, e, theta):
    key, query = (_lin(v, p.weight, p.bias) for v, p in ((x, score.key), (q, score.query)))
    key = key if score.edge is None else key + _of_edges(e, score.edge.weight, x)
    return (key * query).sum(-1) * score.scale


def _compared(score, x, q):
    return (x, q) if score.ends is None else (_near(score, x, None), _far(score, q, None))


def _cosine(score, x, q, e, theta):
    beta = score.beta if score.at_most is None else score.beta.clamp(max=score.at_most)
    return F.cosine_similarity(*_compared(score, x, q), dim=-1) * beta


def _distance(score, x, q, e, theta):
    x, q = _compared(score, x, q)
    sigma = score.sigma if score.log_sigma is None else score.log_sigma.exp()
    return -(x - q).square().sum(-1) / (2 * sigma**2)


def _supergat(score, x, q, e, theta):
    near, far = _near(score, x, theta), _far(score, q, theta)
    products = (near * far).sum(-1) / near.size(-1) ** 0.5
    return F.leaky_relu(products, score.negative_slope)


def _supergat_mixed(score, x, q, e, theta):
    near, far = _near(score, x, theta), _far(score, q, theta)
    ends = (near * score.att_source).sum(-1) + (far * score.att_target).sum(-1)
    return F.leaky_relu(ends * (near * far).sum(-1).sigmoid(), score.negative_slope)


FORMULAS = {
    "additive": _additive,
    "gatv2": _neurons,
    "bahdanau": _neurons,
    "key-query": _key_query,
    "embedded-gaussian": _key_query,
    "bilinear": lambda score, x, q, e, theta: (
        torch.einsum("e...hp,hqp,e...hq->e...h", x, score.form.weight, q) * score.scale
    ),
    "dot-product": lambda score, x, q, e, theta: (
        (x * q).sum(-1) * (x.size(-1) ** -0.5 if score.scale is None else score.scale)
    ),
    "cosine": _cosine,
    "gaussian-distance": _distance,
    "supergat-sd": _supergat,
    "supergat-mx": _supergat_mixed,
    "feature-map": lambda score, x, q, e, theta: (
        score.phi(_lin(x, score.key.weight, score.key.bias))
        * score.phi(_lin(q, score.query.weight, score.query.bias))
    ).sum(-1),
}

# What each score is tried with: every option takes another value than its default somewhere.
TRIED = [
    *SCORES,
    "additive(own=True, negative_slope=0.5)",
    "additive(own=True, shared=True)",
    "additive(shared=False, edge_dim=2)",
    "gatv2(own=True, bias=True, negative_slope=0.1)",
    "gatv2(shared=True, edge_dim=2)",
    "gatv2(edge_dim=2, bias=True)",
    "bahdanau(bias=True)",
    "bahdanau(edge_dim=2)",
    "key-query(bias=True, scale=2.0)",
    "key-query(edge=2)",
    "bilinear(scale=0.5)",
    "dot-product(scale=None)",
    "cosine(projected=True, per_head=True, beta=3.0)",
    "cosine(learned=False, beta=2.0, at_most=1.5)",
    "gaussian-distance(sigma=0.7)",
    "gaussian-distance(learned=True, projected=True)",
    "supergat-sd(negative_slope=1.0)",
    "supergat-sd(shared=False)",
    "supergat-mx(shared=False, negative_slope=0.5)",
    "feature-map(feature_map='relu', bias=True)",
]


def is_of_features(text):
    """Whether a score compares features as they are, which must then be of one width."""
    return issubclass(SCORES.kind_in(text), DotProduct | Similarity) and "projected" not in text


def shares_projection(text):
    """Whether both ends have one projection, so that P_q = P."""
    return "shared=True" in text or (
        text.split("(")[0] in ("additive", "supergat-sd", "supergat-mx") and "shared" not in text
    )


def random_score(text, dtype=torch.float64, heads=HEADS, per_end=True):
    """A score with random parameters, and the channels of queries that it takes."""
    same = is_of_features(text) or shares_projection(text)
    channels = P if same else (P, P_TARGET if per_end else P)
    score = make_score(text, heads, D, channels).to(dtype)
    with torch.no_grad():
        for name, parameter in score.named_parameters():
            parameter.normal_(std=0.3 if "sigma" in name else 1.0)
    return score, P if same or not per_end else P_TARGET


@dataclass
class Tried:
    """Attention over a case, and the tensors that it is made of."""

    score: object
    case: Case
    family: Attention
    source: torch.Tensor
    target: torch.Tensor
    attr: torch.Tensor
    theta: torch.Tensor
    present: torch.Tensor = None

    @cached_property
    def basis(self):
        """What the family makes."""
        case, family = self.case, self.family
        beside = {"size": case.size, "edge_type": case.type}
        if family.makes_use_of("edge_attr"):
            beside["edge_attr"] = self.attr
        structure = family.read(case.index, **beside)
        content = Content(
            self.source,
            self.target,
            self.present,
            theta=Theta(self.theta.unsqueeze(1), heads="concat"),
        )
        return family.basis_on(structure, self.source.dtype, content)

    @property
    def heads(self):
        """The values."""
        return self.basis if isinstance(self.basis, MultiHeadEdges) else self.basis.heads()

    @property
    def inputs(self):
        """All that gradients are wanted of."""
        return [self.source, self.target, self.attr, self.theta, *self.score.parameters()]

    def doubled(self):
        """The same in float64, parameters included, without gradients."""
        tensors = (self.source, self.target, self.attr, self.theta)
        score = deepcopy(self.score).double()
        family = replace(self.family, score=score)
        return Tried(score, self.case, family, *(t.detach().double() for t in tensors))


def leaf(*shape, dtype=torch.float64, size=1.0):
    """A random tensor that wants gradients."""
    return torch.randn(*shape, dtype=dtype).mul(size).requires_grad_()


def try_score(text, case, normalise=None, dtype=torch.float64, size=1.0, **options):
    """Attention over a case, with features of two ends, of a given size."""
    score, of_query = random_score(text, dtype)
    normalise = Softmax() if normalise is None else normalise
    family = Attention(score, Relation(case.labels, None), normalise, **options)
    return Tried(
        score,
        case,
        family,
        leaf(case.size[0], *case.batch, P, dtype=dtype, size=size),
        leaf(case.size[1], *case.batch, of_query, dtype=dtype, size=size),
        leaf(len(case.edges), D_EDGE, dtype=dtype),
        leaf(HEADS, P, D, dtype=dtype),
    )


def raw_scores(tried):
    """(E, *batch, H/L) by the formula, in the order of the pattern."""
    pattern, score = tried.heads.pattern, tried.score
    x, q = tried.source[pattern.source.long()], tried.target[pattern.target.long()]
    x, q = (v.unsqueeze(-2).expand(*v.shape[:-1], HEADS, -1) for v in (x, q))
    e = tried.attr[pattern.origin.long()]
    scores = FORMULAS[score.name](score, x, q, e, tried.theta)
    return of_own_heads(scores, pattern)


def of_own_heads(scores, pattern):
    """Of numbers of all heads (E, *batch, H) those of the heads of each edge's label."""
    each = HEADS // pattern.num_labels
    rows = [
        row[..., label * each : (label + 1) * each]
        for row, label in zip(scores, pattern.label.tolist(), strict=True)
    ]
    return torch.stack(rows) if rows else scores[..., :each]


VALUES = {
    "softmax": lambda s: s.softmax(0),
    "sigmoid": torch.sigmoid,
    "identity": lambda s: s,
    "l1": lambda s: s / s.abs().sum(0).masked_fill((s == 0).all(0), 1.0),
    "softmax-plus-one": lambda s: torch.cat([s, torch.zeros_like(s[:1])]).softmax(0)[:-1],
}


def normalised(name, scores, pattern):
    """f over the edges that share target and label, one group after the other."""
    key = pattern.target.long() * pattern.num_labels + pattern.label.long()
    groups = [VALUES[name](scores[key == one]) for one in key.unique()]  # edges are sorted by it
    return torch.cat(groups) if groups else scores
