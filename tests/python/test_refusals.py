# SPDX-License-Identifier: Apache-2.0
"""What is refused: the sentence says what was wrong, what was given and what would work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import flce
from flce.torch import FusedLinearHead, LinearCrossEntropyLoss, linear_cross_entropy, linear_logprob
from support import problem


def wanting(shape: tuple[int, ...]) -> Tensor:
    return torch.ones(shape, requires_grad=True)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    (
        ({"reduction": "max"}, ValueError, "reduction is 'max'; known: 'none', 'sum', 'mean'"),
        ({"method": "magic"}, ValueError, "method is 'magic'; known: 'auto', 'naive'"),
        ({"method": "naive-eager"}, ValueError, "method is 'naive-eager'; known"),
        ({"method": "fused", "reduction": "none"}, flce.Unsupported, "fused .*recompute takes it"),
        ({"chunk": 0}, ValueError, "chunk is 0"),
        ({"chunk": True}, ValueError, "chunk is True"),
        ({"chunk": 2**64 + 2}, ValueError, "chunk is 18446744073709551618"),
        ({"budget": float("nan")}, ValueError, "budget is nan"),
        ({"scale": 10**400}, ValueError, "scale is an integer that no double holds"),
        ({"normalizer": 10**400}, ValueError, "normalizer is an integer that no double holds"),
        ({"budget": "lots"}, ValueError, "lots"),
        ({"budget": 16}, flce.OutOfBudget, "16"),
        (
            {"label_smoothing": 1.5},
            ValueError,
            "label_smoothing is 1.5; it must be between 0 and 1",
        ),
        ({"label_smoothing": -0.1}, ValueError, "label_smoothing is -0.1"),
        ({"softcap": -3.0}, ValueError, "softcap is -3"),
        ({"softcap": 1e-50}, ValueError, "softcap is 1e-50; .* range, 1.18e-38 to 3.4e"),
        ({"z_loss": -1.0}, ValueError, "z_loss is -1"),
        ({"temperature": 0.0}, ValueError, "temperature is 0"),
        ({"temperature": torch.tensor([1.0] * 6 + [-1.0])}, ValueError, r"temperature\[6\] is -1"),
        ({"scale": float("nan")}, ValueError, "scale is nan"),
        ({"shift": -1}, ValueError, "shift is -1"),
        ({"shift": 1.0}, TypeError, "shift is a float; it must be an integer"),
        ({"ignore_index": 1.0}, TypeError, "ignore_index is a float; it must be an integer"),
        ({"ignore_index": 2**64 + 1}, ValueError, "ignore_index is 18446744073709551617"),
        (
            {"loss_dtype": torch.int64},
            TypeError,
            "loss_dtype is torch.int64; it must be a floating",
        ),
        ({"loss_dtype": "float32"}, TypeError, "loss_dtype is 'float32'"),
        ({"normalizer": -4}, ValueError, "normalizer is -4"),
        ({"normalizer": 4, "reduction": "none"}, ValueError, "normalizer .* 'none'"),
        ({"normalizer": torch.ones(2)}, ValueError, r"normalizer has shape \(2,\)"),
        ({"normalizer": torch.ones((), dtype=torch.bfloat16)}, TypeError, "normalizer has dtype"),
        ({"normalizer": "4"}, TypeError, "normalizer is a str"),
        ({"softcap": torch.tensor(3.0)}, TypeError, "softcap is a Tensor; it must be a number"),
        ({"scale": torch.tensor(3.0)}, TypeError, "scale is a Tensor"),
        ({"temperature": torch.ones(3)}, ValueError, r"temperature has shape \(3,\)"),
        ({"temperature": wanting((7,))}, flce.Unsupported, "temperature.detach"),
        ({"token_weight": torch.ones(6)}, ValueError, r"token_weight has shape \(6,\).*\(7,\)"),
        ({"token_weight": wanting((7,))}, flce.Unsupported, "token_weight.detach"),
        (
            {"token_weight": torch.ones(7).double()},
            TypeError,
            "token_weight has dtype torch.float64",
        ),
        ({"token_weight": np.ones(7)}, TypeError, "token_weight is a ndarray"),
        ({"weight": torch.ones(7)}, ValueError, r"weight has shape \(7,\).*\(33,\)"),
        ({"weight": wanting((33,))}, flce.Unsupported, "weight requires a gradient"),
        ({"weight": torch.ones(33).half()}, TypeError, "weight has dtype torch.float16"),
        ({"linear_bias": torch.ones(7)}, ValueError, r"linear_bias has shape \(7,\).*\(33, 8\)"),
        ({"linear_bias": torch.ones(33).double()}, TypeError, "linear_bias has dtype"),
        ({"options": {"chunk": 3}}, TypeError, "options is a dict"),
        (
            {"accumulate_into": torch.ones(33, 7)},
            ValueError,
            r"accumulate_into has shape \(33, 7\)",
        ),
        ({"accumulate_into": torch.ones(8, 33).t()}, ValueError, "unit inner stride"),
        ({"accumulate_into": wanting((33, 8))}, ValueError, "requires_grad=True"),
        ({"accumulate_into": torch.ones(33, 8).bfloat16()}, TypeError, "accumulate_into has dtype"),
        (
            {"accumulate_into": torch.ones(33, 8), "method": "fused"},
            flce.Unsupported,
            "fused would add gradients",
        ),
    ),
    ids=str,
)
def test_options(options: dict[str, Any], error: type[Exception], text: str) -> None:
    x, w, y, _ = problem()
    with pytest.raises(error, match=text):
        linear_cross_entropy(x, w, y, **options)


def test_a_buffer_for_a_frozen_weight() -> None:
    x, w, y, _ = problem()
    with pytest.raises(ValueError, match="linear_weight does not require a gradient"):
        linear_cross_entropy(x, w.detach(), y, accumulate_into=torch.ones(33, 8))


def test_a_buffer_under_torch_func() -> None:
    x, w, y, _ = problem()

    def loss(w: Tensor) -> Tensor:
        return linear_cross_entropy(x, w, y, accumulate_into=torch.ones(33, 8))

    with pytest.raises(flce.Unsupported, match="torch.func.*leave it out"):
        torch.func.grad(loss)(w.detach())


def test_a_buffer_that_is_the_weight() -> None:
    x, w, y, _ = problem()
    loss = linear_cross_entropy(x, w, y, accumulate_into=w.detach())
    with pytest.raises(flce.InvalidArgument, match="overlap"):
        loss.backward()


@pytest.mark.parametrize("dtype", (torch.int8, torch.float8_e4m3fn, torch.complex64))
def test_dtypes(dtype: torch.dtype) -> None:
    _, _, y, _ = problem()
    x, w = (torch.ones(s).to(dtype) for s in ((7, 8), (33, 8)))
    with pytest.raises(TypeError, match=f"input has dtype {dtype}.*bfloat16"):
        linear_cross_entropy(x, w, y)


@pytest.mark.parametrize("which", range(4))
def test_other_devices_are_named(which: int) -> None:
    """meta stands for a device that the others are not on."""
    x, w, y, bias = problem()
    names = ("input", "linear_weight", "target", "linear_bias")
    tensors = [x, w, y, bias]
    tensors[which] = tensors[which].detach().to("meta")
    named = names[which] if which else "linear_weight"
    with pytest.raises(ValueError, match=f"{named} is on .*they must be on one device"):
        linear_cross_entropy(*tensors[:3], linear_bias=tensors[3])


class OnAnotherDevice(Tensor):
    """A tensor that says it is on an unsupported device; there is none on this machine."""

    device = torch.device("xpu", 0)  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl


def test_a_device_that_is_not_supported() -> None:
    x, w, y, _ = problem()
    with pytest.raises(flce.Unsupported, match="input is on device 'xpu:0'.*cpu and cuda"):
        linear_cross_entropy(x.detach().as_subclass(OnAnotherDevice), w, y)


class Quantized(Tensor):
    """A wrapper that computes in its own way."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> Quantized:
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was called on a wrapper")


