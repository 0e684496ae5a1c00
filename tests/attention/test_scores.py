"""Every score and normaliser is its formula, with its derivatives, at any size and in any type."""

import copy
import random
from dataclasses import replace

import pytest
import torch
from oracle import assert_same
from scores import (
    CASES,
    FORMULAS,
    HEADS,
    TRIED,
    VALUES,
    is_of_features,
    normalised,
    raw_scores,
    shown,
    try_score,
)
from seen import PLAIN, SEEN, P, edges_of, layer, legal_orders, truth

from pyg_outerconv.attention import NORMALISERS, SCORES, make_normaliser, make_score
from pyg_outerconv.attention.queries import Content
from pyg_outerconv.basis.pattern import Pattern
from pyg_outerconv.families import Attention
from pyg_outerconv.families.support.sequences import Complete
from pyg_outerconv.graph import SparseFeatures
from pyg_outerconv.nn import AttentionConv
from pyg_outerconv.testing import assert_near, assert_same_gradients


def test_every_score_and_normaliser_is_tried():
    assert set(FORMULAS) == set(SCORES), "formulas are written in tests/scores.py"
    assert set(VALUES) == set(NORMALISERS), "formulas are written in tests/scores.py"


@pytest.mark.parametrize("text", [*TRIED, "cosine(learned=False)"])
def test_the_state_of_a_score_is_what_learns(text):
    score = make_score(text, HEADS, 4, 4)
    assert set(score.state_dict()) == {name for name, _ in score.named_parameters()}


def test_a_cosine_has_one_beta_or_one_for_each_head():
    for text, count in (("cosine", 1), ("cosine(projected=True, per_head=True)", HEADS)):
        assert make_score(text, HEADS, 4, 4).beta.shape == (count,)


@pytest.mark.parametrize("case", CASES, ids=shown)
@pytest.mark.parametrize("text", TRIED)
def test_a_score_is_its_formula(text, case):
    tried = try_score(text, case)
    expected = normalised("softmax", raw_scores(tried), tried.heads.pattern)
    assert_same(tried.heads.value, expected, tried.inputs)


@pytest.mark.parametrize("name", NORMALISERS)
@pytest.mark.parametrize("text", SCORES)
def test_any_score_goes_with_any_normaliser(text, name):
    tried = try_score(text, CASES[-1], make_normaliser(name, temperature=0.5))
    expected = normalised(name, raw_scores(tried) * 2.0, tried.heads.pattern)
    assert_same(tried.heads.value, expected, tried.inputs)


@pytest.mark.parametrize("text", TRIED)
def test_scores_have_second_derivatives(text):
    tried = try_score(text, CASES[2])
    expected = normalised("softmax", raw_scores(tried), tried.heads.pattern)
    squares = []
    for value in (tried.heads.value, expected):
        generator = torch.Generator().manual_seed(0)
        direction = torch.randn(value.shape, generator=generator, dtype=value.dtype)
        first = torch.autograd.grad(value, tried.source, direction, create_graph=True)[0]
        squares.append(first.square())
    assert_near(*squares)
    assert_same_gradients(*squares, [t for t in tried.inputs if t is not tried.attr])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("text", TRIED)
def test_the_type_of_features_stays(text, dtype):
    tried = try_score(text, CASES[2], dtype=dtype)
    assert tried.heads.value.dtype == dtype
    tried.heads.value.square().sum().backward()
    assert all(t.grad is None or t.grad.isfinite().all() for t in tried.inputs)
    wide = tried.doubled()
    expected = normalised("softmax", raw_scores(wide), tried.heads.pattern)
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 1.5e-1}[dtype]
    assert_near(tried.heads.value.double(), expected, tolerance)


@pytest.mark.parametrize("text", SCORES)
def test_sparse_features_give_the_same_scores_or_are_refused(text):
    """Where a score takes features linearly, sparse ones give what dense ones give."""
    tried = try_score(text, CASES[0])
    sparse = replace(tried, source=SparseFeatures.of(tried.source.detach().to_sparse_csr()).matrix)
    if is_of_features(text):
        with pytest.raises(ValueError, match="a score that projects them"):
            _ = sparse.heads
    else:
        assert_near(sparse.heads.value, tried.heads.value)


