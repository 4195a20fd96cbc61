# SPDX-License-Identifier: Apache-2.0
"""A patched model as an object: signature, copies, files, compiler, what is refused, its plan."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("transformers")

import flce
from flce.torch import patch, plan_for, unpatch
from hf_support import VOCAB, assert_same_gradients, batch, close, pair, tiny_model


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_signature_stays(name: str) -> None:
    model, oracle = pair(name)
    patch(model)
    assert inspect.signature(model.forward) == inspect.signature(oracle.forward)
    assert type(model).__name__ == type(oracle).__name__
    assert isinstance(model, type(oracle))
    assert list(model.state_dict()) == list(oracle.state_dict())


def test_patching_twice_and_unpatching_once() -> None:
    model, oracle = pair("llama")
    patch(patch(model, logits="never"), logits="always")
    assert model(**batch()).logits is not None
    unpatch(model)
    assert type(model) is type(oracle)
    with pytest.raises(ValueError, match="not patched"):
        unpatch(model)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_patched_and_apart(copied: Any) -> None:
    model, oracle = pair("smollm")
    patch(model, logits="never")
    other = copied(model)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    got, wanted = other(**batch()), oracle(**batch())
    close(got.loss, wanted.loss)
    assert got.logits is None
    assert other.lm_head.weight is other.model.embed_tokens.weight
    unpatch(other)
    assert type(other) is type(oracle)
    assert model(**batch()).logits is None


def test_save_pretrained(tmp_path: Any) -> None:
    model, oracle = pair("llama")
    patch(model).save_pretrained(tmp_path)
    loaded = type(oracle).from_pretrained(tmp_path).train()
    assert loaded.config.architectures == ["LlamaForCausalLM"]
    close(loaded(**batch()).loss, oracle(**batch()).loss)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_compile_in_one_graph(name: str) -> None:
    model, oracle = pair(name)
    patch(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    inputs = batch()
    inputs.pop("attention_mask")
    for seed in (1, 2):
        inputs["input_ids"] = batch(seed=seed)["input_ids"]
        got, wanted = compiled(**inputs), oracle(**inputs)
        close(got.loss, wanted.loss)
        assert got.logits is None
        got.loss.backward()
        wanted.loss.backward()
    assert_same_gradients(model, oracle, 2e-5)


def test_autocast() -> None:
    model, oracle = pair("llama")
    patch(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, wanted = model(**batch()).loss, oracle(**batch()).loss
    torch.testing.assert_close(got, wanted.float(), rtol=1e-2, atol=0)
    got.backward()
    wanted.backward()
    assert_same_gradients(model, oracle, 3e-2)


class LogitsSeen(TorchDispatchMode):
    """Counts the tensors with as many elements as there are logits."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count, self.seen = count, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = result if isinstance(result, (tuple, list)) else [result]
        self.seen += sum(isinstance(t, torch.Tensor) and t.numel() == self.count for t in made)
        return result


@pytest.mark.parametrize("name", ["llama", "gemma2", "granite", "gpt2"])
def test_no_tensor_of_the_logits_size_is_made(name: str) -> None:
    vocab = 4999
    seen = []
    for model, change in zip(pair(name, vocab_size=vocab), (patch, lambda m: m), strict=True):
        change(model)
        with LogitsSeen(2 * 13 * vocab) as mode:
            model(**batch()).loss.backward()
        seen.append(mode.seen)
    assert seen[0] == 0
    assert seen[1] >= 4  # logits, in float32, their gradient, in the model's dtype


def test_two_forwards_before_one_backward() -> None:
    model, oracle = pair("llama")
    patch(model)
    for m in (model, oracle):
        (m(**batch(seed=1)).loss + 3.0 * m(**batch(seed=2)).loss).backward()
    assert_same_gradients(model, oracle, 2e-5)


# --- refusals -------------------------------------------------------------------------------------


def test_what_is_no_causal_model_is_refused() -> None:
    with pytest.raises(TypeError, match="get_output_embeddings"):
        patch(torch.nn.Linear(3, 4))
    with pytest.raises(TypeError, match="not str"):
        patch("meta-llama/Llama-3-8B")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no language modelling head"):
        patch(tiny_model("llama").model)


def test_a_head_of_another_kind_is_refused() -> None:
    class Sampled(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.rand(())

    for head in (Sampled(32, VOCAB), torch.nn.Sequential(torch.nn.Linear(32, VOCAB))):
        model = tiny_model("llama")
        model.lm_head = head
        with pytest.raises(TypeError, match=type(head).__name__):
            patch(model)
        assert "_flce_settings" not in model.__dict__
        assert not hasattr(type(model), "_flce_base")


# --- planning -------------------------------------------------------------------------------------


def test_plan_for_is_the_plan_of_the_head() -> None:
    model = tiny_model("phi", torch.bfloat16)
    wanted = flce.plan(tokens=512, hidden=32, vocab=VOCAB, dtype="bf16", bias=True)
    assert plan_for(model, 512) == wanted
    assert plan_for(patch(model), 512) == wanted
    sizes = {"tokens": 512, "hidden": 32, "vocab": VOCAB, "dtype": "bf16", "bias": True}
    model.lm_head.weight.requires_grad_(False)
    assert plan_for(model, 512) == flce.plan(**sizes, grad_weight=False)
    model.model.requires_grad_(False)
    assert plan_for(model, 512) == flce.plan(**sizes, grad_weight=False, grad_hidden=False)
    capped = flce.plan(tokens=512, hidden=32, vocab=VOCAB, dtype="f32", softcap=2.0)
    assert plan_for(tiny_model("gemma2"), 512) == capped
    assert plan_for(model, 512, budget="10MB").extra_bytes <= 10_000_000
    with pytest.raises(flce.OutOfBudget):
        plan_for(model, 512, budget=1)
    with pytest.raises(flce.Error):
        plan_for(model, -1)
    assert plan_for(model, 512, method="naive").method == "naive"
    assert plan_for(model, 512, chunk=64).chunk == 64
