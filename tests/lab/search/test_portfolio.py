"""The portfolio: each kind trains, its first trials are its published settings, within bounds."""

import pytest
import torch
from short_search import plan, searched

from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.families import parse_family
from pyg_outerconv.lab import data
from pyg_outerconv.lab.search.portfolio import (
    OURS,
    Kind,
    kinds_for,
    portfolio,
    visible_labels,
    without_labels,
)
from pyg_outerconv.lab.search.search import Search
from pyg_outerconv.lab.search.space import MODEL, NEIGHBOURS, NONE, Bounds, as_drawn
from pyg_outerconv.lab.search.studies import Studies
from pyg_outerconv.lab.search.work import Bench, Task
from pyg_outerconv.lab.train import Settings


def bounds_of(**facts):
    base = Settings("KarateClub", "GCN()", "public", epochs=6).as_dict()
    return Bounds(base, (NONE, *NEIGHBOURS), **{"max_hidden": 16, **facts})


@pytest.mark.parametrize("name", portfolio())
def test_every_kind_trains_from_its_published_settings(name, tmp_path):
    karate, kind, bounds = data.load("KarateClub"), portfolio()[name], bounds_of(is_directed=True)
    (labels,) = visible_labels(karate, "public", [0]).values()
    bench, studies = Bench(without_labels(karate)), Studies(tmp_path / "a.db", [name], 0)
    assert kind.start
    for number, (start, told) in enumerate(zip(kind.start, kind.starts(bounds), strict=True)):
        assert start["source"]
        trial = studies.begin(name, number, kind.told(told, bounds))
        settings = kind.given(told, kind.draw(trial, bounds), bounds)
        for key, value in start["settings"].items():
            if key in kind.choices or key in ("depth", "hidden", "skip"):
                continue
            assert getattr(settings, key) == value
        assert settings.depth == told["depth"] or "depth" in kind.settings
        assert settings.hidden == 16
        found = bench.train(Task((name,), settings, 0, labels, "seen"))
        assert 0 < found.numbers["val_metric"] <= 1
        assert found.seen is not None
        assert all(0 <= share <= 1 for _, share in found.seen.homophily)
        for gains in found.seen.response.values():
            assert max(one for one in gains if one is not None) == 1.0
        studies.end(name, trial, [found.numbers], settings=settings.as_dict(), wall=1.0)


def test_a_model_that_diverges_has_the_worst_numbers_and_one_that_is_refused_stops_the_search():
    karate = data.load("KarateClub")
    (labels,) = visible_labels(karate, "public", [0]).values()
    bench = Bench(without_labels(karate))
    huge = Settings("KarateClub", "gcn", "public", epochs=20, lr=1e30, patience=0)
    found = bench.train(Task(("gcn",), huge, 0, labels))
    assert found.numbers["val_metric"] == 0
    assert "diverged" in found.numbers["said"]
    refused = Settings("KarateClub", "nearest(3)", "public", epochs=2)
    with pytest.raises(RefusedValue, match="needs positions"):
        bench.train(Task(("points",), refused, 0, labels))


def test_kinds_that_do_not_fit_a_graph_stay_away_or_are_refused():
    names = [kind.name for kind in kinds_for("all", bounds_of(has_features=False))]
    assert names[0] == OURS
    assert not {"gat", "dir-gcn"} & set(names)
    every = kinds_for("all", bounds_of(is_directed=True))
    assert {kind.name for kind in every} == {OURS, *portfolio()} - {"optbasis"}
    with pytest.raises(RefusedValue, match="expected direction, got a graph without"):
        kinds_for("mlp,dir-gcn", bounds_of())
    with pytest.raises(RefusedValue, match="did you mean 'gcn'"):
        kinds_for("gcnn", bounds_of())
    with pytest.raises(RefusedValue, match="named once"):
        kinds_for("gcn,gcn", bounds_of())


def test_what_is_published_is_drawn_as_the_nearest():
    published = {"depth": 9, "hidden": 512, "dropout": 0.95, "lr": 1.0, "weight_decay": 0.0}
    drawn = as_drawn({**published, "skip": "residual"}, bounds_of(max_depth=2, max_hidden=64))
    assert (drawn["depth"], drawn["hidden"], drawn["skip"]) == (2, 64, "none")
    assert (drawn["dropout"], drawn["lr"], drawn["weight_decay"]) == (0.8, 0.2, 1e-6)


def test_a_third_trial_begins_with_the_best_model_of_the_other_kinds(tmp_path):
    """Published ones come before and after it; what was learned of one kind serves the others."""
    chosen = plan(trials=6, portfolio="mlp,gcn")
    found = Search(chosen, tmp_path / "run", log=lambda line: None, jobs=1)
    try:
        found.run()
        for name in ("mlp", "gcn", OURS):
            others = [
                (-trial["value"], other, trial["number"])
                for other, trials in found.trials.items()
                for trial in trials[:2]
                if other != name
            ]
            _, other, number = min(others)
            best = as_drawn(found.trials[other][number]["settings"], found.bounds)
            third = found.trials[name][2]["parameters"]
            assert {key: third[key] for key in MODEL if key in third}.items() <= best.items()
        starts_of_gcn = [one["settings"]["lr"] for one in portfolio()["gcn"].start]
        given = [found.trials["gcn"][number]["settings"]["lr"] for number in (0, 1, 3)]
        assert given == starts_of_gcn
    finally:
        found.close()


