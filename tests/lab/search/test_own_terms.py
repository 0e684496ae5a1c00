"""Terms of the user's own in a search: drawn, told, trained again, and refused in time."""

import re
from pathlib import Path

import pytest
from own_modules import CODE, forget, nothing_stays
from short_search import LINE, found_in, numbers, plan, searched

from pyg_outerconv import files
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.fields import read_toml
from pyg_outerconv.lab.own_code import import_own
from pyg_outerconv.lab.search import studies
from pyg_outerconv.lab.search.portfolio import Kind
from pyg_outerconv.lab.search.report import make_page
from pyg_outerconv.lab.search.space import (
    DIRECTIONS,
    NEIGHBOURS,
    NONE,
    Bounds,
    choice_of,
    drawn_terms,
    read_terms,
    terms_of,
    terms_text,
)
from pyg_outerconv.lab.search.studies import Studies
from pyg_outerconv.lab.train import Settings

TERMS = ("into_hubs(threshold=2)", "diffusion(alpha=0.1, length=10)")
KNOWN = {"neighbours", "high_pass", "heads", "steps", "identity", "direction", "depth", "hidden"}
KNOWN |= {"layer_norm", "dropout", "skip", "deep_skip", "input_dropout", "normalize_features"}
KNOWN |= {"lr", "weight_decay"}
OWN = ["--import", "mine_hubs.py", "--term", "into_hubs(2)", "--term", "diffusion(ppr, alpha=0.1)"]


@pytest.fixture(autouse=True)
def _hubs():
    with nothing_stays():
        Path("mine_hubs.py").write_text(CODE)
        yield


def bounds_of(terms=(), **facts):
    base = Settings("KarateClub", "GCN()", "public").as_dict()
    return Bounds(base, (NONE, *NEIGHBOURS), **{"max_hidden": 32, "terms": terms, **facts})


def drawn(folder, bounds, trials):
    """The parameters of the first trials, and what family each is; all reach alike."""
    folder.mkdir()
    found = Studies(folder / "study.db", ["outerconv"], 0)
    ours = Kind()
    firsts = ours.starts(bounds)
    for number in range(trials):
        trial = found.begin("outerconv", number, firsts[number] if number < len(firsts) else {})
        drawn = ours.draw(trial, bounds).as_dict()
        found.end("outerconv", trial, [{"val_metric": 0.5}], wall=1.0, settings=drawn)
    return [
        (trial["parameters"], terms_text(trial["settings"]["family"]))
        for trial in found.finished("outerconv")
    ]


# What is drawn ------------------------------------------------------------------------------------


def test_without_terms_no_choice_of_one_is_drawn(tmp_path):
    made = drawn(tmp_path / "run", bounds_of(is_directed=True), 11)
    mean = "walk(length=1, norm='target', powers=(1,))"
    turned = (f"{way}({term})" for way in ("reverse", "directed") for term in (mean, "high_pass"))
    beside = [f"stack(identity, {term})" for term in (mean, "high_pass", *turned)]
    assert [text for _, text in made[:8]] == ["identity", "gcn", *beside]
    assert all(set(parameters) <= KNOWN for parameters, _ in made)
    again = drawn(tmp_path / "again", bounds_of(is_directed=True), 11)
    assert again == made


def test_terms_are_choices_of_their_own(tmp_path, monkeypatch):
    """Each stands in some bases and not in others, with and without the identity, unturned."""
    monkeypatch.setattr(studies, "RANDOM_TRIALS", 200)
    terms = ("walk(length=3)", "reverse(walk(length=3))")
    made = drawn(tmp_path / "run", bounds_of(terms, is_directed=True), 100)
    for term in terms:
        having = [text for _, text in made if term in terms_of(text)]
        assert 20 < len(having) < 80
        assert 5 < sum("identity" in terms_of(text) for text in having) < len(having) - 5
    for parameters, text in made:
        assert [term for term in terms if parameters[choice_of(term)]] == [
            term for term in terms_of(text) if term in terms
        ]
    alone = [parameters for parameters, text in made if set(terms_of(text)) <= {*terms, "identity"}]
    assert alone
    assert all("direction" not in parameters for parameters in alone[4:])


def test_a_search_begins_with_each_term_beside_the_identity(tmp_path):
    terms = ("walk(length=3)", "diffusion(alpha=0.1, length=10)")
    made = [text for _, text in drawn(tmp_path / "run", bounds_of(terms), 6)]
    assert made[:4] == ["identity", *(f"stack(identity, {term})" for term in terms), "gcn"]


def test_what_is_drawn_anyway_is_known():
    found = drawn_terms(bounds_of(is_directed=True))
    assert {"identity", "gcn", "reverse(gcn)", "directed(gat(8))", "high_pass"} <= found
    assert len(found) == 1 + len(DIRECTIONS) * (3 * len(NEIGHBOURS) + 3)
    assert not any("gat" in text for text in drawn_terms(bounds_of(has_features=False)))
    assert not any("reverse" in text for text in drawn_terms(bounds_of()))


def test_heads_that_do_not_share_every_width_are_not_drawn():
    assert bounds_of(max_hidden=32).heads == (0, 4, 8)
    assert bounds_of(max_hidden=12).heads == (0, 4)
    assert bounds_of(max_hidden=10).heads == (0,)
    assert bounds_of(has_features=False).heads == (0,)


def test_terms_are_read_as_families():
    assert read_terms(["Walk(length=3)", "relation"], 5) == (
        "walk(length=3)",
        "relation(num_relations=5)",
    )


# A search -----------------------------------------------------------------------------------------


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
    found = searched(run, plan(trials=2, portfolio="none", terms=TERMS[:1]))
    winner = read_toml(run / "winner.toml")
    assert winner["family"] == f"stack(identity, {TERMS[0]})"
    assert winner["imports"] == "mine_hubs.py"
    report = found.run()
    (_, *rows) = report.term_rows()
    assert [row[0] for row in rows] == ["identity", TERMS[0]]
    assert any("edges into hubs" in row[0] for row in report.label_rows())
    assert "without one of its terms" in make_page(report, "markdown")
    page = make_page(report)
    for shown in (TERMS[0], "edges into hubs", "mine_hubs.py"):
        assert shown in page


@pytest.mark.slow(cases=1)
def test_of_a_winner_of_one_term_no_table_without_rows_is_announced(tmp_path):
    report = searched(tmp_path / "run", plan(trials=1, portfolio="none")).run()
    assert len(report.term_rows()) == 1
    _, told = make_page(report, "markdown").split("## What it found\n\n")
    assert told.startswith("Each label of each layer: ")


# What is refused ----------------------------------------------------------------------------------


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
