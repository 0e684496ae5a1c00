"""Bad input at every door: one line with the rule, what it expects and what came.

The table is ``refusals/*.txt``. A line says an exception, a rule and what that expects; indented
below it are calls that are refused so, each with what came. ``...`` stands for any words. Other
lines at the margin are run before the calls below them, until a line of ``---``.
"""

import copy
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from public_names import ROOMS
from torch_geometric.data import Data, HeteroData

from pyg_outerconv import AttentionConv, OuterConv, parse_family, pyg
from pyg_outerconv.attention import NORMALISERS, SCORES
from pyg_outerconv.errors import LONGEST, Refused
from pyg_outerconv.families.family import FAMILIES
from pyg_outerconv.nn import multi_head_attention

EXCEPTIONS = {kind.__name__: kind for kind in (ValueError, TypeError, IndexError)}
TABLE = sorted((Path(__file__).parent / "refusals").glob("*.txt"))


class Row(NamedTuple):
    """A call, what is run before it, and what it is refused with."""

    setup: str
    call: str
    kind: str
    message: str


def rows_of(text: str) -> Iterator[Row]:
    """The rows of a table, in their order."""
    setup, rule = "", ""
    for block in re.findall(r"^\S.*\n(?:(?:[ ].*)?\n)*", text, re.MULTILINE):
        head, _, below = block.partition("\n")
        if head.startswith("---"):
            setup = ""
        elif head.split(": ")[0] not in EXCEPTIONS:
            setup += block
        else:
            kind, _, rule = head.partition(": ")
            for item in re.findall(r"^    \S.*\n(?: {8}.*\n)*", below, re.MULTILINE):
                call, said, got = item.strip().partition("# got ")
                assert said or rule.startswith("unknown "), f"what came is not said: {item}"
                yield Row(setup, call.strip(), kind, f"{rule}, got {got}" if said else rule)


def public_words() -> dict[str, object]:
    """What the calls of the table are made of: everything that is public, and libraries."""
    words: dict[str, object] = {}
    for room in reversed([import_module(name) for name in ROOMS if not name.endswith("plot")]):
        words |= {name: getattr(room, name) for name in room.__all__}
    beside = {"torch": torch, "np": np, "sp": sp, "nx": nx, "pyg": pyg}
    return words | beside | {"Data": Data, "HeteroData": HeteroData}


WORDS = public_words()
ROWS = [(path.stem, row) for path in TABLE for row in rows_of(path.read_text())]
WAYS = [{"cached": cached, "fuse": fuse} for cached in (False, True) for fuse in (True, False)]


class Layers:
    """Makes layers for the table, all in one way, and looks at them after the refusal."""

    def __init__(self, cached: bool, fuse: bool) -> None:
        self.cached, self.fuse = cached, fuse
        self.layers: list[tuple[OuterConv, str, dict[str, torch.Tensor]]] = []

    def __call__(self, in_channels: int = 4, **options: object) -> OuterConv:
        conv = OuterConv(in_channels, 6, **{"family": "gcn", **options}, cached=self.cached)
        conv.fuse = self.fuse
        self.layers.append((conv, conv.flow, copy.deepcopy(conv.state_dict())))
        return conv

    def assert_unchanged(self) -> None:
        """A layer has the state that it had, and still works."""
        for conv, flow, state in self.layers:
            after = conv.state_dict()
            assert (list(after), conv.flow) == (list(state), flow)
            lazy = isinstance(state["theta.weight"], torch.nn.parameter.UninitializedParameter)
            for key, value in after.items():
                assert type(value) is type(state[key])
                assert lazy or torch.equal(value, state[key])
            if conv.aggr == "sum" and not lazy and conv.family.num_bases != 2:
                kinds = (
                    torch.tensor([0, 1, 2, 0])
                    if conv.family == parse_family("relation(3)")
                    else None
                )
                index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
                out = conv(torch.ones(5, 4), index, torch.ones(4), edge_type=kinds)
                assert out.shape == (5, 6)


@pytest.mark.parametrize(
    "row",
    [row for _, row in ROWS],
    ids=[f"{room}: {row.call}".replace("-", "−") for room, row in ROWS],
)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_bad_input_is_refused_at_the_door(row):
    for way in WAYS if "layer(" in row.call else WAYS[:1]:
        layers = Layers(**way)
        words = {**WORDS, "layer": layers}
        exec(row.setup, words)
        with pytest.raises(EXCEPTIONS[row.kind]) as caught:
            exec(row.call, words)
        assert isinstance(caught.value, Refused)
        message = str(caught.value)
        said = ".*".join(re.escape(part.strip()) for part in row.message.split("..."))
        assert re.fullmatch(said, message), message
        assert ": expected " in message
        assert "\n" not in message
        assert len(message) < 2 * LONGEST
        layers.assert_unchanged()


@pytest.mark.parametrize("constructor", [OuterConv, AttentionConv])
def test_the_options_that_a_refusal_lists_are_options(constructor):
    needed = {"in_channels": 3, "out_channels": 4}
    needed |= {"family": "gcn"} if constructor is OuterConv else {}
    with pytest.raises(TypeError, match="expected one of") as caught:
        constructor(**needed, biass=True)
    for option in str(caught.value).rpartition("expected one of ")[2].split(", "):
        with suppress(Refused, ValueError):  # None is no value of some; of `flow`, says PyG
            constructor(**needed | {option: None})


def test_heads_of_multi_head_attention_may_have_no_values():
    layer = multi_head_attention(4, 2, value_channels=None, theta="full")
    assert layer(torch.ones(3, 4)).shape == (3, 4)


WRONG = [None, [1, 2], "abc", 7, 1.5, 1j, object(), {}, True]
MADE = {
    constructor.__name__: constructor
    for constructor in (
        OuterConv,
        AttentionConv,
        *SCORES.values(),
        *NORMALISERS.values(),
        *FAMILIES.values(),
    )
}
NEEDED = {"in_channels": 4, "out_channels": 4, "family": "gcn", "heads": 2, "channels": 4}
OF_FAMILIES = dict.fromkeys(("family", "first", "second", "families"), parse_family("gcn"))


@pytest.mark.parametrize("name", MADE)
@pytest.mark.filterwarnings("ignore")
def test_a_constructor_takes_an_option_or_refuses_it(name):
    constructor, refused = MADE[name], 0
    options = [
        option
        for option in inspect.signature(constructor).parameters.values()
        if option.kind in (option.POSITIONAL_OR_KEYWORD, option.KEYWORD_ONLY)
    ]
    good = NEEDED | (OF_FAMILIES if constructor in FAMILIES.values() else {})
    needed = {one.name: good.get(one.name) for one in options if one.default is one.empty}
    for option in options:
        for wrong in WRONG:
            try:
                constructor(**needed | {option.name: wrong})
            except Refused:
                refused += 1
    assert refused or not options
