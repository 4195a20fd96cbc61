# SPDX-License-Identifier: Apache-2.0
"""Who supports what, found by trying: each option on each system, against float64.

`yes` is an answer that is right, loosely (a 16-bit loss passes); `no` comes with the system's own
words, or with how far off the answer was: an option that is taken and ignored is no support.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from peers import oracle, words
from peers.problem import DTYPES, Problem, Shape
from peers.systems import Peer, Result

SHAPE = Shape(256, 256, 2048)  # of a size that no kernel refuses
ODD_SHAPE = Shape(37, 72, 1031)
TOLERANCE = 0.05  # relative; without the option each case is off by more, which a test holds
Probe = Callable[["Case"], None]


class Unlike(Exception):
    """The system answered, and not rightly."""


class Case(NamedTuple):
    peer: Peer
    dtype: str
    device: str

    def problem(self, shape: Shape = SHAPE, dtype: str | None = None) -> Problem:
        """Logits of size 3: softmax, entropy and z-loss all matter."""
        kind, generator = DTYPES[dtype or self.dtype], torch.Generator().manual_seed(5)
        x = torch.randn(shape.tokens, shape.hidden, generator=generator)
        w = torch.randn(shape.vocab, shape.hidden, generator=generator) * 3 * shape.hidden**-0.5
        y = torch.randint(shape.vocab, (shape.tokens,), generator=generator)
        return Problem(x.to(self.device, kind).requires_grad_(),
                       w.to(self.device, kind).requires_grad_(), y.to(self.device))  # fmt: skip

    def uniform(self, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
        generator = torch.Generator().manual_seed(7)
        return torch.rand(count, generator=generator).to(self.device, dtype)


def same(what: str, got: Tensor | None, want: Tensor | None) -> None:
    if got is None or want is None:
        raise Unlike(f"no {what}")
    if got.shape != want.shape:
        raise Unlike(f"{what} of shape {tuple(got.shape)}; not {tuple(want.shape)}")
    off = oracle.relative(got, want)
    if not off <= TOLERANCE:
        raise Unlike(f"{what} off by {off:.1e}")


def gradients(p: Problem, want: oracle.Expected) -> None:
    for name, leaf, right in (("grad_hidden", p.hidden, want.grad_hidden),
                              ("grad_weight", p.weight, want.grad_weight)):  # fmt: skip
        if leaf.requires_grad:
            same(name, leaf.grad, right)


def compared(case: Case, p: Problem, upstream: Tensor | None = None, **options: Any) -> Result:
    """One step with these options, beside float64."""
    bias = options.get("bias")
    got = case.peer.step(*p, upstream, **options)
    theirs = {k: v for k, v in options.items() if not k.startswith("return_")}
    want = oracle.expected(*p, upstream, **theirs)
    same("loss", got.loss, want.loss)
    gradients(p, want)
    if bias is not None:
        same("grad_bias", bias.grad, want.grad_bias)
    return got


def option(**constant: Any) -> Probe:
    return lambda case: void(compared(case, case.problem(), **constant))


def void(_: object) -> None:
    return None


def plain(case: Case) -> None:
    compared(case, case.problem())


def bias(case: Case) -> None:
    p = case.problem()
    own = (case.uniform(len(p.weight)) * 6).to(p.weight.dtype).requires_grad_()
    compared(case, p, bias=own)


def ignored(index: int) -> Probe:
    def probe(case: Case) -> None:
        p = case.problem()
        p.target[::2] = index
        compared(case, p, **({} if index == -100 else {"ignore_index": index}))

    return probe


def class_weight(case: Case) -> None:
    p = case.problem()
    compared(case, p, class_weight=case.uniform(len(p.weight)) * 3)


def token_weight(case: Case) -> None:
    p = case.problem()
    compared(case, p, token_weight=case.uniform(len(p.hidden)) * 3, reduction="sum")


def reduction_none(case: Case) -> None:
    p = case.problem()
    compared(case, p, case.uniform(len(p.hidden)) * 3, reduction="none")


def lse(case: Case) -> None:
    p = case.problem()
    got = compared(case, p, return_lse=True)
    same("lse", got.lse, oracle.expected(*p).lse)


def output(name: str, with_gradient: bool) -> Probe:
    def probe(case: Case) -> None:
        p = case.problem()
        found = getattr(case.peer.outputs(*p), name)
        if found is None:
            raise Unlike(f"no {name}")
        upstream = case.uniform(len(p.hidden))
        want = oracle.expected(*p, upstream, of=name)
        same(name, found, getattr(want, name))
        if with_gradient:
            found.backward(upstream.to(found.dtype))
            gradients(p, want)

    return probe


def accumulate(case: Case) -> None:
    p = case.problem()
    start = torch.ones(p.weight.shape, device=case.device) * 1e-3
    buffer = start.clone()
    case.peer.step(*p, None, accumulate_into=buffer)
    same("the buffer's growth", buffer - start, oracle.expected(*p).grad_weight)


def frozen(name: str) -> Probe:
    def probe(case: Case) -> None:
        p = case.problem()
        leaf: Tensor = getattr(p, name).requires_grad_(False)
        compared(case, p)
        if leaf.grad is not None:
            raise Unlike(f"a gradient of the frozen {name}")

    return probe


def second_backward(case: Case) -> None:
    p = case.problem()
    loss = case.peer.loss(*p, **case.peer.graph_options).loss
    loss.backward(retain_graph=True)
    p.clear()
    loss.backward()
    gradients(p, oracle.expected(*p))


def fullgraph(case: Case) -> None:
    p = case.problem()
    options = case.peer.graph_options
    compiled = torch.compile(lambda *t: case.peer.loss(*t, **options).loss, fullgraph=True)
    compiled(*p).backward()
    gradients(p, oracle.expected(*p))


def vocab_parallel(case: Case) -> None:
    """With a group of one process: that the way exists, not that it is right on several."""
    from torch import distributed

    backend = "nccl" if case.device == "cuda" else "gloo"
    store = distributed.HashStore()
    distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    try:
        p = case.problem()
        got = case.peer.step(*p, None, vocab_parallel=True)
        want = oracle.expected(*p)
        same("loss", got.loss, want.loss)
        gradients(p, want)
    finally:
        distributed.destroy_process_group()


def of_dtype(dtype: str) -> Probe:
    return lambda case: void(compared(case, case.problem(dtype=dtype)))


FEATURES: dict[str, Probe] = {
    "loss and gradients": plain,
    "bf16": of_dtype("bf16"),
    "f16": of_dtype("f16"),
    "f32": of_dtype("f32"),
    "odd N, H and V": lambda case: void(compared(case, case.problem(ODD_SHAPE))),
    "targets of -100": ignored(-100),
    "ignore_index": ignored(7),
    "bias": bias,
    "label smoothing": option(label_smoothing=0.3),
    "class weights": class_weight,
    "token weights": token_weight,
    "softcap": option(softcap=2.0),
    "z-loss": option(z_loss=0.3),
    "temperature": option(temperature=0.5),
    "reduction sum": option(reduction="sum"),
    "reduction none": reduction_none,
    "normalizer": option(reduction="sum", normalizer=100.0),
    "lse output": lse,
    "logprob output": output("logprob", False),
    "logprob gradient": output("logprob", True),
    "entropy output": output("entropy", False),
    "entropy gradient": output("entropy", True),
    "grad_weight added to an f32 buffer": accumulate,
    "frozen weight": frozen("weight"),
    "frozen hidden": frozen("hidden"),
    "second backward pass": second_backward,
    "torch.compile fullgraph": fullgraph,
    "vocab-parallel": vocab_parallel,
}


def tried(case: Case, name: str) -> tuple[str, str]:
    """yes or no, and the answer where it is no."""
    torch.compiler.reset()  # else a compiled system gives up compiling after a few options
    try:
        FEATURES[name](case)
    except Exception as error:  # whatever it is, it is the system's answer
        return "no", words.of_error(error)
    return "yes", ""
