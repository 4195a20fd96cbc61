# SPDX-License-Identifier: Apache-2.0
"""Logits that are not computed yet.

A patched model (`hf.py`) runs its own forward; its head hands back a `DeferredLogits` in place of
a tensor. What the model does to it before the loss is written down: scaling, a tanh soft-cap, a
change of dtype, views and slices of the leading dimensions. When the cross-entropy is asked for,
the head module is called again, with the targets, and runs the fused operation inside its own
forward, so that hooks that gather a sharded weight run as they do for any other call.

Anything else that a model does to its logits is refused by name: computing them without a word
would be right, but would take the memory that the caller wanted to save.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._head import HeadLoss, evaluate_loss


class _Scaling:
    """u = post * tanh(pre * z), or pre * z where the model has no soft-cap."""

    def __init__(self, pre: float = 1.0, post: float | None = None) -> None:
        self.pre = pre
        self.post = post

    def times(self, factor: float) -> _Scaling:
        if self.post is None:
            return _Scaling(self.pre * factor)
        return _Scaling(self.pre, self.post * factor)

    def tanh(self) -> _Scaling:
        if self.post is not None:
            refuse("a second tanh over its logits")
        return _Scaling(self.pre, 1.0)

    def as_options(self) -> tuple[float, float | None]:
        """(scale, softcap) of the operation: softcap * tanh(scale * z / softcap)."""
        if self.post is None:
            return self.pre, None
        if not self.post > 0.0:
            refuse(f"a soft-cap of {self.post}")
        scale = self.pre * self.post
        # z / c * c is z for every c, but for a rounding that would cost a second scaling.
        return (1.0 if math.isclose(scale, 1.0, rel_tol=1e-12) else scale), self.post


def refuse(what: str) -> NoReturn:
    raise RuntimeError(
        f"the patched model applies {what} before its loss; flce.torch.patch knows views and "
        "slices of the leading dimensions, scaling by a number, a tanh soft-cap and a cross-entropy"
        "; flce.torch.unpatch(model) gives the model's own loss back"
    )


class DeferredLogits:
    """`head(hidden)` with what came after it, to be computed as a loss or, on demand, as logits.

    hidden: (..., H). Has the shape, dtype and device of the logits. After `release()`, which the
    patched model calls when its forward is over, any other use computes the logits, with their
    graph, and keeps them.
    """

    def __init__(
        self,
        head: nn.Module,
        hidden: Tensor,
        num_classes: int,
        options: dict[str, Any],
        *,
        scaling: _Scaling | None = None,
        steps: tuple[Callable[[Tensor], Tensor], ...] = (),
        dtype: torch.dtype | None = None,
    ) -> None:
        self._head = head
        self._hidden = hidden
        self._num_classes = num_classes
        self._options = options
        self._scaling = scaling or _Scaling()
        self._steps = steps
        self._dtype = dtype or hidden.dtype
        self._released = False
        self._value: Tensor | None = None

    def _then(
        self,
        step: Callable[[Tensor], Tensor] | None = None,
        *,
        hidden: Tensor | None = None,
        scaling: _Scaling | None = None,
        dtype: torch.dtype | None = None,
    ) -> DeferredLogits:
        return DeferredLogits(
            self._head,
            self._hidden if hidden is None else hidden,
            self._num_classes,
            self._options,
            scaling=scaling or self._scaling,
            steps=self._steps if step is None else (*self._steps, step),
            dtype=dtype or self._dtype,
        )

    # --- what a loss function asks for ------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self._hidden.shape[:-1], self._num_classes))

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    @property
    def device(self) -> torch.device:
        return self._hidden.device

    @property
    def ndim(self) -> int:
        return self._hidden.ndim

    def dim(self) -> int:
        return self._hidden.ndim

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        return self.shape.numel()

    def __len__(self) -> int:
        return self.shape[0]

    def contiguous(self) -> DeferredLogits:
        return self

    def float(self) -> DeferredLogits:
        return self.to(torch.float32)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """To another dtype or to the device where it is."""
        if self._released:
            return self.materialize().to(*args, **kwargs)
        places = (self.device, str(self.device))
        moved: Any = torch.empty(0, dtype=self._dtype, device="meta").to
        wanted = moved(
            *("meta" if a in places else a for a in args),
            **{k: "meta" if k == "device" and v in places else v for k, v in kwargs.items()},
        )
        if wanted.device.type != "meta":
            refuse(f"a copy of its logits to {wanted.device}")
        dtype = wanted.dtype
        return self._then(lambda t: t.to(dtype), dtype=dtype)

    def view(self, *shape: Any) -> Any:
        return self.reshape(*shape)

    def reshape(self, *shape: Any) -> Any:
        """Of the leading dimensions: the last one stays V."""
        if self._released:
            return self.materialize().reshape(*shape)
        sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if not sizes or sizes[-1] not in (-1, self._num_classes):
            refuse(f"a view as {tuple(sizes)} of logits over {self._num_classes} classes")
        if sizes[-1] == -1 and -1 in sizes[:-1]:
            refuse(f"a view as {tuple(sizes)}")
        return self._then(hidden=self._hidden.reshape(*sizes[:-1], self._hidden.shape[-1]))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        if self._released:
            return self.materialize().flatten(start_dim, end_dim)
        if end_dim % self.ndim == self.ndim - 1:
            refuse("a flattening of its logits over classes")
        return self._then(hidden=self._hidden.flatten(start_dim, end_dim))

    def __getitem__(self, index: Any) -> Any:
        if self._released:
            return self.materialize()[index]
        if _picks_classes(index, self.ndim):
            refuse(f"the index {index} over classes")
        return self._then(hidden=self._hidden[index])

    def __mul__(self, factor: Any) -> Any:
        if self._released:
            return self.materialize() * factor
        number = _number(factor, "a product of its logits and a tensor")
        return self._then(lambda t: t * factor, scaling=self._scaling.times(number))

    __rmul__ = __mul__
    mul = __mul__

    def __truediv__(self, divisor: Any) -> Any:
        if self._released:
            return self.materialize() / divisor
        number = _number(divisor, "a division of its logits by a tensor")
        return self._then(lambda t: t / divisor, scaling=self._scaling.times(1.0 / number))

    div = __truediv__

    def tanh(self) -> Any:
        if self._released:
            return self.materialize().tanh()
        return self._then(torch.tanh, scaling=self._scaling.tanh())

    # --- the loss and the logits ------------------------------------------------------------------

    def cross_entropy(self, target: Tensor, **options: Any) -> Tensor:
        """target (N) for logits (N, V); `options` of linear_cross_entropy."""
        if self._hidden.ndim != 2 or target.ndim != 1:
            refuse(
                f"a cross-entropy of logits {tuple(self.shape)} and targets {tuple(target.shape)}, "
                "which are not (N, V) and (N)"
            )
        for name in options.keys() & self._options.keys():
            raise ValueError(
                f"{name}={options[name]!r} comes from the model's own loss and "
                f"{name}={self._options[name]!r} from flce.torch.patch: leave out one"
            )
        scale, softcap = self._scaling.as_options()
        request = HeadLoss(target, {**self._options, **options}, scale, softcap)
        return evaluate_loss(self._head, self._hidden, request)

    def materialize(self) -> Tensor:
        """The logits, by the head module and then what the model did to them."""
        if self._value is None:
            value = self._head(self._hidden)
            for step in self._steps:
                value = step(value)
            self._value = value
        return self._value

    def release(self) -> DeferredLogits:
        self._released = True
        return self

    def __getattr__(self, name: str) -> Any:
        # Reached for what is not defined above only.
        if name.startswith("__"):
            raise AttributeError(name)
        if not self.__dict__.get("_released"):
            refuse(f"Tensor.{name}")
        return getattr(self.materialize(), name)

    # Comparisons are of values, as a tensor's, so identity is what is left for a hash.
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"DeferredLogits(shape={tuple(self.shape)}, dtype={self.dtype})"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        deferred = [a for a in (*args, *kwargs.values()) if isinstance(a, DeferredLogits)]
        if not all(d._released for d in deferred):
            if func is F.cross_entropy:
                return _cross_entropy(*args, **kwargs)
            if func is torch.tanh:
                return deferred[0].tanh()
            refuse(f"torch.{getattr(func, '__name__', func)}")
        values = [a.materialize() if isinstance(a, DeferredLogits) else a for a in args]
        named = {
            k: v.materialize() if isinstance(v, DeferredLogits) else v for k, v in kwargs.items()
        }
        return func(*values, **named)


# Python looks these up on the class, past __getattr__.
_OPERATORS = (
    "__add__ __radd__ __sub__ __rsub__ __neg__ __abs__ __pow__ __rpow__ __rtruediv__ __floordiv__ "
    "__mod__ __matmul__ __rmatmul__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __iter__ __bool__ "
    "__float__ __array__ __setitem__"
).split()


def _operator(name: str) -> Callable[..., Any]:
    def call(self: DeferredLogits, *args: Any) -> Any:
        if not self._released:
            refuse(f"Tensor.{name}")
        others = (a.materialize() if isinstance(a, DeferredLogits) else a for a in args)
        return getattr(self.materialize(), name)(*others)

    return call


for _name in _OPERATORS:
    setattr(DeferredLogits, _name, _operator(_name))


def _picks_classes(index: Any, ndim: int) -> bool:
    """Whether indexing a tensor of `ndim` dimensions does anything to its last one."""
    picks = index if isinstance(index, tuple) else (index,)
    last = picks[-1] if picks else Ellipsis
    if last is Ellipsis or (isinstance(last, slice) and last == slice(None)):
        return False
    if any(pick is Ellipsis for pick in picks):
        return True
    dims = 0
    for pick in picks:
        is_mask = isinstance(pick, Tensor) and pick.dtype is torch.bool
        dims += pick.ndim if is_mask else int(pick is not None)
    return dims >= ndim


def _number(value: Any, what: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return refuse(f"{what}, {type(value).__name__},")


def _cross_entropy(
    input: DeferredLogits,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """torch.nn.functional.cross_entropy of deferred logits."""
    if size_average is not None or reduce is not None:
        refuse("a cross-entropy with size_average or reduce, which reduction= has replaced,")
    options: dict[str, Any] = {"reduction": reduction, "ignore_index": ignore_index}
    if weight is not None:
        options["weight"] = weight
    if label_smoothing != 0.0:
        options["label_smoothing"] = label_smoothing
    return input.cross_entropy(target, **options)
