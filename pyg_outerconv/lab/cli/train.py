"""Options of ``outerconv train`` and ``outerconv predict``."""

from __future__ import annotations

from typing import Any

import click

from ...files import ROOT_VARIABLE
from .imports import imports
from .own import own_graph
from .sections import Sectioned


@click.command(
    cls=Sectioned,
    sections={
        "--edges": "A graph of your own",
        "--family": "Model",
        "--lr": "Training",
        "--batches": "Samples of a large graph",
        "--config": "Run",
    },
)
@click.argument("dataset", required=False)
@own_graph
@click.option(
    "--family",
    help='A family with its options, such as "walk(3)" or '
    '"stack(gcn, identity)"; see outerconv families; default gcn.',
)
@click.option(
    "--directed",
    is_flag=True,
    help="Use the family twice: on the edges, and on the reversed edges.",
)
@click.option(
    "--theta",
    help="Form of Θ: full, basis-decomposed:30, block-diagonal:4, low-rank:8, "
    "grouped:4, depthwise, shared or identity; default full.",
)
@click.option(
    "--aggr",
    help="Reduction over the edges of one A_k into a node: sum, mean, max or min; default sum.",
)
@click.option(
    "--label-aggr", help="Reduction over the matrices A_k: sum, mean, max or min; default sum."
)
@click.option("--depth", type=int, help="Number of convolutions; default 2.")
@click.option("--hidden", type=int, help="Channels between convolutions; default 64.")
@click.option(
    "--out-heads",
    type=int,
    help="Heads of the last convolution, which are averaged; default: as many as in others.",
)
@click.option(
    "--activation",
    help="After hidden convolutions: relu, elu, gelu, leaky_relu or none; default relu.",
)
@click.option(
    "--architecture",
    help="layers: convolutions one after another; blocks: residual blocks between linear layers; "
    "default layers.",
)
@click.option(
    "--propagation",
    metavar="FAMILY",
    help='Propagate the logits by a family of one label, such as "diffusion(ppr, alpha=0.1)": '
    "APPNP with --family identity. Default: they are not propagated.",
)
@click.option("--dropout", type=float, help="Dropout of hidden features; default 0.5.")
@click.option("--input-dropout", type=float, help="Dropout of input features; default 0.")
@click.option(
    "--layer-norm",
    help="Normalisation after hidden convolutions: none, batch or layer; default none.",
)
@click.option(
    "--update",
    help="Network after each hidden convolution: none, or mlp (norm, ReLU, linear), as in GIN; "
    "default none.",
)
@click.option("--pool", help="Readout of a set of graphs: sum, mean or max.")
@click.option("--skip", help="Skip connections: none, residual or concat; default none.")
@click.option(
    "--root-weight/--no-root-weight",
    default=None,
    help="Add the transformed features of the node itself; default no.",
)
@click.option("--lr", type=float, help="Learning rate of Adam; default 0.01.")
@click.option("--weight-decay", type=float, help="Weight decay of Adam; default 0.0005.")
@click.option(
    "--decay",
    help="Which parameters decay: all, or first for those of the first layer; default all.",
)
@click.option(
    "--metric", help="accuracy, auroc (area under the ROC curve) or f1 (macro); default accuracy."
)
@click.option(
    "--class-weights",
    help="balanced: weigh classes in the loss by the inverse of their numbers of nodes; or none; "
    "default none.",
)
@click.option(
    "--select",
    help="The epoch that counts: that of the lowest validation loss, or of the best "
    "validation metric; default loss.",
)
@click.option("--epochs", type=int, help="Largest number of epochs; default 200.")
@click.option(
    "--patience",
    type=int,
    help="Stop when this many epochs in a row brought no better one by --select; 0: never; "
    "default 100.",
)
@click.option(
    "--evaluate-every",
    type=int,
    metavar="EPOCHS",
    help="Evaluate after every so many epochs, and after the last one; default 1.",
)
@click.option("--seeds", type=int, help="Number of seeds; default 10.")
@click.option(
    "--feature-storage",
    "features",
    help="How our model stores features: auto (the faster one), sparse or dense; default auto.",
)
@click.option(
    "--split",
    help="public, geom-gcn, random, per-class-20-30 (nodes of each class that train and "
    "validate), ten-fold, or shares such as random-60-20-20; default: that of the data set.",
)
@click.option(
    "--device", help="auto (CUDA where there is a GPU), cpu, cuda, cuda:1 or mps; default auto."
)
@click.option("--backend", help="Kernel backend; see outerconv backends; default auto.")
@click.option(
    "--normalize-features/--no-normalize-features",
    default=None,
    help="Divide each row of features by its sum; default no.",
)
@click.option(
    "--peer",
    is_flag=True,
    default=None,
    help="Train PyG's own layer too, on the same seeds and splits.",
)
@click.option("--peer-seeds", type=int, help="PyG's layer on the first N seeds; default all.")
@click.option(
    "--batches",
    help="Train on samples: random-nodes, clusters (by pymetis), blocks (of nodes whose numbers "
    "follow one another) or neighbor (by pyg-lib or torch-sparse); evaluation is exact. Default: "
    "none, the whole graph.",
)
@click.option(
    "--parts", type=int, help="Number of random parts, of clusters or of blocks; default 8."
)
@click.option(
    "--parts-per-batch", type=int, help="Clusters or blocks that make a sample; default 1."
)
@click.option(
    "--batch-size",
    type=int,
    help="Graphs of an update, where graphs are classified; or training nodes of a sampled "
    "neighbourhood (--batches neighbor); default 1024.",
)
@click.option("--fan-outs", help="Edges drawn into a node at each step, -1 for all; default 10,10.")
@click.option(
    "--accumulate",
    type=int,
    help="Samples whose gradients make an update, over all processes; default: one of each.",
)
@click.option("--precision", help="Of products in training: float32 or bfloat16; default float32.")
@click.option(
    "--tensorboard", is_flag=True, help="Write curves for TensorBoard into the run folder."
)
@click.option(
    "--config",
    metavar="TOML",
    help="A file of settings, such as winner.toml of outerconv search; options given beside it "
    "take the place of its own.",
)
@click.option("--root", help=f"Folder of the data; default {ROOT_VARIABLE}, else a cache folder.")
@click.option("--out", help="Run folder; default runs/<dataset>-<family>-<number>.")
@click.option("--resume", is_flag=True, help="Go on with the run in --out.")
@imports
def train(**options: Any) -> int:
    """Train classifiers of nodes or of graphs; report mean ± deviation over seeds.

    DATASET is a name that 'outerconv datasets' lists; default: Cora, which comes with the package.
    For a graph of your own, use --edges, --features and --labels, or --data, instead. Some data
    sets have other defaults than those named here: 'outerconv datasets NAME' lists them.
    """
    from ..train.command import train as run

    return run(**options)


@click.command()
@click.argument("run_dir")
@own_graph
@click.option("--out", help="A file, or - for standard output; default RUN_DIR/predictions.csv.")
@click.option("--root", help="Folder of the data; default: where the run found it.")
@click.option("--device", help="Default: the device of the run.")
@imports
def predict(**options: Any) -> int:
    """Write the classes that the checkpoint of a run predicts, as CSV.

    RUN_DIR is a run folder of 'outerconv train'. A graph of your own is read from where the run
    found it or, if it was moved, from where the options say.
    """
    from ..train.predict import write_predictions

    return write_predictions(**options)
