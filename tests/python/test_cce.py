# SPDX-License-Identifier: Apache-2.0
"""cut-cross-entropy's names: every argument has the oracle's meaning, or is refused."""

from __future__ import annotations

import enum
import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flce.torch.cce import LinearCrossEntropy, linear_cross_entropy

B, T, D, V = 2, 6, 5, 17


def problem() -> dict[str, Tensor]:
    torch.manual_seed(0)
    targets = torch.randint(0, V, (B, T))
    targets[0, 2] = -100
    targets[1, 5] = -100
    return {
        "e": torch.randn(B, T, D, dtype=torch.float64, requires_grad=True),
        "c": torch.randn(V, D, dtype=torch.float64, requires_grad=True),
        "targets": targets,
        "bias": torch.randn(V, dtype=torch.float64, requires_grad=True),
    }


def oracle(
    e: Tensor,
    c: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    softcap: float | None = None,
    reduction: str = "mean",
    shift: int = 0,
) -> tuple[Tensor, Tensor]:
    """(loss, log-sum-exp) by slicing, as its documentation defines a shift."""
    shift = int(shift)
    kept, labels = e[..., : T - shift, :], targets[..., shift:]
    logits = F.linear(kept, c, bias)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    loss = F.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), ignore_index=ignore_index, reduction=reduction
    )
    lse = torch.where(labels != ignore_index, torch.logsumexp(logits, -1), 0.0)
    return (loss.reshape(labels.shape) if reduction == "none" else loss), lse


COMBINATIONS: list[dict[str, Any]] = [
    {},
    {"bias": None},
    *[
        {"reduction": r, "shift": s}
        for r in ("mean", "sum", "none")
        for s in (0, 1, 3, True, False)
    ],
    {"softcap": 1.5},
    {"ignore_index": 4},
    {"softcap": 2.0, "shift": 1, "reduction": "none", "ignore_index": 4},
    {"bias": None, "softcap": 2.0, "shift": 2},
]


@pytest.mark.parametrize("return_lse", [False, True])
@pytest.mark.parametrize("options", COMBINATIONS, ids=str)
def test_against_the_oracle(options: dict[str, Any], return_lse: bool) -> None:
    tensors = {**problem(), **options}
    if options.get("ignore_index") == 4:
        tensors["targets"] = tensors["targets"].clamp_min(0) % 6
    wanted, wanted_lse = oracle(**tensors)
    module_options = {k: v for k, v in options.items() if k != "bias"}
    module = LinearCrossEntropy(return_lse=return_lse, **module_options)
    made = module(tensors["e"], tensors["c"], tensors["targets"], tensors["bias"])
    leaves = [t for t in tensors.values() if isinstance(t, Tensor) and t.requires_grad]
    for result in (linear_cross_entropy(**tensors, return_lse=return_lse), made):
        loss, lse = result if return_lse else (result, None)
        torch.testing.assert_close(loss, wanted)
        total, total_wanted = loss.sum(), wanted.sum()
        if lse is not None:
            # The log-sum-exp has a gradient, for a z-loss of the caller's.
            torch.testing.assert_close(lse, wanted_lse)
            total, total_wanted = total + lse.pow(2).sum(), total_wanted + wanted_lse.pow(2).sum()
        ours = torch.autograd.grad(total, leaves, retain_graph=True)
        theirs = torch.autograd.grad(total_wanted, leaves, retain_graph=True)
        torch.testing.assert_close(ours, theirs)


class Implementation(enum.IntEnum):
    """As the enum of the other package: its members have names in capitals."""

    CCE_EXACT = 1
    TORCH_COMPILE = 2


@pytest.mark.parametrize(
    "options",
    [
        {"filter_eps": None},
        {"filter_eps": "auto"},
        {"filter_e_grad": False, "filter_c_grad": False},
        {"accum_e_fp32": True, "accum_c_fp32": True},
        *[{"impl": name} for name in ("cce", "cce_exact", "cce_kahan_full", "cce_kahan_full_c")],
        {"impl": Implementation.CCE_EXACT},
    ],
    ids=str,
)
def test_what_others_leave_out_is_computed(options: dict[str, Any]) -> None:
    # c046: an entry of the softmax far below any threshold still reaches the gradient.
    vocab = 65536
    e, c = torch.ones(1, 1), torch.zeros(vocab, 1, requires_grad=True)
    linear_cross_entropy(e, c, torch.tensor([0]), reduction="sum", **options).backward()
    torch.testing.assert_close(c.grad[1:], torch.full((vocab - 1, 1), 1.0 / vocab))
    tensors = problem()
    torch.testing.assert_close(linear_cross_entropy(**tensors, **options), oracle(**tensors)[0])


