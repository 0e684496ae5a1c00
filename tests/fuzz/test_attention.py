"""AttentionConv over drawn options equals a formula over every edge, in values and gradients.

A draw is a support, a score, a normaliser, a way to bring heads together, masks, a batch, a pair or
one set of nodes, and the way the layer is called. Its number is its seed:
``pytest tests/fuzz -k attention-137``. ``--draws`` says how many there are.

The same layers are drawn in every dtype on features far from zero, from each other, and almost
equal; and each score, normaliser and causal support on features that change where nobody looks.
"""

import copy
import random
from itertools import product
from math import inf, nan

import pytest
import torch
from scores import FORMULAS, is_of_features, shares_projection

from pyg_outerconv.contract import ORDERS
from pyg_outerconv.errors import RefusedType, RefusedValue
from pyg_outerconv.families import (
    Blocks,
    Causal,
    Complete,
    GlobalTokens,
    SlidingWindow,
    Stack,
    Strided,
    Union,
)
from pyg_outerconv.nn import AttentionConv
from pyg_outerconv.testing import assert_near, assert_same_gradients
from pyg_outerconv.theta import full

SCORES = [
    "key-query(bias=True, scale={scale})",
    "key-query",
    "bilinear(scale={scale})",
    "dot-product(scale={scale})",
    "embedded-gaussian",
    "additive",
    "additive(own=True, negative_slope=0.5)",
    "gatv2",
    "gatv2(own=True, bias=True)",
    "bahdanau(bias=True)",
    "cosine",
    "cosine(projected=True, per_head=True, beta=-3.0)",
    "gaussian-distance(sigma=0.7)",
    "gaussian-distance(learned=True, projected=True)",
    "supergat-sd",
    "supergat-mx",
    "feature-map(feature_map='relu', bias=True)",
    "feature-map(feature_map='elu+1')",
    "feature-map(feature_map='exp')",
]
THETAS = ["shared", "basis-decomposed(num_bases=2)", "low-rank(rank=1)"]


def _l1(s, keep):
    total = (s.abs() * keep).sum(0)
    return s * keep / torch.where(total > 0, total, 1.0)


def _softmax(s, keep, extra=0.0):
    seen = s.detach().masked_fill(keep == 0, -inf)
    high = seen.amax(0).clamp(min=0.0 if extra else -inf).nan_to_num(neginf=0.0)
    raised = (s - high).masked_fill(keep == 0, -inf).exp()
    total = raised.sum(0) + (extra * (-high).exp() if extra else 0.0)
    return raised / torch.where(total > 0, total, 1.0)


# f over the edges of one target and label; ``keep`` is 0 for sources that are not there.
NORMALISERS = {
    "softmax": _softmax,
    "sigmoid": lambda s, keep: s.sigmoid() * keep,
    "identity": lambda s, keep: s * keep,
    "l1": _l1,
    "softmax-plus-one": lambda s, keep: _softmax(s, keep, 1.0),
}


def draw_support(rng, heads, is_pair, nodes):
    """(a family, what it takes for edge_index, the edges (label, source, target))."""
    m, n = nodes
    choices = [
        Complete(),
        Causal(),
        Causal(strict=True),
        SlidingWindow(1),
        SlidingWindow(2, dilation=2, causal=True),
        Blocks(2),
        Blocks(3, shift=1),
        Strided(2),
        GlobalTokens(1),
        Union(SlidingWindow(1), GlobalTokens(1)),
    ]
    if not is_pair:
        choices.append(Complete(add_self_loops=False))
    if heads == 2:
        choices += [Stack(Complete(), Causal()), Stack(SlidingWindow(1), Causal(strict=True))]
    if rng.random() < 0.4:
        count = rng.choice([0, 1, 12, 20])
        index = torch.stack([torch.randint(m, (count,)), torch.randint(n, (count,))])
        return None, index, (torch.zeros(count, dtype=torch.long), *index)
    family = rng.choice(choices)
    edges = family.basis(None, size=(m, n)).edges()  # what supports hold is tested elsewhere
    pattern = edges.pattern
    return family, None, tuple(t.long() for t in (pattern.label, pattern.source, pattern.target))