def test_a_baseline_that_wins_is_the_winner(tmp_path, monkeypatch):
    """Whoever predicts best on validation nodes of the final: here an MLP, by its name."""
    train = Bench.train

    def better(bench, task):
        outcome = train(bench, task)
        is_mlp = task.settings.family == "Identity()" and task.settings.hidden == 16
        outcome.numbers["val_metric"] = 0.9 if is_mlp and task.key[0] != OURS else 0.1
        return outcome

    monkeypatch.setattr(Bench, "train", better)
    report = searched(tmp_path / "run", plan()).run()
    assert report.first[0] == "mlp"
    assert report.winner_settings()["family"] == "identity"
    assert report.verdict()[0].startswith("Winner: MLP, no graph, of the portfolio: identity.")
    assert "MLP, no graph (winner)" in (tmp_path / "run" / "search.md").read_text()
    assert report.result_rows()[1][0] == "MLP, no graph (winner)"


def test_unequal_numbers_of_trials_are_refused(tmp_path):
    found = Search(plan(trials=2), tmp_path / "run", log=lambda line: None, jobs=1)
    try:
        found._search()
        found.trials["mlp"].pop()
        with pytest.raises(RefusedValue, match="after equal numbers of trials: expected equal"):
            found._finish()
    finally:
        found.close()


def test_the_final_has_the_best_of_all_kinds_on_seeds_of_their_own(tmp_path):
    found = searched(tmp_path / "run", plan(trials=7, portfolio="mlp,gcn", finalists=3))
    report = found.run()
    assert len(report.finalists) == 3
    rungs = {name: found.studies.kept(name, "rungs", {}) for name in found.trials}
    for kept in rungs.values():  # 7 on one seed, 3 on three, 1 on nine
        assert sorted(map(len, kept.values())) == [3, 3, 9]
    final = found.studies.kept(OURS, "final", {})
    assert all(set(seeds) == {"2000", "2001"} for seeds in final.values())
    tested = found.studies.kept(OURS, "tests", {})
    assert set(tested) == {"0", "1"}
    assert all(len(kinds) == 3 for kinds in tested.values())


def test_no_model_is_sent_to_the_final_twice(tmp_path, monkeypatch):
    """All kinds begin with one model here, and it goes on as that of the portfolio."""
    one = searched(tmp_path / "first", plan(trials=1)).trials["mlp"][0]["settings"]
    settings, draw = Settings(**one), Kind.draw
    monkeypatch.setattr(Kind, "draw", lambda *given: (draw(*given), settings)[1])
    report = searched(tmp_path / "run", plan(trials=1)).run()
    assert report.trials[OURS][0]["settings"] == report.trials["mlp"][0]["settings"]
    assert list(report.finalists) == [("mlp", 0)]


def test_one_seed_of_the_test_says_nothing_of_who_is_better(tmp_path):
    report = searched(tmp_path / "run", plan(trials=1, test_seeds=1)).run()
    assert report.verdict()[1:] == ["A test on one seed has no intervals."]


def test_an_ensemble_has_a_row_and_wins_nothing(tmp_path):
    report = searched(tmp_path / "run", plan(trials=2, ensemble=2)).run()
    assert report.result_rows()[-1][0] == "mean of 2 finalists"
    assert report.winner in report.finalists
    for seed in report.kept["tests"].values():
        assert 0 <= seed["ensemble"]["test_metric"] <= 1


def test_homophily_and_response_are_those_of_a_plain_average():
    """On the club: GCN keeps low frequencies, I − Â high ones; neighbours share a faction."""
    karate = data.load("KarateClub")
    (labels,) = visible_labels(karate, "public", [0]).values()
    bench = Bench(without_labels(karate))
    for family, is_low in (("gcn", True), ("high_pass", False)):
        text = repr(parse_family(family))
        settings = Settings("KarateClub", text, "public", epochs=3, depth=1)
        seen = bench.train(Task(("a",), settings, 0, labels, "seen")).seen
        ((_, gains),) = seen.response.items()
        known = [one for one in gains if one is not None]
        assert (known[0] > known[-1]) == is_low
        assert max(known) == 1.0
        shares = dict(seen.homophily)
        y, edges = labels.y, karate.data.edge_index
        both = (y[edges] >= 0).all(0)
        assert shares["edges, as listed"] == pytest.approx(
            float((y[edges[0, both]] == y[edges[1, both]]).double().mean())
        )
        assert 0 < shares["by chance"] < 1
        assert [one["label"] for one in seen.labels] == [0]
        assert torch.isfinite(torch.tensor(known)).all()