def test_wrappers_are_refused() -> None:
    x, w, y, _ = problem()
    with pytest.raises(TypeError, match="linear_weight is a Quantized.*dequantize"):
        linear_cross_entropy(x, Quantized(w.detach()), y)
    with pytest.raises(TypeError, match="weight is a Quantized"):
        linear_logprob(x, Quantized(w.detach()), y)


def test_dtensor_is_refused_with_the_way_out(tmp_path: Any) -> None:
    from torch import distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    x, w, y, _ = problem()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        sharded = distribute_tensor(w.detach(), mesh, [Shard(0)])
        with pytest.raises(
            TypeError, match="linear_weight is a DTensor.*FusedLinearHead.*full_tensor"
        ):
            linear_cross_entropy(x, sharded, y)
        whole = linear_cross_entropy(x, sharded.full_tensor(), y)
        assert torch.equal(whole, linear_cross_entropy(x, w, y))
    finally:
        dist.destroy_process_group()


def test_not_a_tensor() -> None:
    x, w, y, _ = problem()
    with pytest.raises(TypeError, match="input is a ndarray; it must be a torch.Tensor"):
        linear_cross_entropy(np.ones((7, 8)), w, y)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="target is a list"):
        linear_cross_entropy(x, w, [1, 2])  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:Sparse")  # torch says that its sparse rows are a beta feature
