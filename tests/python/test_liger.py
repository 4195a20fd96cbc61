# SPDX-License-Identifier: Apache-2.0
"""Liger Kernel's names: every argument changes the result as the oracle says, or is refused."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flce.torch.liger import (
    CrossEntropyOutput,
    LigerForCausalLMLoss,
    LigerFusedLinearCrossEntropyLoss,
    liger_fused_linear_cross_entropy,
)

N, H, V = 12, 8, 19


def problem(dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    torch.manual_seed(0)
    target = torch.randint(0, V, (N,))
    target[::4] = -100
    return {
        "input": torch.randn(N, H, dtype=dtype, requires_grad=True),
        "weight": torch.randn(V, H, dtype=dtype, requires_grad=True),
        "target": target,
    }


def oracle(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ce_weight: Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    use_token_scaling: bool = False,
) -> Tensor:
    """What Liger documents, in plain operations: parts of the loss, token scaling, the sum."""
    logits = F.linear(input, weight, bias)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    valid = target != ignore_index
    each = F.cross_entropy(
        logits,
        target,
        weight=ce_weight,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction="none",
    )
    z = lse_square_scale * torch.logsumexp(logits, -1).pow(2) * valid
    if use_token_scaling:
        classes = target.where(valid, 0)
        p = torch.softmax(logits, -1).gather(1, classes[:, None])[:, 0].detach()
        each, z = each * p, z * p
    if reduction == "none":
        return each + z
    if reduction == "sum":
        return each.sum() + z.sum()
    divisor = valid.sum() if ce_weight is None else ce_weight[target[valid]].sum()
    return each.sum() / divisor + z.sum() / valid.sum()


def grads(loss: Tensor, tensors: dict[str, Tensor]) -> list[Tensor]:
    leaves = [t for t in tensors.values() if t.requires_grad]
    upstream = torch.linspace(0.5, 2.0, loss.numel(), dtype=loss.dtype).reshape(loss.shape)
    return list(torch.autograd.grad(loss, leaves, upstream, retain_graph=True))


VALUES: dict[str, Any] = {
    "bias": torch.linspace(-1, 1, V, dtype=torch.float64).requires_grad_(),
    "ce_weight": torch.linspace(0.1, 2.0, V, dtype=torch.float64),
    "ignore_index": 3,
    "lse_square_scale": 0.05,
    "label_smoothing": 0.2,
    "softcap": 1.5,
    "use_token_scaling": True,
}
COMBINATIONS = [
    *[{"reduction": r} for r in ("mean", "sum", "none")],
    *[{name: value} for name, value in VALUES.items()],
    {"use_token_scaling": True, "softcap": 1.5, "lse_square_scale": 0.05, "reduction": "sum"},
    {"ce_weight": VALUES["ce_weight"], "label_smoothing": 0.2, "bias": VALUES["bias"]},
    {"ce_weight": VALUES["ce_weight"], "lse_square_scale": 0.05, "reduction": "sum"},
    {"ce_weight": VALUES["ce_weight"], "lse_square_scale": 0.05, "reduction": "none"},
    {"ce_weight": VALUES["ce_weight"], "lse_square_scale": 0.05, "label_smoothing": 0.2},
    {**VALUES},
    {"reduction": "none", "use_token_scaling": True, "label_smoothing": 0.1},
]


@pytest.mark.parametrize("options", COMBINATIONS, ids=lambda o: ",".join(o))
def test_functional_and_module_against_the_oracle(options: dict[str, Any]) -> None:
    tensors = problem()
    if options.get("ignore_index") == 3:
        tensors["target"] = tensors["target"].clamp_min(3)
    wanted = oracle(**tensors, **options)
    functional = liger_fused_linear_cross_entropy(**tensors, **options)
    of_module = {k: v for k, v in options.items() if k != "bias"}
    module = LigerFusedLinearCrossEntropyLoss(**of_module)(
        tensors["weight"], tensors["input"], tensors["target"], options.get("bias")
    )
    if "bias" in options:
        tensors["bias"] = options["bias"]
    for got in (functional, module):
        torch.testing.assert_close(got, wanted)
        for ours, theirs in zip(grads(got, tensors), grads(wanted, tensors), strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", [*VALUES, "reduction"])
def test_each_option_changes_the_result(name: str) -> None:
    tensors = problem()
    value = VALUES.get(name, "sum")
    if name == "ignore_index":
        tensors["target"] = torch.arange(N) % 5
    plain = liger_fused_linear_cross_entropy(**tensors)
    changed = liger_fused_linear_cross_entropy(**tensors, **{name: value})
    assert abs(plain - changed) > 1e-6


@pytest.mark.parametrize("ce_weight", [None, VALUES["ce_weight"]], ids=["plain", "ce_weight"])
def test_more_outputs(ce_weight: Tensor | None) -> None:
    tensors = problem()
    options = {"lse_square_scale": 0.05, "reduction": "mean", "ce_weight": ce_weight}
    got = liger_fused_linear_cross_entropy(
        **tensors, **options, return_z_loss=True, return_token_accuracy=True
    )
    assert isinstance(got, CrossEntropyOutput)
    assert got.predicted_tokens is None
    torch.testing.assert_close(got.loss, oracle(**tensors, **options))
    without = oracle(**tensors, ce_weight=ce_weight)
    torch.testing.assert_close(got.z_loss, oracle(**tensors, **options) - without)
    guessed = (tensors["input"] @ tensors["weight"].T).argmax(-1)
    valid = tensors["target"] != -100
    wanted = (guessed == tensors["target"])[valid].double().mean()
    assert got.token_accuracy.item() == pytest.approx(wanted.item())
    module = LigerFusedLinearCrossEntropyLoss(return_z_loss=True)
    only_z = module(tensors["weight"], tensors["input"], tensors["target"])
    assert only_z.token_accuracy is None
    assert only_z.z_loss.item() == 0.0


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("more", [{}, {"ce_weight": VALUES["ce_weight"], "lse_square_scale": 0.1}])
def test_predicted_tokens_and_the_accuracy_of_each(reduction: str, more: dict[str, Any]) -> None:
    tensors = problem()
    got = liger_fused_linear_cross_entropy(
        **tensors,
        **more,
        reduction=reduction,
        return_predicted_tokens=True,
        return_token_accuracy=True,
    )
    torch.testing.assert_close(got.loss, oracle(**tensors, **more, reduction=reduction))
    valid = tensors["target"] != -100
    best = (tensors["input"] @ tensors["weight"].T).argmax(-1)
    assert torch.equal(got.predicted_tokens, torch.where(valid, best, -1))
    hits = ((best == tensors["target"]) & valid).float()
    wanted = hits if reduction == "none" else hits.sum() / valid.sum()
    torch.testing.assert_close(got.token_accuracy, wanted, check_dtype=False)


def test_accum_dtype() -> None:
    tensors = problem(torch.bfloat16)
    plain = liger_fused_linear_cross_entropy(**tensors)
    same = liger_fused_linear_cross_entropy(**tensors, accum_dtype=torch.float32)
    assert torch.equal(plain, same)
    # Sums over tokens are in float32: 4096 equal terms, where sums in bf16 stop growing at 256.
    x = torch.ones(4096, 1, dtype=torch.bfloat16)
    w = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    y = torch.zeros(4096, dtype=torch.long)
    liger_fused_linear_cross_entropy(x, w, y, reduction="sum", accum_dtype=torch.float32).backward()
    assert w.grad.tolist() == [[-2048.0], [2048.0]]
    with pytest.raises(ValueError, match="accum_dtype"):
        liger_fused_linear_cross_entropy(**tensors, accum_dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"softcap": -1.0}, "softcap=-1.0"),
        ({"softcap": 0.0}, "softcap=0.0"),
        ({"reduction": "median"}, "median"),
        ({"label_smoothing": 1.5}, "1.5"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_offered_is_refused_by_name(options: dict[str, Any], word: str) -> None:
    tensors = problem()
    with pytest.raises(ValueError, match=word):
        liger_fused_linear_cross_entropy(**tensors, **options)
    with pytest.raises(ValueError, match=word):
        module = LigerFusedLinearCrossEntropyLoss(**options)
        module(tensors["weight"], tensors["input"], tensors["target"])


def test_signatures() -> None:
    # Liger's argument names in Liger's order, as its callers give them by position.
    functional = list(inspect.signature(liger_fused_linear_cross_entropy).parameters)
    assert functional[:11] == [
        "input", "weight", "target", "bias", "ce_weight", "ignore_index", "lse_square_scale",
        "label_smoothing", "reduction", "softcap", "return_z_loss",
    ]  # fmt: skip
    assert functional[11:] == [
        "accum_dtype", "use_token_scaling", "return_token_accuracy", "return_predicted_tokens",
    ]  # fmt: skip
    module = list(inspect.signature(LigerFusedLinearCrossEntropyLoss).parameters)
    assert module == functional[4:]
    forward = list(inspect.signature(LigerFusedLinearCrossEntropyLoss.forward).parameters)
    assert forward == ["self", "lin_weight", "_input", "target", "bias"]


# --- LigerForCausalLMLoss -------------------------------------------------------------------------


def causal() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    hidden = torch.randn(2, 7, H, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(V, H, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, V, (2, 7))
    labels[0, :3] = -100
    shifted = F.pad(labels, (0, 1), value=-100)[:, 1:]
    return hidden, weight, labels, shifted


def causal_oracle(hidden: Tensor, weight: Tensor, shifted: Tensor, **options: Any) -> Tensor:
    items = options.pop("num_items_in_batch", None)
    if items is not None:
        options["reduction"] = "sum"
    loss = oracle(hidden.reshape(-1, H), weight, shifted.reshape(-1), **options)
    return loss if items is None else loss / items


@pytest.mark.parametrize(
    ("options", "meaning"),
    [
        ({}, {}),
        ({"num_items_in_batch": 5}, {"num_items_in_batch": 5}),
        ({"num_items_in_batch": torch.tensor(5)}, {"num_items_in_batch": 5}),
        ({"final_logit_softcapping": 1.2}, {"softcap": 1.2}),
        ({"ce_weight": VALUES["ce_weight"]}, {"ce_weight": VALUES["ce_weight"]}),
        ({"lse_square_scale": 0.1}, {"lse_square_scale": 0.1}),
        ({"lse_square_scale": 0.1, "ce_weight": VALUES["ce_weight"]},) * 2,
        ({"label_smoothing": 0.1}, {"label_smoothing": 0.1}),
        ({"accum_dtype": torch.float32}, {}),
    ],
    ids=lambda o: ",".join(o),
)
def test_causal_loss(options: dict[str, Any], meaning: dict[str, Any]) -> None:
    hidden, weight, labels, shifted = causal()
    wanted = causal_oracle(hidden, weight, shifted, **meaning)
    for given in ({"labels": labels}, {"labels": None, "shift_labels": shifted}):
        got = LigerForCausalLMLoss(hidden, weight, hidden_size=H, **given, **options)
        torch.testing.assert_close(got, wanted)
        ours = torch.autograd.grad(got, (hidden, weight))
        theirs = torch.autograd.grad(wanted, (hidden, weight), retain_graph=True)
        torch.testing.assert_close(ours, theirs)


def test_causal_loss_ignore_index_and_precedence() -> None:
    hidden, weight, labels, shifted = causal()
    labels = labels.clamp_min(2)
    shifted = F.pad(labels, (0, 1), value=2)[:, 1:]
    got = LigerForCausalLMLoss(hidden, weight, labels, H, ignore_index=2)
    torch.testing.assert_close(got, causal_oracle(hidden, weight, shifted, ignore_index=2))
    other = torch.randint(0, V, (2, 7))
    both = LigerForCausalLMLoss(hidden, weight, labels, H, shift_labels=other)
    torch.testing.assert_close(both, causal_oracle(hidden, weight, other))


def test_causal_loss_of_flattened_hidden_states() -> None:
    # The labels say where a sequence ends: its last token predicts nothing.
    hidden, weight, labels, shifted = causal()
    got = LigerForCausalLMLoss(hidden.reshape(-1, H), weight, labels, H)
    torch.testing.assert_close(got, causal_oracle(hidden, weight, shifted))


def test_causal_loss_accuracy() -> None:
    hidden, weight, labels, shifted = causal()
    got = LigerForCausalLMLoss(hidden, weight, labels, H, return_token_accuracy=True)
    valid = shifted != -100
    best = (hidden @ weight.T).argmax(-1)
    wanted = (best == shifted)[valid].double().mean()
    assert got.token_accuracy.item() == pytest.approx(wanted.item())
    assert got.predicted_tokens is None
    got = LigerForCausalLMLoss(hidden, weight, labels, H, return_predicted_tokens=True)
    assert torch.equal(got.predicted_tokens, torch.where(valid, best, -1).flatten())
    assert got.token_accuracy is None


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"reduction": "sum"}, "reduction"),
        ({"use_token_scaling": True}, "use_token_scaling"),
        ({"something_of_the_models": 1}, "something_of_the_models"),
        ({"hidden_size": H + 1}, "hidden_size"),
        ({"labels": None}, "labels and shift_labels"),
        ({"accum_dtype": torch.float16}, "accum_dtype"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_causal_loss_refuses_by_name(options: dict[str, Any], word: str) -> None:
    hidden, weight, labels, _ = causal()
    arguments = {"labels": labels, "hidden_size": H, **options}
    with pytest.raises((TypeError, ValueError), match=word):
        LigerForCausalLMLoss(hidden, weight, **arguments)
