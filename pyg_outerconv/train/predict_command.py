"""The command ``outerconv predict``."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

from ..errors import RefusedValue, refusal
from ..files import as_path, replace
from .predict import predict
from .run_folder import CONFIG, NAMES


def write_predictions(run_dir: str, out: str | None, root: str | None, device: str | None) -> int:
    """Run ``outerconv predict`` and return its exit code.

    Raises:
        ValueError: the run folder or the output is refused.
    """
    path = _where_to_write(run_dir, out)
    predictions = predict(run_dir, root, device)
    summary = (
        f"test accuracy {100 * predictions.test_accuracy:.2f} % on the split of seed "
        f"{predictions.seed} (recorded in training: {100 * predictions.recorded:.2f} %)"
    )
    if out == "-":
        predictions.write(sys.stdout)
        print(summary, file=sys.stderr)
        return 0
    text = StringIO()
    predictions.write(text)
    try:
        _write(path, text.getvalue())
    except OSError as error:
        raise RefusedValue(
            f"--out must be writable: expected a file, got {path} ({error.strerror})"
        ) from error
    print(f"{summary}\nclasses of {predictions.classes.numel()} nodes: {path}")
    return 0


def _where_to_write(run_dir: str, out: str | None) -> Path:
    """The file for the predictions, which must not be a file of a run."""
    folder = as_path(run_dir, "a run folder")
    if not out or out == "-":
        return folder / "predictions.csv"
    path = as_path(out, "--out").resolve()  # through links, to the file itself
    own = [folder / name for name in NAMES]
    linked = path.exists() and any(file.exists() and path.samefile(file) for file in own)
    if linked or (path.name in NAMES and (path.parent / CONFIG).exists()):
        raise RefusedValue(refusal("--out must not be a file of a run", "another file", out))
    return path


def _write(path: Path, text: str) -> None:
    """Replace a regular file as a whole; write to anything else, such as ``/dev/stdout``."""
    if path.is_file() or not path.exists():
        replace(path, text.encode())
    else:
        path.write_text(text, encoding="utf-8")