@pytest.mark.parametrize("text", TRIED)
def test_sources_that_are_not_there_get_nothing(text):
    case = CASES[8]
    present = torch.rand(case.size[0], *case.batch) < 0.6
    present[:, 0] = False
    tried = try_score(text, case)
    tried.present = present
    pattern = tried.heads.pattern
    scores = raw_scores(tried)
    scores = scores.masked_fill(~present[pattern.source.long()].unsqueeze(-1), -torch.inf)
    expected = normalised("softmax", scores, pattern).nan_to_num(0.0)  # where none is there
    assert_near(tried.heads.value, expected)
    tried.heads.value.square().sum().backward()
    assert tried.source.grad.isfinite().all()
    assert not tried.source.grad[:, 0].any()


# Normalisers alone --------------------------------------------------------------------------------


ENTRIES = torch.tensor([[0, 1, 2, 2, 0, 3, 1, 1], [0, 0, 0, 2, 2, 2, 2, 4]])
PATTERN = Pattern.build(ENTRIES, size=(4, 6))  # targets 1, 3 and 5 have none
NAMES = sorted(NORMALISERS)


def by_rows(name, score):
    """f row by row; an entry of -inf is not there, and a row of zeros stays one."""
    rows = []
    for target in PATTERN.target.unique():
        row = score[PATTERN.target == target]
        columns = []
        for column in row.unbind(1):
            there = column > -torch.inf
            value = VALUES[name](column[there])
            value = torch.where(value.isnan(), 0.0, value)
            columns.append(torch.zeros_like(column).masked_scatter(there, value))
        rows.append(torch.stack(columns, 1))
    return torch.cat(rows)


