"""Splits: disjoint, of the right sizes, fixed by their seed."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from pyg_outerconv.lab import data
from pyg_outerconv.lab.train import Split, check_protocol, make_split
from pyg_outerconv.lab.train.splits import absent_classes, check_classes


def sizes(split: Split) -> tuple[int, int, int]:
    masks = torch.stack([split.train, split.validation, split.test]).int()
    assert int(masks.sum(0).max()) <= 1, "a node has two roles"
    return tuple(masks.sum(1).tolist())  # type: ignore[return-value]


def same(one: Split, other: Split) -> bool:
    return all(
        torch.equal(getattr(one, part), getattr(other, part))
        for part in ("train", "validation", "test")
    )


def test_random_is_planetoids() -> None:
    graph = Data(y=torch.arange(2100) % 3)
    split = make_split(graph, "random", 0)
    assert sizes(split) == (60, 500, 1000)
    assert graph.y[split.train].bincount().tolist() == [20, 20, 20]
    assert same(split, make_split(graph, "random", 0))
    assert not same(split, make_split(graph, "random", 1))


def test_random_refuses_small_classes_and_leaves_unlabelled_nodes_out() -> None:
    y = torch.arange(2100) % 3
    with pytest.raises(ValueError, match=r"20 nodes of class 3, got 1"):
        make_split(Data(y=torch.cat([y, torch.tensor([3])])), "random", 0)
    with pytest.raises(ValueError, match="more than 500 nodes"):
        make_split(Data(y=y[:300]), "random", 0)
    y[700:] = -1
    split = make_split(Data(y=y), "random", 0)
    assert sizes(split) == (60, 500, 140)
    assert bool((y[split.train | split.validation | split.test] >= 0).all())


def test_percentages() -> None:
    graph = Data(y=torch.cat([torch.arange(100) % 2, torch.full((50,), -1)]))
    split = make_split(graph, "random-50-20-30", 4)
    assert sizes(split) == (50, 20, 30)
    assert not bool(split.test[100:].any())
    assert sizes(make_split(graph, "random-10-10-10", 4)) == (10, 10, 10)


def test_several_masks_are_taken_one_by_one() -> None:
    part = torch.arange(9) % 3
    columns = {
        f"{name}_mask": torch.stack([part == number, part == (number + 1) % 3], dim=1)
        for number, name in enumerate(("train", "val", "test"))
    }
    graph = Data(y=part, **columns)
    assert torch.equal(make_split(graph, "geom-gcn", 0).train, part == 0)
    assert torch.equal(make_split(graph, "geom-gcn", 1).train, part == 1)
    assert same(make_split(graph, "geom-gcn", 0), make_split(graph, "geom-gcn", 2))


def test_a_missing_validation_part_is_a_fifth_of_the_training_nodes() -> None:
    train = torch.arange(100) < 50
    graph = Data(y=torch.zeros(100, dtype=torch.long), train_mask=train, test_mask=~train)
    split = make_split(graph, "public", 3)
    assert sizes(split) == (40, 10, 50)
    assert torch.equal(split.train | split.validation, train)
    assert torch.equal(split.test, ~train)
    assert not same(split, make_split(graph, "public", 4))


def test_the_club_halves_its_other_members() -> None:
    club = data.load(data.EMBEDDED).data
    split = make_split(club, "public", 0)
    assert sizes(split) == (4, 15, 15)
    assert torch.equal(split.train, club.train_mask)


def test_a_part_without_nodes_is_refused() -> None:
    graph = Data(y=torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match="expected validation nodes, got none"):
        make_split(graph, "random-90-1-9", 0)


@pytest.mark.parametrize("protocol", ["publik", "random-60-50-20", "random-0-50-50", "geom-gcn"])
def test_unknown_protocols_are_refused(protocol: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        check_protocol(data.entry("Photo"), protocol)
    assert check_protocol(data.entry("Cora"), "geom-gcn") == "geom-gcn"


def test_per_class_takes_fixed_numbers_and_tests_on_all_others() -> None:
    graph = Data(y=torch.cat([torch.arange(90) % 3, torch.full((7,), -1)]))
    split = make_split(graph, "per-class-5-8", 1)
    assert sizes(split) == (15, 24, 51)
    assert graph.y[split.train].bincount().tolist() == [5, 5, 5]
    assert graph.y[split.validation].bincount().tolist() == [8, 8, 8]
    assert not same(split, make_split(graph, "per-class-5-8", 2))
    with pytest.raises(ValueError, match="takes 40 nodes of each class"):
        make_split(graph, "per-class-20-20", 0)
    with pytest.raises(ValueError, match="such as per-class-20-30"):
        check_protocol(data.entry("KarateClub"), "per-class-0-8")


def test_classes_without_training_nodes_are_found() -> None:
    masks = torch.eye(3, dtype=torch.bool)
    split = Split(*masks)
    assert absent_classes(torch.tensor([0, 2, 0]), split) == [2]
    assert absent_classes(torch.tensor([1, 1, 1]), split) == []
    rule = "two of them among the train nodes, got class b alone"
    with pytest.raises(ValueError, match=rule):
        check_classes(torch.tensor([1, 0, 1]), split, "auroc", "ab".__getitem__)
    check_classes(torch.tensor([0, 1, 0]), split, "f1")
