"""Every score is its formula: values, all gradients, and their gradients."""

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

from pyg_outerconv.attention import NORMALISERS, SCORES, make_normaliser, make_score
from pyg_outerconv.graph import SparseFeatures
from pyg_outerconv.testing import assert_near, assert_same_gradients


def test_every_score_and_normaliser_is_tried():
    assert set(FORMULAS) == set(SCORES), "formulas are written in tests/scores.py"
    assert set(VALUES) == set(NORMALISERS), "formulas are written in tests/scores.py"


@pytest.mark.parametrize("text", [*TRIED, "cosine(learned=False)"])
def test_the_state_of_a_score_is_what_learns(text):
    score = make_score(text, HEADS, 4, 4)
    assert set(score.state_dict()) == {name for name, _ in score.named_parameters()}


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
    found = []
    for value in (tried.heads.value, expected):
        generator = torch.Generator().manual_seed(0)
        direction = torch.randn(value.shape, generator=generator, dtype=value.dtype)
        first = torch.autograd.grad(value, tried.source, direction, create_graph=True)[0]
        found.append(first.square())
    assert_near(*found)
    assert_same_gradients(*found, [t for t in tried.inputs if t is not tried.attr])


@pytest.mark.parametrize("text", SCORES)
def test_a_basis_has_as_many_labels_as_heads(text):
    tried = try_score(text, CASES[0])
    assert tried.basis.num_bases == tried.family.num_bases == HEADS
    assert len(tried.family.labels) == HEADS
    assert tried.basis.to_dense().shape == (HEADS, *CASES[0].size)


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


@pytest.mark.parametrize("size", [1e2, 1e4])
@pytest.mark.parametrize("text", TRIED)
def test_large_features_give_finite_values_and_gradients(text, size):
    tried = try_score(text, CASES[2], dtype=torch.float32, size=size)
    assert tried.heads.value.isfinite().all()
    tried.heads.value.square().sum().backward()
    assert all(t.grad is None or t.grad.isfinite().all() for t in tried.inputs)
    sums = torch.zeros(CASES[2].size[1], HEADS)
    sums.index_add_(0, tried.heads.pattern.target, tried.heads.value.detach())
    assert_near(sums, (sums > 0).float())


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


@pytest.mark.parametrize("name", NORMALISERS)
def test_sources_may_be_the_same_for_a_whole_batch(name):
    case = CASES[8]
    present = torch.tensor([True, False, True, True, False])
    one, all_alike = (try_score("key-query", case, make_normaliser(name)) for _ in range(2))
    all_alike = replace(one, present=present.view(-1, 1).expand(-1, 3))
    one = replace(one, present=present)
    assert_near(one.heads.value, all_alike.heads.value)
    absent = ~present[one.heads.pattern.source.long()]
    assert not one.heads.value[absent].any()
