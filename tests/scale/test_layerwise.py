"""A layer over chunks of targets is the layer over the whole graph."""

import errno
import os

import pytest
import torch
from cases import CASES, random_graph
from torch.utils._python_dispatch import TorchDispatchMode

from pyg_outerconv.basis.edge_sets import edge_sets
from pyg_outerconv.families import (
    GCN,
    Chebyshev,
    Compose,
    Directed,
    Favard,
    Hops,
    Identity,
    Relation,
    Stack,
    Walk,
)
from pyg_outerconv.graph import Graph
from pyg_outerconv.nn import AttentionConv, OuterConv
from pyg_outerconv.scale import Scratch, convolve

EDGE_FAMILIES = [family for family in CASES if issubclass(Graph, family.reads)]


def graph(family, nodes=23, edges=90):
    basis = family.basis_on(random_graph(family, nodes, edges), torch.float64)
    return basis, torch.randn(nodes, 5, dtype=torch.float64)


def close(ours, wanted, tolerance=1e-12):
    assert ours.shape == wanted.shape
    assert (ours - wanted).abs().max() <= tolerance * wanted.abs().max().clamp(min=1e-3)


@pytest.mark.parametrize("family", EDGE_FAMILIES, ids=str)
@torch.no_grad()
def test_every_family_of_edges(family):
    basis, x = graph(family, nodes=11, edges=40)
    torch.manual_seed(0)
    conv = OuterConv(5, 4, family, root_weight=True).double()
    torch.nn.init.normal_(conv.bias)
    wanted = conv(x, basis)
    for most in (1, 17, 10_000):
        close(convolve(conv, x, basis, most_edges=most), wanted)


SUPPORT, NODES = Hops(add_self_loops=True), {"in_channels": 23}
# A family, options of its layer, and features: dense, "sparse", in "files", or "none".
OTHERS = {
    "basis-decomposed": (Relation(3), {"theta": "basis-decomposed:2"}),
    "low rank": (Stack(GCN(), Identity()), {"theta": "low-rank:2"}),
    "depthwise": (Walk(2), {"theta": "depthwise", "out_channels": 5}),
    "channelwise": (Walk(2), {"theta": "channelwise"}),
    "mixed powers": (Walk(2), {"theta": "shared"}),
    "mean of labels": (Stack(Identity(), Chebyshev(3)), {"label_aggr": "mean"}),
    "greatest label": (Stack(Identity(), GCN()), {"label_aggr": "max"}),
    "greatest input": (Directed(GCN()), {"aggr": "max"}),
    "mean of inputs": (Relation(3, None), {"aggr": "mean"}),
    "product of powers": (Compose(GCN(), Walk(2)), {}),
    "polynomials of channels": (Favard(3), {}),
    **{score: (SUPPORT, {"score": score}) for score in ("key-query", "additive", "cosine")},
    "none": (GCN(), NODES),
    "none, relations": (Relation(3), NODES),
    "none, stacked": (Stack(Identity(), GCN()), NODES),
    "sparse": (GCN(), {"root_weight": True}),
    "sparse, powers": (Walk(2), {"root_weight": True}),
    "files": (GCN(), {}),
    "files, powers": (Chebyshev(4), {}),
    "files, products": (Compose(GCN(), Walk(2)), {}),
}


@pytest.mark.parametrize("name", OTHERS)
@torch.no_grad()
def test_forms_of_parameters_reductions_scores_and_features(name, tmp_path):
    (family, options), kind = OTHERS[name], name.partition(",")[0]
    keyword_arguments = {"in_channels": 5, "out_channels": 4, **options}
    if family is SUPPORT:  # the softmax is over whole neighbourhoods
        conv = AttentionConv(5, 6, heads=2, **options, root_weight=True).double()
    else:
        conv = OuterConv(**keyword_arguments, family=family).double()
    if isinstance(family, Favard):
        torch.nn.init.normal_(conv.theta.comp)
    basis, x = graph(SUPPORT if family is SUPPORT else conv.family)
    x = None if kind == "none" else torch.where(x > 0.5, x, 0.0) if kind == "sparse" else x
    features = x.to_sparse_csr() if kind == "sparse" else x
    scratch = Scratch(tmp_path if kind == "files" else None)
    close(convolve(conv, features, basis, scratch=scratch, most_edges=9), conv(x, basis))
    assert not list(tmp_path.iterdir())


class Largest(TorchDispatchMode):
    """The largest number of entries of a tensor that an operator makes."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        pointers = {part.data_ptr() for part in args if isinstance(part, torch.Tensor)}  # in place
        for part in out if isinstance(out, tuple | list) else (out,):
            is_new = isinstance(part, torch.Tensor) and part.data_ptr() not in pointers
            if is_new and not part._is_view() and part.is_floating_point():
                self.entries = max(self.entries, part.numel())
        return out


@pytest.mark.parametrize("family", [GCN(), Chebyshev(3)], ids=str)
@torch.no_grad()
def test_a_chunk_alone_is_in_memory(family, tmp_path):
    nodes = 1000
    basis, x = graph(family, nodes=nodes, edges=4 * nodes)
    conv = OuterConv(5, 6, family).double()
    assert edge_sets(basis)[0].value is not None  # sorted now
    with Largest() as largest:
        convolve(conv, x, basis, scratch=Scratch(tmp_path), most_edges=100)
    assert largest.entries <= 100 * 6


def test_a_full_disk_is_refused_before_anything_is_written_to_a_mapped_file(tmp_path, monkeypatch):
    """What is written to one without space on the disk kills the process."""

    def full(*anything):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ValueError, match="written to files: expected a folder with space at"):
        Scratch(tmp_path).empty(4, 3, like=torch.empty(0))
    assert not list(tmp_path.iterdir())
