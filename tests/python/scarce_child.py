# SPDX-License-Identifier: Apache-2.0
"""A process whose memory runs out when it says so: started by test_scarce.py with libscarce.so
preloaded (tests/scarce). `library`: each request of each call of libflce, in processes whose first
call it is; `tensors`: each tensor that torch makes in a training step. Ends with 0 if all is right.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import flce
from flce import _abi
from flce.torch import FusedLinearHead, linear_cross_entropy, linear_logprob, loss_and_grads

N, H = 48, 64
V = 4000 if sys.argv[2] == "tensors" else 300  # where processes are forked, little to copy
ONCE, FROM = 0, 1
ALIGNED, ALL = 2, 15
# Of how many failures in a row what is held is compared: a tensor lost by each would show.
REPEATS = 6
LOST = REPEATS * N * H * 4 // 2  # half of what losing the smallest gradient would cost

scarce = ctypes.CDLL(sys.argv[1])
scarce.scarce_call.restype = ctypes.c_int32
for name in ("scarce_arm", "scarce_disarm", "scarce_call"):
    getattr(scarce, name).argtypes = {
        "scarce_arm": [ctypes.c_long, ctypes.c_int, ctypes.c_int],
        "scarce_disarm": [],
        "scarce_call": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_int,
                        ctypes.c_int, ctypes.c_void_p],
    }[name]  # fmt: skip
scarce.scarce_disarm.restype = ctypes.c_long


class Mallinfo2(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Mallinfo2


def held_bytes() -> int:
    info = mallinfo2()
    return int(info.hblkhd + info.uordblks)


class Step:
    """A training step: `make` gives fresh leaves, buffers that gradients are added to, and what
    computes a loss, or without autograd all that there is to compute."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self.make = name, make

    def run(
        self, leaves: list[Tensor], buffers: list[Tensor], work: Callable[[], Any]
    ) -> list[Tensor]:
        made = work()
        if isinstance(made, Tensor) and made.requires_grad:
            made.backward(torch.ones_like(made))
        results = [made] if isinstance(made, Tensor) else [t for t in made if t is not None]
        return [t.detach().clone() for t in results] + [t.clone() for t in kept(leaves, buffers)]


def kept(leaves: list[Tensor], buffers: list[Tensor]) -> list[Tensor]:
    """All that a step adds to; one without a gradient has none, of no elements."""
    grads = [torch.empty(0) if leaf.grad is None else leaf.grad for leaf in leaves]
    return grads + buffers


