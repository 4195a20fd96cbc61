# SPDX-License-Identifier: Apache-2.0
"""Liger Kernel: its Triton operation, the one in CuTe DSL for Hopper, and the one per token."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from .base import Peer, Result, published_chunk, scalar_reduction


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


class Triton4096(Triton):
    name = "liger-triton-4096"
    get = "pip install liger-kernel, or --peer liger-triton-4096=FOLDER of its sources"
    note = "with chunk_mem_const for chunks of 4096 tokens"

    def chunk(self, hidden: Tensor, weight: Tensor) -> int:
        return min(len(hidden), 4096)

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        chunks = -(-len(hidden) // 4096)
        options["chunk_mem_const"] = -(-len(weight) // (chunks * hidden.shape[1]))
        return super().loss(hidden, weight, target, **options)


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


class Scaled(Peer):
    """Per token, as verl's; its README leaves reductions to PyTorch."""

    name = "liger-scaled"
    get = (
        "pip install liger-kernel nvidia-cutlass-dsl, or --peer liger-scaled=FOLDER of its sources"
    )
    note = (
        "its function per token, with temperature and entropy; in CuTe DSL on compute capability "
        "9.0; the loss is the mean"
    )
    distribution = "liger-kernel"

    def load(self) -> None:
        self.add_source()
        os.environ.pop("LIGER_KERNEL_IMPL", None)
        from liger_kernel import ops

        self.function = ops.LigerFusedLinearScaledCrossEntropyFunction.apply
        self.parallel = ops.LigerFusedLinearScaledCrossEntropyTPFunction.apply

    def outputs(self, hidden: Tensor, weight: Tensor, target: Tensor) -> Result:
        loss, entropy = self.function(hidden, weight, target, return_entropy=True)
        return Result(loss, None, -loss, entropy)

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        reduction = options.pop("reduction", "mean")
        if options.pop("vocab_parallel", False):
            from torch import distributed

            losses = self.parallel(hidden, weight, target, distributed.group.WORLD, **options)
        else:
            losses = self.function(hidden, weight, target, **options)
        if reduction != "mean":
            return Result(scalar_reduction(losses, reduction))
        count = (target != options.get("ignore_index", -100)).sum().clamp_min(1)
        return Result(losses.sum() / count)


ALL = (Triton, TritonF32, Triton4096, CuteDsl, Scaled)
