# SPDX-License-Identifier: Apache-2.0
"""flce.torch, by the two methods that hold no N x V logits."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .base import Peer, Result

BINDINGS = Path(__file__).resolve().parents[3] / "bindings" / "python"
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


class Fused(Peer):
    name = "flce-fused"
    get = "./dev build, or pip install . in this repository"
    devices = ("cpu", "cuda")
    keywords = {"bias": "linear_bias", "class_weight": "weight"}
    method = "fused"

    def load(self) -> None:
        if BINDINGS.is_dir():
            sys.path.insert(0, str(BINDINGS))
        import flce
        import flce.torch

        self.flce, self.functions = flce, flce.torch

    def version(self) -> str:
        """Also of which build: rows of another one are other rows."""
        from flce import _abi

        digest = hashlib.sha256()
        library = _abi.find_library()
        for path in (library, library.parent / "libflce_cuda.so"):
            if path.exists():
                digest.update(path.read_bytes())
        return f"flce {self.flce.__version__} ({digest.hexdigest()[:8]})"

    def chunk(self, hidden: Tensor, weight: Tensor) -> int:
        plan = self.flce.plan(tokens=len(hidden), hidden=hidden.shape[1], vocab=len(weight),
                              dtype=NAMES[hidden.dtype], device=hidden.device.type,
                              method=self.method)  # fmt: skip
        return plan.chunk

    def outputs(self, hidden: Tensor, weight: Tensor, target: Tensor) -> Result:
        logprob, entropy = self.functions.linear_logprob(hidden, weight, target)
        return Result(-logprob.mean(), None, logprob, entropy)

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        wants_lse = "return_lse" in options
        options = {"method": self.method, **self.translated(options)}
        found = self.functions.linear_cross_entropy(hidden, weight, target, **options)
        return Result(found.loss, found.lse) if wants_lse else Result(found)


class Recompute(Fused):
    name = "flce-recompute"
    note = "one product more, and no chunk of gradients is kept"
    method = "recompute"


ALL = (Fused, Recompute)
