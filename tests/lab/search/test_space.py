"""What a search draws: each mix is a family that training takes, with the matrices it names; each
kind of the portfolio trains from its published settings, within bounds; terms of the user's own are
drawn, told, trained again, and refused in time.
"""

import re
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from optuna.storages import InMemoryStorage
from own_modules import CODE, forget, nothing_stays
from short_search import LINE, found_in, numbers, plan, searched
from torch_geometric.data import Data

from pyg_outerconv import files
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.families import parse_family
from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.family_options import make_family
from pyg_outerconv.lab.fields import read_toml
from pyg_outerconv.lab.own_code import import_own
from pyg_outerconv.lab.search import space, studies
from pyg_outerconv.lab.search.finals import interval, interval_of_nodes
from pyg_outerconv.lab.search.plan import FIRST_FINAL_SEED
from pyg_outerconv.lab.search.report import make_page
from pyg_outerconv.lab.search.search import Search
from pyg_outerconv.lab.search.space import (
    DIRECTIONS,
    NEIGHBOURS,
    NONE,
    OURS,
    Bounds,
    Kind,
    Mix,
    choice_of,
    portfolio,
    terms_of,
    terms_text,
)
from pyg_outerconv.lab.search.studies import Studies
from pyg_outerconv.lab.search.work import Bench, Task, visible_labels, without_labels
from pyg_outerconv.lab.train import Settings


def bounds_of(terms=(), **facts):
    base = Settings("KarateClub", "GCN()", "public", epochs=6).as_dict()
    return Bounds(base, (NONE, *NEIGHBOURS), **{"max_hidden": 16, "terms": terms, **facts})


@pytest.fixture(scope="module")
def karate():
    """The club without its labels, and the labels that seed 0 may see."""
    club = data.load("KarateClub")
    return Bench(without_labels(club)), visible_labels(club, "public", 0)


# The grammar of bases -----------------------------------------------------------------------------


EDGES = torch.tensor([[0, 1, 2, 3, 3, 1], [1, 2, 0, 0, 2, 3]])
N = 4


def dense(text):
    family = parse_family(text)
    return family.basis_of(Data(edge_index=EDGES, num_nodes=N)).to_dense()


def adjacency():
    a = torch.zeros(N, N)
    a[EDGES[0], EDGES[1]] = 1.0
    return a


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("neighbours", [NONE, *NEIGHBOURS])
def test_every_mix_is_a_family_that_training_takes(neighbours):
    for direction, high_pass, heads, identity, steps in product(
        DIRECTIONS, (False, True), space.HEADS, (False, True), range(1, space.MOST_STEPS + 1)
    ):
        mix = Mix(neighbours, steps, direction, high_pass, heads, identity)
        family = make_family(mix.text)
        ways = 2 if direction == space.BOTH else 1
        labels = ways * (steps * (neighbours != NONE) + high_pass + heads)
        assert family.num_bases == (labels + identity or 1)
        assert parse_family(terms_text(repr(family))) == family
        assert parse_family(space.stacked(terms_of(repr(family)))) == family
        assert len(terms_of(repr(family))) == len(mix.terms)


def test_matrices_of_the_terms():
    a = adjacency()
    mean = a / a.sum(0, keepdim=True)
    walk = a / a.sum(1, keepdim=True)
    loops = a + torch.eye(N)
    scale = loops.sum(0).rsqrt()
    gcn = scale[:, None] * loops * scale[None]
    for name, step in {"mean": mean, "walk": walk, "sum": a, "gcn": gcn}.items():
        for steps in (1, 2):
            matrices = dense(Mix(name, steps, identity=False).text)
            wanted = torch.stack([torch.linalg.matrix_power(step, n + 1) for n in range(steps)])
            torch.testing.assert_close(matrices, wanted)
    torch.testing.assert_close(
        dense(Mix(high_pass=True, identity=False).text)[0], torch.eye(N) - gcn
    )


def test_directions_turn_the_edges():
    forward, reverse, both = (
        dense(Mix("mean", direction=way, identity=False).text)
        for way in (space.FORWARD, space.REVERSE, space.BOTH)
    )
    against = adjacency().t()
    torch.testing.assert_close(reverse[0], against / against.sum(0, keepdim=True))
    torch.testing.assert_close(both, torch.cat([forward, reverse]))


def test_a_mix_without_terms_is_the_identity():
    assert Mix(identity=False).text == "identity"
    assert space.stacked([]) == "identity"


