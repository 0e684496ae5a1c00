"""ALiBi, relative biases and biases of edges: the equations, gradients, and refusals."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import assert_same

from pyg_outerconv.attention import (
    ALiBi,
    EdgeBias,
    LearnedPositions,
    RelativeBias,
    Rotary,
    SinusoidalPositions,
)
from pyg_outerconv.attention.terms import slopes
from pyg_outerconv.nn import AttentionConv
from pyg_outerconv.testing import assert_near


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16])
def test_slopes_are_geometric_where_heads_are_a_power_of_two(heads):
    expected = [2 ** (-8 * (head + 1) / heads) for head in range(heads)]
    assert_near(slopes(heads, torch.float64), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("heads", [3, 5, 6, 7, 12, 20, 31])
def test_other_numbers_of_heads_take_every_second_of_twice_as_many(heads):
    power = max(p for p in (1, 2, 4, 8, 16) if p <= heads)
    both = slopes(power, torch.float64), slopes(2 * power, torch.float64)[0::2]
    expected = torch.cat([both[0], both[1][: heads - power]])
    assert_near(slopes(heads, torch.float64), expected)


@pytest.mark.parametrize("learned", [True, False])
def test_it_is_minus_the_distance_times_the_slope(learned):
    term = ALiBi(heads=4, learned=learned).double()
    relative = torch.tensor([[-3.0], [0.0], [2.5]], dtype=torch.float64)
    expected = [[-abs(r) * 2.0 ** (-2 * (head + 1)) for head in range(4)] for r in (-3, 0, 2.5)]
    assert_near(term(relative), torch.tensor(expected, dtype=torch.float64))


def test_distances_add_up_over_axes():
    relative = torch.randn(6, 3, dtype=torch.float64)
    term = ALiBi(heads=5)
    assert_near(term(relative), sum(term(part) for part in relative.split(1, dim=1)))


def test_a_reset_brings_the_slopes_back():
    term = ALiBi(heads=6, learned=True)
    with torch.no_grad():
        term.slopes.zero_()
    term.reset_parameters()
    assert_near(term.slopes, slopes(6))


def column(*values):
    return torch.tensor(values, dtype=torch.float64).view(-1, 1)


def test_axes_have_a_reach_each_and_one_table():
    term = RelativeBias(heads=2, reach=(1, 2)).double()
    table = term.weight.view(3, 5, 2)
    relative = torch.cartesian_prod(*(torch.arange(-4.0, 5.0),) * 2)
    expected = [
        table[max(-1, min(1, int(a))) + 1, max(-2, min(2, int(b))) + 2]
        for a, b in relative.tolist()
    ]
    assert torch.equal(term(relative), torch.stack(expected))


def test_windows_of_a_grid_read_the_whole_table_as_in_swin():
    height, width = 3, 4
    term = RelativeBias(heads=2, reach=(height - 1, width - 1)).double()
    cells = torch.cartesian_prod(torch.arange(3.0), torch.arange(4.0))
    relative = (cells[:, None] - cells[None]).flatten(0, 1)
    bias = term(relative).view(12, 12, 2)
    # Entry (dy + H − 1)·(2W − 1) + dx + W − 1 of the table.
    for m in range(12):
        for n in range(12):
            dy, dx = m // 4 - n // 4, m % 4 - n % 4
            assert torch.equal(bias[m, n], term.weight[(dy + 2) * 7 + dx + 3])
    assert term.weight.size(0) == 5 * 7


def bucket(relative, buckets, reach, causal):
    """The rule of T5, for one whole number."""
    offset = 0
    if causal:
        distance = max(-relative, 0)
    else:
        buckets //= 2
        offset = buckets if relative > 0 else 0
        distance = abs(relative)
    exact = buckets // 2
    if distance < exact:
        return offset + distance
    grown = math.log(distance / exact) / math.log(reach / exact) * (buckets - exact)
    return offset + min(exact + math.floor(grown + 1e-9), buckets - 1)


@given(
    st.sampled_from([(32, 128), (8, 16), (4, 2), (32, 9), (16, 1000), (12, 5), (20, 160)]),
    st.booleans(),
    st.lists(st.integers(-2000, 2000), min_size=1),
)
def test_buckets_are_those_of_t5(sizes, causal, relative):
    buckets, reach = sizes
    reach = max(reach, buckets // 2 + 1)
    term = RelativeBias(heads=1, reach=reach, buckets=buckets, causal=causal)
    with torch.no_grad():
        term.weight.copy_(torch.arange(buckets).unsqueeze(1))
    actual = term(column(*relative)).flatten().tolist()
    assert actual == [bucket(one, buckets, reach, causal) for one in relative]


def test_a_threshold_that_is_a_whole_number_is_in_the_bucket_that_it_begins():
    term = RelativeBias(heads=1, reach=160, buckets=10, causal=True)
    at, before = term(column(-80, -79)).flatten()  # 5 · 32^(4/5) = 80, in floating point a bit more
    assert at == term.weight[9]
    assert before == term.weight[8]


def test_axes_have_buckets_each():
    term = RelativeBias(heads=2, reach=(8, 16), buckets=4)
    assert term.weight.shape == (16, 2)
    with torch.no_grad():
        term.weight.copy_(torch.arange(16.0).unsqueeze(1).expand(16, 2))
    relative = torch.tensor([[0.0, 0.0], [1.0, -3.0], [-2.0, 1.0]])
    expected = [bucket(a, 4, 8, False) * 4 + bucket(b, 4, 16, False) for a, b in relative.tolist()]
    assert term(relative)[:, 1].tolist() == expected


@pytest.mark.parametrize("options", [{}, {"buckets": 4}])
def test_gradients_add_up_in_shared_entries(options):
    term = RelativeBias(heads=2, reach=3, **options).double()
    relative, direction = column(-9, -8, 0, 5, 5), torch.randn(5, 2, dtype=torch.float64)
    (term(relative) * direction).sum().backward()
    expected = torch.zeros_like(term.weight)
    ends = [0, 0, 3, 6, 6] if not options else [1, 1, 0, 3, 3]
    for row, entry in enumerate(ends):
        expected[entry] += direction[row]
    assert_near(term.weight.grad, expected)


def test_a_table_moves_with_its_thresholds_and_saves_only_numbers_that_learn():
    term = RelativeBias(heads=2, reach=30, buckets=8)
    assert list(term.state_dict()) == ["weight"]
    assert term.half().thresholds.dtype == torch.int64
    assert term.to("meta").thresholds.device.type == "meta"


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("more", [(), (ALiBi(2),)])
def test_a_bias_of_edges_is_added_to_their_scores(columns, more):
    edges = torch.tensor([[4, 0, 1, 2, 3, 0], [1, 1, 2, 2, 2, 4]])
    conv = AttentionConv(3, 4, 2, terms=(EdgeBias(2), *more)).double()
    x = torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(6, columns, dtype=torch.float64)
    bias[0] = -torch.inf  # no edge
    bias.requires_grad_()
    score, place = conv.family.score, torch.arange(5.0, dtype=torch.float64)
    added = torch.full((2, 5, 5), -torch.inf, dtype=torch.float64)
    added[:, 1:5, 0] = added[:, :, 3] = 0.0  # rows of targets that nothing reaches, cut off below
    added = added.index_put((torch.arange(2)[:, None], *edges[:, None]), bias.t().expand(2, -1))
    for term in more:
        added = added + term((place[:, None] - place).view(-1, 1)).t().view(2, 5, 5)
    products = torch.einsum("bmhd,bnhd->bhmn", score.key(x), score.query(x)) * score.scale
    shares = (products + added).softmax(2) * torch.tensor([0, 1, 1, 0, 1])
    heads = torch.einsum("bhmn,bmp,hpq->bnhq", shares, x, conv.theta.weight)
    expected = heads.flatten(2) + conv.bias
    actual = conv(x, edges, edge_attr=bias)
    assert_same(actual, expected, [x, bias, *conv.parameters()])


X = torch.randn(5, 8)
RELATIVE = torch.arange(-3.0, 4.0).unsqueeze(1)


each_module = pytest.mark.parametrize(
    ("module", "arguments"),
    [
        (SinusoidalPositions(8), (X,)),
        (SinusoidalPositions(8, axes=2), (X, torch.randn(5, 2))),
        (LearnedPositions(5, 8), (X,)),
        (LearnedPositions((5, 2), 8, separable=True), (X, torch.ones(5, 2))),
        (RelativeBias(3, reach=2), (RELATIVE,)),
        (RelativeBias(3, reach=16, buckets=8), (RELATIVE,)),
        (ALiBi(3), (RELATIVE + 0.5,)),  # |p_m - p_n| has no derivative at 0
        (ALiBi(3, learned=True), (torch.randn(4, 2),)),
        (Rotary(8), (X, torch.arange(5.0))),
        (Rotary(8, axes=2), (X, torch.randn(5, 2))),
    ],
    ids=lambda argument: type(argument).__name__,
)


@pytest.mark.slow(cases=2)
@each_module
def test_a_compiler_sees_one_graph(module, arguments):
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    assert torch.equal(compiled(*arguments), module(*arguments))


@each_module
def test_gradients_of_what_is_given_and_of_what_learns(module, arguments):
    module = copy.deepcopy(module).double()
    whole = isinstance(module, RelativeBias | LearnedPositions)  # positions are counted
    arguments = [part.double().requires_grad_(not whole) for part in arguments]
    learns = dict(module.named_parameters())

    def run(*parts):
        values = dict(zip(learns, parts[len(arguments) :], strict=True))
        return torch.func.functional_call(module, values, parts[: len(arguments)])

    assert torch.autograd.gradcheck(run, (*arguments, *learns.values()))
    assert torch.autograd.gradgradcheck(run, (*arguments, *learns.values()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@each_module
def test_the_type_is_that_of_what_is_given_and_no_node_is_no_error(module, arguments, dtype):
    module, arguments = copy.deepcopy(module).to(dtype), [part.to(dtype) for part in arguments]
    actual, empty = module(*arguments), module(*[part[:0] for part in arguments])
    exact = copy.deepcopy(module).double()(*[part.double() for part in arguments])
    assert_near(actual, exact.to(dtype), 1e-5 if dtype == torch.float32 else 2e-2)
    assert empty.shape == (0, *actual.shape[1:])
    assert set(module.state_dict()) == {name for name, _ in module.named_parameters()}
