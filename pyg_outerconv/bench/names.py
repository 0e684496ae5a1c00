"""Names of modes and contenders, as results and pages have them."""

FORWARD = "forward"
TRAINING = "forward + backward"
PREPARATION = "preparation"
EPOCH = "epoch"

OURS = "outerconv"
PYG = "PyG"
PYG_CSR = "PyG, torch CSR"
PYG_COMPILED = "PyG, compiled"
SCATTER = "torch-scatter"
DGL = "DGL"
FLOOR = "matrix products alone"
SPARSE = "outerconv, kept sparse"
DENSE = "dense einsum"
KRONECKER = "dense Kronecker"
DENSE_FORMS = (DENSE, KRONECKER)
