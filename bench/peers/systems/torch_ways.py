# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own ways: eager and compiled float32 cross-entropy, its fused function, a loop."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .base import Peer, Result, published_chunk

ANY_DEVICE = ("cpu", "cuda")
CROSS_ENTROPY = {"class_weight": "weight"}
RETAIN = {"allow_retain_graph": True}


def float32_loss(
    hidden: Tensor, head: Tensor, target: Tensor, *, bias: Tensor | None = None, **options: Any
) -> Tensor:
    """`weight` among the options is F.cross_entropy's: that of the classes."""
    return F.cross_entropy(F.linear(hidden, head, bias).float(), target, **options)


class Eager(Peer):
    name = "torch-linear+cross_entropy"
    get = "pip install torch"
    note = "F.linear, then F.cross_entropy of its result in float32, as trainers call it"
    devices = ANY_DEVICE
    keywords = CROSS_ENTROPY

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        return Result(float32_loss(hidden, weight, target, **self.translated(options)))


class Compiled(Eager):
    name = "torch-compile"
    note = "torch.compile of torch-linear+cross_entropy"

    def load(self) -> None:
        self.compiled = torch.compile(float32_loss)

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        return Result(self.compiled(hidden, weight, target, **self.translated(options)))


class ChunkLoop(Eager):
    name = "torch-chunk-loop"
    note = (
        "a loop over chunks of tokens in PyTorch operations, each with its backward pass: it saves "
        "memory and is not fast"
    )

    def chunk(self, hidden: Tensor, weight: Tensor) -> int:
        return min(len(hidden), 1024 if hidden.is_cuda else 512)

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        raise NotImplementedError("the backward pass is inside the loop: no loss comes before it")

    def step(
        self, hidden: Tensor, weight: Tensor, target: Tensor, upstream: Tensor | None = None,
        **options: Any,
    ) -> Result:  # fmt: skip
        options = self.translated(options)
        reduction = options.pop("reduction", "mean")
        kind = "none" if reduction == "none" else "sum"
        count = 1.0
        if reduction == "mean":  # F.cross_entropy's divisor
            valid = target != options.get("ignore_index", -100)
            classes = options.get("weight")
            count = valid.sum() if classes is None else classes[target[valid]].sum()
        losses, rows = [], self.chunk(hidden, weight)
        for begin in range(0, len(hidden), rows):
            part = slice(begin, begin + rows)
            loss = float32_loss(hidden[part], weight, target[part], reduction=kind, **options)
            loss = loss / count
            is_split = upstream is not None and upstream.dim() > 0
            loss.backward(upstream[part] if is_split else upstream)
            losses.append(loss.detach())
        return Result(torch.cat(losses) if kind == "none" else torch.stack(losses).sum())


class Own(Peer):
    name = "torch-linear_cross_entropy"
    get = "pip install 'torch>=2.13'"
    note = "torch.nn.functional.linear_cross_entropy, its reference way"
    devices = ANY_DEVICE
    keywords = {"bias": "linear_bias", "class_weight": "weight"}

    def load(self) -> None:
        if not hasattr(F, "linear_cross_entropy"):
            raise ImportError(f"torch {torch.__version__} has no linear_cross_entropy")

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        options = self.translated(options)
        return Result(F.linear_cross_entropy(hidden, weight, target, **options))


class OwnChunked(Own):
    name = "torch-linear_cross_entropy-chunked"
    note = "torch.nn.functional.linear_cross_entropy with options, in chunks of its own choice"
    graph_options = RETAIN
    rows: int | None = None

    def load(self) -> None:
        super().load()
        if not hasattr(torch.nn, "LinearCrossEntropyOptions"):
            raise ImportError(f"torch {torch.__version__} has no LinearCrossEntropyOptions")
        chosen = {"batch_chunk_size": self.rows, "chunking_method": None} if self.rows else {}
        self.options = torch.nn.LinearCrossEntropyOptions(**chosen)
        self.retaining = torch.nn.LinearCrossEntropyOptions(**chosen, allow_retain_graph=True)

    def chunk(self, hidden: Tensor, weight: Tensor) -> int:
        return min(len(hidden), self.rows or published_chunk(hidden, weight))

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        chosen = self.retaining if options.pop("allow_retain_graph", False) else self.options
        return super().loss(hidden, weight, target, options=chosen, **options)


class OwnChunked4096(OwnChunked):
    name = "torch-linear_cross_entropy-chunked-4096"
    note = "torch.nn.functional.linear_cross_entropy with options, in chunks of 4096 tokens"
    rows = 4096


class OwnFile(Peer):
    """The operator inside that function takes every argument by place; this fills them in."""

    name = "torch-linear_cross_entropy-file"
    get = "--peer torch-linear_cross_entropy-file=linear_cross_entropy.py of a newer torch"
    note = "torch's chunked operation as its one file (torch/nn/modules), over an older torch"
    devices = ANY_DEVICE
    graph_options = RETAIN
    rows: int | None = None

    def load(self) -> None:
        if self.source is None:
            raise ImportError("no file was named")
        spec = importlib.util.spec_from_file_location("torch_own_file", self.source)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.source.name} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        name = "_linear_cross_entropy_batch_chunked"
        self.operator = getattr(module, name)
        self.per_token = getattr(module, f"{name}_no_reduction", None)

    def chunk(self, hidden: Tensor, weight: Tensor) -> int:
        return min(len(hidden), self.rows or published_chunk(hidden, weight))

    def loss(self, hidden: Tensor, weight: Tensor, target: Tensor, **options: Any) -> Result:
        return Result(self.call(hidden, weight, target, **options))

    def call(
        self, hidden: Tensor, weight: Tensor, target: Tensor, *, bias: Tensor | None = None,
        class_weight: Tensor | None = None, reduction: str = "mean", ignore_index: int = -100,
        label_smoothing: float = 0.0, allow_retain_graph: bool = False,
    ) -> Tensor:  # fmt: skip
        rows = self.chunk(hidden, weight)
        kind = torch.float32 if hidden.dtype.itemsize == 2 else hidden.dtype
        if reduction == "none" and self.per_token is not None:
            return self.per_token(hidden, weight, target, bias, class_weight, ignore_index, rows,
                                  "compact", kind)  # fmt: skip
        grads = [t is not None and t.requires_grad for t in (hidden, weight, bias)]
        return self.operator(hidden, weight, target, bias, class_weight, reduction, ignore_index,
                             label_smoothing, rows, "compact", kind, allow_retain_graph,
                             *grads)[0]  # fmt: skip


class OwnFile4096(OwnFile):
    name = "torch-linear_cross_entropy-file-4096"
    get = OwnFile.get.replace("-file=", "-file-4096=")
    note = "torch's chunked operation as its one file, in chunks of 4096 tokens"
    rows = 4096


ALL = (Eager, Compiled, ChunkLoop, Own, OwnChunked, OwnChunked4096, OwnFile, OwnFile4096)
