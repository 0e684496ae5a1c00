"""The layer, and the forms of its parameter."""

from ..contract import SparseFeatures, predicted_share, sparse_pays
from .compose import compose
from .composed_conv import ComposedConv
from .dropout import dropout_features
from .edge_functions import BSpline, EdgeNetwork, GaussianMixture
from .fuse import FusionReport, fuse
from .grid_conv import GridConv
from .grid_pool import GridPool
from .grid_unpool import GridUnpool
from .outer_conv import OuterConv
from .recipes import appnp, gdc_conv, mix_hop, sg_conv, ssg_conv
from .theta import FORMS, Theta
from .theta_forms import make_theta

__all__ = [
    "FORMS",
    "BSpline",
    "ComposedConv",
    "EdgeNetwork",
    "FusionReport",
    "GaussianMixture",
    "GridConv",
    "GridPool",
    "GridUnpool",
    "OuterConv",
    "SparseFeatures",
    "Theta",
    "appnp",
    "compose",
    "dropout_features",
    "fuse",
    "gdc_conv",
    "make_theta",
    "mix_hop",
    "predicted_share",
    "sg_conv",
    "sparse_pays",
    "ssg_conv",
]
