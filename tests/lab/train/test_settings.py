"""Each setting is said once: command line, TOML and Python refuse alike, help and guide tell it."""

import json
import math
import re
from dataclasses import fields, is_dataclass

import click
import pytest
import torch
from torch_geometric.data import Data
from write_commands import FILE, page

from pyg_outerconv.lab import data
from pyg_outerconv.lab.bench.command import Options
from pyg_outerconv.lab.cli import commands, main, options, outerconv
from pyg_outerconv.lab.data import Source
from pyg_outerconv.lab.fields import (
    TYPES,
    check_value,
    explained,
    flag_of,
    read_toml,
    write_toml,
)
from pyg_outerconv.lab.search.plan import SHARED, Plan
from pyg_outerconv.lab.settings import read_settings
from pyg_outerconv.lab.train import Settings, Split, check_protocol, make_split
from pyg_outerconv.lab.train.classifiers import ACTIVATION, NORMS
from pyg_outerconv.lab.train.results import METRICS
from pyg_outerconv.lab.train.splits import absent_classes, check_classes

FIELDS = {one.name: one for one in fields(Settings)}
TOLD = {name: one for name, one in FIELDS.items() if one.metadata.get("help")}


def settings(**changes):
    return Settings(**{"dataset": "d", "family": "f", "split": "s", **changes})


def beyond():
    """For each bound of a setting a value beyond it, for each setting of words another one."""
    for name, one in TOLD.items():
        for sign, bound in one.metadata["bounds"].items():
            end, step = ("minimum", -1) if ">" in sign else ("maximum", 1)
            value = 2 * bound if bound > 1e9 else bound + step if "=" in sign else bound
            yield {name: value}, f"{name} has a {end}: expected {sign} {bound}, got "
        if words := one.metadata["words"]:
            said = f"expected one of {', '.join(sorted(words))}"
            yield {name: f"{min(words)}x"}, f"unknown {name} '{min(words)}x' (did you mean"
            yield {name: "?"}, f"unknown {name} '?': {said}"


