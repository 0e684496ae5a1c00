"""Bags of words in every layout that features may have."""

import torch

from pyg_outerconv.nn import SparseFeatures


def bag(rows, columns, seed=0):
    """Dense features of which two thirds are zero, with a zero row and a zero column."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    x = x * (torch.rand(rows, columns, generator=generator) < 1 / 3)
    x[rows // 2] = 0
    x[:, columns // 2] = 0
    return x


def torn(x):
    """The uncoalesced COO matrix that adds up to x: every entry twice, in no order."""
    index = x.nonzero().t()
    value = x[index[0], index[1]]
    mixed = torch.randperm(2 * value.numel(), generator=torch.Generator().manual_seed(1))
    index, value = torch.cat([index, index], 1), torch.cat([0.25 * value, 0.75 * value])
    return torch.sparse_coo_tensor(index[:, mixed], value[mixed], x.shape)


def csr_int32(x):
    csr = x.to_sparse_csr()
    return torch.sparse_csr_tensor(
        csr.crow_indices().int(), csr.col_indices().int(), csr.values(), csr.shape
    )


def unsorted_csr(x):
    """CSR with the columns of each row in descending order."""
    csr = x.flip(1).to_sparse_csr()
    column = x.size(1) - 1 - csr.col_indices()
    return torch.sparse_csr_tensor(csr.crow_indices(), column, csr.values(), csr.shape)


MAKE = {
    "coo": lambda x: x.to_sparse(),
    "uncoalesced coo": torn,
    "csr": lambda x: x.to_sparse_csr(),
    "csr int32": csr_int32,
    "unsorted csr": unsorted_csr,
    "csc": lambda x: x.to_sparse_csc(),
    "prepared": lambda x: SparseFeatures.of(x.to_sparse()),
}
