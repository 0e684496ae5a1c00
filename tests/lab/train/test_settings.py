"""Each setting is said once: command line, TOML and Python refuse alike, help and guide tell it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from write_settings import FILE, table

from pyg_outerconv.lab.cli import main, outerconv
from pyg_outerconv.lab.data.source import OPTIONS
from pyg_outerconv.lab.search.plan import SHARED, Plan
from pyg_outerconv.lab.train import Settings
from pyg_outerconv.lab.train.blocks import ACTIVATION
from pyg_outerconv.lab.train.classifiers import NORMS
from pyg_outerconv.lab.train.metrics import METRICS
from pyg_outerconv.lab.train.settings import (
    TYPES,
    check_value,
    explained,
    flag_of,
    read_settings,
    read_toml,
    write_toml,
)

FIELDS = {one.name: one for one in fields(Settings)}
TOLD = {name: one for name, one in FIELDS.items() if one.metadata.get("help")}


def settings(**changes: Any) -> Settings:
    return Settings(**{"dataset": "d", "family": "f", "split": "s", **changes})


# What a setting cannot be, and parts of the message.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"depth": 0}, "depth has a minimum: expected >= 1, got 0"),
    ({"depth": 257}, "depth has a maximum: expected <= 256, got 257"),
    ({"hidden": 0}, "hidden has a minimum: expected >= 1"),
    ({"hidden": 10**12}, "hidden has a maximum: expected <= 16384"),
    ({"depth": 256, "hidden": 16_384}, "expected depth × hidden² <= 1073741824, got 256 × 16384²"),
    ({"out_heads": -1}, "out_heads has a minimum: expected >= 0"),
    ({"out_heads": 16_385}, "out_heads has a maximum: expected <= 16384"),
    ({"epochs": 0}, "epochs has a minimum: expected >= 1"),
    ({"epochs": 10**400}, "epochs has a maximum: expected <= 1000000, got more"),
    ({"evaluate_every": 0}, "evaluate_every has a minimum: expected >= 1"),
    ({"evaluate_every": 10**7}, "evaluate_every has a maximum: expected <= 1000000"),
    ({"patience": -1}, "patience has a minimum: expected >= 0"),
    ({"patience": 10**7}, "patience has a maximum: expected <= 1000000"),
    ({"seeds": 0}, "seeds has a minimum: expected >= 1"),
    ({"seeds": 10**9}, "seeds has a maximum: expected <= 10000"),
    ({"parts": 0}, "parts has a minimum: expected >= 1"),
    ({"parts_per_batch": 0}, "parts_per_batch has a minimum: expected >= 1"),
    ({"batch_size": 0}, "batch_size has a minimum: expected >= 1"),
    ({"batch_size": 10**7}, "batch_size has a maximum: expected <= 1000000"),
    ({"accumulate": -1}, "accumulate has a minimum: expected >= 0"),
    ({"dropout": 1.0}, "dropout has a maximum: expected < 1"),
    ({"dropout": math.nan}, "dropout has a minimum: expected >= 0, got nan"),
    ({"input_dropout": -0.1}, "input_dropout has a minimum: expected >= 0, got -0.1"),
    ({"input_dropout": 1.0}, "input_dropout has a maximum: expected < 1"),
    ({"lr": 0.0}, "lr has a minimum: expected > 0"),
    ({"lr": math.nan}, "lr has a minimum: expected > 0, got nan"),
    ({"lr": math.inf}, "lr has a maximum: expected <= 1e+30"),
    ({"weight_decay": -1.0}, "weight_decay has a minimum: expected >= 0"),
    ({"weight_decay": 1e300}, "weight_decay has a maximum: expected <= 1e+30"),
    ({"layer_norm": "batchh"}, "unknown layer_norm 'batchh' (did you mean 'batch'?)"),
    ({"skip": "residul"}, "(did you mean 'residual'?): expected one of concat, none, residual"),
    ({"decay": "none"}, "unknown decay 'none'"),
    ({"activation": "rel"}, "did you mean 'relu'"),
    ({"architecture": "block"}, "did you mean 'blocks'"),
    ({"update": "x"}, "unknown update 'x': expected one of mlp, none"),
    ({"pool": "avg"}, "unknown pool"),
    ({"metric": "f2"}, "unknown metric 'f2': expected one of accuracy, auroc, f1"),
    ({"class_weights": "balance"}, "did you mean 'balanced'"),
    ({"select": "los"}, "did you mean 'loss'"),
    ({"features": "spars"}, "did you mean 'sparse'"),
    ({"batches": "cluster"}, "did you mean 'clusters'"),
    ({"precision": "float16"}, "unknown precision 'float16'"),
    ({"skip": "residual", "depth": 2}, "expected depth >= 3, got 2"),
    ({"architecture": "blocks", "skip": "concat"}, "expected skip='none', got concat"),
    ({"architecture": "blocks", "update": "mlp"}, "expected update='none', got mlp"),
    ({"peer_seeds": 1}, "expected peer=True and peer_seeds <= 10, got peer=False and peer_seeds=1"),
    ({"peer": True, "seeds": 2, "peer_seeds": 3}, "peer_seeds <= 2, got peer=True"),
    ({"peer": True, "batches": "clusters"}, "on the whole graph: expected --batches none"),
    ({"accumulate": 2}, "added up over samples: expected --batches random-nodes"),
    (
        {"fan_outs": "3"},
        "fan_outs needs samples that are made with it: expected --batches neighbor",
    ),
    ({"fan_outs": "3,0"}, "such as 10,10, or -1 for all, got 3,0"),
    ({"parts": 3}, "expected --batches random-nodes or clusters or blocks, got --batches none"),
    (
        {"batches": "random-nodes", "parts_per_batch": 2},
        "expected --batches clusters or blocks, got --batches random-nodes",
    ),
]


def as_flags(changes: dict[str, Any]) -> list[str]:
    flags = []
    for name, value in changes.items():
        flag = flag_of(FIELDS[name])
        flags += [flag] if value is True else [f"{flag}={value}"]
    return flags


def as_toml(changes: dict[str, Any]) -> str:
    def said(value: Any) -> str:
        return repr(value) if isinstance(value, float) else json.dumps(value)

    return "\n".join(f"{name} = {said(value)}" for name, value in changes.items())


@pytest.mark.parametrize(("changes", "words"), BAD, ids=lambda part: str(part)[:60])
def test_a_value_is_refused_alike_in_python_by_option_and_in_toml(
    changes: dict[str, Any],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(words)):
        settings(**changes)
    file = tmp_path / "a.toml"
    file.write_text(as_toml(changes))
    for line in (as_flags(changes), ["--config", str(file)]):
        assert main(["train", "KarateClub", *line]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.startswith("outerconv train: error: ")
        assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == [file]


def test_bounds_themselves_are_values() -> None:
    for one in TOLD.values():
        for sign, bound in one.metadata["bounds"].items():
            if "=" in sign:
                check_value(one, bound)
            else:
                with pytest.raises(ValueError, match=f"expected {sign} {bound}"):
                    check_value(one, bound)


def test_every_word_is_a_value_and_known_where_it_is_used() -> None:
    used = {"metric": METRICS, "activation": ACTIVATION, "layer_norm": NORMS}
    for name, one in TOLD.items():
        for word in one.metadata["words"]:
            check_value(one, word)
        if name in used:
            assert set(one.metadata["words"]) == set(used[name])


OTHERS: dict[str, list[Any]] = {
    "str": [5, 1.5, True, ["a"], {"a": 1}],
    "bool": ["true", 1, 0.0, [True]],
    "int": ["2", 2.0, True, [2]],
    "float": ["2", True, [2.0]],
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_value_of_another_type_is_refused(name: str, tmp_path: Path) -> None:
    kind, file = str(FIELDS[name].type), tmp_path / "a.toml"
    assert set(OTHERS) < set(TYPES)
    for value in OTHERS[kind]:
        with pytest.raises(TypeError, match=f"{name} has a type: expected {kind}, got"):
            settings(**{name: value})
        said = "{a = 1}" if isinstance(value, dict) else as_toml({name: value}).partition("= ")[2]
        file.write_text(f"{name} = {said}")
        with pytest.raises(TypeError, match=f"a.toml: {name} has a type: expected {kind}, got"):
            read_settings(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("depth = ", "must be TOML"),
        ("dept = 2", "did you mean 'depth'"),
        ("split = 1979-05-27", "split has a type: expected str"),
        ("depth = " + "9" * 5000, "must be TOML"),
        ("depth = " + "[" * 5000 + "]" * 5000, "must be TOML"),
        ("depth = " + "{a=" * 5000 + "1" + "}" * 5000, "must be TOML"),
        (b"\xff", "text in UTF-8"),
        (None, "must be readable: expected a TOML file, got No such file"),
    ],
    ids=str,
)
def test_a_file_that_is_wrong_is_refused(
    text: str | bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.toml"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["train", "KarateClub", "--config", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_toml_holds_what_was_written(tmp_path: Path) -> None:
    values = {"family": 'a "b" \\ é', "lr": 1e-05, "wide": 64, "peer": False, "big": 1e30}
    (tmp_path / "a.toml").write_text(write_toml(values, "two\nlines"))
    assert read_toml(tmp_path / "a.toml") == values


# Options, help and guide --------------------------------------------------------------------------


def test_settings_are_the_options_of_train_and_search() -> None:
    taken = {option.name: option for option in outerconv.commands["train"].params}
    own = {*OPTIONS, "directed", "root", "out", "resume", "config", "tensorboard", "import"}
    assert set(taken) - (own - {"undirected"}) == set(FIELDS) - {"imports"}
    for name, one in TOLD.items():
        assert flag_of(one) in taken[name].opts
        assert taken[name].default is None  # so that a data set, or a file, may have another one
        assert taken[name].help == explained(one)
    searched = {option.name for option in outerconv.commands["search"].params}
    planned = {one.name for one in fields(Plan)} - {"base"}
    assert searched - {*OPTIONS, "root", "out", "resume", "import"} == {
        "dataset",
        *planned,
        *SHARED,
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("depth", "Number of convolutions; default 2."),
        ("weight_decay", "Weight decay of Adam; default 0.0005."),
        (
            "layer_norm",
            "Normalisation after hidden convolutions: none, batch or layer; default none.",
        ),
        (
            "decay",
            "Which parameters decay: all or first (those of the first layer); default all.",
        ),
        ("peer", "Train PyG's own layer too, on the same seeds and splits."),
        ("normalize_features", "Divide each row of features by its sum; default no."),
        (
            "device",
            "Device: auto (CUDA where there is a GPU), cpu, cuda, cuda:1 or mps; default auto.",
        ),
    ],
)
def test_a_setting_is_told_with_its_words_and_its_default(name: str, text: str) -> None:
    assert explained(FIELDS[name]).startswith(text)


def test_help_tells_every_default() -> None:
    silent = {"undirected", "pool", "peer"}
    for name, one in TOLD.items():
        assert ("; default" in explained(one)) is (name not in silent), name
        assert one.default is not MISSING or name in ("family", "split")


def test_the_table_of_the_guide_is_that_of_the_fields() -> None:
    again = "python tests/write_settings.py writes it anew"
    assert table() in FILE.read_text(encoding="utf-8"), again


def test_the_options_of_training_are_in_sections(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    titles = ["A graph of your own:", "Model:", "Training:", "Samples of a large graph:", "Run:"]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    assert places[1] < text.index("--depth") < places[2] < text.index("--epochs") < places[3]
    assert places[4] < text.index("--resume") < text.index("--help")