def test_sums_are_in_float32() -> None:
    # c045: 4096 equal terms, where sums in bf16 stop growing at 256.
    e = torch.ones(4096, 1, dtype=torch.bfloat16)
    c = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.zeros(4096, dtype=torch.long)
    linear_cross_entropy(e, c, targets, reduction="sum", accum_c_fp32=True).backward()
    assert c.grad.tolist() == [[-2048.0], [2048.0]]


@pytest.mark.parametrize("name", ["bias", "ignore_index", "softcap", "reduction", "shift"])
def test_each_option_changes_the_result(name: str) -> None:
    tensors = problem()
    bias = tensors.pop("bias")
    tensors["targets"] = tensors["targets"].clamp_min(0) % 6
    values = {"bias": bias, "ignore_index": 4, "softcap": 1.0, "reduction": "sum", "shift": 1}
    plain = linear_cross_entropy(**tensors)
    assert abs(linear_cross_entropy(**tensors, **{name: values[name]}) - plain) > 1e-6


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"filter_eps": 1e-4}, "filter_eps"),
        ({"filter_eps": "always"}, "filter_eps"),
        ({"impl": "torch_compile"}, "impl="),
        ({"impl": Implementation.TORCH_COMPILE}, "impl="),
        ({"impl": None}, "impl="),
        ({"vocab_parallel_options": object()}, "vocab_parallel_options"),
        ({"shift": T}, "shift=6"),
        ({"shift": -1}, "shift=-1"),
        ({"reduction": "median"}, "median"),
        ({"reduction": "median", "return_lse": True}, "median"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_offered_is_refused_by_name(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        linear_cross_entropy(**problem(), **options)


def test_a_module_s_arguments_may_be_changed_later() -> None:
    tensors = problem()
    module = LinearCrossEntropy(shift=1)
    module.reduction, module.softcap = "sum", 1.5
    got = module(**tensors)
    torch.testing.assert_close(got, oracle(**tensors, shift=1, reduction="sum", softcap=1.5)[0])


def test_all_ignored() -> None:
    tensors = problem()
    tensors["targets"] = torch.full((B, T), -100)
    for return_lse in (False, True):
        result = linear_cross_entropy(**tensors, return_lse=return_lse)
        loss = result[0] if return_lse else result
        assert torch.isnan(loss)
        assert torch.isnan(oracle(**tensors)[0])


@pytest.mark.parametrize("return_lse", [False, True])
def test_what_ignored_tokens_hold_stays_out(return_lse: bool) -> None:
    tensors = problem()
    wanted = oracle(**tensors)[0]
    theirs = torch.autograd.grad(wanted, tensors["c"])[0]
    with torch.no_grad():
        tensors["e"][tensors["targets"] == -100] = torch.nan
    result = linear_cross_entropy(**tensors, return_lse=return_lse)
    loss = result[0] + 0.0 * result[1].sum() if return_lse else result
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(torch.autograd.grad(loss, tensors["c"])[0], theirs)


@pytest.mark.parametrize("autocast", [False, True])
def test_lse_of_16_bits(autocast: bool) -> None:
    """Neither its products nor the gradient of a class that many tokens have is rounded on the way:
    sums of 16-bit ones stand still at 256."""
    values = [torch.randn(4096, 3), torch.randn(2, 3), torch.zeros(2)]
    target = torch.zeros(4096, dtype=torch.int64)
    wanted = [t.bfloat16().double().requires_grad_() for t in values]
    got = [t if autocast else t.bfloat16() for t in values]
    for leaf in got:
        leaf.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        _, lse = linear_cross_entropy(
            got[0], got[1], target, got[2], return_lse=True, reduction="sum"
        )
    theirs = torch.logsumexp(F.linear(*wanted), -1)
    torch.testing.assert_close(lse.double(), theirs, rtol=1e-5, atol=1e-5)
    grads = torch.autograd.grad(lse.sum(), got)
    for ours, exact in zip(grads, torch.autograd.grad(theirs.sum(), wanted), strict=True):
        error = (ours.double() - exact).abs().max() / exact.abs().max()
        assert error < 2**-7


def test_signatures() -> None:
    function = list(inspect.signature(linear_cross_entropy).parameters)
    assert function == [
        "e", "c", "targets", "bias", "ignore_index", "softcap", "reduction", "shift", "return_lse",
        "filter_eps", "accum_e_fp32", "accum_c_fp32", "filter_e_grad", "filter_c_grad", "impl",
        "vocab_parallel_options",
    ]  # fmt: skip
    module = list(inspect.signature(LinearCrossEntropy).parameters)
    assert module == [
        "ignore_index", "softcap", "reduction", "shift", "filter_eps", "accum_e_fp32",
        "accum_c_fp32", "filter_e_grad", "filter_c_grad", "impl", "return_lse",
    ]  # fmt: skip
