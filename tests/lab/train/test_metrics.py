"""Metrics against scikit-learn's."""

from __future__ import annotations

import pytest
import torch

from pyg_outerconv.lab.train.metrics import METRICS, accuracy, auroc, f1, majority


@pytest.fixture(params=[2, 5])
def drawn(request: pytest.FixtureRequest) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(request.param)
    logits = torch.randn(60, request.param, generator=generator).round(decimals=1)  # with ties
    return logits, torch.randint(request.param, (60,), generator=generator)


def test_metrics_are_those_of_scikit_learn(drawn: tuple[torch.Tensor, torch.Tensor]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    logits, wanted = drawn
    found = logits.argmax(-1)
    assert accuracy(logits, wanted) == pytest.approx(metrics.accuracy_score(wanted, found))
    assert f1(logits, wanted) == pytest.approx(metrics.f1_score(wanted, found, average="macro"))
    if logits.size(1) == 2:
        area = metrics.roc_auc_score(wanted, logits[:, 1] - logits[:, 0])
    else:
        area = metrics.roc_auc_score(wanted, logits.softmax(-1), multi_class="ovr")
    assert auroc(logits, wanted) == pytest.approx(area)


def test_a_class_without_nodes_does_not_count_in_f1_nor_in_the_area() -> None:
    logits = torch.tensor([[2.0, 1, 0, -9], [0, 2, 1, -9], [0, 1, 2, -9], [2, 1, 0, -9]])
    wanted = torch.tensor([0, 1, 2, 1])
    assert f1(logits, wanted) == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    assert 0.5 < auroc(logits, wanted) <= 1


def test_the_area_of_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="nodes of two classes"):
        auroc(torch.randn(4, 2), torch.ones(4, dtype=torch.long))


@pytest.mark.parametrize(("metric", "expected"), [("accuracy", 0.25), ("auroc", 0.5), ("f1", 0.2)])
def test_the_majority_class_of_training_nodes(metric: str, expected: float) -> None:
    train, wanted = torch.tensor([1, 1, 0]), torch.tensor([0, 0, 0, 1])
    assert majority(metric, train, wanted, 2) == pytest.approx(expected)
    assert set(METRICS) == {"accuracy", "auroc", "f1"}