def test_relations_stand_where_edges_have_types():
    karate = data.load("KarateClub")
    assert space.neighbours_for(karate) == (NONE, *NEIGHBOURS)
    karate.data.edge_type = torch.arange(karate.data.num_edges) % 3
    assert "relation" in space.neighbours_for(karate)
    assert make_family(Mix("relation", num_relations=3).text).num_bases == 4


# The portfolio ------------------------------------------------------------------------------------


@pytest.mark.slow(cases=6)
@pytest.mark.parametrize("name", portfolio())
def test_every_kind_trains_from_its_published_settings(name, karate, tmp_path, in_memory):
    kind, bounds, (bench, labels) = portfolio()[name], bounds_of(is_directed=True), karate
    studies = Studies(tmp_path / "a.db", [name], 0)
    assert kind.start
    for number, (start, told) in enumerate(zip(kind.start, kind.starts(bounds), strict=True)):
        assert start["source"]
        trial = studies.begin(name, number, kind.told(told, bounds))
        settings = kind.start_settings(told, kind.draw(trial, bounds), bounds)
        for key, value in start["settings"].items():
            if key in kind.choices or key in ("depth", "hidden", "skip"):
                continue
            assert getattr(settings, key) == value
        assert settings.depth == told["depth"] or "depth" in kind.settings
        assert settings.hidden == 16
        outcome = bench.train(Task((name,), settings, 0, labels, "seen"))
        assert 0 < outcome.numbers["val_metric"] <= 1
        assert outcome.seen is not None
        assert all(0 <= share <= 1 for _, share in outcome.seen.homophily)
        for gains in outcome.seen.response.values():
            assert max(one for one in gains if one is not None) == 1.0
        studies.end(name, trial, [outcome.numbers], settings=settings.as_dict(), wall=1.0)


def test_a_model_that_diverges_has_the_worst_numbers_and_one_that_is_refused_stops(karate):
    bench, labels = karate
    huge = Settings("KarateClub", "gcn", "public", epochs=20, lr=1e30, patience=0)
    outcome = bench.train(Task(("gcn",), huge, 0, labels))
    assert outcome.numbers["val_metric"] == 0
    assert "diverged" in outcome.numbers["said"]
    refused = Settings("KarateClub", "nearest(3)", "public", epochs=2)
    with pytest.raises(RefusedValue, match="needs positions"):
        bench.train(Task(("points",), refused, 0, labels))


def test_kinds_that_do_not_fit_a_graph_stay_away_or_are_refused():
    names = [kind.name for kind in space.kinds_for("all", bounds_of(has_features=False))]
    assert names[0] == OURS
    assert not {"gat", "dir-gcn"} & set(names)
    every = space.kinds_for("all", bounds_of(is_directed=True))
    assert {kind.name for kind in every} == {OURS, *portfolio()} - {"optbasis"}
    with pytest.raises(RefusedValue, match="expected direction, got a graph without"):
        space.kinds_for("mlp,dir-gcn", bounds_of())
    with pytest.raises(RefusedValue, match="did you mean 'gcn'"):
        space.kinds_for("gcnn", bounds_of())
    with pytest.raises(RefusedValue, match="named once"):
        space.kinds_for("gcn,gcn", bounds_of())


def test_what_is_published_is_drawn_as_the_nearest():
    published = {"depth": 9, "hidden": 512, "dropout": 0.95, "lr": 1.0, "weight_decay": 0.0}
    drawn = space.as_drawn({**published, "skip": "residual"}, bounds_of(max_depth=2, max_hidden=64))
    assert (drawn["depth"], drawn["hidden"], drawn["skip"]) == (2, 64, "none")
    assert (drawn["dropout"], drawn["lr"], drawn["weight_decay"]) == (0.8, 0.2, 1e-6)


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


def test_seeds_on_which_the_winner_fails_are_told(tmp_path, monkeypatch):
    train = Bench.train

    def failing(bench, task):
        outcome = train(bench, task)
        outcome.numbers["val_metric"] = 0.4 if task.seed == 1 else 0.9
        return outcome

    monkeypatch.setattr(Bench, "train", failing)
    report = searched(tmp_path / "run", plan(trials=1, portfolio="none", test_seeds=3)).run()
    (failed,) = (sentence for sentence in report.verdict() if "failed" in sentence)
    assert failed.startswith("On 1 of the 3 seeds of the test its training failed: its accuracy")


def digits_of(draws):
    return ["".join(map(str, row.astype(int))) for row in draws]


