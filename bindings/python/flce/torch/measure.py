# SPDX-License-Identifier: Apache-2.0
"""One training step of a model with random weights on a card, eager and patched: where its memory
peaks. For `flce doctor`; needs transformers.

A step has four phases, told apart by the head's input: its weights, the trunk's forward pass until
the head is called, the loss until the gradient of the head's input exists, the trunk's backward
pass. The peak of each is what the allocator held at most while it ran.
"""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from .hf import patch

PHASES = ("weights", "trunk forward", "loss", "trunk backward")
_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}


class Meter(Protocol):
    """What is asked of a device's memory."""

    device: torch.device
    name: str

    def restart(self) -> None:
        """From here on a new peak."""

    def peak(self) -> int:
        """Bytes, since the last restart."""

    def clear(self) -> None:
        """Gives back what nobody uses."""


class CudaMeter:
    """torch's own books of the current card."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.name = torch.cuda.get_device_name(self.device)

    def restart(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated(self.device)

    def clear(self) -> None:
        torch.cuda.empty_cache()


def measure_steps(
    config: Path,
    tokens: int,
    dtype: str | None = None,
    checkpointing: bool = False,
    meter: Meter | None = None,
) -> dict[str, Any]:
    """Steps with the model's own loss and with the fused one.

    config: a config.json or its folder. checkpointing: layers are recomputed. Returns device,
    tokens, and for each of the two steps the peaks of its phases in bytes, and the phase in which
    memory ran out (None if in none).
    """
    from transformers import AutoConfig

    meter = meter or CudaMeter()
    folder = config if config.is_dir() else config.parent
    values = json.loads((folder / "config.json" if config.is_dir() else config).read_text())
    model_config = AutoConfig.for_model(values.pop("model_type"), **values)
    kind: Any = _DTYPES[dtype] if dtype else model_config.dtype or torch.bfloat16
    steps = []
    for name in ("eager", "fused"):
        build = _Build(model_config, kind, checkpointing, patched=name == "fused")
        steps.append({"loss": name, **_step(build, tokens, meter)})
        gc.collect()  # a model's modules may refer to each other
        meter.clear()
    return {"device": meter.name, "tokens": tokens, "steps": steps}


class _Phases:
    """The peaks so far; `enter` ends one phase and begins the next."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.peaks: dict[str, int] = {}
        self.current = PHASES[0]
        meter.restart()

    def enter(self, phase: str | None) -> None:
        self.peaks[self.current] = self.meter.peak()
        self.current = phase or self.current
        self.meter.restart()


class _Build(NamedTuple):
    """Which model."""

    config: Any
    dtype: torch.dtype
    checkpointing: bool
    patched: bool


def _step(build: _Build, tokens: int, meter: Meter) -> dict[str, Any]:
    phases = _Phases(meter)
    failed = None
    try:
        model = _random_model(build, meter.device)
        _watch_head(model.get_output_embeddings(), phases)
        ids = _tokens(build.config, tokens, meter.device)
        phases.enter("trunk forward")
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    except torch.OutOfMemoryError:
        failed = phases.current
    phases.enter(None)
    return {"peaks": phases.peaks, "out_of_memory_in": failed}


def _random_model(build: _Build, device: torch.device) -> Any:
    from transformers import AutoModelForCausalLM

    with device:
        model = AutoModelForCausalLM.from_config(build.config, dtype=build.dtype).train()
    if build.checkpointing:
        # The newer name first; the older one warns where both exist.
        enable = getattr(model, "activation_checkpointing_enable", None)
        (enable or model.gradient_checkpointing_enable)()
    return patch(model) if build.patched else model


def _tokens(config: Any, tokens: int, device: torch.device) -> Tensor:
    """Sequences no longer than the model takes; the last tokens that fill none are left out."""
    longest = getattr(config, "max_position_embeddings", None) or tokens
    length = min(tokens, longest)
    shape = (max(tokens // length, 1), length)
    return torch.randint(0, config.vocab_size, shape, device=device)


def _watch_head(head: nn.Module, phases: _Phases) -> None:
    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden = args[0] if args else next(iter(kwargs.values()))
        phases.enter("loss")
        hidden.register_hook(lambda grad: phases.enter("trunk backward"))

    head.register_forward_pre_hook(before, with_kwargs=True)
