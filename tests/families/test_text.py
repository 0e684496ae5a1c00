"""Families as text: strings without quotes, and what the names of well-known layers mean."""

import copy
import inspect
import pickle
from dataclasses import fields

import pytest

from pyg_outerconv import nn, parse_family
from pyg_outerconv.families import (
    FAMILIES,
    GCN,
    Diffusion,
    Grid,
    Relation,
    SlidingWindow,
    Stack,
    Walk,
)
from pyg_outerconv.families.registry import WELL_KNOWN
from pyg_outerconv.nn import attention, recipes


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("relation(2, norm=given)", Relation(2, norm="given")),
        ("relation(2, given)", Relation(2, norm="given")),
        ("walk(2, norm=None)", Walk(2, norm=None)),
        ("stack(gcn, walk(2, norm=sym))", Stack(GCN(), Walk(2, norm="sym"))),
        ("diffusion(heat, t=2.0)", Diffusion("heat", t=2.0)),
        ("grid((3, 3), padding=same)", Grid((3, 3), padding="same")),
    ],
)
def test_a_string_needs_no_quotes(text, family):
    assert parse_family(text) == family
    assert parse_family(repr(family)) == family


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agnn", r"'agnn', a well-known layer: expected agnn_conv of pyg_outerconv.nn.attention"),
        ("GATv2Conv", "expected gatv2, got 'GATv2Conv'"),
        ("sage", r"expected relation\(1, norm='mean'\) with root_weight=True, got 'sage'"),
        ("stack(gcn, rgcn)", r"expected relation\(num_relations\)"),
        ("tag(3)", r"expected walk\(length, norm='sym'\)"),
        ("appnp", "appnp of pyg_outerconv.nn.recipes"),
        ("GCNConv", "expected gcn, got 'GCNConv'"),
        ("wok", "unknown family 'wok': expected one of"),
        ("relation(2, norm=meen)", "unknown norm 'meen'"),
        ("relation(2, norm=sum)", "None divides by nothing"),
        ("walk(length=2, length=3)", "an option of walk has one value: expected length once"),
        ("gcn(add_self_loops=maybe)", "add_self_loops has a type: expected switch, got 'maybe'"),
        ("scale(gcn, nan)", "factor has a type: expected number"),
        ("directed(gnc)", r"unknown family 'gnc' \(did you mean 'gcn'"),
        ("", "a family is a name with options"),
    ],
)
def test_an_unknown_name_says_what_to_write(text, message):
    with pytest.raises(ValueError, match=message):
        parse_family(text)


@pytest.mark.parametrize("layer", WELL_KNOWN)
def test_what_a_well_known_layer_is_exists(layer):
    meant = WELL_KNOWN[layer]
    assert layer not in FAMILIES
    for where, module in (("nn.attention", attention), ("nn.recipes", recipes), ("nn", nn)):
        if meant.endswith(f" of pyg_outerconv.{where}"):
            assert hasattr(module, meant.split()[-3]), meant
            break
    else:
        assert meant.split("(")[0].split(",")[0] in FAMILIES


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("walk(aggregate=max)", "option of Walk renamed: expected aggr, got aggregate"),
        ("grid(kernel_size=3)", "option of Grid renamed: expected window, got kernel_size"),
        ("stack(gcn, complete(loops=False))", "expected add_self_loops, got loops"),
        ("blocks(size=3)", "option of Blocks renamed: expected window, got size"),
        ("full(num_sources=2)", "option of Full renamed: expected size, got num_sources"),
        ("walk(lenght=2)", r"unknown option of Walk 'lenght' \(did you mean 'length'\?\)"),
    ],
)
def test_an_option_with_an_old_name_is_refused_with_its_new_one(text, wanted):
    with pytest.raises(ValueError, match=wanted):
        parse_family(text)


def test_old_names_are_refused_as_keywords_and_in_pickles():
    with pytest.raises(TypeError, match="option of SlidingWindow renamed: expected window, got si"):
        SlidingWindow(size=2)
    with pytest.raises(TypeError, match="unknown option of Stack 'norm'"):
        Stack(GCN(), norm=None)
    old = Walk(2)
    vars(old)["aggregate"] = vars(old).pop("aggr")
    with pytest.raises(TypeError, match="expected aggr, got aggregate"):
        pickle.loads(pickle.dumps(old))
    assert copy.deepcopy(Walk(2)) == Walk(2) == pickle.loads(pickle.dumps(Walk(2)))


def test_a_family_has_the_signature_of_its_options():
    assert list(inspect.signature(Walk).parameters) == [field.name for field in fields(Walk)]
    assert list(inspect.signature(Stack).parameters) == ["families"]
