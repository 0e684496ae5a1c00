"""ALiBi falls with distance, by slopes of the paper's code."""

import pytest
import torch

from pyg_outerconv.attention import ALiBi, IndexTerm
from pyg_outerconv.attention.alibi import slopes
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


def test_twelve_heads_have_these_slopes():
    expected = [2.0**-n for n in range(1, 9)] + [2.0**-n for n in (0.5, 1.5, 2.5, 3.5)]
    assert_near(slopes(12, torch.float64), torch.tensor(expected, dtype=torch.float64))


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


def test_sequences_are_those_of_the_paper():
    """A row of the picture in section 3: 0 for the token itself, −1, −2, … before it."""
    place = torch.arange(5.0)
    bias = ALiBi(heads=8)((place[:, None] - place[None]).view(-1, 1)).view(5, 5, 8)
    assert torch.equal(bias[:, 4, 0] * 2, torch.tensor([-4.0, -3.0, -2.0, -1.0, 0.0]))


def test_nothing_is_learned_unless_asked():
    assert not list(ALiBi(heads=3).parameters())
    assert not ALiBi(heads=3).state_dict()
    assert ALiBi(heads=3, learned=True).slopes.shape == (3,)


def test_gradients_of_positions_and_of_learned_slopes():
    term = ALiBi(heads=3, learned=True).double()
    relative = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)

    def run(relative, slope):
        return torch.func.functional_call(term, {"slopes": slope}, relative)

    assert torch.autograd.gradcheck(run, (relative, term.slopes))
    assert torch.autograd.gradgradcheck(run, (relative, term.slopes))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_type_follows_the_positions(dtype):
    relative = torch.tensor([[3.0], [-100.0]], dtype=dtype)
    expected = ALiBi(heads=6)(relative.double()).to(dtype)
    assert_near(ALiBi(heads=6)(relative), expected)


def test_a_reset_brings_the_slopes_back():
    term = ALiBi(heads=6, learned=True)
    with torch.no_grad():
        term.slopes.zero_()
    term.reset_parameters()
    assert_near(term.slopes, slopes(6))


def test_no_edge_is_no_error():
    assert ALiBi(heads=2)(torch.empty(0, 3)).shape == (0, 2)


def test_it_is_an_index_term():
    assert isinstance(ALiBi(heads=2), IndexTerm)


@pytest.mark.parametrize(
    ("call", "kind", "rule"),
    [
        (lambda: ALiBi(0), ValueError, "heads: expected >= 1, got 0"),
        (lambda: ALiBi(2.0), TypeError, "an integer, got 2.0"),
        (lambda: ALiBi(2)(torch.ones(3)), ValueError, r"\(E, D\), got \(3,\)"),
        (lambda: ALiBi(2)(torch.tensor([[1]])), TypeError, "floating point.*int64"),
        (lambda: ALiBi(2)([[1.0]]), TypeError, "floating point.*got list"),
    ],
)
def test_bad_input_is_refused(call, kind, rule):
    with pytest.raises(kind, match=rule):
        call()
