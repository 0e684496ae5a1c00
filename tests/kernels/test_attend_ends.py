"""Graph attention in one primitive: what its definition gives, in any order of edges."""

from dataclasses import replace

import pytest
import torch
from oracle import assert_same
from scores import leaf

from pyg_outerconv.basis import EdgeBasis, Pattern, additive_attention
from pyg_outerconv.basis.additive_attention import AdditiveAttentionBasis
from pyg_outerconv.contract import contract, contraction_path
from pyg_outerconv.kernels import edge_sums, head_copies
from pyg_outerconv.testing import assert_near, assert_same_gradients
from pyg_outerconv.theta import Theta

NODES, P = 7, 5
# Parallel edges, loops, and nodes 5 and 6, which nothing reaches.
EDGES = torch.tensor([[4, 0, 1, 2, 0, 3, 0, 2, 6], [0, 1, 2, 2, 1, 4, 1, 3, 0]])
SLOPE = 0.2


@pytest.fixture(params=["listed", "blocks", "head below head", "head by head"])
def way(request, monkeypatch):
    """Edges as they come; sorted, with one of two matrices for all heads; or one for each."""
    if request.param != "listed":
        monkeypatch.setattr(edge_sums, "MOST", -1)
    if request.param == "blocks":
        monkeypatch.setattr(head_copies, "OFTEN", 0)
    if request.param == "head by head":
        monkeypatch.setattr(head_copies, "MOST_COPIED", 0)
        monkeypatch.setattr(head_copies, "MOST_STACKED", 0)


def drawn(heads=3, width=4, dtype=torch.float64, scales=(1.0, 1.0, 1.0, 1.0)):
    """x, Θ, and the vectors of sources and targets."""
    shapes = (NODES, P), (heads, P, width), (heads, width), (heads, width)
    numbers = [leaf(*shape).to(dtype) for shape in shapes]
    return [(x * by).detach().requires_grad_() for x, by in zip(numbers, scales, strict=True)]


def basis_of(operands):
    """The basis on a pattern that nothing has sorted."""
    return AdditiveAttentionBasis(
        EdgeBasis(Pattern.build(EDGES, size=(NODES, NODES))), *operands, SLOPE
    )


def by_definition(x, value, of_source, of_target):
    """The sums by a dense softmax, with a matrix of how often each edge is there."""
    values = torch.einsum("np,hpd->hnd", x, value)
    near, far = (torch.einsum("hnd,hd->hn", values, vector) for vector in (of_source, of_target))
    score = torch.nn.functional.leaky_relu(near.unsqueeze(-1) + far.unsqueeze(-2), SLOPE)
    count = torch.zeros(NODES, NODES, dtype=x.dtype)
    count.index_put_(tuple(EDGES), torch.ones(EDGES.size(1), dtype=x.dtype), accumulate=True)
    highest = score.detach().masked_fill(count == 0, -torch.inf).amax(dim=1, keepdim=True)
    score = score.masked_fill(count == 0, -torch.inf)
    highest = highest.masked_fill(highest == -torch.inf, 0.0)
    raised = (score - highest).exp() * count
    total = raised.sum(1, keepdim=True)
    share = raised / total.masked_fill(total == 0, 1.0)
    return share, torch.einsum("hmn,hmd->nhd", share, values)


