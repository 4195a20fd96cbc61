# SPDX-License-Identifier: Apache-2.0
"""Liger Kernel: its Triton operation, and the one in CuTe DSL for Hopper."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from .base import Peer, Result, published_chunk


class Triton(Peer):
    name = "liger-triton"
    get = "pip install liger-kernel, or --peer liger-triton=FOLDER of its sources"
    distribution = "liger-kernel"
    keywords = {"class_weight": "ce_weight", "z_loss": "lse_square_scale"}
    accumulator: torch.dtype | None = None

    def load(self) -> None:
        self.add_source()
        os.environ.pop("LIGER_KERNEL_IMPL", None)  # would put another implementation in its place
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        self.function = liger_fused_linear_cross_entropy

    def chunk(self, hidden: Tensor, weight: Tensor) -> int:
        return published_chunk(hidden, weight)

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        options = self.translated(options)
        if self.accumulator is not None:
            options["accum_dtype"] = self.accumulator
        return Result(self.function(hidden, weight, target, **options))


class TritonF32(Triton):
    name = "liger-triton-f32"
    get = "pip install liger-kernel, or --peer liger-triton-f32=FOLDER of its sources"
    note = "with accum_dtype=torch.float32"
    accumulator = torch.float32


class CuteDsl(Peer):
    name = "liger-cutedsl"
    get = (
        "pip install liger-kernel nvidia-cutlass-dsl, from the version on that has "
        "liger_kernel.ops.cutedsl, or --peer liger-cutedsl=FOLDER of its sources"
    )
    note = "for compute capability 9.0; compiled at first use"
    distribution = "liger-kernel"

    def load(self) -> None:
        self.add_source()
        from liger_kernel.ops.cutedsl.ops import fused_linear_cross_entropy_sm90

        self.function = fused_linear_cross_entropy_sm90.liger_fused_linear_cross_entropy_sm90

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        return Result(self.function(hidden, weight, target, **self.translated(options)))


ALL = (Triton, TritonF32, CuteDsl)
