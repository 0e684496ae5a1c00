"""Tests of our classes run both ways: small graphs by the contraction, and as users have them."""

import pytest

WAYS = ("contracted", "by-size")


@pytest.fixture(autouse=True, params=WAYS)
def small_graphs(request, monkeypatch):
    """Whether layers contract graphs of any size, or leave small ones to PyG's code."""
    from pyg_outerconv.pyg import DropIn
    from pyg_outerconv.pyg.layer import THEIRS

    if request.param == "contracted":
        for kind in THEIRS:
            if issubclass(kind, DropIn):
                monkeypatch.setattr(kind, "least", 0)
                monkeypatch.setattr(kind, "least_of_matrices", 0)
    return request.param
