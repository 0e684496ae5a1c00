"""The folder of a run or of a search: begun once, gone on with, read again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ...errors import RefusedValue
from ...files import as_path, checksum, leftovers, load_json, save_json, sweep
from ..data import Dataset, Source, load_own, source_from
from .lock import LOCK
from .records import facts_of, versions

CONFIG = "config.json"
Value = TypeVar("Value")


class Folder:
    """Reads and writes files of a run or of a search. Each is replaced as a whole, never half
    written, and has a checksum if it is JSON or holds tensors.

    ``config.json`` holds what was begun, the data and the versions. A folder that has it can go on,
    and other files say which configuration they are of.

    Attributes:
        of: what it is the folder of, as messages say it.
        called: what it is called itself.
        key: what its configuration has besides data and versions.
        format: the version of its files.
        names: of its files.
    """

    of: ClassVar[str]
    called: ClassVar[str]
    key: ClassVar[str]
    format: ClassVar[int]
    names: ClassVar[tuple[str, ...]]

    def __init__(self, path: str | Path) -> None:
        self.path = as_path(path, self.called)
        self.config = self.path / CONFIG

    # Beginning and going on ---------------------------------------------------------------------

    def make(self) -> None:
        """Make a new folder; a lock, and what a killed process left there, do not count."""
        self.act(lambda: self.path.mkdir(parents=True, exist_ok=True))
        own = {self.path / LOCK, *self.act(lambda: leftovers(self.path, self.names))}
        if self.act(lambda: set(self.path.iterdir())) - own:
            raise RefusedValue(
                f"{self.of} needs a folder of its own",
                "a new or empty folder, or --resume",
                f"{self.path}, which has files",
            )

    def begin(self, begun: dict[str, Any], dataset: Dataset) -> None:
        """Write the configuration into a new or empty folder."""
        self.make()
        self.sweep()
        facts = {"data": facts_of(dataset), "versions": versions()}
        content = {"format": self.format, self.key: begun, **facts}
        self.act(lambda: save_json(self.config, content))

    def check_data(self, dataset: Dataset) -> None:
        """Refuse to go on with other data."""
        if self.fingerprint() != dataset.fingerprint:
            raise RefusedValue(
                f"--resume goes on with the data of {self.path}",
                f"the {dataset.entry.name} that it began with",
                f"another graph of that name in {dataset.place}",
            )

    def sweep(self) -> None:
        """Remove what killed processes left."""
        self.act(lambda: sweep(self.path, self.names))

    # The configuration --------------------------------------------------------------------------

    def read_config(self) -> dict[str, Any]:
        """The content of ``config.json``."""
        config = self.load(load_json, self.config)
        if config is None:
            raise RefusedValue(f"{self.path} is not {self.called}", CONFIG, "no such file")
        data, found = config.get("data"), config.get("format")
        known = (
            isinstance(data, dict)
            and isinstance(data.get("fingerprint"), str)
            and isinstance(data.get("root", 0), str | None)
        )
        if found != self.format or self.key not in config or not known:
            rule = f"{self.config} must be the configuration of {self.of} of this version"
            expected = f"format {self.format} with {self.key} and data, its root and fingerprint"
            if isinstance(found, int) and found < self.format:
                said = config.get("versions", {}).get("pyg_outerconv", "that wrote it")
                rule += f" (begin anew in another folder, or use pyg_outerconv {said})"
            raise RefusedValue(rule, expected, f"format {found}, {sorted(config)}")
        return config

    def root(self) -> str | None:
        """Where the data was found."""
        root: str | None = self.read_config()["data"]["root"]
        return root

    def fingerprint(self) -> str:
        """The checksum of the data."""
        found: str = self.read_config()["data"]["fingerprint"]
        return found

    def source(self) -> Source | None:
        """Where a graph of one's own was found; None for a dataset by name."""
        values = self.read_config()["data"].get("source")
        return None if values is None else source_from(values, str(self.config))

    def own_graph(
        self, source: Source | None = None, log: Callable[[str], None] | None = None
    ) -> Dataset | None:
        """The graph of one's own, read again; None for a dataset by name."""
        kept = self.source()
        if kept is None and source is not None:
            rule = f"{self.path} is of a dataset by name"
            raise RefusedValue(rule, "no other data", "a graph of one's own")
        if kept is not None and kept.is_function and source is None:
            rule = "a function is imported and called only where it is named"
            raise RefusedValue(rule, f"--data {kept.data}", "no --data")
        chosen = source or kept
        return None if chosen is None else load_own(chosen, log)

    @cached_property
    def identity(self) -> str:
        """The checksum of the configuration, which other files contain."""
        return checksum(self.read_config())

    # Files --------------------------------------------------------------------------------------

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Replace a file by JSON with the checksum of the configuration."""
        content = {"config": self.identity, **content}
        self.act(lambda: save_json(self.path / name, content))

    def read(
        self, name: str, load: Callable[[Path], dict[str, Any]] = load_json
    ) -> dict[str, Any] | None:
        """The content of a file, beside the checksum of the configuration; None if it is absent."""
        path = self.path / name
        content = self.load(load, path)
        if content is not None and content.pop("config", None) != self.identity:
            rule = f"{path} must be of {self.of.replace('a ', 'the ')} of {self.config}"
            raise RefusedValue(rule, "it", "another one")
        return content

    def load(self, load: Callable[[Path], Value], path: Path) -> Value | None:
        """What a file holds; None if it is absent."""
        try:
            return load(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise RefusedValue(f"{path} must be readable", "a file", error.strerror) from error

    def act(self, act: Callable[[], Value]) -> Value:
        """Do what writes into the folder."""
        try:
            return act()
        except OSError as error:
            rule, reason = f"{self.called} must be writable", error.strerror or str(error)
            raise RefusedValue(rule, f"a folder at {self.path}", reason) from error