def test_intervals_over_seeds_and_nodes_cover_the_truth():
    """Two models whose accuracies are the same, where nodes are odd, and so are seeds: the interval
    over seeds alone misses 0 most of the time, that over both as often as its level says.
    """
    generator, covered, by_seeds = np.random.default_rng(0), [], []
    for _ in range(300):
        of_nodes, of_seeds = generator.normal(0, 0.25, (1, 60)), generator.normal(0, 0.03, (20, 1))
        ours = generator.random((20, 60)) < 0.6 + of_nodes + of_seeds
        theirs = generator.random((20, 60)) < 0.6 - of_nodes - of_seeds
        middle, half = interval_of_nodes(digits_of(ours), digits_of(theirs))
        assert middle == pytest.approx(ours.mean() - theirs.mean())
        covered.append(abs(middle) <= half)
        middle, half = interval(ours.mean(1) - theirs.mean(1))
        by_seeds.append(abs(middle) <= half)
    assert 0.9 <= np.mean(covered) <= 0.99
    assert np.mean(by_seeds) < 0.6


def test_an_interval_over_nodes_is_not_below_that_over_seeds():
    draws = np.random.default_rng(1).random((2, 7, 40)) < 0.7
    _, half = interval_of_nodes(*map(digits_of, draws))
    assert half >= 0.99 * interval(draws[0].mean(1) * 1.0 - draws[1].mean(1))[1]
    of_seed = np.broadcast_to(np.arange(7)[:, None] % 2, (7, 40))  # all nodes of a seed alike
    alone = interval_of_nodes(digits_of(of_seed), digits_of(0 * of_seed))
    assert alone == pytest.approx(interval(of_seed.mean(1)))


@pytest.mark.parametrize("split", ["held-out-50-20-30", "random-50-20-30"])
def test_a_test_of_the_same_nodes_has_intervals_over_nodes(split, tmp_path):
    base = replace(plan().base, split=split)
    report = searched(tmp_path / "run", replace(plan(trials=1, test_seeds=3), base=base)).run()
    tested = report.kept["tests"]
    key = "{} {}".format(*report.first)
    assert report.has_fixed_test == split.startswith("held-out")
    said = "over test nodes, which are the same" in make_page(report, "markdown")
    assert said == report.has_fixed_test
    for seed in tested.values():
        if report.has_fixed_test:
            digits = [int(one) for one in seed[key]["correct"]]
            assert np.mean(digits) == pytest.approx(seed[key]["test_metric"])
        else:
            assert "correct" not in seed[key]


def test_unequal_numbers_of_trials_are_refused(tmp_path):
    with closing(Search(plan(trials=2), tmp_path / "run", log=lambda line: None)) as search:
        search._search()
        search.trials["mlp"].pop()
        with pytest.raises(RefusedValue, match="after equal numbers of trials: expected equal"):
            search._finish()


def test_kinds_learn_from_each_other_and_the_best_of_all_have_seeds_of_their_own(tmp_path):
    """A third trial begins with the best model of the other kinds, published ones around it."""
    search = searched(tmp_path / "run", plan(trials=7, portfolio="mlp,gcn", finalists=3))
    for name in search.trials:
        others = [
            (-trial["value"], other, trial["number"])
            for other, trials in search.trials.items()
            for trial in trials[:2]
            if other != name
        ]
        _, other, number = min(others)
        best = space.as_drawn(search.trials[other][number]["settings"], search.bounds)
        third = search.trials[name][2]["parameters"]
        assert {key: third[key] for key in space.MODEL if key in third}.items() <= best.items()
    starts_of_gcn = [one["settings"]["lr"] for one in portfolio()["gcn"].start]
    learning_rates = [search.trials["gcn"][number]["settings"]["lr"] for number in (0, 1, 3)]
    assert learning_rates == starts_of_gcn
    assert len(search.run().finalists) == 3
    rungs = {name: search.studies.kept(name, "rungs", {}) for name in search.trials}
    for kept in rungs.values():  # 7 on one seed, 3 on three, 1 on nine
        assert sorted(map(len, kept.values())) == [3, 3, 9]
    final = search.studies.kept(OURS, "final", {})
    assert all({"2000", "2001"} <= set(seeds) for seeds in final.values())
    tested = search.studies.kept(OURS, "tests", {})
    assert set(tested) == {"0", "1"}
    assert all(len(kinds) == 3 for kinds in tested.values())


