# SPDX-License-Identifier: Apache-2.0
"""Adapters of peft: on the trunk, on the head (by its effective weight), and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from flce.torch import patch, plan_for, unpatch  # noqa: E402
from hf_support import VOCAB, assert_same_gradients, batch, gradients, tiny_model  # noqa: E402


def adapted(patch_first: bool = False, name: str = "llama", **config: Any) -> tuple[Any, Any]:
    """(patched, oracle): the same model under the same adapter, whose B is not zero."""
    model = tiny_model(name)
    if patch_first:
        patch(model)
    values = {"r": 4, "lora_alpha": 8, "task_type": "CAUSAL_LM", **config}
    model = peft.get_peft_model(model, peft.LoraConfig(**values))
    torch.manual_seed(5)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.normal_(std=0.1)
    oracle = copy.deepcopy(model)
    if patch_first:
        unpatch(oracle)
    else:
        patch(model)
    return model.train(), oracle.train()


def compare(model: Any, oracle: Any, **more: Any) -> None:
    got, wanted = model(**batch(), **more), oracle(**batch(), **more)
    torch.testing.assert_close(got.loss, wanted.loss, rtol=3e-6, atol=0)
    assert got.logits is None
    got.loss.backward()
    wanted.loss.backward()
    assert_same_gradients(model, oracle, 2e-5)


TRUNK = ["q_proj", "v_proj"]


@pytest.mark.parametrize("patch_first", [False, True])
@pytest.mark.parametrize("targets", [TRUNK, ["q_proj", "lm_head"], ["lm_head"]])
def test_lora(targets: list[str], patch_first: bool) -> None:
    model, oracle = adapted(patch_first, target_modules=targets)
    compare(model, oracle, num_items_in_batch=7)
    assert all("lora" in name for name in gradients(model))


def test_a_frozen_head_gets_no_gradient() -> None:
    model, _ = adapted(target_modules=TRUNK)
    plan = plan_for(model, 64)
    assert plan.gemms == 2
    model(**batch()).loss.backward()
    assert model.get_base_model().lm_head.weight.grad is None


def test_c088_the_adapter_of_the_head_counts() -> None:
    class Trunk(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lm_head = nn.Linear(1, 2, bias=False)

        def get_output_embeddings(self) -> nn.Module:
            return self.lm_head

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
            logits = self.lm_head(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    config = peft.LoraConfig(r=1, lora_alpha=2, target_modules=["lm_head"])
    model = peft.get_peft_model(Model(), config)
    head = model.get_base_model().lm_head
    with torch.no_grad():
        head.base_layer.weight.zero_()
        head.lora_A["default"].weight.fill_(1.0)
        head.lora_B["default"].weight.copy_(torch.tensor([[1.0], [0.0]]))
    patch(model)
    loss = model.get_base_model()(torch.ones(1, 1), labels=torch.tensor([1]))["loss"]
    loss.backward()
    assert loss.item() == pytest.approx(2.1269280, rel=1e-6)
    assert head.lora_A["default"].weight.grad.item() == pytest.approx(1.7615942, rel=1e-6)
    torch.testing.assert_close(
        head.lora_B["default"].weight.grad, torch.tensor([[1.7615942], [-1.7615942]])
    )
    assert head.base_layer.weight.grad is None


def test_disabled_merged_and_several_adapters() -> None:
    model, oracle = adapted(target_modules=["lm_head", "q_proj"])
    for m in (model, oracle):
        m.add_adapter("other", peft.LoraConfig(r=2, target_modules=["lm_head"]))
        torch.manual_seed(9)
        head = m.get_base_model().lm_head
        with torch.no_grad():
            head.lora_A["other"].weight.normal_(std=0.2)
            head.lora_B["other"].weight.normal_(std=0.2)
    inputs = batch()
    plain = oracle(**inputs).loss
    for m in (model, oracle):
        m.base_model.set_adapter(["default", "other"])
    both = oracle(**inputs).loss
    assert abs(both - plain) > 1e-3
    torch.testing.assert_close(model(**inputs).loss, both, rtol=3e-6, atol=0)
    with model.disable_adapter(), oracle.disable_adapter():
        torch.testing.assert_close(model(**inputs).loss, oracle(**inputs).loss, rtol=3e-6, atol=0)
    for m in (model, oracle):
        m.merge_adapter()
    torch.testing.assert_close(model(**inputs).loss, oracle(**inputs).loss, rtol=3e-6, atol=0)


@pytest.mark.parametrize("patch_first", [False, True])
def test_modules_to_save(patch_first: bool) -> None:
    model, oracle = adapted(patch_first, target_modules=TRUNK, modules_to_save=["lm_head"])
    compare(model, oracle)
    names = [name for name in gradients(model) if "modules_to_save" in name]
    assert names, "the head that is trained got no gradient"
    with model.disable_adapter(), oracle.disable_adapter():
        torch.testing.assert_close(model(**batch()).loss, oracle(**batch()).loss, rtol=3e-6, atol=0)
    unpatch(model)
    assert [type(m) for m in model.modules()] == [type(m) for m in oracle.modules()]


def test_evaluation_with_an_adapted_head() -> None:
    model, oracle = adapted(target_modules=["lm_head"])
    with torch.no_grad():
        got, wanted = model.eval()(**batch()), oracle.eval()(**batch())
    torch.testing.assert_close(got.loss, wanted.loss, rtol=3e-6, atol=0)
    torch.testing.assert_close(got.logits, wanted.logits)


@pytest.mark.filterwarnings("ignore:.lora_bias=True. was passed")
@pytest.mark.parametrize("name", ["llama", "phi"])
@pytest.mark.parametrize(
    "config",
    [{"lora_dropout": 0.3}, {"lora_bias": True}, {"use_rslora": True}, {"r": 1}],
    ids=str,
)
def test_what_lora_can_be_told(name: str, config: dict[str, Any]) -> None:
    model, oracle = adapted(name=name, target_modules=["lm_head"], **config)
    losses = []
    for m in (model, oracle):
        torch.manual_seed(11)  # both drop the same hidden states
        losses.append(m(**batch()).loss)
        losses[-1].backward()
    torch.testing.assert_close(*losses, rtol=3e-6, atol=0)
    assert_same_gradients(model, oracle, 2e-5)


def test_a_small_adapter_beside_a_weight_in_bf16() -> None:
    # Added to the weight, it would be below half of its last digit.
    model, oracle = adapted(target_modules=["lm_head"])
    exact = copy.deepcopy(oracle).double()
    for m in (model, oracle, exact):
        with torch.no_grad():
            m.get_base_model().lm_head.base_layer.weight.copy_(
                torch.full((VOCAB, 32), 1.0).bfloat16()
            )
            m.get_base_model().lm_head.lora_B["default"].weight.mul_(1e-2)
    inputs = batch()
    for m in (model, oracle):
        m.get_base_model().lm_head.base_layer.bfloat16()
        m.get_base_model().lm_head.register_forward_pre_hook(lambda _, args: args[0].bfloat16())
        m(**inputs).loss.backward()
    exact(**inputs).loss.backward()
    got, wanted, right = gradients(model), gradients(oracle), gradients(exact)
    for key, grad in right.items():
        ours, theirs = ((g[key].double() - grad).norm() / grad.norm() for g in (got, wanted))
        assert ours <= 1.05 * theirs + 1e-2, key
    moved = abs(exact(**inputs).loss - torch.tensor(float(VOCAB)).log())
    assert abs(model(**inputs).loss - exact(**inputs).loss) <= 0.02 * moved


def test_a_variant_of_lora_is_refused() -> None:
    model, _ = adapted(target_modules=["lm_head"], use_dora=True)
    with pytest.raises(ValueError, match="DoRA"):
        model(**batch())


def test_another_adapter_of_the_head_is_refused() -> None:
    config = peft.LoHaConfig(r=2, target_modules=["lm_head"])
    model = peft.get_peft_model(tiny_model("llama"), config)
    with pytest.raises(TypeError, match="LoHa|Linear"):
        patch(model)


def test_unpatch_reaches_the_adapted_head() -> None:
    model, oracle = adapted(target_modules=["lm_head"])
    model(**batch())
    unpatch(model)
    assert [type(m) for m in model.modules()] == [type(m) for m in oracle.modules()]
    assert model(**batch()).logits.shape == (2, 13, VOCAB)