def test_layouts() -> None:
    x, w, y, _ = problem()
    with pytest.raises(TypeError, match="linear_weight has layout torch.sparse_coo.*to_dense"):
        linear_cross_entropy(x, w.detach().to_sparse(), y)
    with pytest.raises(TypeError, match="input has layout torch.sparse_csr"):
        linear_cross_entropy(x.detach().to_sparse_csr(), w, y)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", (torch.strided, torch.jagged))
def test_nested_tensors(layout: torch.layout) -> None:
    x, w, y, _ = problem()
    parts = [torch.ones(3, 8), torch.ones(4, 8)]
    nested = torch.nested.nested_tensor(parts, layout=layout)
    with pytest.raises(TypeError, match="input is a nested tensor.*unbind"):
        linear_cross_entropy(nested, w, y)
    with pytest.raises(TypeError, match="linear_weight is a nested tensor"):
        linear_cross_entropy(x, nested, y)
    with pytest.raises(TypeError, match="token_weight is a nested tensor"):
        linear_cross_entropy(x, w, y, token_weight=nested)


def test_a_lazy_parameter() -> None:
    x, _, y, _ = problem()
    with pytest.raises(TypeError, match="linear_weight is not initialized yet"):
        linear_cross_entropy(x, nn.parameter.UninitializedParameter(), y)


def test_modules() -> None:
    with pytest.raises(TypeError, match="unknown options smoothing; known: .*label_smoothing"):
        LinearCrossEntropyLoss(smoothing=0.1)
    with pytest.raises(TypeError, match="unknown options linear_bias"):
        LinearCrossEntropyLoss(linear_bias=None)
    with pytest.raises(TypeError, match="linear is a Sequential; it must be a plain nn.Linear"):
        FusedLinearHead(nn.Sequential(nn.Linear(8, 33)))  # type: ignore[arg-type]

    class Adapted(nn.Linear):
        pass

    with pytest.raises(TypeError, match="linear is a Adapted.*merge it first"):
        FusedLinearHead(Adapted(8, 33))
    head = FusedLinearHead(nn.Linear(8, 33))
    x, _, y, _ = problem()
    with pytest.raises(TypeError, match="shift given without a target"):
        head(x, shift=1)
    with pytest.raises(TypeError, match="unknown options nothing"):
        head(x, y, nothing=1)
    with pytest.raises(TypeError, match="one temperature, not one per token"):
        FusedLinearHead(nn.Linear(8, 33), temperature=torch.ones(7))(x)


def test_a_head_takes_no_linear_whose_attachments_it_would_drop() -> None:
    pruned = prune.l1_unstructured(nn.Linear(8, 33), "weight", amount=0.5)
    with pytest.raises(TypeError, match="linear.weight is made from other parameters"):
        FusedLinearHead(pruned)
    hooked = nn.Linear(8, 33)
    handle = hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(TypeError, match="linear has hooks .*_forward_hooks"):
        FusedLinearHead(hooked)
    handle.remove()
    x, w, y, _ = problem()
    hooked.weight = nn.Parameter(w.detach())
    want = linear_cross_entropy(x, w, y, linear_bias=hooked.bias)
    assert torch.equal(FusedLinearHead(hooked)(x, y), want)


def test_a_failed_call_leaves_no_trace() -> None:
    x, w, y, _ = problem(ignored=0.0)
    want = linear_cross_entropy(x, w, y)
    wrong = y.clone()
    wrong[3] = 1000
    with pytest.raises(flce.TargetOutOfRange, match="1000"):
        linear_cross_entropy(x, w, wrong)
    assert torch.equal(linear_cross_entropy(x, w, y), want)


def test_a_tensor_of_one_number_is_a_chunk() -> None:
    assert flce.plan(tokens=64, hidden=32, vocab=128, chunk=torch.tensor(8)).chunk == 8
    with pytest.raises(flce.InvalidArgument, match="chunk is tensor"):
        flce.plan(tokens=64, hidden=32, vocab=128, chunk=torch.tensor([8, 8]))
