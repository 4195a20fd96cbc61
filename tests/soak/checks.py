# SPDX-License-Identifier: Apache-2.0
"""Takes one step by flce.torch and by float64 PyTorch operations, and says where they differ.

The rule: the largest error of a result is at most t times its scale. t is that of the tests
(tests/python/support.py); for gradients 1.5 times as much, twice on a card, because one token of
16 bits may be rounded four times (logit's gradient, product, sum, upstream). The scale is the
largest value of the reference, or, where that is larger, the size of the parts it is a sum of: of a
loss per token max(1, largest |lse|) times its weights, summed over tokens where it is a sum; of a
gradient of a logit `largest_part` of tests/python/oracle.py times the upstream; of what is summed
over N tokens sqrt(N) times that. A float16 gradient may besides err by the gaps between the
smallest float16 numbers, of its own and of the parts it is a sum of. Ignored tokens have losses and
gradients of exactly 0.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

import flce
import oracle
from cases import DTYPES, Case, Tensors
from flce import torch as flce_torch
from support import GRAD_TOLERANCE, LOSS_TOLERANCE

FLOAT16_GAP = 2.0**-24
SMALLEST = re.compile(r"smallest budget that works is (\d+) bytes")


def upstream_of(result: Tensor) -> Tensor:
    """Of either sign, and neither large nor small."""
    size = 0.5 + 1.5 * torch.rand_like(result)
    return torch.where(torch.rand_like(result) < 0.5, -size, size)


class Step:
    """One case's tensors, what came out, and the faults that were found."""

    def __init__(self, case: Case, tensors: Tensors) -> None:
        self.case, self.tensors = case, tensors
        self.dtype = DTYPES[case.dtype]
        self.faults: list[str] = []
        self.leaves = [oracle.leaf(t) for t in (tensors.hidden, tensors.weight, tensors.bias)]
        self.expected = self._reference()

    def _reference(self) -> oracle.Expected:
        names = {"label_smoothing", "softcap", "scale", "z_loss", "shift", "temperature",
                 "ignore_index", "reduction", "normalizer"}  # fmt: skip
        options = {k: v for k, v in self.case.options.items() if k in names}
        if self.case.function == "linear_logprob":
            options["reduction"] = "none"
        constants = {k: v for k, v in self.tensors.constants.items() if k != "normalizer"}
        hidden, weight, bias = self.leaves
        return oracle.linear_cross_entropy(
            hidden, weight, self.tensors.target, bias=bias, **{**options, **constants}
        )

    def fault(self, text: str) -> None:
        self.faults.append(text)

    def close(
        self,
        name: str,
        got: Tensor,
        want: Tensor,
        tolerance: float,
        floor: float,
        absolute: float = 0.0,
    ) -> None:
        if got.shape != want.shape:
            self.fault(f"{name} has shape {tuple(got.shape)}, not {tuple(want.shape)}")
            return
        got, want = got.detach().double(), want.detach().double()
        finite = torch.isfinite(want)
        if not torch.equal(got.isnan(), want.isnan()) or not bool(got[finite].isfinite().all()):
            self.fault(f"{name} has NaN or infinities where the reference has none, or the reverse")
            return
        if not bool(finite.any()):
            return
        scale = max(float(want[finite].abs().max()), floor, 1e-30)
        most = tolerance + absolute / scale
        error = float((got - want)[finite].abs().max()) / scale
        if error > most:
            self.fault(f"{name}: relative error {error:.2e}, at most {most:.1e}")

    # Sizes of parts.

    def largest_lse(self) -> float:
        lse = self.expected.lse.detach()
        return max(1.0, float(lse.abs().max()) if lse.numel() else 0.0)

    def gradient_floor(self, upstream: float, which: int) -> float:
        """Of the gradient of hidden, weight or bias; 0 where no token is valid."""
        if self.expected.num_valid == 0:
            return 0.0
        temperature = self.tensors.constants.get(
            "temperature", self.case.options.get("temperature", 1.0)
        )
        coldest = float(temperature.min()) if isinstance(temperature, Tensor) else temperature
        scale = max(abs(self.case.options.get("scale", 1.0)), 1.0) / coldest
        other = (self.leaves[1], self.leaves[0], None)[which]
        size = 1.0 if other is None else float(other.detach().abs().max())
        return self.expected.largest_part * upstream * scale * size * self.sum_of(which)

    def float16_gaps(self, which: int) -> float:
        other = (self.leaves[1], self.leaves[0], None)[which]
        size = 1.0 if other is None or not other.numel() else float(other.detach().abs().max())
        terms = (self.case.vocab, self.case.tokens, self.case.tokens)[which]
        return FLOAT16_GAP * (1.0 + size * terms**0.5)

    def sum_of(self, which: int) -> float:
        return 1.0 if which == 0 else max(1.0, float(self.case.tokens)) ** 0.5

    # The three functions.

    def run(self) -> None:
        budget = self.smallest_budget() * self.case.slack if self.case.slack else 0.0
        more = {"budget": int(budget)} if budget else {}
        getattr(self, self.case.function)(self._call(**more))

    def smallest_budget(self) -> int:
        """What the refusal of a budget of one byte names; 0 where that was enough."""
        try:
            self._call(budget=1)
        except flce.OutOfBudget as error:
            found = SMALLEST.search(str(error))
            if found is None:
                self.fault(f"no smallest budget is named: {error}")
            return int(found[1]) if found else 0
        if self.case.tokens > 0:
            self.fault("a budget of 1 byte was accepted")
        return 0

    def _call(self, **more: Any) -> Any:
        """The results of flce.torch."""
        hidden, weight, target, bias, constants, buffer = self.tensors
        options = {**self.case.options, **constants, **more}
        if self.case.function == "linear_cross_entropy":
            self.before = None if buffer is None else buffer.to(torch.float64, copy=True)
            return flce_torch.linear_cross_entropy(
                hidden, weight, target, linear_bias=bias, accumulate_into=buffer, **options
            )
        if self.case.function == "linear_logprob":
            return flce_torch.linear_logprob(hidden, weight, target, bias=bias, **options)
        if "chunk" in options:
            options["chunk_size"] = options.pop("chunk")
        return flce_torch.loss_and_grads(hidden, weight, target, **options)

    def linear_cross_entropy(self, result: Any) -> None:
        loss = result if isinstance(result, Tensor) else result.loss
        self.losses(loss)
        if not isinstance(result, Tensor):
            self.outputs(result)
        self.gradients([loss], [self.expected.loss])

    def linear_logprob(self, result: Any) -> None:
        for name, got, want in zip(
            ("logprob", "entropy"), result, (self.expected.logprob, self.expected.entropy),
            strict=True,
        ):  # fmt: skip
            self.close(name, got, want, 10 * LOSS_TOLERANCE[self.dtype], self.largest_lse())
        self.gradients(list(result), [self.expected.logprob, self.expected.entropy])

    def loss_and_grads(self, result: Any) -> None:
        loss, *grads = result
        self.losses(loss)
        wanted = torch.autograd.grad(self.expected.loss, self.leaves[:2])
        for which, (got, want) in enumerate(zip(grads, wanted, strict=True)):
            self.gradient(which, got, want, self.gradient_floor(1.0, which))

    # Their parts.

    def losses(self, loss: Tensor) -> None:
        # Parts of mean are divided by what they are a sum of; those of a sum count all.
        floor = self.expected.largest_part * self.largest_lse()
        if self.case.options["reduction"] != "none":
            floor *= max(1, self.expected.num_valid)
        self.close("loss", loss, self.expected.loss, LOSS_TOLERANCE[self.dtype], floor)
        if self.case.options["reduction"] == "none" and bool(loss[~self.valid()].any()):
            self.fault("an ignored token has a loss that is not 0")

    def valid(self) -> Tensor:
        options, target = self.case.options, self.tensors.target
        ignored = options.get("ignore_index", -100)
        shift = options.get("shift", 0)
        return (oracle.shifted(target, shift, ignored) if shift else target) != ignored

    def outputs(self, result: Any) -> None:
        options, floor = self.case.options, self.largest_lse()
        tolerance = LOSS_TOLERANCE[self.dtype]
        for name in ("lse", "logprob", "entropy"):
            if f"return_{name}" in options:
                self.close(name, getattr(result, name), getattr(self.expected, name),
                           tolerance if name == "lse" else 10 * tolerance, floor)  # fmt: skip
        if "return_z_loss" in options:
            z_floor = self.expected.largest_part * max(1, self.expected.num_valid)
            self.close("z_loss", result.z_loss, self.expected.z_loss, 2 * tolerance, z_floor)
        if "return_accuracy" in options and int(result.num_valid) != self.expected.num_valid:
            self.fault(f"num_valid {int(result.num_valid)}, not {self.expected.num_valid}")
        if "return_argmax" in options:
            self.argmax(result)

    def argmax(self, result: Any) -> None:
        """The class of the largest logit, or of one that rounding cannot tell from it."""
        hidden, weight, bias = self.leaves
        known = {k: v for k, v in self.case.options.items() if k in ("scale", "softcap")}
        with torch.no_grad():
            logits = oracle.logits(hidden, weight, bias, **known)
        valid, best = self.valid(), result.argmax
        chosen = logits.gather(-1, best[..., None])[..., 0]
        size = max(1.0, float(logits.abs().max()) if logits.numel() else 0.0)
        self.close("largest logit", chosen[valid], logits.amax(-1)[valid],
                   LOSS_TOLERANCE[self.dtype], size)  # fmt: skip
        if bool(best[~valid].any()):
            self.fault("an ignored token has an argmax that is not 0")
        if "return_accuracy" in self.case.options:
            shift, ignored = (self.case.options.get(k, d) for k, d in
                              (("shift", 0), ("ignore_index", -100)))  # fmt: skip
            target = self.tensors.target
            target = oracle.shifted(target, shift, ignored) if shift else target
            correct = int(((best == target) & valid).sum())
            if int(result.num_correct) != correct:
                self.fault(f"num_correct {int(result.num_correct)}, by argmax {correct}")

    def gradients(self, ours: list[Tensor], theirs: list[Tensor]) -> None:
        """For a random upstream of each result."""
        asked = [i for i, is_wanted in enumerate(self.case.wanted) if is_wanted]
        if not asked:
            if any(result.requires_grad for result in ours):
                self.fault("a result requires a gradient, and no input does")
            return
        upstream = [upstream_of(result) for result in ours]
        inputs = [self.tensors.hidden, self.tensors.weight, self.tensors.bias]
        torch.autograd.backward(ours, upstream)
        wanted = torch.autograd.grad(
            theirs, [self.leaves[i] for i in asked], [u.double() for u in upstream]
        )
        largest = sum(float(u.abs().max()) if u.numel() else 0.0 for u in upstream)
        if self.case.function == "linear_logprob":
            largest *= self.largest_lse()  # a gradient of the entropy has the logits as factors
        for which, want in zip(asked, wanted, strict=True):
            got = inputs[which].grad
            floor = self.gradient_floor(largest, which)
            if which == 1 and self.tensors.buffer is not None:
                if got is not None:
                    self.fault("linear_weight.grad is there beside accumulate_into")
                got = self.tensors.buffer.double() - self.before
                floor = max(floor, float(self.before.abs().max()))
                self.gradient(which, got, want, floor)
            elif got is None:
                self.fault(f"gradient {which} is missing")
            else:
                if got.dtype != inputs[which].dtype:
                    self.fault(f"gradient {which} has dtype {got.dtype}")
                self.gradient(which, got, want, floor)

    def gradient(self, which: int, got: Tensor, want: Tensor, floor: float) -> None:
        """torch's are NaN where nothing is valid; ours are 0."""
        name = ("grad_hidden", "grad_weight", "grad_bias")[which]
        if self.expected.num_valid == 0:
            if bool(got.any()):
                self.fault(f"{name} is not 0, and no token is valid")
            return
        tolerance = GRAD_TOLERANCE[self.dtype] * (2.0 if got.is_cuda else 1.5)
        absolute = self.float16_gaps(which) if self.dtype == torch.float16 else 0.0
        self.close(name, got, want, tolerance, floor, absolute)
        if which == 0 and bool(got[~self.valid()].any()):
            self.fault("an ignored token has a gradient that is not 0")


def faults_of(case: Case, tensors: Tensors) -> list[str]:
    """What is wrong with the step."""
    step = Step(case, tensors)
    try:
        step.run()
    except Exception as error:
        step.fault(f"{type(error).__name__}: {error}")
    return step.faults
