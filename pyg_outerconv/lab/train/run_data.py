"""The graph of a run, read again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...errors import RefusedValue
from ..data import Dataset, Source, entry, load, load_own
from .run_folder import RunFolder
from .splits import check_protocol


def dataset_of(
    home: RunFolder,
    root: str | Path | None = None,
    source: Source | None = None,
    log: Callable[[str], None] | None = None,
) -> Dataset:
    """The graph that a run is of; whoever asks compares its fingerprint.

    Args:
        home: the run.
        root: folder of the data; None for the folder that the run used.
        source: where a graph of one's own is now; None for where the run found it.
        log: see :func:`pyg_outerconv.lab.data.load`.

    Raises:
        ValueError: the run is of a dataset by name, and a source is given; or its graph comes from
            a function, which is called only where a source names it.
        DataUnavailable: the dataset cannot be read.
    """
    settings, kept = home.settings(), home.source()
    if kept is None:
        if source is not None:
            rule = f"the run in {home.path} is of a dataset by name"
            raise RefusedValue(rule, settings.dataset, "a graph of one's own")
        check_protocol(entry(settings.dataset), settings.split)
        return load(settings.dataset, root or home.root(), settings.split, log, settings.undirected)
    if source is None and kept.is_function:
        rule = "a function is imported and called only where it is named"
        raise RefusedValue(rule, f"--data {kept.data}", "no --data")
    dataset = load_own(source or kept, log)
    check_protocol(dataset.entry, settings.split)
    return dataset