def matrices(conv, edges, x, q, theta, present, size, eps=0.0):
    """(H, *batch, M, N) by the formula of the score, changed by ``eps``, and f of each target."""
    label, source, target = edges
    score, heads = conv.family.score, conv.heads
    if score.uses_theta and conv.value_bias is not None:  # scores of values see their bias too
        theta = torch.cat([theta, conv.value_bias.unsqueeze(1)], dim=1)
        x = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
        if score.ends.target is None:
            q = torch.cat([q, torch.ones_like(q[..., :1])], dim=-1)
    near, far = (v.unsqueeze(-2).expand(*v.shape[:-1], heads, -1) for v in (x[source], q[target]))
    raw = FORMULAS[score.name](score, near, far, None, theta) / conv.family.normalise.temperature
    raw = shaken(raw, eps) if eps else raw
    keep = (
        torch.ones_like(raw)
        if present is None
        else (present[source].unsqueeze(-1).expand(raw.shape).to(raw))
    )
    labels = conv.family.support.num_bases
    of_head = torch.arange(heads) // (heads // labels)
    out = raw.new_zeros(heads, *size, *raw.shape[1:-1])
    normalise = NORMALISERS[conv.family.normalise.name]
    for n in range(size[1]):
        for k in range(labels):
            mine = ((target == n) & (label == k)).nonzero().view(-1)
            own = (of_head == k).nonzero().view(-1)
            if len(mine) == 0:
                continue
            shares = normalise(raw[mine][..., own], keep[mine][..., own])  # (edges, *batch, own)
            for h, values in zip(own.tolist(), shares.unbind(-1), strict=True):
                place = (torch.full_like(mine, h), source[mine], torch.full_like(mine, n))
                out = out.index_put(place, values, accumulate=True)
    return out.movedim((1, 2), (-2, -1))


def expected_output(conv, edges, x, q, present, size, eps=0.0):
    """Σ_h A_hᵀ (X V_h + b_h) O_h + bias, nodes first."""
    theta = conv.theta_value(x)
    blocks = full(theta)
    dense = torch.stack([torch.block_diag(*one) for one in blocks])
    values = getattr(theta, "value", None)
    a = matrices(conv, edges, x, q, values, present, size, eps)
    rows = x.movedim(0, -2)
    out = torch.einsum("h...mn,...mp,hpq->...nq", a, rows, dense)
    bias = getattr(theta, "bias", None)
    if bias is not None:
        out = out + torch.einsum("h...mn,hv,hvq->...nq", a, bias, theta.outer_matrices())
    out = out / conv.heads if conv.combine == "mean" else out
    return out if conv.bias is None else out + conv.bias


def reads_values(text):
    """Whether the score is of what Θ makes of features."""
    return text.startswith(("additive", "gatv2", "supergat")) and "own=True" not in text


def draw_layer(rng, channels, support, heads, scores=SCORES):
    """A layer with random parameters, and what is told of it where it fails."""
    text = rng.choice(scores).format(scale=rng.choice([2.0, 0.3, 0.0, -1.0]))
    combine = rng.choice(["concat", "sum", "mean", "sum"])
    options = {
        "heads": heads,
        "support": support,
        "score": text,
        "normalise": rng.choice([*NORMALISERS, "softmax(temperature=2.0)", "softmax"]),
        "combine": combine,
        "order": rng.choice([None, None, None, *ORDERS]),
        "bias": rng.random() < 0.5,
        "cached": rng.random() < 0.3,
    }
    if combine == "sum" and rng.random() < 0.5:
        options["value_channels"] = 3
    elif combine != "concat" and rng.random() < 0.4 and not reads_values(text):
        options["theta"] = rng.choice(THETAS)
    if rng.random() < 0.4 and options.get("theta", "low-rank").startswith("low-rank"):
        options["value_bias"] = True
    if not is_of_features(text):
        options["channels"] = rng.choice([1, 2, 3])
    if "'exp'" in text or ("'elu+1'" in text and rng.random() < 0.5):
        # Scores up to a factor, which shares alone cancel.
        options["normalise"] = "l1"
    conv = AttentionConv(channels, 2 * heads, **options).double()
    for name, parameter in conv.named_parameters():
        torch.nn.init.normal_(parameter, std=0.3 if "sigma" in name else 0.7)
    return conv, f"AttentionConv({channels}, {2 * heads}, {options})"


