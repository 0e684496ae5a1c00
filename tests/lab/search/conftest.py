"""What tests of the search share: no data beside what is embedded, and short searches."""

import pytest

pytest.importorskip("optuna")


@pytest.fixture(scope="session", autouse=True)
def _soon():
    """The sampler models what was found after two trials."""
    from pyg_outerconv.lab.search import studies

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies, "RANDOM_TRIALS", 2)
        yield


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch):
    """Figures take seconds; searches of a whole module, and those of the guide, have theirs."""
    from pyg_outerconv.lab.search import search

    write = search.make_page
    monkeypatch.setattr(search, "make_page", lambda report, form="": write(report, "markdown"))
