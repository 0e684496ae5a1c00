"""The folder of a search."""

from __future__ import annotations

from pathlib import Path

from ...files import replace
from ..train.folder import CONFIG, Folder
from ..train.lock import LOCK
from .plan import Plan, plan_from

STORAGE, TRIALS, FINALS = "study.db", "trials.json", "finals.json"
WINNER, TABLE, PAGE = "winner.toml", "search.md", "search.html"


class SearchFolder(Folder):
    """Reads and writes one search.

    - ``config.json``: plan, data, versions
    - ``study.db``: Optuna's storage, an SQLite file
    - ``trials.json``: the finished trials of each contestant
    - ``finals.json``: the finalists' validation, the test of the winners, what each term brings
    - ``winner.toml``: for ``outerconv train --config``
    - ``search.md``, ``search.html``: the tables, and the page
    - ``lock``: empty, locked by the process that works here
    """

    of, called, key, format = "a search", "the folder of a search", "plan", 1
    names = (CONFIG, STORAGE, TRIALS, FINALS, WINNER, TABLE, PAGE, LOCK)

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.storage = self.path / STORAGE

    @property
    def plan(self) -> Plan:
        """The plan that the search began with."""
        return plan_from(self.read_config()["plan"], str(self.config))

    def write_text(self, name: str, text: str) -> None:
        """Replace a file by text."""
        self.act(lambda: replace(self.path / name, text.encode()))
