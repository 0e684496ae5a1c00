"""The command ``outerconv predict``."""

from __future__ import annotations

import argparse
import sys
from io import StringIO
from pathlib import Path

from ..errors import RefusedValue, refusal
from ..files import as_path, replace
from .predict import predict
from .run_folder import CONFIG, NAMES


class Predict:
    """Write the classes that the checkpoint of a run predicts, as CSV."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the flags of this command."""
        parser.add_argument("run_dir", help="a run folder of 'outerconv train'")
        parser.add_argument(
            "--out", help="a file, or - for standard output; default RUN_DIR/predictions.csv"
        )
        parser.add_argument("--root", help="folder of the data; default: where the run found it")
        parser.add_argument("--device", help="default: that of the run")

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        """Predict and write."""
        path = _where_to_write(arguments)
        predictions = predict(arguments.run_dir, arguments.root, arguments.device)
        said = (
            f"test accuracy {100 * predictions.test_accuracy:.2f} % on the split of seed "
            f"{predictions.seed} (recorded in training: {100 * predictions.recorded:.2f} %)"
        )
        if arguments.out == "-":
            predictions.write(sys.stdout)
            print(said, file=sys.stderr)
            return 0
        text = StringIO()
        predictions.write(text)
        try:
            _write(path, text.getvalue())
        except OSError as error:
            raise RefusedValue(
                f"--out must be writable: expected a file, got {path} ({error.strerror})"
            ) from error
        print(f"{said}\nclasses of {predictions.classes.numel()} nodes: {path}")
        return 0


def _where_to_write(arguments: argparse.Namespace) -> Path:
    """The file that predictions go to, which is none of those that a run consists of."""
    folder = as_path(arguments.run_dir, "a run folder")
    if not arguments.out or arguments.out == "-":
        return folder / "predictions.csv"
    path = as_path(arguments.out, "--out").resolve()  # through links, to the file itself
    own = [folder / name for name in NAMES]
    linked = path.exists() and any(file.exists() and path.samefile(file) for file in own)
    if linked or (path.name in NAMES and (path.parent / CONFIG).exists()):
        raise RefusedValue(
            refusal("--out must not be a file of a run", "another file", arguments.out)
        )
    return path


def _write(path: Path, text: str) -> None:
    """Replace a file as a whole; what is none, such as ``/dev/stdout``, is written to."""
    if path.is_file() or not path.exists():
        replace(path, text.encode())
    else:
        path.write_text(text, encoding="utf-8")