@pytest.mark.parametrize(("heads", "width"), [(3, 4), (1, 4), (4, 1), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sums_are_those_of_the_definition_as_are_their_gradients(way, heads, width, dtype):
    operands = drawn(heads, width, dtype)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    actual, expected = basis_of(operands).sums(), by_definition(*operands)[1]
    assert_near(actual, expected, tolerance)
    with torch.no_grad():
        assert_near(basis_of(operands).sums(), expected, tolerance)
    assert_same_gradients(actual, expected, operands, 5 * tolerance)


def test_heads_of_edges_that_come_again_and_again_are_one_matrix(monkeypatch):
    monkeypatch.setattr(edge_sums, "MOST", -1)
    monkeypatch.setattr(head_copies, "OFTEN", 2)
    operands = drawn()
    basis = basis_of(operands)
    expected = by_definition(*operands)[1]
    sums = [basis.sums() for _ in range(4)]  # the last two by one matrix
    (entries,) = vars(basis.over.pattern.by_target)["head_copies"].values()
    assert entries.is_final
    for out in sums:  # each by the matrices of its forward pass
        assert_same(out, expected, operands)


def test_edges_that_come_again_and_again_are_sorted(monkeypatch):
    monkeypatch.setattr(additive_attention, "MOST_AGAIN", 0)
    monkeypatch.setattr(additive_attention, "WIDE", 4)
    operands, narrow = drawn(), basis_of(drawn(width=3))
    basis, times = basis_of(operands), additive_attention.OFTEN
    sums = [basis.sums() for _ in range(times)]
    assert "head_copies" not in vars(basis.over.pattern.by_target)
    sums.append(basis.sums())
    assert "head_copies" in vars(basis.over.pattern.by_target)
    for one in sums:
        assert_near(one, by_definition(*operands)[1])
    assert all(narrow.sums().isfinite().all() for _ in range(times + 1))
    assert "head_copies" not in vars(narrow.over.pattern.by_target)


@pytest.mark.parametrize("nodes", [NODES, 0])
def test_without_edges_sums_and_gradients_are_zero(way, nodes):
    operands = drawn()
    operands[0] = operands[0][:nodes].detach().requires_grad_()
    edges = Pattern.build(EDGES[:, :0], size=(nodes, nodes))
    out = AdditiveAttentionBasis(EdgeBasis(edges), *operands, SLOPE).sums()
    assert out.shape == (nodes, 3, 4)
    gradients = torch.autograd.grad(out.sum(), operands)
    assert not any(one.any() for one in (out, *gradients))


@pytest.mark.parametrize("scale", [30.0, 1e3])
def test_scores_of_any_size_stay_in_range(way, scale):
    operands = drawn(scales=(1.0, 1.0, scale, scale))
    actual, expected = basis_of(operands).sums(), by_definition(*operands)[1]
    assert actual.isfinite().all()
    assert_near(actual, expected, 1e-10)
    above = torch.randn_like(actual)
    both = [torch.autograd.grad(out, operands, above) for out in (actual, expected)]
    for one, other in zip(*both, strict=True):
        assert_near(one, other, 1e-8, at_least=1.0)  # shares of one or zero, which hardly move


@pytest.mark.slow(cases=2)
def test_derivatives_of_derivatives(way):
    assert torch.autograd.gradgradcheck(lambda *x: basis_of(x).sums(), drawn(2, 3), fast_mode=True)


@pytest.mark.parametrize("learns", [0, 1, 2, 3])
def test_gradients_of_some_alone(way, learns):
    operands = [tensor.detach() for tensor in drawn()]
    one = operands[learns].requires_grad_()
    assert_same_gradients(basis_of(operands).sums(), by_definition(*operands)[1], [one], 1e-9)


def test_a_number_that_is_none_stays_where_it_is_seen(way):
    operands = [tensor.detach() for tensor in drawn()]
    operands[0][6] = torch.nan  # which node 0 sees, and itself would ask with
    out = basis_of(operands).sums()
    assert out[0].isnan().all()
    assert out[1:].isfinite().all()


def test_its_edges_have_the_shares(way):
    operands = drawn()
    basis, (share, sums) = basis_of(operands), by_definition(*operands)
    assert_near(basis.edges().to_dense(), share, 1e-10)
    assert_near(basis.double().sums(), sums, 1e-10)
    assert basis.num_bases == 3
    assert basis.size == (NODES, NODES)
    assert basis.learns
    assert not basis.detach().learns


@pytest.mark.parametrize("once_more", [False, True])
def test_arguments_may_be_one_tensor_or_made_of_another(way, once_more):
    def tied(x, value, vector):
        return x, value, vector, vector

    def dependent(x, value, vector):
        return x, x.mean() * value, vector, value.sum(1) * vector

    for make in (tied, dependent):
        own = drawn()[:3]
        loss = basis_of(make(*own)).sums().square().sum()
        wanted = by_definition(*make(*own))[1].square().sum()
        gradients = torch.autograd.grad(loss, own, create_graph=once_more)
        for one, other in zip(gradients, torch.autograd.grad(wanted, own), strict=True):
            assert_near(one, other)


def test_batched_gradients_of_one_vector_for_both_ends(way):
    x, value, vector, _ = drawn()
    out = basis_of((x, value, vector, vector)).sums()
    unit = torch.eye(4, dtype=out.dtype)[:, None, None, :].expand(4, *out.shape)
    batched = torch.autograd.grad(
        out, vector, unit.clone(), is_grads_batched=True, retain_graph=True
    )
    for one, grad in zip(batched[0], unit, strict=True):
        assert_near(one, torch.autograd.grad(out, vector, grad, retain_graph=True)[0])


def test_contractions_take_the_values_of_the_basis_or_any_others(way):
    operands = drawn()
    basis, (share, sums) = basis_of(operands), by_definition(*operands)
    own = Theta(operands[1].unsqueeze(1), heads="concat")
    basis = replace(basis, value=own.value)
    assert contraction_path(basis, operands[0], own).chosen == ["attend_ends"]
    assert_near(contract(basis, operands[0], own), sums.flatten(1), 1e-10)
    x, theta = drawn()[0], Theta(leaf(3, 1, P, 2), heads="sum")
    expected = torch.einsum("hmn,mp,hpq->nq", share, x, theta.value)
    assert_near(contract(basis, x, theta), expected, 1e-10)
    assert_near(
        contract(basis, operands[0], theta.full()), contract(basis, operands[0], theta), 1e-10
    )
