"""Index terms and rotary positions in scores."""

import pytest
import torch
from scores import CASES, HEADS, P, normalised, raw_scores, shown, try_score

from pyg_outerconv.attention import (
    SCORES,
    ALiBi,
    KeyQuery,
    RelativeBias,
    Rotary,
    Softmax,
    make_score,
)
from pyg_outerconv.attention.queries import Content
from pyg_outerconv.families import Attention, Relation
from pyg_outerconv.families.support.sequences import Complete
from pyg_outerconv.graph.cells import Cells
from pyg_outerconv.testing import assert_near, assert_same_gradients


def of_heads(term, pattern, relative):
    """(E, H/L) the terms of the heads of each edge's label."""
    terms, each = term(relative), HEADS // pattern.num_labels
    rows = [
        row[label * each : (label + 1) * each]
        for row, label in zip(terms, pattern.label.tolist(), strict=True)
    ]
    return torch.stack(rows) if rows else terms[:, :each]


@pytest.mark.parametrize("case", CASES, ids=shown)
@pytest.mark.parametrize("text", SCORES)
def test_terms_are_added_to_any_score(text, case):
    terms = (RelativeBias(HEADS, 2).double(), ALiBi(HEADS))
    torch.nn.init.normal_(terms[0].weight)
    tried = try_score(text, case, terms=terms)
    pattern = tried.heads.pattern
    relative = (pattern.source - pattern.target).double().unsqueeze(1)
    added = sum(of_heads(term, pattern, relative) for term in terms)
    batch = [1] * len(case.batch)
    added = added.view(len(added), *batch, HEADS // case.labels)
    expected = normalised("softmax", raw_scores(tried) + added, pattern)
    assert_near(tried.heads.value, expected)
    wanted = [*tried.inputs, terms[0].weight]
    assert_same_gradients(tried.heads.value, expected, wanted)


def test_a_temperature_divides_terms_too():
    term = ALiBi(HEADS)
    tried = try_score("dot-product", CASES[0], Softmax(temperature=2.0), terms=(term,))
    pattern = tried.heads.pattern
    relative = (pattern.source - pattern.target).double().unsqueeze(1)
    expected = normalised("softmax", (raw_scores(tried) + term(relative)) / 2.0, pattern)
    assert_near(tried.heads.value, expected)


def test_a_term_of_one_head_is_for_all():
    wide, narrow = RelativeBias(HEADS, 2).double(), RelativeBias(1, 2).double()
    with torch.no_grad():
        wide.weight.copy_(narrow.weight.normal_().expand(-1, HEADS))
    content = Content(*[torch.randn(5, P).double()] * 2)
    score = KeyQuery(HEADS, 3, P).double()
    edges = Relation().read(CASES[0].index, size=(5, 5))
    families = [Attention(score, Relation(1, None), Softmax(), terms=(t,)) for t in (wide, narrow)]
    bases = [family.basis_on(edges, content=content) for family in families]
    assert_near(bases[0].heads().value, bases[1].heads().value)


def test_terms_see_the_positions_of_cells():
    term = RelativeBias(HEADS, (1, 1)).double()
    torch.nn.init.normal_(term.weight)
    cells = Cells.of_shape((2, 2))
    content = Content(*[torch.zeros(4, P).double()] * 2)
    family = Attention(KeyQuery(HEADS, 3, P).double(), Complete(), Softmax(), terms=(term,))
    value = family.basis_on(cells, content=content).to_dense()
    place = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).double()
    relative = (place.unsqueeze(1) - place).flatten(0, 1)
    expected = term(relative).view(4, 4, HEADS).softmax(0).permute(2, 0, 1)
    assert_near(value, expected)


def test_positions_stay_exact_in_short_types():
    """A position of 2,049 is no bfloat16 number, nor one of float16."""
    size, term = 2200, ALiBi(1)
    edges = torch.tensor([[2049, 2048], [2100, 2100]])
    content = Content(*[torch.zeros(size, P, dtype=torch.bfloat16)] * 2)
    family = Attention(make_score("dot-product", 1), Relation(1, None), Softmax(), terms=(term,))
    bias = family.basis_on(family.read(edges, size=(size, size)), content=content).bias
    assert bias.dtype == torch.bfloat16
    assert bias[0] != bias[1]


def test_rotary_positions_turn_keys_and_queries():
    turn, case = Rotary(4), CASES[3]  # rectangular
    score = KeyQuery(HEADS, 4, P, rotary=turn).double()
    source, target = torch.randn(6, P).double(), torch.randn(3, P).double()
    family = Attention(score, Relation(1, None), Softmax())
    edges = family.read(case.index, size=case.size)
    heads = family.basis_on(edges, content=Content(source, target)).heads()
    key = turn(score.key(source), torch.arange(6.0))
    query = turn(score.query(target), torch.arange(3.0))
    pattern = heads.pattern
    products = (key[pattern.source.long()] * query[pattern.target.long()]).sum(-1) * score.scale
    assert_near(heads.value, normalised("softmax", products, pattern))


def test_positions_that_are_given_go_first():
    pos = torch.tensor([[0.0], [3.0], [6.0], [9.0], [1.0]]).double()
    term = ALiBi(HEADS)
    family = Attention(
        make_score("dot-product", HEADS), Relation(1, None), Softmax(), terms=(term,)
    )
    content = Content(*[torch.zeros(5, P).double()] * 2)
    edges = family.read(CASES[0].index, size=(5, 5), pos=pos)
    heads = family.basis_on(edges, content=content).heads()
    source, target = heads.pattern.index.long()
    expected = normalised("softmax", term(pos[source] - pos[target]), heads.pattern)
    assert_near(heads.value, expected)