def tensors(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(5)
    x, w = torch.randn(N, H).to(dtype), torch.randn(V, H).to(dtype)
    return x.requires_grad_(), w.requires_grad_(), torch.randint(0, V, (N,))


def plain(dtype: torch.dtype = torch.float32, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        x, w, y = tensors(dtype)
        return [x, w], [], lambda: linear_cross_entropy(x, w, y, **options)

    return make


def accumulated() -> Any:
    """Gradients that are there already: those of the leaves, and a buffer of the trainer's."""
    x, w, y = tensors()
    main_grad = torch.ones(V, H)
    x.grad = torch.ones(N, H)

    def work() -> Any:
        loss = linear_cross_entropy(x, w, y, accumulate_into=main_grad)
        loss.backward()
        return loss.detach()

    return [x, w], [main_grad], work


def bias_and_outputs() -> Any:
    x, w, y = tensors()
    bias = torch.randn(V, requires_grad=True)

    def work() -> Any:
        out = linear_cross_entropy(
            x, w, y, linear_bias=bias, return_lse=True, return_entropy=True, return_accuracy=True
        )
        return out.loss

    return [x, w, bias], [], work


def copied() -> Any:
    """Inputs that the library cannot read as they lie."""
    x, w, y = tensors()
    work = lambda: linear_cross_entropy(x[:, ::2], w.T.contiguous().T[:, ::2], y)  # noqa: E731
    return [x, w], [], work


def head() -> Any:
    x, _, y = tensors()
    module = FusedLinearHead(torch.nn.Linear(H, V))
    return [x, *module.parameters()], [], lambda: module(x, y)


def logprob() -> Any:
    x, w, y = tensors()
    return [x, w], [], lambda: linear_logprob(x, w, y)


def without_autograd() -> Any:
    x, w, y = tensors()
    return [], [], lambda: loss_and_grads(x.detach(), w.detach(), y)


STEPS = [
    Step("mean", plain()),
    Step("none", plain(reduction="none")),
    Step("bf16", plain(torch.bfloat16)),
    Step("recompute", plain(method="recompute")),
    Step("accumulated", accumulated),
    Step("bias_and_outputs", bias_and_outputs),
    Step("copied", copied),
    Step("head", head),
    Step("logprob", logprob),
    Step("without_autograd", without_autograd),
]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def refused_in(step: Step, at: int, mode: int, full: list[Tensor]) -> bool:
    """Whether a request was refused; the step must have raised for it. `full` is what a whole step
    leaves in what it adds to."""
    leaves, buffers, work = step.make()
    before = [t.clone() for t in kept(leaves, buffers)]
    values = [leaf.detach().clone() for leaf in leaves]
    scarce.scarce_arm(at, mode, ALIGNED)
    text = ""
    try:
        step.run(leaves, buffers, work)
    except (RuntimeError, MemoryError) as error:
        text = str(error)
    finally:
        refused = scarce.scarce_disarm() > 0
    assert not text or "allocate memory" in text, (step.name, at, text)
    assert refused == bool(text), (step.name, at, "a refused request went unnoticed")
    assert equal([leaf.detach() for leaf in leaves], values), (step.name, at, "inputs")
    # What autograd came to before has its gradient, the others what they had: nothing in between.
    for now, old, new in zip(kept(leaves, buffers), before, full, strict=True):
        assert torch.equal(now, old) or torch.equal(now, new), (step.name, at, "half a gradient")
    return refused


def walk_tensors() -> None:
    for step in STEPS:
        leaves, buffers, work = step.make()
        right = step.run(leaves, buffers, work)
        full = [t.clone() for t in kept(leaves, buffers)]
        most = 0
        for mode in (ONCE, FROM):
            count = 0
            for at in range(1, 1000):
                refused = refused_in(step, at, mode, full)
                assert equal(step.run(*step.make()), right), (step.name, at, "the next step")
                if not refused:
                    break
                count += 1
                held = held_bytes()
                for _ in range(REPEATS):
                    refused_in(step, at, mode, full)
                lost = held_bytes() - held
                most = max(most, lost)
                assert lost < LOST, (step.name, at, f"{lost} bytes are held")
            assert count >= 3, (step.name, count)
        print(step.name, "tensors refused:", count, "bytes more:", most)


def number_of(argument: Any) -> int:
    """An address or a number, as a register holds it."""
    if hasattr(argument, "_obj"):  # byref
        argument = ctypes.cast(argument, ctypes.c_void_p).value
    return argument or 0


class Refusing:
    """The functions of libflce; the `at`-th request of the `number`-th call is refused."""

    def __init__(self, functions: Any, number: int, at: int, mode: int) -> None:
        self.functions, self.number, self.at, self.mode = functions, number, at, mode
        self.calls = self.refused = 0

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.functions, name)
        if function.restype is not ctypes.c_int32:
            return function
        pointer = ctypes.cast(function, ctypes.c_void_p)

        def call(*arguments: Any) -> int:
            self.calls += 1
            if self.calls != self.number:
                return int(function(*arguments))
            words = (ctypes.c_uint64 * 6)(*map(number_of, arguments))
            refused = ctypes.c_long()
            status = scarce.scarce_call(
                pointer, words, self.at, self.mode, ALL, ctypes.byref(refused)
            )
            self.refused = refused.value
            return int(status)

        return call


def refuse_in_library(step: Step, number: int, at: int, mode: int, right: list[Tensor]) -> str:
    """In a child whose first call it is. "more", "next call" or "end"; or what is wrong."""
    lib = _abi.library()
    functions = lib.functions
    lib.functions = refusing = Refusing(functions, number, at, mode)
    outcome = "more"
    try:
        made = step.run(*step.make())
        if not equal(made, right):
            outcome = "it did without, but gives other numbers"
    except flce.OutOfMemory as error:
        if str(error) != "out of memory" or not isinstance(error, MemoryError):
            outcome = f"another text: {error}"
    lib.functions = functions
    if outcome == "more" and not refusing.refused:
        outcome = "end" if refusing.calls < number else "next call"
    if not equal(step.run(*step.make()), right):
        outcome = "the next step gives other numbers"
    return outcome


def in_child(work: Callable[[], str]) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = work()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def walk_library() -> None:
    """Nothing of libflce runs in this process itself: each child makes its first call."""
    for step, mode in ((STEPS[0], FROM), (STEPS[1], ONCE)):
        store = torch.empty(2 + N * H + V * H + N).share_memory_()

        def learn(step: Step = step, store: Tensor = store) -> str:
            flat = torch.cat([t.flatten() for t in step.run(*step.make())])
            store[: len(flat)] = flat
            return "learnt"

        assert in_child(learn) == "learnt"
        shapes = [(N,) if step.name == "none" else (), (N, H), (V, H)]
        sizes = [torch.Size(shape).numel() for shape in shapes]
        parts = store[: sum(sizes)].split(sizes)
        right = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        failures = 0
        number = at = 1
        while True:
            outcome = in_child(partial(refuse_in_library, step, number, at, mode, right))
            if outcome == "end":
                break
            assert outcome in ("more", "next call"), (step.name, number, at, outcome)
            number, at = (number, at + 1) if outcome == "more" else (number + 1, 1)
            failures += outcome == "more"
        assert failures > 3, failures
        print(step.name, "requests of libflce refused:", failures)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"library": walk_library, "tensors": walk_tensors}[sys.argv[2]]()