def drawn_scores(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_derivatives_are_right(name):
    score = drawn_scores(PATTERN.num_edges, 2)
    values = make_normaliser(name)
    assert torch.autograd.gradgradcheck(lambda s: values(PATTERN.by_target, s), score)


@pytest.mark.parametrize("name", NAMES)
def test_entries_of_minus_infinity_are_not_there(name):
    score = drawn_scores(PATTERN.num_edges, 2)
    absent = torch.zeros(PATTERN.num_edges, 2, dtype=torch.bool)
    absent[0] = absent[3, 1] = True
    absent[PATTERN.target == 4] = True  # all of a row
    masked = score.masked_fill(absent, -torch.inf)
    shares = make_normaliser(name)(PATTERN.by_target, masked)
    assert not shares[absent].any()
    assert_near(shares, by_rows(name, masked.detach()))
    shares.square().sum().backward()
    assert score.grad.isfinite().all()
    assert not score.grad[absent].any()


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_zeros_has_finite_gradients(name):
    score = torch.zeros(PATTERN.num_edges, 2, dtype=torch.float64, requires_grad=True)
    shares = make_normaliser(name)(PATTERN.by_target, score)
    assert shares.isfinite().all()
    shares.sum().backward()
    assert score.grad.isfinite().all()
    if name == "l1":
        assert not shares.any()
        assert not score.grad.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("name", NAMES)
def test_large_scores_are_right_in_any_type(name, size, dtype):
    score = (torch.randn(PATTERN.num_edges, 3).clamp(-1, 1) * size).to(dtype).requires_grad_()
    shares = make_normaliser(name)(PATTERN.by_target, score)
    assert shares.dtype == dtype
    expected = by_rows(name, score.detach().double())
    assert_near(shares, expected.to(dtype))
    shares.sum().backward()
    assert score.grad.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_only_normalisers_that_say_so_add_up_to_one(name):
    normaliser = make_normaliser(name)
    shares = normaliser(PATTERN.by_target, drawn_scores(PATTERN.num_edges, 1))
    total = torch.zeros(6, dtype=shares.dtype).index_add_(0, PATTERN.target, shares[:, 0])
    reached = PATTERN.target.long().unique()
    assert torch.allclose(total[reached], torch.ones(3).double()) == normaliser.is_stochastic
    assert not total[[1, 3, 5]].any()


@pytest.mark.parametrize("name", NAMES)
def test_dropout_drops_in_training_alone_and_keeps_the_mean(name):
    normaliser = make_normaliser(name, dropout=0.5)
    score = drawn_scores(PATTERN.num_edges, 500).detach()
    kept = normaliser.values(PATTERN.by_target, score)
    dropped = normaliser(PATTERN.by_target, score)
    assert_near(dropped[dropped != 0], 2 * kept[dropped != 0])
    assert 0.4 < float((dropped == 0).double().mean()) < 0.6
    assert_near(normaliser.eval()(PATTERN.by_target, score), kept)


# Numbers far apart, or nearly equal ---------------------------------------------------------------


def scores(text, x, query, normalise="identity"):
    """(M, N) values of one head on all pairs."""
    family = Attention(make_score(text, 1), Complete(), make_normaliser(normalise))
    nodes = family.read(None, size=(len(x), len(query)))
    basis = family.basis_on(nodes, x.dtype, Content(x, query))
    return basis.to_dense().detach()[0] if not x.requires_grad else basis.to_dense()[0]


@pytest.mark.parametrize("normalise", NORMALISERS)
@pytest.mark.parametrize("clusters", [1, 2])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
def test_distances_are_exact_far_from_the_origin(offset, clusters, normalise):
    """And where there are others as far from there; each is as near as the numbers allow."""
    far = offset * (torch.arange(30) % clusters if clusters > 1 else torch.ones(30)).unsqueeze(1)
    x, query = (torch.randn(30, 4).double() + far).float(), (torch.randn(30, 4) + far).float()
    x[7] = query[7]
    expected = scores("gaussian-distance", x.double(), query.double(), normalise)
    difference = x.double().unsqueeze(1) - query.double()
    distance = -difference.square().sum(-1) / 2
    assert_near(scores("gaussian-distance", x.double(), query.double()), distance)
    actual = scores("gaussian-distance", x, query, normalise).double()
    assert_near(actual, expected, 2e-5)
    near = distance > -30
    assert_near(scores("gaussian-distance", x, query).double()[near], distance[near], 1e-5)


@pytest.mark.parametrize("support", [None, "complete", "causal"])
def test_no_distance_is_a_share_of_nothing(support):
    """Of a node alone, and of nodes that are all alike, all scores are 0, and so are shares."""
    for x in (100 * torch.randn(1, P), torch.full((4, P), 0.1)):
        seen = torch.ones(len(x), len(x), dtype=torch.bool)
        conv = layer("gaussian-distance", "l1", support, bias=False).float()
        assert not conv(x, edges_of(seen) if support is None else None).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_distances_of_short_types_are_of_exact_products(dtype):
    x, query = (torch.randn(20, 64) * 10).to(dtype), (torch.randn(5, 64) * 10).to(dtype)
    actual = scores("gaussian-distance(sigma=10.0)", x, query)
    expected = -torch.cdist(x.double(), query.double()).square() / 200
    assert actual.dtype == dtype
    error = (actual.double() - expected).abs() / expected.abs()
    assert float(error.max()) < torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_cosines_are_of_any_size(dtype, size):
    x = (torch.randn(20, 8) * size).clamp(-6e4, 6e4).to(dtype)
    actual = scores("cosine", x, x[:5])
    expected = torch.cosine_similarity(x.double().unsqueeze(1), x[:5].double(), dim=-1, eps=1e-30)
    assert float((actual.double() - expected).abs().max()) < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("support", ["complete", None])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_shares_that_no_factor_changes_have_no_gradient_in_it(dtype, support):
    """Of cosines of nearly 0: sums over keys are far longer than the products with queries."""
    edges = None if support else edges_of(torch.ones(6, 1, dtype=torch.bool))
    for _ in range(20):
        near = torch.randn(1, 3)
        query = torch.linalg.cross(near, torch.randn(1, 3)).to(dtype)
        x = (near * 4 * torch.rand(6, 1) + 1e-3 * torch.randn(6, 3)).to(dtype)
        conv = AttentionConv(3, 2, support=support, score="cosine", normalise="l1").to(dtype)
        conv((x, query), edges).double().sum().backward()
        assert abs(conv.family.score.beta.grad.item()) < torch.finfo(dtype).eps


def test_a_zero_vector_is_at_right_angles_to_all():
    x = torch.randn(4, 3, dtype=torch.float64)
    x[1] = 0.0
    x.requires_grad_()
    cosines = scores("cosine", x, x)
    assert not cosines[1].any()
    assert not cosines[:, 1].any()
    (gradient,) = torch.autograd.grad(cosines.square().sum() + cosines.sum(), x, create_graph=True)
    assert gradient.isfinite().all()
    assert not gradient[1].any()
    assert torch.autograd.grad(gradient.square().sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("text", ["dot-product", "gaussian-distance", "bilinear"])
def test_scores_of_ten_thousands_do_not_overflow(text):
    x = torch.tensor([[100.0], [-100.0], [0.0]], requires_grad=True)
    shares = scores(text, x, x, "softmax")
    assert shares.isfinite().all()
    shares.square().sum().backward()
    assert x.grad.isfinite().all()


SHORT = {torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.mark.slow(cases=12)
@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("score", PLAIN)
def test_scores_and_shares_of_short_types_are_made_in_float32(score, dtype):
    """Products of large features leave the range of float16, and orders all do alike."""
    draw = random.Random(f"{score}{dtype}")
    for _ in range(3):
        normalise = draw.choice(["softmax", "softmax-plus-one", "sigmoid"])
        support = draw.choice([None, "complete", "causal", "slidingwindow(window=2)"])
        nodes, size = 9, draw.choice([1.0, 30.0, 30.0 if normalise == "sigmoid" else 400.0])
        seen = SEEN[support or "complete"](nodes)
        conv = layer(score, normalise, support).to(dtype)
        x = (size * torch.randn(nodes, P)).to(dtype).requires_grad_()
        edges = edges_of(seen) if support is None else None
        with torch.no_grad():
            wanted = truth(copy.deepcopy(conv).double(), x.double(), x.double(), seen)
        for order in legal_orders(conv, x, edges):
            conv.order = order
            out = conv(x, edges)
            (gradient,) = torch.autograd.grad(out.float().sin().sum(), x)
            assert out.dtype == gradient.dtype == dtype
            assert out.isfinite().all()
            assert gradient.isfinite().all()
            if size == 1.0:
                assert_near(out.double(), wanted, 10 * SHORT[dtype])


@pytest.mark.parametrize("support", ["complete", "causal", None])
@pytest.mark.parametrize("dtype", SHORT)
def test_second_derivatives_of_short_types_are_finite(support, dtype):
    conv = layer("dot-product(scale=None)", support=support).to(dtype)
    x = (300 * torch.randn(7, P)).to(dtype).requires_grad_()
    edges = edges_of(SEEN["causal"](7)) if support is None else None
    for order in legal_orders(conv, x, edges):
        conv.order = order
        out = conv(x, edges).float().square().mean()
        (first,) = torch.autograd.grad(out, x, create_graph=True)
        (second,) = torch.autograd.grad(first.float().square().mean(), x)
        assert first.isfinite().all()
        assert second.isfinite().all()


@pytest.mark.parametrize("dtype", SHORT)
def test_orders_of_short_types_agree_where_scores_are_large(dtype):
    """Scores of thousands, which differ by less than the short type tells apart."""
    conv = layer("dot-product", support="complete").to(dtype)
    x = (torch.randn(8, P) + 40).to(dtype)
    wanted = truth(copy.deepcopy(conv).double(), x.double(), x.double(), SEEN["complete"](8))
    for order in legal_orders(conv, x):
        conv.order = order
        assert_near(conv(x).double(), wanted, 2 * SHORT[dtype])


@pytest.mark.parametrize(
    "options",
    [{"score": name} for name in SCORES] + [{"normalise": name} for name in NORMALISERS],
    ids=str,
)
def test_autocast_computes_in_its_type_and_stays_near(options):
    conv, x = AttentionConv(P, 6, 2, **options), torch.randn(5, P)
    edges = edges_of(SEEN["slidingwindow(window=2)"](5))
    expected = conv(x, edges)
    with torch.autocast("cpu", torch.bfloat16):
        actual = conv(x, edges)
    assert_near(actual.float(), expected, 0.1)
    actual.float().square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in conv.parameters())
