"""Means, spreads, differences and metrics, against numbers by hand; names on pages are text."""

import re
from pathlib import Path

import pytest
import torch

from pyg_outerconv.lab import pages
from pyg_outerconv.lab.pages import code, plain
from pyg_outerconv.lab.train.results import (
    METRICS,
    accuracy,
    auroc,
    f1,
    majority,
    paired_difference,
    spread,
    summarise,
    table,
)


def record(model, seed, accuracy):
    return {
        "model": model,
        "seed": seed,
        "test_metric": accuracy,
        "val_metric": accuracy,
        "majority": 0.25,
        "epochs": 10,
        "seconds": 1.0,
    }


def both(ours, peer):
    runs = [record("outerconv", seed, value) for seed, value in enumerate(ours)]
    return [*runs, *(record("peer", seed, value) for seed, value in reversed([*enumerate(peer)]))]


def test_spread_is_the_sample_standard_deviation():
    assert spread([0.2, 0.4, 0.9]) == pytest.approx(0.36055512754639896)
    assert spread([0.5]) is None


def test_differences_are_paired_by_seed():
    difference = paired_difference(both([0.1, 0.5, 0.9], [0.2, 0.4, 0.9]))
    assert difference["mean"] == pytest.approx(0.0)
    assert difference["standard_error"] == pytest.approx(0.1 / 3**0.5)  # differences -0.1, 0.1, 0
    difference = paired_difference(both([0.5, 0.6, 0.9], [0.5, 0.5]))
    assert difference["seeds"] == 2
    assert paired_difference([record("outerconv", 0, 0.5)]) is None


def test_the_table_shows_mean_and_deviation():
    text = table(summarise(both([0.8, 0.9], [0.8, 0.7]), {"outerconv": "A", "peer": "B"}, "f1"))
    assert "test f1 %" in text
    assert "majority class" in text
    assert "25.00" in text
    assert "85.00 ± 7.07" in text
    assert "75.00 ± 7.07" in text
    assert text.endswith("ours − PyG: 10.00 ± 10.00 points (mean ± standard error), 2 seeds")
    one = table(summarise(both([0.5], [0.50001]), {"outerconv": "A", "peer": "B"}, "f1"))
    assert one.endswith("ours − PyG: 0.00 points, 1 seed")
    alone = table(summarise([record("outerconv", 0, 0.5)], {"outerconv": "A"}, "accuracy"))
    assert "50.00" in alone
    assert "±" not in alone


# Metrics ------------------------------------------------------------------------------------------


@pytest.fixture(params=[2, 5])
def drawn(request):
    generator = torch.Generator().manual_seed(request.param)
    logits = torch.randn(60, request.param, generator=generator).round(decimals=1)  # with ties
    return logits, torch.randint(request.param, (60,), generator=generator)


def test_metrics_are_those_of_scikit_learn(drawn):
    metrics = pytest.importorskip("sklearn.metrics")
    logits, wanted = drawn
    predicted = logits.argmax(-1)
    assert accuracy(logits, wanted) == pytest.approx(metrics.accuracy_score(wanted, predicted))
    assert f1(logits, wanted) == pytest.approx(metrics.f1_score(wanted, predicted, average="macro"))
    if logits.size(1) == 2:
        area = metrics.roc_auc_score(wanted, logits[:, 1] - logits[:, 0])
    else:
        area = metrics.roc_auc_score(wanted, logits.softmax(-1), multi_class="ovr")
    assert auroc(logits, wanted) == pytest.approx(area)


def test_a_class_without_nodes_does_not_count_in_f1_nor_in_the_area():
    logits = torch.tensor([[2.0, 1, 0, -9], [0, 2, 1, -9], [0, 1, 2, -9], [2, 1, 0, -9]])
    wanted = torch.tensor([0, 1, 2, 1])
    assert f1(logits, wanted) == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)
    assert 0.5 < auroc(logits, wanted) <= 1


def test_the_area_of_one_class_is_refused():
    with pytest.raises(ValueError, match="nodes of two classes"):
        auroc(torch.randn(4, 2), torch.ones(4, dtype=torch.long))


@pytest.mark.parametrize(("metric", "expected"), [("accuracy", 0.25), ("auroc", 0.5), ("f1", 0.2)])
def test_the_majority_class_of_training_nodes(metric, expected):
    train, wanted = torch.tensor([1, 1, 0]), torch.tensor([0, 0, 0, 1])
    assert majority(metric, train, wanted, 2) == pytest.approx(expected)
    assert set(METRICS) == {"accuracy", "auroc", "f1"}


# Pages --------------------------------------------------------------------------------------------


NAMES = [
    "<script>alert(1)</script>",
    "a & b",
    "&lt;b&gt;",
    "a | b",
    "two\nlines",
    "# a\n\n<b>",
    "`<i>` ``<u>``",
]


# Whatever a template of a page may say a name by.
EVERYWHERE = """
{% from form import page, heading, text, items, table, picture %}
{% call page(name) %}
{{ heading(name) }}
{{ text(name, name, name) }}
{{ items([name, name]) }}
{{ table([["head", name], [name, "1"]]) }}
{{ picture(name, "a.png") }}
{% endcall %}
"""
LAB = Path(pages.__file__).parents[1]
TEMPLATES = [path for path in LAB.glob("*/*.jinja") if path.parent.name not in ("pages", "bench")]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_templates_say_names_by_macros_alone(path):
    said = re.findall(r"{{\s*(\w*)", path.read_text())
    assert said
    assert set(said) <= {"heading", "text", "items", "table", "picture", "figures"}


def columns(page):
    """How many cells each row of a table has."""
    rows = [row for row in page.splitlines() if row.startswith("|")]
    return [len(re.findall(r"(?<!\\)\|", row)) for row in rows]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_text_on_every_page(name, tmp_path):
    template = tmp_path / "every.jinja"
    template.write_text(EVERYWHERE)
    written, usual = (pages.render_page(template, name=said) for said in (name, "name"))
    outside = re.sub(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", "", written.replace(plain(name), "name"))
    assert "<" not in outside
    assert written.count("\n") == usual.count("\n")
    assert columns(written) == columns(usual)
    assert plain(name) in written or plain(name).replace("|", "\\|") in written


@pytest.mark.parametrize("text", ["a", "a`b", "``", "`a` <b>", "two\nlines", "<b>"])
def test_a_span_of_code_ends_where_its_text_ends(text):
    fence = re.match("`+", code(text))
    assert fence
    inside = code(text)[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inside)
    assert inside.strip() == " ".join(text.split())
