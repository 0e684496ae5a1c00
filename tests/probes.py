"""What runs and what it holds: tensors that are made, tensors that autograd keeps."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Largest(TorchDispatchMode):
    """Remembers the bytes of the largest tensor that any operation returned."""

    def __init__(self):
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self.nbytes = max(self.nbytes, tensor.untyped_storage().nbytes())
        return out


class Watched:
    """A backend whose primitives are watched from within: a custom operator hides its insides."""

    def __init__(self, backend):
        self.backend, self.nbytes = backend, 0

    def __getattr__(self, name):
        attribute = getattr(self.backend, name)
        if not callable(attribute) or name in ("missing", "why_not"):
            return attribute

        def watched(*args):
            with Largest() as largest:
                out = attribute(*args)
            self.nbytes = max(self.nbytes, largest.nbytes)
            return out

        return watched


class Kept:
    """Counts the bytes of floating point storages that autograd keeps in a block."""

    def __enter__(self):
        self._tensors = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error):
        self._hooks.__exit__(*error)

    def _pack(self, tensor):
        if tensor.layout == torch.strided and tensor.is_floating_point():
            # Alive, so that no other takes its place.
            self._tensors[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    def beside(self, *tensors):
        """(number, bytes) of storages other than those of ``tensors``."""
        places = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        sizes = [
            tensor.untyped_storage().nbytes()
            for place, tensor in self._tensors.items()
            if place not in places
        ]
        return len(sizes), sum(sizes)


def held_by(run, inputs):
    """Bytes that a call saves for its backward pass, and of the largest tensor of both passes."""
    torch.autograd.grad(run().sum(), inputs)  # pairs are made, and both directions sorted
    with Kept() as kept:
        out = run()
    _, saved = kept.beside(out, *inputs)
    with Largest() as largest:
        torch.autograd.grad(run().sum(), inputs)
    return saved, largest.nbytes
