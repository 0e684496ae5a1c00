"""``outerconv show RUN``: numbers equal those of the model, pictures show them, refusals."""

import json
import shutil

import numpy as np
import pytest
import torch

from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.report.show_run import by_class, column, confusion, layer_terms
from pyg_outerconv.lab.train import load_trained
from pyg_outerconv.plot import basis as of_basis
from pyg_outerconv.plot import graph as of_graphs
from pyg_outerconv.plot import runs as of_runs

pytestmark = pytest.mark.pages


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of a fixed family, and one of attention beside a label that learns no values."""
    base = tmp_path_factory.mktemp("runs")
    families = {"fixed": "stack(gcn, identity)", "gat": "gat(heads=2)"}
    for name, family in families.items():
        options = ["--seeds", "2", "--epochs", "12", "--hidden", "8", "--device", "cpu"]
        out = ["--out", str(base / name)]
        assert main(["train", "KarateClub", "--family", family, *options, *out]) == 0
    return {name: base / name for name in families}


@pytest.fixture
def drawn(monkeypatch):
    """The figures of each kind, in the order of drawing."""
    figures = {}
    for module, name in (
        (of_basis, "draw"),
        (of_runs, "confusion"),
        (of_runs, "bars"),
        (of_graphs, "neighbourhood"),
    ):
        original = getattr(module, name)

        def watched(*args, name=name, original=original, **options):
            figures.setdefault(name, []).append(original(*args, **options))
            return figures[name][-1]

        monkeypatch.setattr(module, name, watched)
    return figures


def facts(folder):
    return json.loads((folder / "show.json").read_text())


def test_the_confusion_matrix_counts_pairs():
    predicted, wanted = torch.tensor([0, 0, 0, 2, 1]), torch.tensor([0, 1, 1, 2, 0])
    counts = confusion(predicted, wanted, 4)
    assert counts.tolist() == [[1, 1, 0, 0], [2, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    first, _, third, last = by_class(counts)
    assert first == {"class": 0, "nodes": 2, "precision": 1 / 3, "recall": 0.5, "f1": 0.4}
    assert (third["precision"], third["recall"], third["f1"]) == (1, 1, 1)
    assert (last["precision"], last["recall"], last["f1"]) == (None, None, None)


def test_a_run_is_shown(runs, drawn, capsys):
    assert main(["show", str(runs["fixed"])]) == 0
    folder = runs["fixed"] / "show"
    names = ["basis.png", "contributions.png", "confusion.png", "curves.png", "show.json"]
    said = capsys.readouterr().out.splitlines()
    assert said == [str(folder / name) for name in (*names, "README.md")]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names, "README.md"])
    run_facts, trained = facts(folder), load_trained(runs["fixed"])
    page = (folder / "README.md").read_text()
    for one, name in zip(run_facts["classes"], run_facts["class_names"], strict=True):
        shares = (one[what] for what in ("precision", "recall", "f1"))
        cells = [name, str(one["nodes"]), *("–" if s is None else f"{s:.3f}" for s in shares)]
        assert f"\n| {' | '.join(cells)} |\n" in page
    expected = [vars(one) for one in trained.contributions()]
    assert run_facts["contributions"] == [pytest.approx(one) for one in expected]
    (bars,) = drawn["bars"]
    widths = [patch.get_width() for patch in bars.axes[0].patches]
    assert widths == pytest.approx([one["norm"] for one in expected[:2]])
    test, y = trained.split.test, trained.dataset.data.y
    predicted = trained.probabilities().argmax(-1)
    counts = torch.zeros(4, 4, dtype=torch.long)
    for node in test.nonzero().view(-1).tolist():
        counts[y[node], predicted[node]] += 1
    assert run_facts["confusion"] == counts.tolist()
    assert np.array_equal(drawn["confusion"][0].axes[0].images[0].get_array(), counts)
    right = float((predicted == y)[test].float().mean())
    assert run_facts["metric"]["test"] == pytest.approx(right)
    assert run_facts["recorded"] == pytest.approx(right)
    (picture,) = drawn["draw"]
    assert [axes.get_title() for axes in picture.axes[:-1]] == ["neighbours", "self"]
    assert len(picture.axes[1].patches) == 34  # the self-loops of the identity
    page = (folder / "README.md").read_text()
    assert all(f"]({name})" in page for name in names[:-1])
    first = expected[0]
    assert f"| {first['name']} | {first['norm']:.4g} |" in page
    assert f"| class 0 | {int(counts[0].sum())} |" in page


def test_learned_values_are_shown_around_a_node(runs, drawn, tmp_path):
    out = tmp_path / "shown"
    assert main(["show", str(runs["gat"]), "--node", "9", "--out", str(out)]) == 0
    assert not (runs["gat"] / "show").exists()
    neighbourhoods = facts(out)["neighbourhoods"]
    assert [(one["layer"], one["node"]) for one in neighbourhoods] == [
        ("convs.0", 9),
        ("convs.1", 9),
    ]
    terms = layer_terms(load_trained(runs["gat"]))
    for one in neighbourhoods:
        values, present = column(terms[one["layer"]].basis, 9)
        assert sorted(one["sources"]) == np.flatnonzero(present.any(0)).tolist()
        assert np.allclose(one["values"], values[:, one["sources"]].T)
    figure = drawn["neighbourhood"][0]
    written = [text.get_text() for text in figure.axes[0].texts if text.get_gid() == "value"]
    assert sorted(written) == sorted(f"{values[0]:.2f}" for values in neighbourhoods[0]["values"])
    assert (out / neighbourhoods[0]["picture"]).read_bytes().startswith(b"\x89PNG")
    assert f"]({neighbourhoods[0]['picture']})" in (out / "README.md").read_text()


def test_a_column_of_a_basis_is_that_of_its_matrices(runs):
    terms = layer_terms(load_trained(runs["fixed"]))["convs.0"]
    dense, support = terms.basis.to_dense(torch.double), terms.basis.support()
    for node in (0, 33):
        values, present = column(terms.basis, node)
        assert np.allclose(values, dense[:, :, node])
        assert np.array_equal(present, support[:, :, node])


def test_refusals_are_one_line_and_nothing_is_written(runs, tmp_path, monkeypatch, refused):
    run = str(runs["fixed"])
    damaged = tmp_path / "damaged"
    shutil.copytree(runs["fixed"], damaged, ignore=shutil.ignore_patterns("show"))
    (damaged / "checkpoint.pt").write_bytes((damaged / "checkpoint.pt").read_bytes()[:900])
    (tmp_path / "file").write_text("")
    for arguments, says in (
        ([str(tmp_path)], "is not a run folder: expected config.json, got no such file"),
        ([str(damaged)], "checkpoint.pt must be as outerconv wrote it"),
        ([run, "--node", "34"], "a node of KarateClub has a number: expected [0, 34), got 34"),
        ([run, "--label", "2"], "a selected label must exist: expected [0, 2), got 2"),
        ([run, "--layout", "springs"], "did you mean 'spring'"),
        ([run, "--family", "gcn"], "--family is of the picture of a basis"),
        ([run, "--out", run], "--out is a folder for pictures: expected no run folder"),
        ([run, "--out", str(tmp_path / "file")], "--out must be a folder that can be written"),
    ):
        refused(["show", *arguments], says)
    unavailable = data.DataUnavailable("KarateClub is not here")

    def missing(*arguments):
        raise unavailable

    monkeypatch.setattr("pyg_outerconv.lab.train.trained.dataset_of", missing)
    refused(["show", run], "KarateClub is not here")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused(["show", run], "pip install 'pyg_outerconv[plot]'")
