"""Compile every Triton kernel for an H100, where no GPU is: run as a script, prints what it did.

The launchers run on a CPU with their kernels compiled in the place of being started. So what is
compiled is what they would start: types, block sizes, warps, and the constants of each case. With
the argument ``all`` in bfloat16 and float64 too, else in float32 alone.
"""

import importlib
import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pyg_outerconv.kernels.backends.triton import INTERPRETED, balance
from pyg_outerconv.kernels.backends.triton_backend import Triton

FILES = (
    "segments", "products", "extreme", "attend", "attend_backward", "grouped", "fused",
)  # fmt: skip
POINTERS = {
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


def compile_only(kernel, programs, like, *arguments, num_warps, **constants):
    """In the place of ``launch``: compile the kernel with the types that Triton's JIT gives it."""
    signature, known = {}, dict(constants)
    for name, argument in zip(kernel.arg_names, arguments, strict=False):
        if isinstance(argument, torch.Tensor):
            signature[name] = POINTERS[argument.dtype]
        elif isinstance(argument, float):
            signature[name] = "fp32"
        elif argument == 1:
            known[name] = 1
        else:
            signature[name] = "i32"
    signature.update(dict.fromkeys(known, "constexpr"))
    assert set(signature) == set(kernel.arg_names)
    source = ASTSource(fn=kernel, signature=signature, constexprs=known)
    done = triton.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": num_warps})
    tf32 = "inputPrecision = tf32" in done.asm["ttir"]
    assert done.asm["cubin"]
    print(kernel.__name__, str(like.dtype).removeprefix("torch."), "tf32" if tf32 else "-")


def run(dtype, heads, channels):
    """Every primitive once, on a matrix with a long row and an empty one."""
    backend = Triton()
    ptr = torch.tensor([0, 3, 3, 43], dtype=torch.int32)
    index = torch.zeros(43, dtype=torch.int32)
    far = (torch.tensor([0, 43], dtype=torch.int32), index, index)

    def dense(*shape):
        return torch.ones(shape, dtype=dtype)

    value, x, rows = dense(43, heads), dense(1, heads, channels), dense(3, heads, channels)
    backend.spmm(ptr, index, value, x)
    backend.spmm(ptr, index, value, dense(1, 1, channels))
    backend.spmm(ptr, index, None, x)
    backend.spmm_arg(ptr, index, value, x, True)
    backend.spmm_arg(ptr, index, None, x, False)
    backend.sddmm(ptr, index, rows, x)
    backend.segment_sum(ptr, value)
    backend.segment_softmax(ptr, value)
    out, total = backend.attend(ptr, index, rows, x, x, value, 0.5)
    backend.attend_backward(ptr, index, *far, rows, x, x, value, 0.5, out, total, out)
    theta = dense(3, channels, 24)
    products = dense(43, channels)
    backend.grouped_matmul(products, ptr, theta, index, index, 5)
    backend.grouped_matmul(products, ptr, theta, None, None, 43)
    backend.grouped_outer(products, ptr, dense(43, 24), None, index)
    backend.spmm_theta(ptr, index, index, value[:, 0].contiguous(), dense(1, channels), theta)


def main():
    assert not INTERPRETED
    for name in FILES:
        importlib.import_module(
            f"pyg_outerconv.kernels.backends.triton.{name}"
        ).launch = compile_only
    run(torch.float32, 4, 16)
    balance.LIMIT = 8
    if "all" in sys.argv:
        run(torch.bfloat16, 3, 130)
        run(torch.float64, 1, 5)
    else:
        run(torch.float32, 1, 5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
