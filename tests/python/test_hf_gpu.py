# SPDX-License-Identifier: Apache-2.0
"""Patched models on a card: the unpatched model's numbers, without the memory of its logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from flce.torch import patch
from hf_support import assert_same_gradients, batch, close, pair

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
]


def on_card(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor.cuda() for name, tensor in inputs.items()}


@pytest.mark.parametrize("name", ["llama", "gemma2", "phi", "gpt2", "granite"])
def test_loss_and_gradients(name: str) -> None:
    model, oracle = (m.cuda() for m in pair(name))
    patch(model)
    inputs = on_card(batch())
    count = (inputs["labels"][:, 1:] != -100).sum()
    loss = model(**inputs, num_items_in_batch=count).loss
    wanted = oracle(**inputs, num_items_in_batch=count).loss
    close(loss, wanted)
    loss.backward()
    wanted.backward()
    assert_same_gradients(model, oracle, 2e-5)


def test_compiled_by_inductor() -> None:
    model, oracle = (m.cuda() for m in pair("llama"))
    inputs = on_card(batch())
    inputs.pop("attention_mask")
    loss, wanted = torch.compile(patch(model))(**inputs).loss, oracle(**inputs).loss
    torch.testing.assert_close(loss, wanted, rtol=1e-4, atol=0)
    loss.backward()
    wanted.backward()
    assert_same_gradients(model, oracle, 1e-3)


def peak_of_a_step(model: Any, inputs: dict[str, Any]) -> int:
    model(**inputs).loss.backward()  # the first step also loads what it needs
    model.zero_grad()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model(**inputs).loss.backward()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def test_the_memory_of_the_logits_is_gone() -> None:
    vocab, tokens = 131072, 8192
    sizes = {"vocab_size": vocab, "max_position_embeddings": 4096}
    model, oracle = (m.cuda() for m in pair("llama", torch.bfloat16, **sizes))
    inputs = {"input_ids": torch.randint(3, vocab, (2, tokens // 2), device="cuda")}
    inputs["labels"] = inputs["input_ids"]
    # bf16 logits, their copy in f32 and a gradient in f32, at the least, against a chunk.
    assert peak_of_a_step(oracle, inputs) > 10 * tokens * vocab
    assert peak_of_a_step(patch(model), inputs) < 5 * tokens * vocab
