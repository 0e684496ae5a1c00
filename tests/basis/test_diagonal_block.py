"""The diagonal block of whole components is rows and columns of the matrices, and still a rule."""

import pytest
import torch

from pyg_outerconv.basis import Basis, Composed, EdgeBasis, Eye, Polynomial
from pyg_outerconv.families import GCN, Chebyshev, Relation, Walk
from pyg_outerconv.testing import assert_near

# Components {0, 1}, {2}, {3, 4, 5, 6}.
EDGES = torch.tensor([[0, 1, 1, 3, 4, 5, 6, 4], [1, 0, 1, 4, 5, 3, 4, 6]])
TYPES = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
NODES = torch.tensor([2, 3, 4, 5, 6])
SIZE = (7, 7)


def bases() -> dict[str, tuple[Basis, type[Basis]]]:
    gcn, walk = GCN().basis(EDGES, size=SIZE), Walk(3).basis(EDGES, size=SIZE)
    relation = Relation(3).basis(EDGES, edge_type=TYPES, size=SIZE)
    chebyshev = Chebyshev(3).basis(EDGES, size=SIZE)
    eye = Eye(SIZE, torch.device("cpu"))
    return {
        "edges": (relation, EdgeBasis),
        "polynomial": (chebyshev, Polynomial),
        "identity": (eye, Eye),
        "stack": (gcn.stack(walk, eye), Basis),
        "scaled": (walk.scale(0.5), Basis),
        "selected": (chebyshev.select([2, 0]), Basis),
        "mixed": (relation.mix(torch.tensor([[1.0, -1.0, 2.0]])), Basis),
        "transposed": (walk.stack(relation).transpose(), Basis),
        "composed": (relation.compose(walk), Composed),
        "composed of a narrow one": (
            relation.restrict(None, [0, 4]).compose(gcn.restrict([0, 4], None)),
            Basis,
        ),
    }


@pytest.mark.parametrize("name", bases())
def test_it_is_rows_and_columns(name: str) -> None:
    basis, kind = bases()[name]
    block = basis.diagonal_block(NODES)
    assert isinstance(block, kind)
    assert block.size == (5, 5)
    wanted = basis.to_dense(torch.float64)[:, NODES][:, :, NODES]
    assert_near(block.to_dense(torch.float64), wanted)
    x = torch.randn(5, 2, dtype=torch.float64)
    x = x.to(basis.dtype or torch.float64)
    assert_near(block.propagate(x), torch.einsum("kmn,mp->nkp", wanted.to(x), x))
