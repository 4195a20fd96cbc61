# SPDX-License-Identifier: Apache-2.0
"""torch.compile, dynamic shapes, fake and meta tensors, traced graphs: the same values as eager."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import oracle
from flce.torch import FusedLinearHead, linear_cross_entropy, linear_logprob, loss_and_grads
from flce.torch._arguments import Head, Settings, judge
from support import EVERYTHING, assert_close, problem


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def checked(function: Any, reference: Any, *inputs: Any) -> None:
    """Values and gradients of what requires one, against float64."""
    asked = [t for t in inputs if isinstance(t, Tensor) and t.requires_grad]
    doubles = [oracle.leaf(t, t.requires_grad) if t.is_floating_point() else t for t in inputs]
    got, want = function(*inputs), reference(*doubles)
    assert_close(got, want, 2e-6, "loss")
    leaves = [t for t in doubles if t.requires_grad]
    upstream = torch.randn(got.shape)
    for a, b in zip(
        torch.autograd.grad(got, asked, upstream),
        torch.autograd.grad(want, leaves, upstream.double()),
        strict=True,
    ):
        assert_close(a, b, 1e-5, "gradient")


def trained(reduction: str, **options: Any) -> tuple[Any, Any]:
    """A trunk and its loss, ours and the oracle's."""

    def ours(x: Tensor, w: Tensor, bias: Tensor, y: Tensor) -> Tensor:
        return linear_cross_entropy(
            torch.sin(x), w, y, linear_bias=bias, reduction=reduction, **options
        )

    def other(x: Tensor, w: Tensor, bias: Tensor, y: Tensor) -> Tensor:
        return oracle.linear_cross_entropy(
            torch.sin(x), w, y, bias=bias, reduction=reduction, **options
        ).loss

    return ours, other


@pytest.mark.parametrize("backend", ("aot_eager", "inductor"))
@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_fullgraph(backend: str, reduction: str) -> None:
    ours, other = trained(reduction, label_smoothing=0.1, softcap=5.0)
    x, w, y, bias = problem((2, 7))
    checked(torch.compile(ours, fullgraph=True, backend=backend), other, x, w, bias, y)


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_one_graph_for_any_number_of_tokens(reduction: str) -> None:
    ours, other = trained(reduction, z_loss=1e-3)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(ours, fullgraph=True, backend=counter, dynamic=True)
    for tokens in (14, 9, 40):
        x, w, y, bias = problem((tokens,))
        checked(compiled, other, x, w, bias, y)
    assert counter.frame_count <= 2  # forward and backward, once each


