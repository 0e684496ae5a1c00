"""Bad input at every door: one line with the rule, what it expects and what came.

``REFUSED`` lists calls, the exception, and parts of its message in their order.
"""

import dataclasses
import inspect
from contextlib import suppress

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pyg_outerconv import AttentionConv, OuterConv, Pattern, parse_family
from pyg_outerconv.attention import NORMALISERS, SCORES, Cosine, KeyQuery
from pyg_outerconv.errors import LONGEST, Refused
from pyg_outerconv.families.family import FAMILIES
from pyg_outerconv.graph import Graph, from_networkx, from_scipy
from pyg_outerconv.nn import EncoderBlock, gat_conv, gatv2_conv, multi_head_attention
from pyg_outerconv.pyg import GraphConv

EDGES = torch.tensor([[0, 1, 2, 0], [1, 2, 3, 2]])
X = torch.ones(4, 3)
FAR = 10**8


def pattern_with(**parts):
    """A pattern of four edges with other parts."""
    return dataclasses.replace(Pattern.build(EDGES, size=(4, 4)), **parts)


def ints(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def corrupt(kind, at=2, number=FAR, part="indptr"):
    """A matrix of scipy's with a number in its pointers or indices that is out of range."""
    matrix = kind(np.eye(6))
    getattr(matrix, part)[at] = number
    return matrix


def matrix_of(kind, ptr, index):
    """A matrix of torch's that is not checked when it is made."""
    return kind(torch.tensor(ptr), torch.tensor(index), torch.ones(4), (4, 4))


BAD_PTR, PTR, BAD_INDEX, INDEX = [0, FAR, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, FAR], [0, 1, 2, 3]
CSR, CSC = torch.sparse_csr_tensor, torch.sparse_csc_tensor
ASCEND = ("must ascend from 0 to the number of entries", "expected from 0 to", "got ")
IN_RANGE = ("lie in range", "expected [0, 4)", f"got {FAR}")

REFUSED = {
    # name: (call, exception, parts of the message)
    "a pattern of sources out of range": (
        lambda: pattern_with(source=ints(0, 1, FAR, 2)),
        ValueError,
        ("every source of a pattern must", *IN_RANGE),
    ),
    "a pattern of targets out of range": (
        lambda: pattern_with(target=ints(0, 1, 2, FAR)),
        ValueError,
        ("every target of a pattern must", *IN_RANGE),
    ),
    "a pattern of labels out of range": (
        lambda: pattern_with(label=ints(0, 0, 0, FAR)),
        ValueError,
        ("every label of a pattern must lie in range", "expected [0, 1)", f"got {FAR}"),
    ),
    "a pattern with an order out of range": (
        lambda: pattern_with(order=ints(0, 1, 2, FAR)),
        ValueError,
        ("every order of a pattern must", *IN_RANGE),
    ),
    "a pattern with far positions by source": (
        lambda: pattern_with(by_source=ints(0, 1, 2, FAR)),
        ValueError,
        ("every by_source of a pattern must", *IN_RANGE),
    ),
    "a pattern with an edge twice by source": (
        lambda: pattern_with(by_source=ints(0, 0, 1, 2)),
        ValueError,
        ("sorted, by target and by source", "expected by_source in order", "got "),
    ),
    "a pattern with pointers of targets out of range": (
        lambda: pattern_with(target_ptr=ints(0, FAR, 1, 3, 4)),
        ValueError,
        ("sorted, by target and by source", "expected target_ptr in order", "got "),
    ),
    "a pattern with pointers of sources out of range": (
        lambda: pattern_with(source_ptr=ints(0, FAR, 1, 3, 4)),
        ValueError,
        ("sorted, by target and by source", "expected source_ptr in order", "got "),
    ),
    "a pattern of targets out of order": (
        lambda: pattern_with(target=ints(3, 2, 1, 0)),
        ValueError,
        ("sorted, by target and by source", "expected target in order", "got "),
    ),
    "a pattern of more nodes than its pointers": (
        lambda: pattern_with(size=(9, 4)),
        ValueError,
        ("source_ptr of a pattern has a dtype, device, length", "expected", "10)", "got", "5)"),
    ),
    "a pattern of floats": (
        lambda: pattern_with(source=torch.ones(4)),
        TypeError,
        ("source of a pattern holds integers", "expected torch.int32", "got torch.float32"),
    ),
    "a pattern of text": (
        lambda: pattern_with(source="abc"),
        TypeError,
        ("source of a pattern holds integers", "expected torch.int32", "got str"),
    ),
    "an edge list of far sources": (
        lambda: Graph(torch.tensor([[FAR], [0]]), (4, 4)),
        ValueError,
        ("every source in edge_index must", "expected an index below 4", f"got {FAR}"),
    ),
    "an edge list of far targets": (
        lambda: dataclasses.replace(Graph.read(EDGES), edge_index=torch.tensor([[0], [FAR]])),
        ValueError,
        ("every target in edge_index must", "expected an index below 4", f"got {FAR}"),
    ),
    "an edge list of a list": (
        lambda: Graph([[0], [1]], (4, 4)),
        TypeError,
        ("edge_index must be a tensor", "expected Tensor", "got list"),
    ),
    "scipy's indices out of range": (
        lambda: from_scipy(corrupt(sp.csr_array, part="indices")),
        ValueError,
        ("every entry of indices of a matrix", "expected [0, 6)", "got"),
    ),
    **{
        f"scipy's {kind.__name__} with {what}": (
            lambda kind=kind, at=at, number=number: from_scipy(corrupt(kind, at, number)),
            ValueError,
            ("indptr of a matrix", *ASCEND),
        )
        for kind in (sp.csr_array, sp.csc_matrix, sp.bsr_array)
        for what, at, number in (
            ("far pointers", 2, FAR),
            ("negative pointers", 2, -FAR),
            ("a far end", -1, FAR),
        )
    },
    **{
        f"{name} of {layout} with far {what}": (
            lambda layer=layer, kind=kind, ptr=ptr, index=index: layer()(
                X, matrix_of(kind, ptr, index)
            ),
            ValueError,
            (f"{what} of a sparse matrix", "expected", "got"),
        )
        for name, layer in (
            ("GraphConv", lambda: GraphConv(3, 4)),
            ("OuterConv", lambda: OuterConv(3, 4, "gcn")),
        )
        for layout, kind in (("CSR", CSR), ("CSC", CSC))
        for what, ptr, index in (("pointers", BAD_PTR, INDEX), ("indices", PTR, BAD_INDEX))
    },
    **{
        f"a family written as {name}": (
            lambda text=text: parse_family(text),
            ValueError,
            ("a family is", "expected such as", "got "),
        )
        for name, text in {
            "a set of lists": "{[1]}",
            "a dictionary of lists": "walk({[1]: 2})",
            "3,000 signs": f"walk({'-' * 3000}1)",
            "100,000 signs": f"walk({'+' * 100_000}1)",
            "3,000 signs without an end": f"walk({'-' * 3000}",
            "a long sum": "+".join(["gcn"] * 5000),
            "nested parentheses": "(" * 5000 + "gcn" + ")" * 5000,
            "a lone surrogate": "\ud800",
            "text with a lone surrogate": "walk('\ud800')",
        }.items()
    },
    "a family that is a list": (
        lambda: parse_family(["gcn"]),
        TypeError,
        ("a family is an object or text", "expected a Family or its name", "got list"),
    ),
    **{
        f"a score written as {name}": (
            lambda text=text: AttentionConv(4, 4, score=text),
            ValueError,
            ("a score is a name with named options", "expected such as name(a=1)", "got "),
        )
        for name, text in {
            "a set of lists": "cosine(beta={[1]})",
            "3,000 signs": f"cosine(beta={'-' * 3000}1)",
            "a lone surrogate": "\ud800",
            "text with a lone surrogate": "cosine(beta='\ud800')",
        }.items()
    },
    "a complex factor of a score": (
        lambda: AttentionConv(4, 4, score="cosine(beta=1j)"),
        ValueError,
        ("cosine refuses its options: Cosine's beta has a type", "expected number", "got 1j"),
    ),
    "a complex factor of a score in Python": (
        lambda: Cosine(2, beta=1j),
        TypeError,
        ("Cosine's beta has a type", "expected number", "got 1j"),
    ),
    "a list in the place of a graph of networkx": (
        lambda: from_networkx([1, 2]),
        TypeError,
        ("from_networkx reads graphs of networkx", "expected a networkx.Graph", "got list"),
    ),
    **{
        f"an unknown option of {made.__name__}": (
            lambda made=made, more=more: made(3, 4, *more, biass=True),
            TypeError,
            (f"unknown option of {made.__name__} 'biass'", "did you mean 'bias'"),
        )
        for made, more in ((OuterConv, ("gcn",)), (AttentionConv, ()))
    },
    "features in the place of the size": (
        lambda: OuterConv(3, 4, "gcn")(X, EDGES, size=(X, X)),
        ValueError,
        ("size must hold numbers of nodes", "expected >= 0 or None", "got a tensor"),
    ),
    "a tensor that asks for shares": (
        lambda: AttentionConv(3, 4)(X, EDGES, return_attention_weights=torch.ones(2)),
        TypeError,
        ("return_attention_weights says whether", "expected True or False", "got Tensor"),
    ),
    "a block that is asked for shares": (
        lambda: EncoderBlock(3, 1)(X, return_attention_weights=torch.ones(2)),
        TypeError,
        ("a block goes from", "block.attention", "got return_attention_weights=Tensor"),
    ),
    "node indices that are no rows of the values of heads": (
        lambda: gat_conv(3, 4)(torch.tensor([0, 1, 2, 3]), EDGES),
        ValueError,
        ("indices of x must be rows of theta", "expected [0, 3)", "got [0, 3]"),
    ),
    "edges of other nodes, to which loops are added": (
        lambda: gatv2_conv(3, 4, edge_dim=2)(X[:2], EDGES, edge_attr=torch.ones(4, 2)),
        ValueError,
        ("every source in edge_index must", "expected an index below 2", "got 2"),
    ),
    "None for the channels of attention": (
        lambda: AttentionConv(None, 4),
        TypeError,
        ("in_channels must be a number of channels", "expected an integer", "got None"),
    ),
    "None for the channels of a score": (
        lambda: KeyQuery(2, 3, None),
        TypeError,
        ("KeyQuery's in_channels has a type", "expected integer", "got None"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_bad_input_is_refused_at_the_door(name):
    call, kind, parts = REFUSED[name]
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, Refused)
    message, place = str(caught.value), 0
    for part in parts:
        assert part in message[place:], message
        place = message.index(part, place) + len(part)
    assert "\n" not in message
    assert len(message) < 2 * LONGEST


@pytest.mark.parametrize("made", [OuterConv, AttentionConv])
def test_the_options_that_a_refusal_lists_are_options(made):
    needed = {"in_channels": 3, "out_channels": 4}
    needed |= {"family": "gcn"} if made is OuterConv else {}
    with pytest.raises(TypeError, match="expected one of") as caught:
        made(**needed, biass=True)
    for option in str(caught.value).rpartition("expected one of ")[2].split(", "):
        with suppress(Refused, ValueError):  # None is no value of some; of `flow`, says PyG
            made(**needed | {option: None})


def test_heads_of_multi_head_attention_may_have_no_values():
    layer = multi_head_attention(4, 2, value_channels=None, theta="full")
    assert layer(torch.ones(3, 4)).shape == (3, 4)


WRONG = [None, [1, 2], "abc", 7, 1.5, 1j, object(), {}, True]
MADE = {
    made.__name__: made
    for made in (
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
    made, refused = MADE[name], 0
    options = [
        option
        for option in inspect.signature(made).parameters.values()
        if option.kind in (option.POSITIONAL_OR_KEYWORD, option.KEYWORD_ONLY)
    ]
    good = NEEDED | (OF_FAMILIES if made in FAMILIES.values() else {})
    needed = {one.name: good.get(one.name) for one in options if one.default is one.empty}
    for option in options:
        for wrong in WRONG:
            try:
                made(**needed | {option.name: wrong})
            except Refused:
                refused += 1
    assert refused or not options
