# SPDX-License-Identifier: Apache-2.0
"""Random training steps: sizes, layouts and options that go together, from a seed and a number.

Knows the public signatures of flce.torch and nothing of how results are judged (checks.py).
"""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

import torch
from torch import Tensor

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
}
GAPS = {"gaps": 8, "odd gaps": 3}  # elements behind each row, all NaN
RETURNS = ("lse", "logprob", "entropy", "accuracy", "z_loss", "argmax")


class Limits(NamedTuple):
    """The largest sizes that are drawn, and the most multiply-adds of one product."""

    tokens: int
    hidden: int
    vocab: int
    products: float


# Reference and operation together take some tens of milliseconds at most.
LIMITS = {"cpu": Limits(160, 96, 3000, 6e6), "cuda": Limits(4608, 1024, 60000, 4e10)}
LARGE_TOKENS = 2048  # kernels of large problems begin here


class Case(NamedTuple):
    """One step. `options` has numbers and words; tensors are made from `parts` by `tensors_of`."""

    number: int
    function: str  # of flce.torch: linear_cross_entropy, linear_logprob or loss_and_grads
    shape: tuple[int, ...]  # of target
    hidden: int
    vocab: int
    dtype: str
    layouts: tuple[str, str]  # of hidden and weight
    peak: float  # the usual size of a logit
    ignored: float  # share of the targets
    wanted: tuple[bool, bool, bool]  # gradients of hidden, weight, bias
    parts: dict[str, str]  # bias, weight, token_weight, temperature, normalizer, buffer -> dtype
    target: str
    options: dict[str, Any]
    slack: float = 0.0  # budget: this times the smallest that works; 0: none is given

    @property
    def tokens(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        wanted = "+".join(
            name for name, is_wanted in zip(("hidden", "weight", "bias"), self.wanted, strict=True)
            if is_wanted
        )  # fmt: skip
        words = [self.function, f"target {list(self.shape)} {self.target}", f"H={self.hidden}",
                 f"V={self.vocab}", self.dtype, "/".join(self.layouts), f"peak {self.peak}",
                 f"ignored {self.ignored}", f"gradients {wanted or 'none'}"]  # fmt: skip
        words += [f"{name}: {dtype}" for name, dtype in self.parts.items()]
        words += [f"budget: {self.slack} of the smallest"] * (self.slack > 0)
        return ", ".join(words + [f"{name}={value}" for name, value in self.options.items()])


class Dice:
    """A few ways to draw."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(f"{seed}:{number}")

    def one_of(self, *values: Any) -> Any:
        return self.random.choice(values)

    def happens(self, share: float) -> bool:
        return self.random.random() < share

    def size(self, most: int) -> int:
        """From 1 on, small ones as often as large ones; half of the large ones round."""
        size = int(math.exp(self.random.uniform(0.0, math.log(most + 1))))
        if size >= 64 and self.happens(0.5):
            size -= size % self.one_of(8, 64)
        return max(1, min(size, most))


def _sizes(dice: Dice, limits: Limits) -> tuple[tuple[int, ...], int, int]:
    """Target's shape, H and V, within the limit for one product."""
    tokens, hidden, vocab = map(dice.size, limits[:3])
    if limits.tokens > LARGE_TOKENS and dice.happens(0.3):
        tokens = dice.random.randrange(LARGE_TOKENS, limits.tokens)
        hidden = dice.one_of(128, 256, 512, 1024)
        vocab = max(vocab, 1024) // 64 * 64
    while tokens * hidden * vocab > limits.products:
        if tokens >= vocab:
            tokens = max(1, tokens // 2)
        else:
            vocab = max(1, vocab // 2)
    rows = dice.one_of(1, 2, 3, 4)
    shape: tuple[int, ...] = (tokens,) if tokens < 2 * rows else (rows, tokens // rows)
    if dice.happens(0.02):
        shape = dice.one_of((), (0,), (2, 0))
    elif dice.happens(0.4):
        shape = (math.prod(shape),)
    return shape, hidden, vocab


def _options(dice: Dice, case: Case, parts: dict[str, str]) -> dict[str, Any]:
    """Of linear_cross_entropy; numbers that have no effect are left out."""
    options: dict[str, Any] = {"reduction": dice.one_of("mean", "mean", "sum", "none")}
    if dice.happens(0.3):
        options["label_smoothing"] = dice.one_of(0.05, 0.1, 0.5, 1.0)
    if dice.happens(0.3):
        options["z_loss"] = dice.one_of(1e-4, 1e-2)
    if dice.happens(0.3):
        options["softcap"] = dice.one_of(3.0, 15.0, 30.0)
    if dice.happens(0.2):
        options["scale"] = dice.one_of(0.3, 1.7, -1.0)
    if dice.happens(0.2):
        options["temperature"] = dice.one_of(0.7, 1.4)
    if case.shape and dice.happens(0.2):
        options["shift"] = dice.one_of(1, 2, 5)
    if dice.happens(0.3):
        options["ignore_index"] = dice.one_of(-1, 0, case.vocab // 2, case.vocab + 3)
    for name in ("weight", "token_weight", "temperature"):
        if dice.happens(0.2):
            parts[name] = _companion(dice, case.dtype)
    if options["reduction"] != "none" and dice.happens(0.3):
        options["normalizer"] = dice.one_of(1, 7, 250.5)
        if dice.happens(0.5):
            parts["normalizer"] = dice.one_of("int64", "f32")
            options["normalizer"] = dice.one_of(3, 40)
    for name in RETURNS:
        if dice.happens(0.2):
            options[f"return_{name}"] = True
    if case.wanted[1] and dice.happens(0.15):
        parts["buffer"] = _companion(dice, case.dtype)
    return options


def _companion(dice: Dice, dtype: str) -> str:
    """What may stand beside operands of that type."""
    return dtype if dtype == "f64" else dice.one_of(dtype, "f32")


def _way(dice: Dice, case: Case, parts: dict[str, str], options: dict[str, Any]) -> dict[str, Any]:
    """Method and chunk. `fused` makes no gradients from an upstream per token."""
    methods = ["auto", "auto", "naive", "chunked", "recompute"]
    is_plain = case.function != "linear_logprob" and options.get("reduction") != "none"
    if is_plain and "buffer" not in parts:
        methods.append("fused")
    way: dict[str, Any] = {"method": dice.one_of(*methods)}
    if dice.happens(0.4):
        rows = dice.one_of(1, 3, 32, max(1, case.tokens // 3), case.tokens + 1)
        # A token at a time is slow on a card, and long lists of launches tell nothing new.
        way["chunk"] = max(rows, case.tokens // 50)
    return way


def draw(seed: int, number: int, device: str) -> Case:
    dice = Dice(seed, number)
    shape, hidden, vocab = _sizes(dice, LIMITS[device])
    function = "linear_cross_entropy"
    if dice.happens(0.15):
        function = dice.one_of("linear_logprob", "loss_and_grads")
    has_bias = function != "loss_and_grads" and dice.happens(0.4)
    wanted = (True, True, has_bias)
    if function != "loss_and_grads" and dice.happens(0.3):
        wanted = (dice.happens(0.5), dice.happens(0.5), has_bias and dice.happens(0.5))
    dtype = dice.one_of("f32", "bf16", "bf16", "f16", "f64")
    layouts = tuple(dice.one_of("rows", "rows", "rows", *GAPS, "columns") for _ in range(2))
    parts: dict[str, str] = {}
    case = Case(number, function, shape, hidden, vocab, dtype, (layouts[0], layouts[1]),
                dice.one_of(0.5, 1.0, 4.0), dice.one_of(0.0, 0.0, 0.1, 0.5, 1.0), wanted, parts,
                dice.one_of("int64", "int64", "int32"), {})  # fmt: skip
    options = _options(dice, case, parts)
    if function == "linear_logprob":
        known: tuple[str, ...] = ("temperature", "softcap", "scale", "ignore_index", "shift")
        parts = {name: parts[name] for name in parts if name == "temperature"}
        options = {name: options[name] for name in known if name in options}
    elif function == "loss_and_grads":
        known = ("ignore_index", "label_smoothing", "softcap", "scale", "z_loss", "shift")
        parts = {}
        options = {name: options[name] for name in known if name in options}
        options["reduction"] = dice.one_of("mean", "sum")
    if has_bias:
        parts["bias"] = _companion(dice, dtype)
    options.update(_way(dice, case, parts, options))
    if "temperature" in parts:
        options.pop("temperature", None)
    slack = dice.one_of(1.0, 1.3, 3.0) if dice.happens(0.1) else 0.0
    return case._replace(parts=parts, options=options, slack=slack)


class Tensors(NamedTuple):
    """What a call is made of; leaves that require gradients where the case wants them."""

    hidden: Tensor
    weight: Tensor
    target: Tensor
    bias: Tensor | None
    constants: dict[str, Tensor]  # weight, token_weight, temperature, normalizer
    buffer: Tensor | None


def _laid_out(values: Tensor, layout: str) -> Tensor:
    """The same values with other strides."""
    if layout in GAPS:
        gap = GAPS[layout]
        wide = values.new_full((*values.shape[:-1], values.shape[-1] + gap), math.nan)
        wide[..., :-gap] = values
        return wide[..., :-gap]
    if layout == "columns" and values.dim() > 1:
        return values.transpose(-1, -2).contiguous().transpose(-1, -2)
    return values


def _positive(shape: tuple[int, ...], device: str) -> Tensor:
    return torch.rand(shape, device=device) + 0.5


def tensors_of(case: Case, seed: int, device: str) -> Tensors:
    torch.manual_seed((seed << 24) + case.number)
    dtype = DTYPES[case.dtype]
    hidden = torch.randn(*case.shape, case.hidden, device=device).to(dtype)
    weight = torch.randn(case.vocab, case.hidden, device=device)
    weight = (weight * (case.peak * case.hidden**-0.5)).to(dtype)
    ignored = case.options.get("ignore_index", -100)
    target = torch.randint(0, case.vocab, case.shape, device=device)
    target = torch.where(torch.rand(case.shape, device=device) < case.ignored, ignored, target)
    kinds = {**DTYPES, "int64": torch.int64}
    made: dict[str, Tensor] = {}
    for name, shape in (("weight", (case.vocab,)), ("token_weight", case.shape),
                        ("temperature", case.shape)):  # fmt: skip
        if name in case.parts:
            made[name] = _positive(shape, device).to(kinds[case.parts[name]])
    if "normalizer" in case.parts:
        number = case.options["normalizer"]
        made["normalizer"] = torch.tensor(number, dtype=kinds[case.parts["normalizer"]])
    bias = buffer = None
    if "bias" in case.parts:
        bias = torch.randn(case.vocab, device=device).to(kinds[case.parts["bias"]])
        bias.requires_grad_(case.wanted[2])
    if "buffer" in case.parts:
        buffer = torch.randn(case.vocab, case.hidden, device=device).to(kinds[case.parts["buffer"]])
    return Tensors(
        _laid_out(hidden, case.layouts[0]).requires_grad_(case.wanted[0]),
        _laid_out(weight, case.layouts[1]).requires_grad_(case.wanted[1]),
        target.to(kinds.get(case.target, torch.int32)),
        bias,
        made,
        buffer,
    )
