"""A card that is not there: tensors on "cuda" that compute, and refuse to be mixed.

`torch`'s FakeTensorMode knows shapes and devices without a card, but no values, so that
nothing runs whose course depends on one. Here a tensor on the card holds one on the
CPU, where everything is computed: results are those of the CPU but for the order of
sums, unless a tensor was left on the other device, which is an error as on a real card.
Streams, events and memory are not pretended, and threads begin without the card.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

CARD = torch.device("cuda", 0)
# A tensor on a card may be indexed by one on the CPU.
INDEXED = ("aten::index", "aten::index_put_", "aten::_index_put_impl_")
MOVED = ("aten::_to_copy", "aten::copy_")


class OnCard(Tensor):
    """A tensor on the card; `inside` holds its values."""

    @staticmethod
    def __new__(cls, inside: Tensor):
        """Make the shell: for autograd it is on "meta", which every machine has."""
        return Tensor._make_wrapper_subclass(
            cls,
            inside.size(),
            strides=inside.stride(),
            storage_offset=inside.storage_offset(),
            dtype=inside.dtype,
            device="meta",
        )

    def __init__(self, inside: Tensor):
        self.inside = inside

    @property
    def device(self) -> torch.device:
        """The card."""
        return CARD

    def new_tensor(self, data, dtype=None) -> Tensor:
        """Return data on the card; torch asks the shell, which is not there."""
        return torch.tensor(data, dtype=dtype or self.dtype, device=CARD)

    def __getitem__(self, key) -> Tensor:
        """Return a part; torch would look a list up on the shell."""
        return super().__getitem__(_looked_up(key))

    def __setitem__(self, key, value) -> None:
        super().__setitem__(_looked_up(key), value)

    def __repr__(self) -> str:
        return f"OnCard({self.inside})"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        """Compute outside of the mode, as when a tensor outlives it."""
        return _computed(function, args, kwargs or {})


class _Card(TorchDispatchMode):
    """Sees every operation; in the place of FakeTensorMode no card is asked for."""

    _mode_key = torch._C._TorchDispatchModeKey.FAKE

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _computed(function, args, kwargs or {})


@contextmanager
def pretend_card() -> Iterator[None]:
    """Let "cuda" be a device for a `with` block.

    Yields:
        Nothing.
    """
    torch._C._ensureCUDADeviceGuardSet()
    lifted = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    overwrite = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with _Card():
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(lifted)
        torch.__future__.set_overwrite_module_params_on_conversion(overwrite)


def _looked_up(key):
    """Return a key of a tensor with lists as tensors on the card."""
    if isinstance(key, tuple):
        return tuple(map(_looked_up, key))
    if isinstance(key, list | np.ndarray):
        return torch.tensor(key, device=CARD)
    return key


def values(result):
    """Return a result with what is on the card brought to the CPU."""
    return tree_map(_inside, result)


def _inside(value):
    return value.inside if isinstance(value, OnCard) else value


def _outside(value):
    alone = isinstance(value, Tensor) and not isinstance(value, OnCard)
    return OnCard(value) if alone else value


def _computed(function, args: tuple, kwargs: dict):
    """Run an operation on the CPU, if all it is given lies on one device."""
    name = function._schema.name
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    here = any(isinstance(x, OnCard) for x in tensors)
    asked = kwargs.get("device")
    asked = None if asked is None else torch.device(asked).type != "cpu"
    if here and name not in MOVED:
        _check_together(name, args, tensors)
    on_card = here if asked is None else asked
    generator = kwargs.get("generator")
    if on_card and generator is not None and generator.device.type == "cpu":
        raise RuntimeError(f"{name}: a generator of the CPU for a tensor on the card")
    plain, named = tree_map(_inside, (args, kwargs))
    if "device" in named and named["device"] is not None:
        named = named | {"device": torch.device("cpu")}
    result = function(*plain, **named)
    if name == "aten::copy_" or (name.endswith("_") and result is plain[0]):
        return args[0]
    return tree_map(_outside, result) if on_card else result


def _check_together(name: str, args: tuple, tensors: list[Tensor]) -> None:
    """Refuse a tensor on the CPU beside others on the card, as a real card does.

    Raises:
        RuntimeError: If there is one that is more than a number.
    """
    indexed = name in INDEXED and isinstance(args[0], OnCard)
    indices = [x for x in tree_leaves(args[1])] if indexed else []
    for tensor in tensors:
        allowed = tensor.dim() == 0 or any(tensor is index for index in indices)
        assert isinstance(tensor, OnCard) or tensor.device.type == "cpu", name
        if not isinstance(tensor, OnCard) and not allowed:
            raise RuntimeError(
                f"{name}: a tensor of shape {tuple(tensor.shape)} is on the CPU, and "
                "others are on the card."
            )