def assert_nan_is_seen_alone(rng, conv, ends, edge_index, edges, mask):
    """NaN of a node reaches the targets that see it and itself, a gradient what its target sees.

    ``edges``: (M, N) booleans. Of several items of a batch, each has sources of its own.
    """
    x, q, is_pair = ends
    there = torch.ones(edges.size(0), 1, dtype=torch.bool)
    if mask is not None:
        there = mask.movedim(-1, 0).reshape(edges.size(0), -1)
    of_items = edges.unsqueeze(-1) & there.unsqueeze(1)  # (M, N, items)
    seen = of_items.any(-1)
    node, reached = rng.randrange(seen.size(0)), rng.randrange(seen.size(1))

    def rows(x):
        return ~x.isfinite().movedim(-2, 0).flatten(1).all(1)

    def run(x):
        return conv((x, q) if is_pair else x, edge_index, source_mask=mask)

    asks = torch.zeros(seen.size(1), dtype=torch.bool)
    if not is_pair:  # a node that is NaN asks with NaN, whatever it sees
        asks[node] = (of_items[:, node].any(0) & there[node]).any()  # an absent one asks with 0
    actual = rows(run(x.detach().index_fill(-2, torch.tensor(node), nan)))
    wanted = seen[node] | asks
    assert torch.equal(actual, wanted), f"NaN of {node} at {actual}, not {wanted}"
    fresh = x.detach().clone().requires_grad_()
    out = run(fresh)
    if not out.requires_grad:
        return
    above = torch.ones_like(out).index_fill(-2, torch.tensor(reached), nan)
    actual = rows(torch.autograd.grad(out, fresh, above)[0])
    wanted = seen[:, reached].clone()
    if not is_pair:
        wanted[reached] |= seen[:, reached].any()
    assert not (actual & ~wanted).any(), f"gradient of {reached} at {actual}, not {wanted}"


