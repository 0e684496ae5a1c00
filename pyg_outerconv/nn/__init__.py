"""The layer, and the forms of its parameter."""

from ..contract.cost import predicted_share, sparse_pays
from ..graph import SparseFeatures
from .attention.blocks import (
    BlockStack,
    DecoderBlock,
    EncoderBlock,
    EncoderDecoder,
    FeedForward,
    long_sequence_block,
    windowed_block,
)
from .attention.graph_attention import (
    TransformerConv,
    agnn_conv,
    gat_conv,
    gatv2_conv,
    super_gat_conv,
    transformer_conv,
)
from .attention.multi_head import linear_attention, multi_head_attention, set_pooling
from .attention_conv import AttentionConv
from .compose import ComposedConv, compose
from .dense import phi_check, phi_hat, plot_phi, quadri_tensor
from .dropout import dropout_features
from .edge_functions import BSpline, EdgeNetwork, GaussianMixture
from .fixed_basis import FixedBasis
from .fold_output import factor_output, fold_output
from .grids import GridConv, GridPool, GridUnpool
from .label_terms import LabelTerms, label_terms
from .models import AttentionGNN, OuterGNN
from .outer_conv import OuterConv
from .recipes import appnp, gdc_conv, mix_hop, sg_conv, ssg_conv
from .recurrent import ConvGRUCell, ConvLSTMCell, unroll
from .theta import FORMS, ThetaModule, make_theta

__all__ = [
    "FORMS",
    "AttentionConv",
    "AttentionGNN",
    "BSpline",
    "BlockStack",
    "ComposedConv",
    "ConvGRUCell",
    "ConvLSTMCell",
    "DecoderBlock",
    "EdgeNetwork",
    "EncoderBlock",
    "EncoderDecoder",
    "FeedForward",
    "FixedBasis",
    "GaussianMixture",
    "GridConv",
    "GridPool",
    "GridUnpool",
    "LabelTerms",
    "OuterConv",
    "OuterGNN",
    "SparseFeatures",
    "ThetaModule",
    "TransformerConv",
    "agnn_conv",
    "appnp",
    "compose",
    "dropout_features",
    "factor_output",
    "fold_output",
    "gat_conv",
    "gatv2_conv",
    "gdc_conv",
    "label_terms",
    "linear_attention",
    "long_sequence_block",
    "make_theta",
    "mix_hop",
    "multi_head_attention",
    "phi_check",
    "phi_hat",
    "plot_phi",
    "predicted_share",
    "quadri_tensor",
    "set_pooling",
    "sg_conv",
    "sparse_pays",
    "ssg_conv",
    "super_gat_conv",
    "transformer_conv",
    "unroll",
    "windowed_block",
]
