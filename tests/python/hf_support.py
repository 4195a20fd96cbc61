# SPDX-License-Identifier: Apache-2.0
"""Tiny random models of Hugging Face architectures, made from configs, and what is compared."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB = 97

_ROTARY = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT2 = {
    "vocab_size": VOCAB,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_NO_HEAD_DIM = {k: v for k, v in _ROTARY.items() if k != "head_dim"}

# name -> (model_type, what the config holds besides the sizes)
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _ROTARY),
    "smollm": ("llama", {**_ROTARY, "tie_word_embeddings": True}),
    "mistral": ("mistral", _ROTARY),
    "qwen2": ("qwen2", {**_NO_HEAD_DIM, "tie_word_embeddings": True}),
    "qwen3": ("qwen3", _ROTARY),
    "gemma": ("gemma", _ROTARY),
    "gemma2": ("gemma2", {**_ROTARY, "final_logit_softcapping": 2.0, "query_pre_attn_scalar": 8}),
    "gemma3": ("gemma3_text", {**_ROTARY, "final_logit_softcapping": 1.5}),
    "phi": ("phi", {**_NO_HEAD_DIM, "num_key_value_heads": 4, "resid_pdrop": 0.0}),
    "phi3": ("phi3", {**_NO_HEAD_DIM, "resid_pdrop": 0.0}),
    "gpt2": ("gpt2", _GPT2),
    "gpt_neox": ("gpt_neox", {**_NO_HEAD_DIM, "hidden_dropout": 0.0}),
    "granite": ("granite", {**_NO_HEAD_DIM, "logits_scaling": 4.0}),
    "cohere": ("cohere", {**_NO_HEAD_DIM, "logit_scale": 0.25}),
    "mixtral": (
        "mixtral",
        {
            **_ROTARY,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "output_router_logits": True,
            "router_aux_loss_coef": 0.5,
        },
    ),
    "olmo2": ("olmo2", _NO_HEAD_DIM),
}


def tiny_model(name: str, dtype: torch.dtype = torch.float32, **changes: Any) -> nn.Module:
    """A random model in training mode; its head's bias, where it has one, is random too."""
    model_type, values = ARCHITECTURES[name]
    config = AutoConfig.for_model(model_type, **{**values, **changes})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    head = model.get_output_embeddings()
    with torch.no_grad():
        # The default initialisation is so small that every token would have the loss ln V.
        head.weight.normal_(std=0.3)
        if head.bias is not None:
            head.bias.normal_(std=0.5)
    return model.to(dtype).train()


def pair(name: str, dtype: torch.dtype = torch.float32, **changes: Any) -> tuple[Any, Any]:
    """(to be patched, left as it is): two models with the same parameters."""
    model = tiny_model(name, dtype, **changes)
    return model, copy.deepcopy(model)


def batch(
    sequences: int = 2, length: int = 13, ignored: int = 4, seed: int = 1
) -> dict[str, Tensor]:
    """Tokens, and labels whose first `ignored` tokens have no target."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, VOCAB, (sequences, length), generator=generator)
    labels = tokens.clone()
    labels[:, :ignored] = -100
    return {
        "input_ids": tokens,
        "attention_mask": torch.ones_like(tokens),
        "labels": labels,
    }


def close(got: Tensor, wanted: Tensor) -> None:
    """Two float32 losses of one computation."""
    torch.testing.assert_close(got, wanted, rtol=3e-6, atol=1e-6)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_same_gradients(got: nn.Module, wanted: nn.Module, tolerance: float) -> None:
    ours, theirs = gradients(got), gradients(wanted)
    assert ours.keys() == theirs.keys()
    assert theirs, "the oracle has no gradient"
    for name, grad in theirs.items():
        assert ours[name].dtype == grad.dtype, name
        error = (ours[name].double() - grad.double()).norm() / grad.double().norm().clamp_min(1e-30)
        assert error <= tolerance, f"{name}: {error:.3g}"
