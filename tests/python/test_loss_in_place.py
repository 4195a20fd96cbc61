# SPDX-License-Identifier: Apache-2.0
"""Trainers change the loss in place (loss *= n, loss += auxiliary): as with F.cross_entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flce.torch import linear_cross_entropy


def scaled(loss: Tensor) -> Tensor:
    loss *= 3.0
    loss += 1.0
    loss /= 2.0
    return loss


CALLS: dict[str, dict[str, Any]] = {
    "fused": {},
    "recompute": {"method": "recompute"},
    "none": {"reduction": "none"},
    "more": {"return_lse": True},
}


def _run(call: Callable[[Any], Any] | None, options: dict[str, Any]) -> list[Tensor]:
    torch.manual_seed(0)
    x, w = torch.randn(7, 5, dtype=torch.float64), torch.randn(11, 5, dtype=torch.float64)
    x.requires_grad_(), w.requires_grad_()
    y = torch.randint(0, 11, (7,))

    def step() -> Tensor:
        if call is None:
            loss = F.cross_entropy(F.linear(x, w), y, reduction=options.get("reduction", "mean"))
        else:
            result = linear_cross_entropy(x, w, y, **options)
            loss = result.loss if options.get("return_lse") else result
        return scaled(loss)

    loss = step() if call is None else call(step)
    loss.sum().backward()
    return [loss.detach(), x.grad, w.grad]


def _eager(step: Any) -> Tensor:
    return step()


def _compiled(step: Any) -> Tensor:
    return torch.compile(step, backend="aot_eager", fullgraph=True)()


@pytest.mark.parametrize("call", [_eager, _compiled])
@pytest.mark.parametrize("name", CALLS)
def test_the_loss_may_be_changed_in_place(name: str, call: Any) -> None:
    got, wanted = _run(call, CALLS[name]), _run(None, CALLS[name])
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_second_derivative_is_still_refused() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(5, 3, dtype=torch.float64)
    loss = scaled(linear_cross_entropy(x, w, torch.tensor([0, 1, 2, 3])))
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        grad.pow(2).sum().backward()
