"""The folder of a search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import RefusedValue
from ...files import as_path, checksum, leftovers, load_json, replace, save_json, sweep
from ..data import Dataset, Source
from ..data.source import source_from
from ..train.records import facts_of, versions
from .plan import Plan, plan_from

FORMAT = 1
CONFIG, STORAGE, TRIALS, FINALS = "config.json", "study.db", "trials.json", "finals.json"
WINNER, TABLE, PAGE, LOCK = "winner.toml", "search.md", "search.html", "lock"
NAMES = (CONFIG, STORAGE, TRIALS, FINALS, WINNER, TABLE, PAGE, LOCK)


class SearchFolder:
    """Reads and writes one search. Every file but the storage is replaced as a whole.

    - ``config.json``: plan, data, versions. A folder that has it is a search, and can go on.
    - ``study.db``: Optuna's storage, an SQLite file
    - ``trials.json``: the finished trials of each contestant
    - ``finals.json``: the finalists' validation, the test of the winners, what each term brings
    - ``winner.toml``: for ``outerconv train --config``
    - ``search.md``, ``search.html``: the tables, and the page
    """

    def __init__(self, path: str | Path) -> None:
        self.path = as_path(path, "the folder of a search")
        self.storage = self.path / STORAGE
        self._config: dict[str, Any] | None = None

    def make(self) -> None:
        """Make the folder of a new search.

        Raises:
            ValueError: the folder has something in it, or cannot be written.
        """
        self._act(lambda: self.path.mkdir(parents=True, exist_ok=True))
        mine = {self.path / LOCK, *self._act(lambda: leftovers(self.path, NAMES))}
        occupied = set(self._act(lambda: list(self.path.iterdir()))) - mine
        if occupied:
            raise RefusedValue(
                "a search needs a folder of its own",
                "a new or empty folder, or --resume",
                f"{self.path}, which has files",
            )

    def create(self, plan: Plan, dataset: Dataset) -> None:
        """Begin a search in a new or empty folder.

        Raises:
            ValueError: as :meth:`make`.
        """
        self.make()
        content = {
            "format": FORMAT,
            "plan": plan.as_dict(),
            "data": facts_of(dataset),
            "versions": versions(),
        }
        self.write(CONFIG, content)

    def take_up(self, dataset: Dataset) -> None:
        """Go on with a search; what a killed process left is removed.

        Raises:
            ValueError: the data is not what the search began with, or a file is damaged.
        """
        if self.config["data"]["fingerprint"] != dataset.fingerprint:
            raise RefusedValue(
                f"--resume goes on with the data of {self.path}",
                f"the {dataset.entry.name} that it began with",
                f"another graph of that name in {dataset.root}",
            )
        self._act(lambda: sweep(self.path, NAMES))

    @property
    def config(self) -> dict[str, Any]:
        """The content of ``config.json``.

        Raises:
            ValueError: this is no folder of a search.
        """
        if self._config is None:
            found = self._load(CONFIG)
            if found is None:
                rule = f"{self.path} is not the folder of a search"
                raise RefusedValue(rule, CONFIG, "no such file")
            if found.get("format") != FORMAT or not {"plan", "data"} <= set(found):
                raise RefusedValue(
                    f"{self.path / CONFIG} must be of a search", f"format {FORMAT}", sorted(found)
                )
            self._config = found
        return self._config

    @property
    def plan(self) -> Plan:
        """The plan that the search began with."""
        return plan_from(self.config["plan"], str(self.path / CONFIG))

    @property
    def root(self) -> str | None:
        """Where the search found its data."""
        root: str | None = self.config["data"]["root"]
        return root

    @property
    def source(self) -> Source | None:
        """Where the search found a graph of one's own; None for a dataset by name."""
        values = self.config["data"].get("source")
        return None if values is None else source_from(values, str(self.path / CONFIG))

    def read(self, name: str) -> dict[str, Any] | None:
        """The content of a file of :meth:`write`; None where it is not yet.

        Raises:
            ValueError: it is damaged, or of another search.
        """
        content = self._load(name)
        if content is not None and content.pop("config", None) != checksum(self.config):
            raise RefusedValue(
                f"{self.path / name} must be of the search in its folder", "it", "another one"
            )
        return content

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Replace a file by JSON with a checksum, and with that of the search's configuration.

        Raises:
            ValueError: it cannot be written.
        """
        if name != CONFIG:
            content = {"config": checksum(self.config), **content}
        self._act(lambda: save_json(self.path / name, content))

    def write_text(self, name: str, text: str) -> None:
        """Replace a file by text.

        Raises:
            ValueError: it cannot be written.
        """
        self._act(lambda: replace(self.path / name, text.encode()))

    def _load(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        try:
            return load_json(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise RefusedValue(f"{path} must be readable", "a file", error.strerror) from error

    def _act(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except OSError as error:
            reason = error.strerror or str(error)
            raise RefusedValue(
                "the folder of a search must be writable", f"a folder at {self.path}", reason
            ) from error
