"""What would take for ever is refused with a bound; what settles is not walked on."""

import pytest
import torch

from pyg_outerconv.families import Chebyshev, Diffusion, Grid, Relation, Walk


def reached(adjacency, targets, reach):
    """The sources of walks of exactly ``reach`` edges, by squaring a dense matrix."""
    power, product = adjacency, torch.eye(len(adjacency))
    while reach:
        product = ((product @ power) > 0).float() if reach % 2 else product
        power, reach = ((power @ power) > 0).float(), reach // 2
    return (product[:, targets] > 0).any(1).nonzero().view(-1)


@pytest.mark.parametrize("seed", range(12))
def test_a_receptive_field_is_that_of_walks_of_any_length(seed):
    generator = torch.Generator().manual_seed(seed)
    nodes = 3 + seed
    index = torch.randint(nodes, (2, nodes + seed % 4), generator=generator)
    if seed % 3 == 0:  # cycles of several lengths, which settle never, and what leads into them
        sizes, index, nodes = (2, 3, 5, 7), [], 18 + seed
        for start, size in zip((0, 2, 5, 10), sizes, strict=True):
            ring = torch.arange(size)
            index.append(torch.stack([ring, (ring + 1) % size]) + start)
        index.append(torch.randint(17, nodes, (2, seed), generator=generator))
        index = torch.cat(index, 1)
    adjacency = torch.zeros(nodes, nodes)
    adjacency[index[0], index[1]] = 1
    basis = Relation(1, None).basis(index, size=(nodes, nodes))
    targets = [0, 3] if seed % 2 else [2]
    for reach in (0, 1, 2, 3, 5, 8, 30, 211, 10**9, 10**18 + 1):
        expected = reached(adjacency, targets, reach)
        assert basis.receptive_field(targets, reach).equal(expected)


def test_rules_settle_too():
    index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    assert Walk(1).basis(index).receptive_field(0, 10**9).tolist() == [0, 1, 2]
    assert Walk(2, powers=(2,)).basis(index).receptive_field(0, 10**9 + 1).tolist() == [
        (-2 * (10**9 + 1)) % 3
    ]
    assert Grid(3, padding=1, dim=1).basis((9,)).receptive_field(4, 10**9).tolist() == [*range(9)]


def test_sets_that_do_not_repeat_in_time_are_refused(monkeypatch):
    monkeypatch.setattr("pyg_outerconv.basis.receptive_field.MOST_LAYERS", 40)
    rings = [torch.stack([torch.arange(n), (torch.arange(n) + 1) % n]) + n**2 for n in (5, 7, 9)]
    basis = Relation(1, None).basis(torch.cat(rings, 1), size=(100, 100))
    starts = [25, 49, 81]
    assert basis.receptive_field(starts, 40).numel() == 3
    with pytest.raises(ValueError, match=r"within 40 layers: expected reach <= 40, got 1000"):
        basis.receptive_field(starts, 1000)
    assert basis.receptive_field(25, 1000).tolist() == [25]


def test_as_many_places_and_axes_as_are_allowed():
    assert Grid(316, dim=2).num_bases == 316**2
    assert Grid(1, dim=64).num_bases == 1
    longest = Walk(10_000), Diffusion(length=10_000), Chebyshev(10_000)
    assert [family.num_bases for family in longest] == [10_001, 1, 10_000]