def test_finalists_meet_again_until_one_beats_all_others(tmp_path, monkeypatch):
    """Kind by kind the accuracies on the seeds of the final, from 2000 on: the MLP fails on the
    fifth; LINKX is beaten on the first four; GCN wins once the MLP has failed.
    """
    metrics = {
        "mlp": [0.90, 0.92, 0.90, 0.92, 0.10, *[0.91] * 7],
        "gcn": [0.90, 0.90, 0.92, 0.90] * 3,
        "linkx": [0.50, 0.51, 0.50, 0.51],
        OURS: [0.91, 0.89, 0.91, 0.89] * 3,
    }
    train, trained = Bench.train, []

    def as_listed(bench, task):
        outcome = train(bench, task)
        if task.seed >= FIRST_FINAL_SEED and task.key[0] in keys:
            kind = keys[task.key[0]]
            trained.append((kind, task.seed - FIRST_FINAL_SEED))
            outcome.numbers["val_metric"] = metrics[kind][task.seed - FIRST_FINAL_SEED]
        return outcome

    monkeypatch.setattr(Bench, "train", as_listed)
    said, keys = [], {f"{name} 0": name for name in metrics}
    short = {"trials": 1, "finalists": 4, "final_seeds": 4, "final_rounds": 3, "test_seeds": 1}
    chosen = plan(portfolio="mlp,gcn,linkx", **short)
    with closing(Search(chosen, tmp_path / "run", log=said.append, jobs=1)) as search:
        report = search.run()
    assert [name for name, _ in report.finalists] == ["gcn", OURS, "mlp", "linkx"]
    counts = {name: len({seed for kind, seed in trained if kind == name}) for name in metrics}
    assert counts == {"mlp": 12, "gcn": 12, "linkx": 4, OURS: 12}
    rows = {row[0]: row[3] for row in report.final_rows()[1:]}
    assert [rows[f"{report.titles[name]}, trial 0"] for name in metrics] == ["12", "12", "4", "12"]
    assert "4 finalists on 4 to 12 seeds" in report.facts
    assert sum(line.startswith("final: ") for line in said) == 4 + 3 + 3


def test_no_model_is_sent_to_the_final_twice(tmp_path, monkeypatch):
    """All kinds begin with one model here, and it goes on as that of the portfolio."""
    one = searched(tmp_path / "first", plan(trials=1)).trials["mlp"][0]["settings"]
    settings, draw = Settings(**one), Kind.draw
    monkeypatch.setattr(Kind, "draw", lambda *arguments: (draw(*arguments), settings)[1])
    report = searched(tmp_path / "run", plan(trials=1)).run()
    assert report.trials[OURS][0]["settings"] == report.trials["mlp"][0]["settings"]
    assert list(report.finalists) == [("mlp", 0)]


def test_homophily_and_response_are_those_of_a_plain_average(karate):
    """On the club: GCN keeps low frequencies, I − Â high ones; neighbours share a faction."""
    bench, labels = karate
    for family, is_low in (("gcn", True), ("high_pass", False)):
        text = repr(parse_family(family))
        settings = Settings("KarateClub", text, "public", epochs=3, depth=1)
        seen = bench.train(Task(("a",), settings, 0, labels, "seen")).seen
        ((_, gains),) = seen.response.items()
        measured_gains = [one for one in gains if one is not None]
        assert (measured_gains[0] > measured_gains[-1]) == is_low
        assert max(measured_gains) == 1.0
        shares = dict(seen.homophily)
        y, edges = labels.y, bench.graph.dataset.data.edge_index
        both = (y[edges] >= 0).all(0)
        assert shares["edges, as listed"] == pytest.approx(
            float((y[edges[0, both]] == y[edges[1, both]]).double().mean())
        )
        assert 0 < shares["by chance"] < 1
        assert [one["label"] for one in seen.labels] == [0]
        assert torch.isfinite(torch.tensor(measured_gains)).all()


# Terms of the user's own --------------------------------------------------------------------------


TERMS = ("into_hubs(threshold=2)", "diffusion(alpha=0.1, length=10)")
KNOWN = {"neighbours", "high_pass", "heads", "steps", "identity", "direction", "depth", "hidden"}
KNOWN |= {"layer_norm", "dropout", "skip", "deep_skip", "input_dropout", "normalize_features"}
KNOWN |= {"lr", "weight_decay"}
OWN = ["--import", "mine_hubs.py", "--term", "into_hubs(2)", "--term", "diffusion(ppr, alpha=0.1)"]


@pytest.fixture
def in_memory(monkeypatch):
    """Trials are kept in no file."""
    monkeypatch.setattr(studies, "open_storage", lambda path: InMemoryStorage())