@pytest.mark.parametrize("backend", ("aot_eager", "inductor"))
def test_linear_logprob(backend: str) -> None:
    def ours(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        logprob, entropy = linear_logprob(torch.sin(x), w, y, temperature=0.7)
        return logprob.exp() + entropy

    def other(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        e = oracle.linear_cross_entropy(torch.sin(x), w, y, temperature=0.7)
        return e.logprob.exp() + e.entropy

    x, w, y, _ = problem()
    checked(torch.compile(ours, fullgraph=True, backend=backend), other, x, w, y)


@pytest.mark.parametrize("backend", ("aot_eager", "inductor"))
def test_accumulate_into(backend: str) -> None:
    x, w, y, _ = problem()
    buffer = torch.ones(33, 8)
    compiled = torch.compile(
        lambda x, w, y, b: linear_cross_entropy(torch.sin(x), w, y, accumulate_into=b),
        fullgraph=True,
        backend=backend,
    )
    compiled(x, w, y, buffer).backward()
    a, b = oracle.leaf(x), oracle.leaf(w)
    oracle.linear_cross_entropy(torch.sin(a), b, y).loss.backward()
    assert w.grad is None
    assert_close(buffer, 1 + b.grad, 1e-5, "buffer")
    assert_close(x.grad, a.grad, 1e-5, "x")


def test_every_output_and_a_new_normalizer_each_time() -> None:
    def ours(x: Tensor, w: Tensor, y: Tensor, count: Tensor) -> Any:
        return linear_cross_entropy(x, w, y, normalizer=count, **EVERYTHING)

    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    x, w, y, _ = problem()
    for count in (3, 4):
        got, want = (f(x, w, y, torch.tensor(count)) for f in (compiled, ours))
        assert type(got) is type(want)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_func_grad_inside_the_graph() -> None:
    x, w, y, _ = problem()
    x, w = x.detach(), w.detach()

    def grads(x: Tensor, w: Tensor) -> Any:
        return torch.func.grad(lambda a, b: linear_cross_entropy(a, b, y), (0, 1))(x, w)

    got = torch.compile(grads, fullgraph=True, backend="aot_eager")(x, w)
    for a, b in zip(got, grads(x, w), strict=True):
        assert_close(a, b.double(), 1e-6, "gradient")


def test_vmap_inside_the_graph() -> None:
    """Of values. With gradients the compiler says that it cannot vmap a Function."""
    x, w, y, _ = problem((3, 6))
    x, w = x.detach(), w.detach()

    def each(x: Tensor, w: Tensor) -> Tensor:
        return torch.vmap(lambda a, t: linear_cross_entropy(a, w, t))(x, y)

    got = torch.compile(each, fullgraph=True, backend="aot_eager")(x, w)
    pairs = zip(x.double(), y, strict=True)
    want = torch.stack([oracle.linear_cross_entropy(a, w.double(), t).loss for a, t in pairs])
    assert_close(got, want, 2e-6, "loss")


def test_evaluation_and_modules() -> None:
    head = FusedLinearHead(nn.Linear(8, 33), label_smoothing=0.1)
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    x, _, y, _ = problem()
    assert torch.equal(compiled(x, y), head(x, y))
    with torch.no_grad():
        assert torch.equal(compiled(x, y), head(x, y))
    assert_close(compiled(x), head(x).detach().double(), 1e-6, "logits")


def test_autocast_inside_the_graph() -> None:
    def ours(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return linear_cross_entropy(x, w, y)

    x, w, y, _ = problem()
    got, want = torch.compile(ours, fullgraph=True, backend="aot_eager")(x, w, y), ours(x, w, y)
    assert torch.equal(got, want)
    for a, b in zip(
        torch.autograd.grad(got, (x, w)), torch.autograd.grad(want, (x, w)), strict=True
    ):
        assert torch.equal(a, b)


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_a_retained_graph_of_a_compiled_loss(reduction: str) -> None:
    ours, _ = trained(reduction)
    x, w, y, bias = problem()
    # A compiled backward pass may use what was saved as its own memory unless it is told.
    with torch._functorch.config.patch(donated_buffer=False):
        loss = torch.compile(ours, fullgraph=True, backend="aot_eager")(x, w, bias, y).sum()
        first = torch.autograd.grad(loss, (x, w, bias), retain_graph=True)
        second = torch.autograd.grad(3 * loss, (x, w, bias))
    for a, b in zip(first, second, strict=True):
        assert_close(b, 3 * a.double(), 1e-6, "gradient")


# Not test_aot_dispatch_*: it compares all results after a backward pass, gradients that have been
# scaled and bytes between saved values among them. The tests above compare what is public.
OPCHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize("settings", (Settings(), Settings(reduction="sum", label_smoothing=0.1)))
def test_opcheck_of_run(settings: Settings) -> None:
    x, w, y, bias = problem()
    found = judge(Head(x, w, y, bias), settings)
    torch.library.opcheck(
        torch.ops.flce.run.default, (*found.tensors, *found.options), test_utils=OPCHECKS
    )


@pytest.mark.parametrize("entropy", (True, False))
def test_opcheck_of_forward(entropy: bool) -> None:
    x, w, y, bias = problem()
    found = judge(Head(x, w, y, bias), Settings(reduction="none"), entropy_grad=entropy)
    torch.library.opcheck(
        torch.ops.flce.forward.default,
        (*found.tensors, *found.options, entropy, None),
        test_utils=OPCHECKS,
    )


@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_sizes_alone(reduction: str) -> None:
    """Meta and fake tensors: shapes and dtypes of results and gradients, and no memory."""
    x, w, y, bias = problem((2, 5), dtype=torch.bfloat16)

    def step(x: Tensor, w: Tensor, y: Tensor, bias: Tensor) -> list[Tensor]:
        leaves = [t.detach().requires_grad_() for t in (x, w, bias)]
        out = linear_cross_entropy(
            *leaves[:2], y, linear_bias=leaves[2], reduction=reduction, **EVERYTHING
        )
        grads = torch.autograd.grad(out.loss.sum(), leaves)
        return [*out, *grads, *loss_and_grads(x, w, y)]

    real = step(x, w, y, bias)
    meta = step(*(t.detach().to("meta") for t in (x, w, y, bias)))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = step(*(mode.from_tensor(t.detach()) for t in (x, w, y, bias)))
    for made in (meta, fake):
        for a, b in zip(made, real, strict=True):
            assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())


def test_make_fx_sees_the_operator() -> None:
    x, w, y, _ = problem()
    graph = make_fx(lambda *tensors: linear_cross_entropy(*tensors))(x, w, y)
    assert "torch.ops.flce.run" in graph.code
    assert torch.equal(graph(x, w, y), linear_cross_entropy(x, w, y))


def test_an_exported_head_takes_any_number_of_tokens() -> None:
    head = FusedLinearHead(nn.Linear(8, 33)).eval()
    x, _, y, _ = problem()
    tokens = torch.export.Dim("tokens")
    sizes = {"hidden": {0: tokens}, "target": {0: tokens}}
    with torch.no_grad():
        exported = torch.export.export(head, (x, y), dynamic_shapes=sizes).module()
        for n in (7, 3):
            assert torch.equal(exported(x[:n], y[:n]), head(x[:n], y[:n]))
