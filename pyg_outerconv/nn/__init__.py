"""The layer, and the forms of its parameter."""

from ..contract import predicted_share, sparse_pays
from ..graph import SparseFeatures
from .attention.agnn import agnn_conv
from .attention.decoder_block import DecoderBlock
from .attention.encoder_block import EncoderBlock
from .attention.feed_forward import FeedForward
from .attention.gat import gat_conv, gatv2_conv, super_gat_conv
from .attention.linear import linear_attention
from .attention.multi_head import multi_head_attention
from .attention.set_pooling import set_pooling
from .attention.transformer_conv import TransformerConv, transformer_conv
from .attention.windowed import long_sequence_block, windowed_block
from .attention_conv import AttentionConv
from .cache import share_bases
from .compose import compose
from .composed_conv import ComposedConv
from .dropout import dropout_features
from .edge_functions import BSpline, EdgeNetwork, GaussianMixture
from .fixed_basis import FixedBasis
from .fuse import FusionReport, fuse
from .grid_conv import GridConv
from .grid_pool import GridPool
from .grid_unpool import GridUnpool
from .outer_conv import OuterConv
from .recipes import appnp, gdc_conv, mix_hop, sg_conv, ssg_conv
from .recurrent.conv_gru_cell import ConvGRUCell
from .recurrent.conv_lstm_cell import ConvLSTMCell
from .recurrent.unroll import unroll
from .theta import FORMS, ThetaModule
from .theta_forms import make_theta

__all__ = [
    "FORMS",
    "AttentionConv",
    "BSpline",
    "ComposedConv",
    "ConvGRUCell",
    "ConvLSTMCell",
    "DecoderBlock",
    "EdgeNetwork",
    "EncoderBlock",
    "FeedForward",
    "FixedBasis",
    "FusionReport",
    "GaussianMixture",
    "GridConv",
    "GridPool",
    "GridUnpool",
    "OuterConv",
    "SparseFeatures",
    "ThetaModule",
    "TransformerConv",
    "agnn_conv",
    "appnp",
    "compose",
    "dropout_features",
    "fuse",
    "gat_conv",
    "gatv2_conv",
    "gdc_conv",
    "linear_attention",
    "long_sequence_block",
    "make_theta",
    "mix_hop",
    "multi_head_attention",
    "predicted_share",
    "set_pooling",
    "sg_conv",
    "share_bases",
    "sparse_pays",
    "ssg_conv",
    "super_gat_conv",
    "transformer_conv",
    "unroll",
    "windowed_block",
]