@pytest.fixture(autouse=True)
def _hubs():
    with nothing_stays():
        Path("mine_hubs.py").write_text(CODE)
        yield


def drawn(folder, bounds, trials):
    """The parameters of the first trials, and what family each is; all reach alike."""
    kind_studies = Studies(folder / "study.db", ["outerconv"], 0)
    ours = Kind()
    firsts = ours.starts(bounds)
    for number in range(trials):
        trial = kind_studies.begin(
            "outerconv", number, firsts[number] if number < len(firsts) else {}
        )
        drawn = ours.draw(trial, bounds).as_dict()
        kind_studies.end("outerconv", trial, [{"val_metric": 0.5}], wall=1.0, settings=drawn)
    return [
        (trial["parameters"], terms_text(trial["settings"]["family"]))
        for trial in kind_studies.finished("outerconv")
    ]


# What is drawn -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_memory")
def test_without_terms_no_choice_of_one_is_drawn(tmp_path):
    draws = drawn(tmp_path / "run", bounds_of(is_directed=True), 11)
    mean = "walk(length=1, norm='target', powers=(1,))"
    turned = (f"{way}({term})" for way in ("reverse", "directed") for term in (mean, "high_pass"))
    beside = [f"stack(identity, {term})" for term in (mean, "high_pass", *turned)]
    assert [text for _, text in draws[:8]] == ["identity", "gcn", *beside]
    assert all(set(parameters) <= KNOWN for parameters, _ in draws)
    again = drawn(tmp_path / "again", bounds_of(is_directed=True), 11)
    assert again == draws


@pytest.mark.usefixtures("in_memory")
def test_terms_are_choices_of_their_own(tmp_path, monkeypatch):
    """Each stands in some bases and not in others, with and without the identity, unturned."""
    monkeypatch.setattr(studies, "RANDOM_TRIALS", 200)
    terms = ("walk(length=3)", "reverse(walk(length=3))")
    draws = drawn(tmp_path / "run", bounds_of(terms, is_directed=True), 100)
    for term in terms:
        having = [text for _, text in draws if term in terms_of(text)]
        assert 20 < len(having) < 80
        assert 5 < sum("identity" in terms_of(text) for text in having) < len(having) - 5
    for parameters, text in draws:
        assert [term for term in terms if parameters[choice_of(term)]] == [
            term for term in terms_of(text) if term in terms
        ]
    alone = [
        parameters for parameters, text in draws if set(terms_of(text)) <= {*terms, "identity"}
    ]
    assert alone
    assert all("direction" not in parameters for parameters in alone[4:])


@pytest.mark.usefixtures("in_memory")
def test_a_search_begins_with_each_term_beside_the_identity(tmp_path):
    terms = ("walk(length=3)", "diffusion(alpha=0.1, length=10)")
    texts = [text for _, text in drawn(tmp_path / "run", bounds_of(terms), 6)]
    assert texts[:4] == ["identity", *(f"stack(identity, {term})" for term in terms), "gcn"]


def test_what_is_drawn_anyway_is_known():
    terms = space.drawn_terms(bounds_of(is_directed=True))
    assert {"identity", "gcn", "reverse(gcn)", "directed(gat(8))", "high_pass"} <= terms
    assert len(terms) == 1 + len(DIRECTIONS) * (3 * len(NEIGHBOURS) + 3)
    assert not any("gat" in text for text in space.drawn_terms(bounds_of(has_features=False)))
    assert not any("reverse" in text for text in space.drawn_terms(bounds_of()))


def test_heads_that_do_not_share_every_width_are_not_drawn():
    assert bounds_of(max_hidden=32).heads == (0, 4, 8)
    assert bounds_of(max_hidden=12).heads == (0, 4)
    assert bounds_of(max_hidden=10).heads == (0,)
    assert bounds_of(has_features=False).heads == (0,)


def test_terms_are_read_as_families():
    assert space.read_terms(["Walk(length=3)", "relation"], 5) == (
        "walk(length=3)",
        "relation(num_relations=5)",
    )


# A search ----------------------------------------------------------------------------------------