# What a setting cannot be, and parts of the message.
BAD = [
    *beyond(),
    ({"depth": 256, "hidden": 16_384}, "expected depth × hidden² <= 1073741824, got 256 × 16384²"),
    ({"epochs": 10**400}, "epochs has a maximum: expected <= 1000000, got more"),
    ({"dropout": math.nan}, "dropout has a minimum: expected >= 0, got nan"),
    ({"lr": math.inf}, "lr has a maximum: expected <= 1e+30"),
    ({"skip": "residual", "depth": 2}, "expected depth >= 3, got 2"),
    ({"architecture": "blocks", "skip": "concat"}, "expected skip='none', got concat"),
    ({"architecture": "blocks", "update": "mlp"}, "expected update='none', got mlp"),
    ({"skip": "residual", "depth": 1, "input_layer": "linear"}, "expected depth >= 2, got 1"),
    ({"architecture": "gcnii", "skip": "last"}, "'gcnii' has skips of its own: expected skip='n"),
    ({"architecture": "linkx", "update": "mlp"}, "'linkx' has linear layers of its own"),
    ({"architecture": "blocks", "input_layer": "linear"}, "has a first layer of its own: expected"),
    ({"architecture": "gcnii", "root_weight": True}, "no root weight: expected theta='full', root"),
    ({"architecture": "gcnii", "theta": "shared"}, "one Θ and no root weight"),
    ({"initial_residual": 0.2}, "initial_residual is of one model: expected --architecture gcnii"),
    ({"identity_mapping": 1.0}, "identity_mapping is of one model: expected --architecture gcnii"),
    ({"architecture": "linkx", "batches": "clusters"}, "linkx needs the whole graph at once: expe"),
    ({"labels_as_features": 0.5, "batches": "blocks"}, "expected --batches none, got --batches bl"),
    ({"correct_and_smooth": "1,1,1,1", "batches": "clusters"}, "1,1,1,1 needs the whole graph"),
    *(
        ({"correct_and_smooth": text}, f"or 50,0.8,50,0.8,1.0 with γ, got {text}")
        for text in (
            "50",
            "1,2,3,0.5",
            "a,0.5,3,0.5",
            "1,0.5,3.5,0.5",
            "1,0.5,-3,0.5",
            "1,0.5,3,0.5,-1",
            "1,0.5,3,0.5,1,1",
            "1,nan,3,0.5",
            "1,0.5,3,0.5,inf",
        )
    ),
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


def as_flags(changes):
    flags = []
    for name, value in changes.items():
        flag = flag_of(FIELDS[name])
        flags += [flag] if value is True else [f"{flag}={value}"]
    return flags


def as_toml(changes):
    def said(value):
        return repr(value) if isinstance(value, float) else json.dumps(value)

    return "\n".join(f"{name} = {said(value)}" for name, value in changes.items())


@pytest.mark.parametrize(("changes", "words"), BAD, ids=lambda part: str(part)[:60])
def test_a_value_is_refused_alike_in_python_by_option_and_in_toml(
    changes, words, tmp_path, refused
):
    with pytest.raises(ValueError, match=re.escape(words)):
        settings(**changes)
    file = tmp_path / "a.toml"
    file.write_text(as_toml(changes))
    for line in (as_flags(changes), ["--config", str(file)]):
        refused(["train", "KarateClub", *line], words)


def test_bounds_themselves_are_values():
    for one in TOLD.values():
        for sign, bound in one.metadata["bounds"].items():
            if "=" in sign:
                check_value(one, bound)
            else:
                with pytest.raises(ValueError, match=f"expected {sign} {bound}"):
                    check_value(one, bound)


def test_every_word_is_a_value_and_known_where_it_is_used():
    used = {"metric": METRICS, "activation": ACTIVATION, "layer_norm": NORMS}
    for name, one in TOLD.items():
        for word in one.metadata["words"]:
            check_value(one, word)
        if name in used:
            assert set(one.metadata["words"]) == set(used[name])


OTHERS = {
    "str": [5, 1.5, True, ["a"], {"a": 1}],
    "bool": ["true", 1, 0.0, [True]],
    "int": ["2", 2.0, True, [2]],
    "float": ["2", True, [2.0]],
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_value_of_another_type_is_refused(name, tmp_path):
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
def test_a_file_that_is_wrong_is_refused(text, said, tmp_path, refused):
    file = tmp_path / "a.toml"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(["train", "KarateClub", "--config", file], said)


def test_toml_holds_what_was_written(tmp_path):
    values = {"family": 'a "b" \\ é', "lr": 1e-05, "wide": 64, "peer": False, "big": 1e30}
    (tmp_path / "a.toml").write_text(write_toml(values, "two\nlines"))
    assert read_toml(tmp_path / "a.toml") == values


# Options, help and guide --------------------------------------------------------------------------


def options_of(command):
    """The arguments and options of a command, by the class and the name of their fields."""
    return {option.name: option for option in outerconv.commands[command].params}


def test_settings_are_the_options_of_train_and_search():
    taken = options_of("train")
    for name, one in TOLD.items():
        option = taken[f"settings_{name}"]
        assert flag_of(one) in option.opts
        assert option.default is None  # so that a data set, or a file, may have another one
        assert option.help == explained(one)
    searched = {name for name in options_of("search") if name.startswith(("plan", "settings"))}
    planned = {one.name for one in fields(Plan)} - {"base"}
    assert searched == {f"settings_{name}" for name in (*SHARED, "undirected")} | {
        f"plan_{name}" for name in planned
    }


@pytest.mark.parametrize("command", outerconv.commands)
def test_every_option_is_made_from_a_field(command):
    """Its help is that of the field, and its type."""
    kinds = {kind.__name__.lower(): kind for kind in (Settings, Plan, Source, Options)}
    for room in (commands, options):
        kinds |= {name.lower(): kind for name, kind in vars(room).items() if is_dataclass(kind)}
    for name, option in options_of(command).items():
        kind, _, field = name.partition("_")
        (one,) = (one for one in fields(kinds[kind]) if one.name.lower() == field)
        if one.metadata["argument"]:
            assert isinstance(option, click.Argument)
        else:
            assert option.help.startswith(explained(one)[:-1])
            assert flag_of(one) == option.opts[0]


def test_the_tables_of_the_guide_are_those_of_the_fields():
    again = "python tests/write_commands.py writes it anew"
    assert page() == FILE.read_text(encoding="utf-8"), again


def test_the_options_of_training_are_in_sections(capsys):
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    titles = ["A graph of your own:", "Model:", "Training:", "Samples of a large graph:", "Run:"]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    assert places[1] < text.index("--depth") < places[2] < text.index("--epochs") < places[3]
    assert places[4] < text.index("--resume") < text.index("--help")


# Splits: disjoint, of the right sizes, fixed by their seed ----------------------------------------

THREE, HALVES = torch.arange(2100) % 3, torch.arange(100) % 2
NONE, MANY = torch.full((50,), -1), torch.full((1400,), -1)
TRAIN = {"train_mask": torch.arange(100) < 50, "test_mask": torch.arange(100) >= 50}
SIXTHS = torch.cat([torch.arange(90) % 3, torch.full((7,), -1)])
# A protocol, a graph, the sizes of the parts, and how many nodes of each class train.
PROTOCOLS = [
    ("random", {"y": THREE}, (60, 500, 1000), [20, 20, 20]),
    ("random", {"y": torch.cat([THREE[:700], MANY])}, (60, 500, 140), [20, 20, 20]),
    ("random-50-20-30", {"y": torch.cat([HALVES, NONE])}, (50, 20, 30), None),
    ("random-10-10-10", {"y": torch.cat([HALVES, NONE])}, (10, 10, 10), None),
    ("held-out-50-20-30", {"y": torch.cat([HALVES, NONE])}, (50, 20, 30), None),
    ("per-class-5-8", {"y": SIXTHS}, (15, 24, 51), [5, 5, 5]),
    ("public", {"y": torch.zeros(100, dtype=torch.long), **TRAIN}, (40, 10, 50), [40]),
]


def parts_of(split):
    return torch.stack([split.train, split.validation, split.test])


@pytest.mark.parametrize("case", range(len(PROTOCOLS)))
def test_parts_are_disjoint_of_labelled_nodes_and_fixed_by_their_seed(case):
    protocol, parts, sizes, counts = PROTOCOLS[case]
    graph = Data(**parts)
    masks = parts_of(make_split(graph, protocol, 4))
    assert tuple(masks.sum(1).tolist()) == sizes
    assert int(masks.sum(0).max()) == 1, "a node has two roles"
    assert bool((graph.y[masks.any(0)] >= 0).all())
    assert counts is None or graph.y[masks[0]].bincount().tolist() == counts
    assert torch.equal(masks, parts_of(make_split(graph, protocol, 4)))
    others = [parts_of(make_split(graph, protocol, seed)) for seed in range(20)]
    assert len({tuple(other[0].tolist()) for other in others}) == 20
    if protocol in ("public", "held-out-50-20-30"):
        assert all(torch.equal(other[2], masks[2]) for other in others)


def test_several_masks_are_taken_one_by_one():
    part = torch.arange(9) % 3
    columns = {
        f"{name}_mask": torch.stack([part == number, part == (number + 1) % 3], dim=1)
        for number, name in enumerate(("train", "val", "test"))
    }
    graph = Data(y=part, **columns)
    for seed in range(3):
        wanted = torch.stack([part == (number + seed % 2) % 3 for number in range(3)])
        assert torch.equal(parts_of(make_split(graph, "geom-gcn", seed)), wanted)


def test_the_club_halves_its_other_members():
    club = data.load(data.EMBEDDED).data
    split = make_split(club, "public", 0)
    assert parts_of(split).sum(1).tolist() == [4, 15, 15]
    assert torch.equal(split.train, club.train_mask)


@pytest.mark.parametrize(
    ("y", "protocol", "words"),
    [
        (torch.cat([THREE, torch.tensor([3])]), "random", "20 nodes of class 3, got 1"),
        (THREE[:300], "random", "more than 500 nodes"),
        (SIXTHS, "per-class-20-20", "takes 40 nodes of each class"),
        (torch.zeros(4, dtype=torch.long), "random-90-1-9", "expected validation nodes, got none"),
    ],
)
def test_a_graph_that_is_too_small_for_a_protocol_is_refused(y, protocol, words):
    with pytest.raises(ValueError, match=words):
        make_split(Data(y=y), protocol, 0)


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        ("publik", "expected one of"),
        ("geom-gcn", "expected one of"),
        ("random-60-50-20", "add up to at most 100"),
        ("random-0-50-50", "add up to at most 100"),
        ("held-out-60-50-20", "add up to at most 100"),
        ("per-class-0-8", "such as per-class-20-30"),
    ],
)
def test_unknown_protocols_are_refused(protocol, words):
    with pytest.raises(ValueError, match=words):
        check_protocol(data.entry("Photo"), protocol)
    assert check_protocol(data.entry("Cora"), "geom-gcn") == "geom-gcn"


def test_classes_without_training_nodes_are_found():
    masks = torch.eye(3, dtype=torch.bool)
    split = Split(*masks)
    assert absent_classes(torch.tensor([0, 2, 0]), split) == [2]
    assert absent_classes(torch.tensor([1, 1, 1]), split) == []
    rule = "two of them among the train nodes, got class b alone"
    with pytest.raises(ValueError, match=rule):
        check_classes(torch.tensor([1, 0, 1]), split, "auroc", "ab".__getitem__)
    check_classes(torch.tensor([0, 1, 0]), split, "f1")
