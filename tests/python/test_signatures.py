# SPDX-License-Identifier: Apache-2.0
"""A walk over every public signature: each option changes the result as the oracle does, or is
refused. A parameter that this file does not know fails the first test."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flce
import oracle
from flce.torch import (
    FusedLinearHead,
    LinearCrossEntropyLoss,
    linear_cross_entropy,
    linear_logprob,
    loss_and_grads,
)
from support import assert_close, check_against_oracle, problem

N, H, V = 6, 8, 33


def tensor(*shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64) + 0.5


# What changes the value, and what only changes how it is computed or given back.
VALUES: dict[str, Any] = {
    "linear_bias": lambda: tensor(V),
    "weight": lambda: tensor(V),
    "reduction": lambda: "sum",
    "ignore_index": lambda: 3,
    "label_smoothing": lambda: 0.2,
    "softcap": lambda: 2.0,
    "scale": lambda: 0.3,
    "z_loss": lambda: 0.1,
    "token_weight": lambda: tensor(N),
    "normalizer": lambda: 17,
    "shift": lambda: 2,
    "temperature": lambda: 0.6,
}
WAYS: dict[str, Any] = {"method": "recompute", "chunk": 2, "budget": "1MiB"}
RETURNS = {
    f"return_{name}" for name in ("lse", "logprob", "entropy", "accuracy", "z_loss", "argmax")
}
ELSEWHERE = {"options", "accumulate_into", "loss_dtype"}  # tests of their own, below
TENSORS = {"input", "linear_weight", "target", "hidden"}


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_every_parameter_is_known_here() -> None:
    known = {*VALUES, *WAYS, *RETURNS, *ELSEWHERE, *TENSORS}
    assert parameters(linear_cross_entropy) == known - {"hidden"}
    assert parameters(linear_logprob) <= known | {"bias", "weight"}
    assert parameters(loss_and_grads) <= known | {"chunk_size", "weight"}


def fixed() -> tuple[Tensor, Tensor, Tensor]:
    x, w, _, _ = problem((N,), H, V, torch.float64)
    return x, w, torch.tensor([3, 5, -100, 3, 9, 32])


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("method", ("auto", "recompute", "naive", "chunked"))
def test_an_option_of_the_value_changes_it_as_the_oracle_says(name: str, method: str) -> None:
    x, w, y = fixed()
    value = VALUES[name]()
    if name == "ignore_index":
        y = y.clamp(min=0)
    usual = linear_cross_entropy(x, w, y, method=method)
    if name == "linear_bias":
        ours = check_against_oracle(x, w, y, value, method=method)
    else:
        ours = check_against_oracle(x, w, y, **{name: value}, method=method)
    assert not torch.equal(ours.loss, usual)


@pytest.mark.parametrize("name", WAYS)
def test_an_option_of_the_way_changes_the_plan_and_not_the_value(name: str) -> None:
    x, w, y = fixed()
    check_against_oracle(x, w, y, **{name: WAYS[name]})
    sizes = {"tokens": N, "hidden": H, "vocab": V, "dtype": "f64"}
    if name == "budget":
        with pytest.raises(flce.OutOfBudget, match="budget"):
            linear_cross_entropy(x, w, y, budget=64)
    else:
        assert flce.plan(**sizes, **{name: WAYS[name]}) != flce.plan(**sizes)


@pytest.mark.parametrize("name", set(VALUES) & parameters(linear_logprob) - {"weight"})
def test_options_of_linear_logprob(name: str) -> None:
    x, w, y = fixed()
    value = VALUES[name]()
    y = y.clamp(min=0) if name == "ignore_index" else y
    got, usual = linear_logprob(x, w, y, **{name: value}), linear_logprob(x, w, y)
    a, b = oracle.leaf(x), oracle.leaf(w)
    expected = oracle.linear_cross_entropy(a, b, y, **{name: value})
    for ours, other, theirs in zip(got, usual, (expected.logprob, expected.entropy), strict=True):
        assert not torch.equal(ours, other)
        assert_close(ours, theirs, 1e-12, name)
    ours = torch.autograd.grad(got[0].sum() + got[1].sum(), (x, w))
    theirs = torch.autograd.grad(expected.logprob.sum() + expected.entropy.sum(), (a, b))
    for ours_grad, their_grad in zip(ours, theirs, strict=True):
        assert_close(ours_grad, their_grad, 1e-11, name)


def test_ways_of_linear_logprob() -> None:
    x, w, y = fixed()
    usual = linear_logprob(x, w, y)
    for options in ({"method": "naive"}, {"chunk": 2}, {"budget": "1MiB"}):
        for a, b in zip(linear_logprob(x, w, y, **options), usual, strict=True):
            assert_close(a, b.detach(), 1e-12, str(options))
    with pytest.raises(flce.OutOfBudget):
        linear_logprob(x, w, y, budget=64)


def test_a_bias_of_linear_logprob() -> None:
    x, w, y = fixed()
    bias = tensor(V)
    expected = oracle.linear_cross_entropy(x.detach(), w.detach(), y, bias=bias)
    for ours, theirs in zip(
        linear_logprob(x, w, y, bias=bias), (expected.logprob, expected.entropy), strict=True
    ):
        assert_close(ours, theirs, 1e-12, "bias")


@pytest.mark.parametrize("name", set(VALUES) & parameters(loss_and_grads) - {"weight"})
def test_options_of_loss_and_grads(name: str) -> None:
    x, w, y = fixed()
    value = VALUES[name]()
    y = y.clamp(min=0) if name == "ignore_index" else y
    a, b = oracle.leaf(x), oracle.leaf(w)
    expected = oracle.linear_cross_entropy(a, b, y, **{name: value}).loss
    expected.backward()
    got, usual = loss_and_grads(x, w, y, **{name: value}), loss_and_grads(x, w, y)
    for ours, other, theirs in zip(got, usual, (expected, a.grad, b.grad), strict=True):
        assert not torch.equal(ours, other)
        assert_close(ours, theirs.detach(), 1e-11, name)


def test_loss_dtype() -> None:
    x, w, y = fixed()
    loss = linear_cross_entropy(x, w, y)
    for dtype in (torch.float32, torch.bfloat16):
        rounded = linear_cross_entropy(x, w, y, loss_dtype=dtype)
        assert rounded.dtype == dtype and torch.equal(rounded, loss.to(dtype))
        rounded.backward()


TorchOptions = getattr(nn, "LinearCrossEntropyOptions", None)
needs_options = pytest.mark.skipif(
    TorchOptions is None, reason="this torch has no LinearCrossEntropyOptions (2.13 brings it)"
)


@needs_options
@pytest.mark.parametrize(
    ("fields", "chunk"),
    (
        ({}, None),
        ({"batch_chunk_size": 2}, 2),
        ({"batch_chunk_size": 2, "chunking_method": None}, 2),
        ({"chunking_method": None}, N),
        ({"acc_policy": "accurate"}, None),
        ({"acc_policy": "compact"}, None),
        ({"acc_dtype": torch.float64}, None),
        ({"allow_retain_graph": True}, None),
    ),
    ids=str,
)
def test_torch_options_that_mean_something_here(fields: dict[str, Any], chunk: int | None) -> None:
    x, w, y = fixed()
    got = linear_cross_entropy(x, w, y, options=TorchOptions(**fields))
    assert torch.equal(got, linear_cross_entropy(x, w, y, chunk=chunk))
    check_against_oracle(x, w, y, options=TorchOptions(**fields))


@needs_options
def test_torch_options_aspect_ratio_is_the_published_rule() -> None:
    x, w, y, _ = problem((64,), 8, 64, torch.float32)
    options = TorchOptions(chunking_method="aspect_ratio")
    got = loss = linear_cross_entropy(x, w, y, options=options)
    chunk = flce.plan(tokens=64, hidden=8, vocab=64, dtype="f32", policy="liger").chunk
    assert chunk == 8
    want = linear_cross_entropy(x, w, y, chunk=chunk)
    assert torch.equal(loss, want)
    for a, b in zip(
        torch.autograd.grad(got, (x, w)), torch.autograd.grad(want, (x, w)), strict=True
    ):
        assert torch.equal(a, b)


@needs_options
@pytest.mark.parametrize(
    ("fields", "dtype", "text"),
    (
        ({"chunking_method": "aspect_ratio:4"}, torch.float32, "aspect_ratio:4"),
        ({"acc_policy": "compact"}, torch.bfloat16, "'compact'.*float32 here"),
        ({"acc_dtype": torch.float64}, torch.float32, "acc_dtype is torch.float64"),
        ({"acc_dtype": torch.bfloat16}, torch.bfloat16, "acc_dtype is torch.bfloat16"),
    ),
    ids=str,
)
def test_torch_options_without_a_meaning_here(fields: Any, dtype: Any, text: str) -> None:
    x, w, y, _ = problem(dtype=dtype)
    with pytest.raises(flce.Unsupported, match=text):
        linear_cross_entropy(x, w, y, options=TorchOptions(**fields))


@needs_options
def test_torch_options_beside_a_chunk() -> None:
    x, w, y = fixed()
    with pytest.raises(ValueError, match="chunk=4 and options are given"):
        linear_cross_entropy(x, w, y, chunk=4, options=TorchOptions())


def test_our_defaults_are_torchs() -> None:
    theirs = getattr(nn.functional, "linear_cross_entropy", None)
    if theirs is None:
        pytest.skip("this torch has no linear_cross_entropy (2.13 brings it)")
    ours = inspect.signature(linear_cross_entropy).parameters
    for name, parameter in inspect.signature(theirs).parameters.items():
        assert ours[name].kind == parameter.kind, name
        if name != "ignore_index":  # torch's None means -100 for class indices
            assert ours[name].default == parameter.default, name
    x, w, y = fixed()
    assert_close(linear_cross_entropy(x, w, y), theirs(x, w, y).detach(), 1e-12, "loss")


@pytest.mark.parametrize("name", (*VALUES, *WAYS))
def test_modules_pass_every_option_on(name: str) -> None:
    x, w, y = fixed()
    value = VALUES[name]() if name in VALUES else WAYS[name]
    bias = value if name == "linear_bias" else None
    options = {} if name == "linear_bias" else {name: value}
    y = y.clamp(min=0) if name == "ignore_index" else y
    want = linear_cross_entropy(x, w, y, linear_bias=bias, **options)
    assert torch.equal(LinearCrossEntropyLoss(**options)(x, w, y, bias), want)
    linear = nn.Linear(H, V, bias=bias is not None)
    linear.weight = nn.Parameter(w.detach().clone())
    if bias is not None:
        linear.bias = nn.Parameter(bias)
    assert torch.equal(FusedLinearHead(linear, **options)(x, y), want)
    assert torch.equal(FusedLinearHead(linear)(x, y, **options), want)


def test_logits_of_a_head_are_those_of_its_loss() -> None:
    x, w, y, bias = problem((N,), H, V, torch.float64)
    linear = nn.Linear(H, V)
    linear.weight, linear.bias = nn.Parameter(w.detach()), nn.Parameter(bias.detach())
    for options in ({}, {"scale": 0.3}, {"softcap": 2.0}, {"temperature": 0.5, "scale": 2.0}):
        head = FusedLinearHead(linear, **options)
        assert head.weight is linear.weight and head.bias is linear.bias
        assert [*head.state_dict()] == [*linear.state_dict()]
        want = oracle.logits(x.double(), w.double(), bias.double(), **options)
        assert_close(head(x), want.detach(), 1e-12, str(options))
        assert_close(
            head(x, y), nn.functional.cross_entropy(head(x), y).detach(), 1e-12, str(options)
        )


def test_class_weights_go_where_their_module_goes() -> None:
    x, w, y, _ = problem((N,), H, V, torch.float64)
    classes = torch.rand(V)
    want = oracle.linear_cross_entropy(x, w, y, weight=classes.double()).loss
    linear = nn.Linear(H, V, bias=False)
    linear.weight = nn.Parameter(w.detach().float())
    head = FusedLinearHead(linear, weight=classes)
    assert [*head.state_dict()] == ["weight"]
    head = head.double()
    head.weight.data = w.detach()
    for got in (LinearCrossEntropyLoss(weight=classes).double()(x, w, y), head(x, y)):
        assert_close(got, want.detach(), 1e-12, "loss")
    # Memory without values is for parameters; in 16 bits the weights stay in float32.
    head = FusedLinearHead(nn.Linear(H, V, bias=False, device="meta"), weight=classes)
    head = head.to_empty(device="cpu").bfloat16()
    assert torch.equal(head.options["weight"], classes)
    head.weight.data = w.detach().bfloat16()
    got = head(x.bfloat16(), y)
    assert torch.equal(got, linear_cross_entropy(x.bfloat16(), w.bfloat16(), y, weight=classes))
    assert repr(LinearCrossEntropyLoss(weight=classes, z_loss=0.1)).endswith(
        f"(weight=(of {V}), z_loss=0.1)"
    )


def test_a_head_of_a_head_keeps_its_options() -> None:
    x, w, y, _ = problem((N,), H, V)
    linear = nn.Linear(H, V, bias=False)
    linear.weight = nn.Parameter(w.detach())
    head = FusedLinearHead(FusedLinearHead(linear, z_loss=0.5, softcap=3.0), softcap=2.0)
    assert torch.equal(head(x, y), linear_cross_entropy(x, w, y, z_loss=0.5, softcap=2.0))


def test_accuracy_does_not_depend_on_the_default_dtype() -> None:
    x, w, y, _ = problem((300,), H, 3)
    y = torch.randint(0, 3, (300,))
    want = linear_cross_entropy(x, w, y, return_accuracy=True).accuracy
    torch.set_default_dtype(torch.bfloat16)
    try:
        got = linear_cross_entropy(x, w, y, return_accuracy=True).accuracy
    finally:
        torch.set_default_dtype(torch.float32)
    hits = (torch.nn.functional.linear(x, w).argmax(-1) == y).double().mean()
    for value in (want, got):
        assert value.dtype == torch.float32
        assert float(value) == pytest.approx(float(hits), rel=1e-6)


@pytest.mark.parametrize("accuracy", (False, True))
@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_argmax_is_the_class_of_the_largest_logit(accuracy: bool, reduction: str) -> None:
    x, w, y, bias = problem((3, 7), H, V, torch.float64)
    out = linear_cross_entropy(
        x,
        w,
        y,
        linear_bias=bias,
        softcap=2.0,
        reduction=reduction,
        return_argmax=True,
        return_accuracy=accuracy,
    )
    best = oracle.logits(x, w, bias, softcap=2.0).argmax(-1)
    assert torch.equal(out.argmax, torch.where(y == -100, 0, best))
    hits = int(((best == y) & (y != -100)).sum())
    assert out.num_correct is None if not accuracy else int(out.num_correct) == hits