def test_a_search_with_own_code_is_told_trained_and_gone_on_with(tmp_path, capsys, refused):
    run, again = tmp_path / "run", tmp_path / "again"
    assert main(["search", *LINE, *OWN, "--out", str(run)]) == 0
    said = capsys.readouterr().out
    assert f"train it: outerconv train --config {run / 'winner.toml'} --import mine_hubs.py" in said
    assert re.search(r"final: [\d.]+ % on 2 seeds, outerconv \d", said)
    trials = found_in(run)[0]["outerconv"]
    families = [terms_text(trial["settings"]["family"]) for trial in trials]
    assert families[1:4:2] == [f"stack(identity, {term})" for term in TERMS]
    table = (run / "search.md").read_text()
    for term in TERMS:
        assert f"| {term}: yes | " in table
        assert f"Best validation % by {term}: " in said
    assert f"Terms of one's own: {', '.join(TERMS)}. Imported: mine_hubs.py." in table

    forget()
    before = numbers(run)
    refused(["search", "--resume", "--out", run], "--import mine_hubs.py, got no such option")
    assert main(["search", "--resume", "--out", str(run), "--import", "mine_hubs.py"]) == 0
    assert numbers(run) == before

    forget()
    train = ["train", "--config", str(run / "winner.toml"), "--out", str(again)]
    refused(train, "expected --import mine_hubs.py")
    assert main([*train, "--import", str(tmp_path / "mine_hubs.py")]) == 0
    finals = found_in(run)[1]
    key = "{} {}".format(*finals["winner"])
    for result in files.load_json(again / "metrics.json")["runs"]:
        tested = finals["tests"][str(result["seed"])][key]["test_metric"]
        assert tested == result["test_metric"]
    settings = files.load_json(again / "config.json")["settings"]
    assert settings["imports"] == str(tmp_path / "mine_hubs.py")  # where it was found this time


@pytest.mark.slow(cases=1)
def test_a_winner_with_a_term_has_it_on_its_page(tmp_path):
    """With two trials: the identity alone, and the term beside it; the second reaches more."""
    import_own(["mine_hubs.py"])
    run = tmp_path / "run"
    search = searched(run, plan(trials=2, portfolio="none", terms=TERMS[:1]))
    winner = read_toml(run / "winner.toml")
    assert winner["family"] == f"stack(identity, {TERMS[0]})"
    assert winner["imports"] == "mine_hubs.py"
    report = search.run()
    (_, *rows) = report.term_rows()
    assert [row[0] for row in rows] == ["identity", TERMS[0]]
    assert any("edges into hubs" in row[0] for row in report.label_rows())
    assert "without one of its terms" in make_page(report, "markdown")
    page = make_page(report)
    for shown in (TERMS[0], "edges into hubs", "mine_hubs.py"):
        assert shown in page


def test_a_table_without_rows_and_intervals_of_one_seed_are_not_announced(tmp_path):
    report = searched(tmp_path / "run", plan(trials=1, portfolio="none", test_seeds=1)).run()
    assert report.verdict()[1:] == ["A test on one seed has no intervals."]
    assert len(report.term_rows()) == 1  # of a winner of one term
    _, told = make_page(report, "markdown").split("## What it found\n\n")
    assert told.startswith("Each label of each layer: ")


# What is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (["hub(2)"], "unknown family 'hub'"),
        (["gcn"], "each --term adds a family to what is drawn: expected one that is not drawn"),
        (["gat(4)"], "got gat(heads=4)"),
        (["identity"], "got identity"),
        (["walk(3)", "Walk(length=3)"], "got walk(length=3)"),
        (["stack(walk(3), gcn)"], 'expected --term "walk(length=3)" --term "gcn"'),
        (["gat(6)"], "'gat(heads=6)': heads side by side share out_channels evenly"),
        (["nearest(3)"], "'nearest(k=3)': Nearest needs positions"),
        (["relation(2)"], "'relation(num_relations=2)': "),
        (["grid((3, 3))"], "a graph is read by families of edges"),
        (["kernel"], "made of functions or modules"),
        (["walk(2, norm=up)"], "unknown norm 'up'"),
        (["refuses"], "'refuses(threshold=3)': no graph is good enough"),
    ],
)
def test_what_cannot_be_a_term_is_refused_before_anything_is_written(terms, said, refused):
    code = CODE.replace("IntoHubs", "Refuses")
    wrong = "raise ValueError('no graph is good enough')"
    Path("mine_refusing.py").write_text(code.replace("count = ", f"{wrong}\n        count = "))
    options = [word for term in terms for word in ("--term", term)]
    line = ["search", *LINE, "--import", "mine_refusing.py", *options]
    refused([*line, "--out", "run"], said)


def test_going_on_takes_no_other_terms(refused):
    refused(["search", "--resume", "--out", "x", "--term", "walk(3)"], "options, got --term")