def draw_and_compare(seed):
    """One draw: the layer equals the formula."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    heads, is_pair = rng.choice([1, 2]), rng.random() < 0.4
    m = rng.randrange(1, 7)
    n = rng.randrange(1, 7) if is_pair and rng.random() < 0.6 else m
    support, edge_index, edges = draw_support(rng, heads, is_pair, (m, n))
    channels = (3, 4) if is_pair and rng.random() < 0.5 else (3, 3)
    try:
        conv, told = draw_layer(rng, channels if is_pair else 3, support, heads)
    except (RefusedValue, RefusedType) as error:
        raise AssertionError(f"draw {seed}: {error}") from error
    text = conv.family.score.name
    if channels[0] != channels[1] and (is_of_features(text) or shares_projection(text)):
        return
    batch = rng.choice([(), (), (2,), (2, 2)])
    x = torch.randn(*batch, m, channels[0], dtype=torch.float64, requires_grad=True)
    q = x
    if is_pair:
        q = torch.randn(*batch, n, channels[1], dtype=torch.float64, requires_grad=True)
    mask = None
    if rng.random() < 0.4:
        mask = torch.rand(*rng.choice([batch, ()]), m) < 0.7
    conv.fuse = rng.random() < 0.8
    told += f" {(m, n)} pair={is_pair} batch={batch} mask={mask is not None} fuse={conv.fuse}"
    features = x
    if mask is not None and is_pair:  # nobody looks at sources that are not there
        features = x.masked_fill(~mask.expand(*batch, m).unsqueeze(-1), rng.choice([1.0, nan, inf]))
    try:
        out = conv((features, q) if is_pair else x, edge_index, source_mask=mask)
    except (RefusedValue, RefusedType) as error:
        if conv.order is not None and "order" in str(error):
            return
        raise AssertionError(f"refused without need: {told}") from error
    present = None
    if mask is not None:
        present = mask.expand(*batch, m).movedim(-1, 0)
    expected = expected_output(conv, edges, x.movedim(-2, 0), q.movedim(-2, 0), present, (m, n))
    wanted = [x, *([q] if is_pair else []), *conv.parameters()]
    try:
        assert_near(out, expected, at_least=1.0)
        assert_same_gradients(out, expected, wanted, 1e-9)
        if out.numel():
            seen = torch.zeros(m, n, dtype=torch.bool)
            seen[edges[1], edges[2]] = True
            assert_nan_is_seen_alone(rng, conv, (x, q, is_pair), edge_index, seen, mask)
    except RefusedValue as error:  # a score may be another basis where numbers are not finite
        if conv.order is None or "order" not in str(error):
            raise AssertionError(f"{told}: {error}") from error
    except AssertionError as error:
        raise AssertionError(f"{told}: {error}") from error


@pytest.mark.slow(cases=100)
def test_attention(draw):
    """One of the draws."""
    draw_and_compare(draw)


# Extreme features --------------------------------------------------------------------------------

SHORT = (torch.float16, torch.bfloat16)
SUBTRACTED = [text for text in SCORES if text.startswith(("gaussian", "feature-map"))]


def draw_extreme(rng, nodes, dtype, score):
    """Features (nodes, 3) far from zero, in two clusters, large, tiny or almost equal."""
    largest = {"gaussian-distance": 1e4, "feature-map": 60.0}.get(score, 300.0)
    largest = 10.0 if dtype in SHORT else largest  # products of features have an end
    kind, size = rng.choice(["offset", "clusters", "large", "tiny", "alike"]), rng.random()
    x = torch.randn(nodes, 3, dtype=torch.float64)
    if kind == "offset":
        x = x + rng.choice([-1, 1]) * largest**size
    elif kind == "clusters":
        x = x + largest**size * (torch.arange(nodes) % 2).unsqueeze(1)
    elif kind == "large":
        x = x * min(largest, 100.0) ** size
    elif kind == "tiny":
        x = x * 1e-3
    else:
        x = x * 1e-3 + x[:1]
    return x.to(dtype), kind


def values_and_gradients(conv, run, x):
    """Of some numbers of the output: they, and their gradients in x and the parameters."""
    x = x.detach().requires_grad_()
    out = run(x)
    weight = torch.arange(1, out.numel() + 1, dtype=torch.float64).sin().view_as(out)
    total = (out.double() * weight).sum()
    gradients = torch.autograd.grad(total, [x, *conv.parameters()], allow_unused=True)
    return [out.detach().double(), *(None if g is None else g.double() for g in gradients)]


def shaken(tensor, eps):
    """The numbers, each changed by as much as rounding may."""
    return tensor * (1.0 + eps * (2.0 * torch.rand_like(tensor) - 1.0))


def draw_and_bound(seed):
    """One draw: the layer is as near to the formula as rounding of its input leaves that."""
    rng = random.Random(f"extreme {seed}")
    torch.manual_seed(seed)
    dtype = rng.choice([torch.float64, torch.float32, torch.float32, *SHORT])
    heads, nodes, eps = rng.choice([1, 2]), rng.randrange(1, 8), torch.finfo(dtype).eps
    support, edge_index, edges = draw_support(rng, heads, False, (nodes, nodes))
    conv, told = draw_layer(rng, 3, support, heads, rng.choice([SCORES, SUBTRACTED]))
    conv.order = None
    conv = conv.to(dtype)
    x, kind = draw_extreme(rng, nodes, dtype, conv.family.score.name)
    told = f"draw {seed}: {told} {dtype} {kind} x={x.tolist()}"

    def formula(conv, x, eps=0.0):
        size = (nodes, nodes)
        run = lambda x: expected_output(conv, edges, x, x, None, size, eps)  # noqa: E731
        return values_and_gradients(conv, run, x)

    wide, x_wide = copy.deepcopy(conv).double(), x.double()
    wanted, near = formula(wide, x_wide), []

    def beside():
        """The layer and its features, each number changed by as much as rounding may."""
        other = copy.deepcopy(wide)
        for parameter in other.parameters():
            parameter.data = shaken(parameter.data, eps)
        return other, shaken(x_wide, eps)

    def lost(number):
        """How far the formula in float32 is off, here or at one of many places beside.

        It is where shares are nearly 0 and 1, or all alike, so that products cancel, by luck less
        at one place than at another.
        """
        places = [(conv, x)] + [
            (other.float(), x.float()) for other, x in (beside() for _ in range(32))
        ]
        for other, at in places:
            exact = formula(copy.deepcopy(other).double(), at.double())[number]
            yield float((formula(other, at)[number] - exact).abs().max())

    for _ in range(4):
        near.append(formula(*beside(), min(eps, 2**-23)))
    actual = values_and_gradients(conv, lambda x: conv(x, edge_index), x)
    sizes = [0.0 if x is None or not x.numel() else float(x.abs().max()) for x in wanted]
    sizes[1:] = [max(sizes[1:])] * (len(sizes) - 1)  # sums cancel in some gradients
    for number, (tensor, reference) in enumerate(zip(actual, wanted, strict=True)):
        size = sizes[number]
        if reference is None or not reference.numel() or not size < torch.finfo(dtype).max / 8:
            continue  # no number, or none of this dtype
        moved = max(float((one[number] - reference).abs().max()) for one in near)
        gap = 0.0 if tensor is None else float((tensor - reference).abs().max())
        rounding = (200 if number == 0 else 1e5) * eps  # gradients are sums of far larger terms
        allowed = 40 * moved + min(rounding, 1.0) * max(size, 1e-3)
        if gap > allowed and dtype == torch.float32:
            allowed = max(allowed, 2 * max(lost(number)))
        assert gap <= allowed, f"{told}: result {number}: {gap:g} exceeds {allowed:g} of {size:g}"


@pytest.mark.slow(cases=100)
def test_extreme(draw):
    """One of the draws."""
    draw_and_bound(draw)


# What nobody looks at ----------------------------------------------------------------------------

CAUSAL = {
    "causal": Causal(),
    "strict": Causal(strict=True),
    "window": SlidingWindow(2, causal=True),
    "dilated": SlidingWindow(2, dilation=2, causal=True),
    "of each head": Stack(Causal(), SlidingWindow(1, causal=True)),
    "edges": None,
}
EVERY = [*product(SCORES + 2 * SUBTRACTED, NORMALISERS, CAUSAL)]


def change_the_future(seed):
    """One draw: targets are the same when later nodes move away, grow, or are others."""
    rng = random.Random(f"future {seed}")
    torch.manual_seed(seed)
    text, normalise, support = EVERY[seed * 157 % len(EVERY)]
    normalise = "l1" if "'exp'" in text else normalise  # known up to a factor
    dtype, nodes, heads = rng.choice([torch.float32, torch.float64]), rng.randrange(2, 40), 2
    options = {} if is_of_features(text) else {"channels": rng.choice([1, 3])}
    options |= {"score": text.format(scale=0.3), "normalise": normalise}
    conv = AttentionConv(3, 4, heads, support=CAUSAL[support], **options).to(dtype)
    for parameter in conv.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    source, target = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).t()
    edges = torch.stack([source, target])[:, source <= target] if support == "edges" else None
    x, first = torch.randn(nodes, 3, dtype=dtype, requires_grad=True), rng.randrange(1, nodes)
    kind = rng.choice(["shifted", "grown", "others"])
    with torch.no_grad():
        later = {"shifted": x[first:] + 3e3, "grown": 1e3 * x[first:], "others": x[first:].flip(0)}
        other = torch.cat([x[:first], later[kind]]).requires_grad_()
    before, after = (conv(one, edges)[:first] for one in (x, other))
    told = f"{seed}: {text} {normalise} {support} {dtype} {kind} from {first} of {nodes}"
    try:
        assert_near(after, before, at_least=1.0)
        (of_x,), (of_other,) = (
            torch.autograd.grad(out.sin().sum(), one) for out, one in ((before, x), (after, other))
        )
        assert_near(of_other[:first], of_x[:first], 5e-5 if dtype == torch.float32 else 1e-10, 1.0)
        assert not of_other[first:].any()
    except AssertionError as error:
        raise AssertionError(f"{told}: {error}") from error


@pytest.mark.slow(cases=100)
def test_future(draw):
    """One of the draws."""
    change_the_future(draw)
