# SPDX-License-Identifier: Apache-2.0
"""Patched models against unpatched ones: loss and every parameter's gradient, per architecture."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("transformers")

from flce.torch import patch, unpatch
from hf_support import ARCHITECTURES, assert_same_gradients, batch, gradients, pair

ALL = sorted(ARCHITECTURES)


@pytest.mark.parametrize("name", ALL)
def test_loss_and_gradients_are_the_models_own(name: str) -> None:
    model, oracle = pair(name)
    patch(model)
    inputs = batch()
    loss, wanted = model(**inputs).loss, oracle(**inputs).loss
    torch.testing.assert_close(loss, wanted, rtol=2e-6, atol=0)
    loss.backward()
    wanted.backward()
    assert_same_gradients(model, oracle, 2e-5)


@pytest.mark.parametrize("name", ["llama", "gemma2", "phi", "gpt2"])
def test_bf16_is_no_less_exact_than_the_model(name: str) -> None:
    model, oracle = pair(name, torch.bfloat16)
    exact = copy.deepcopy(oracle).double()
    patch(model)
    inputs = batch(4, 40)
    losses = [m(**inputs).loss for m in (model, oracle, exact)]
    assert losses[0].dtype == torch.float32
    for loss in losses:
        loss.backward()
    ours, theirs = (abs(loss.double() - losses[2]) / losses[2] for loss in losses[:2])
    # Both trunks round alike; the model rounds its logits besides.
    assert ours <= 1.05 * theirs + 2e-3
    got, wanted, right = gradients(model), gradients(oracle), gradients(exact)
    assert got.keys() == wanted.keys()
    for key, grad in right.items():
        assert got[key].dtype == torch.bfloat16
        ours, theirs = ((g[key].double() - grad).norm() / grad.norm() for g in (got, wanted))
        assert ours <= 1.05 * theirs + 2e-2, f"{key}: {ours:.3g}, the model's {theirs:.3g}"


@pytest.mark.parametrize("name", ALL)
def test_evaluation_has_loss_and_logits(name: str) -> None:
    model, oracle = pair(name)
    patch(model).eval()
    oracle.eval()
    inputs = batch()
    with torch.no_grad():
        ours, theirs = model(**inputs), oracle(**inputs)
    torch.testing.assert_close(ours.loss, theirs.loss, rtol=2e-6, atol=0)
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-6, atol=1e-6)
    assert list(ours.keys()) == list(theirs.keys())


@pytest.mark.parametrize("name", ALL)
def test_training_has_no_logits_and_all_else(name: str) -> None:
    model, oracle = pair(name)
    patch(model)
    ours, theirs = model(**batch()), oracle(**batch())
    assert ours.logits is None
    assert type(ours) is type(theirs)
    assert set(theirs.keys()) - set(ours.keys()) == {"logits"}


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_without_labels_nothing_changes(name: str) -> None:
    model, oracle = pair(name)
    patch(model)
    tokens = batch()["input_ids"]
    ours, theirs = model(input_ids=tokens), oracle(input_ids=tokens)
    assert ours.loss is None
    assert torch.equal(ours.logits, theirs.logits)
    model.eval()
    oracle.eval()
    made = model.generate(tokens[:, :5], max_new_tokens=4, do_sample=False)
    assert torch.equal(made, oracle.generate(tokens[:, :5], max_new_tokens=4, do_sample=False))


@pytest.mark.parametrize("name", ["smollm", "qwen2", "gpt2", "gemma2"])
def test_c089_tied_embeddings_stay_tied(name: str) -> None:
    model, oracle = pair(name)
    patch(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, oracle)]
    embedding = model.get_input_embeddings().weight
    assert model.get_output_embeddings().weight is embedding
    for _ in range(2):  # the second one adds to gradients that are there
        model(**batch()).loss.backward()
        oracle(**batch()).loss.backward()
    assert_same_gradients(model, oracle, 2e-5)
    for optimizer in optimizers:
        optimizer.step()
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    torch.testing.assert_close(embedding, oracle.get_input_embeddings().weight)


@pytest.mark.parametrize("name", ["granite", "cohere"])
def test_c076_logit_scales_of_both_conventions(name: str) -> None:
    # A loss that dropped the factor differs by far more than the tolerance of the others.
    field = "logits_scaling" if name == "granite" else "logit_scale"
    model, oracle = pair(name)
    patch(model)
    without, _ = pair(name, **{field: 1.0})
    inputs = batch()
    loss, wanted, dropped = (m(**inputs).loss for m in (model, oracle, without))
    torch.testing.assert_close(loss, wanted, rtol=2e-6, atol=0)
    assert abs(dropped - wanted) > 0.01


def test_a_scaled_head_with_a_bias() -> None:
    # No architecture here has both; the scale acts on the bias too.
    model, oracle = pair("granite")
    for m in (model, oracle):
        torch.manual_seed(3)
        m.lm_head.bias = torch.nn.Parameter(torch.randn(m.lm_head.out_features))
    patch(model)
    loss, wanted = model(**batch()).loss, oracle(**batch()).loss
    torch.testing.assert_close(loss, wanted, rtol=2e-6, atol=0)
    loss.backward()
    wanted.backward()
    assert_same_gradients(model, oracle, 2e-5)


def test_frozen_trunk_and_frozen_head() -> None:
    for frozen in ("model", "lm_head"):
        model, oracle = pair("llama")
        patch(model)
        for m in (model, oracle):
            getattr(m, frozen).requires_grad_(False)
            m(**batch()).loss.backward()
        assert_same_gradients(model, oracle, 2e-5)
        assert all(p.grad is None for p in getattr(model, frozen).parameters())


def test_gradient_checkpointing() -> None:
    model, oracle = pair("llama")
    patch(model)
    model.gradient_checkpointing_enable()
    model(**batch()).loss.backward()
    oracle(**batch()).loss.backward()
    assert_same_gradients(model, oracle, 2e-5)


@pytest.mark.parametrize("name", ALL)
def test_unpatch_restores_exactly(name: str) -> None:
    model, oracle = pair(name)
    before = (type(model), [type(m) for m in model.modules()], list(model.state_dict()))
    patch(model)
    model(**batch())
    unpatch(model)
    assert (type(model), [type(m) for m in model.modules()], list(model.state_dict())) == before
    ours, theirs = model(**batch()), oracle(**batch())
    for ours_module, theirs_module in zip(model.modules(), oracle.modules(), strict=True):
        assert set(ours_module.__dict__) == set(theirs_module.__dict__)
    assert torch.equal(ours.loss, theirs.loss)
    assert torch.equal(ours.logits, theirs.logits)
