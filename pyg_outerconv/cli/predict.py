"""Options of ``outerconv predict``."""

from __future__ import annotations

from typing import Any

import click


@click.command()
@click.argument("run_dir")
@click.option("--out", help="A file, or - for standard output; default RUN_DIR/predictions.csv.")
@click.option("--root", help="Folder of the data; default: where the run found it.")
@click.option("--device", help="Default: the device of the run.")
def predict(**options: Any) -> int:
    """Write the classes that the checkpoint of a run predicts, as CSV.

    RUN_DIR is a run folder of 'outerconv train'.
    """
    from ..train.predict_command import write_predictions

    return write_predictions(**options)
