"""Datasets by name: the registry, whether their files are here, and how to read them.

PyG's own dataset classes do all the reading, of copies of files that were checked before. The given
root is only ever read, except when PyG downloads into it; graphs that were read are kept in a cache
folder, so that a read-only root serves too.
"""

from ...files import CACHE_VARIABLE, ROOT_VARIABLE, cache_folder, data_root
from ..source import Source, moved, source_from, source_of
from .dataset import DEFAULT, EMBEDDED, Dataset, load
from .own import load_own
from .raw import verify
from .registry import DataUnavailable, Entry, entry, is_here, registry

__all__ = [
    "CACHE_VARIABLE",
    "DEFAULT",
    "EMBEDDED",
    "ROOT_VARIABLE",
    "DataUnavailable",
    "Dataset",
    "Entry",
    "Source",
    "cache_folder",
    "data_root",
    "entry",
    "is_here",
    "load",
    "load_own",
    "moved",
    "registry",
    "source_from",
    "source_of",
    "verify",
]
