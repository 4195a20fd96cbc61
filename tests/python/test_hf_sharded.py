# SPDX-License-Identifier: Apache-2.0
"""Heads whose weight is whole only while hooks of a sharded optimizer hold it, or is elsewhere."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import child

pytest.importorskip("transformers")

from flce.torch import patch, unpatch
from hf_support import assert_same_gradients, batch, pair, tiny_model


class GatherOnForward:
    """What sharded optimizers do: the parameter is empty outside of its module's forward.

    The hooks put the whole weight in place and take it away again; a gradient for the whole weight
    goes to the shard.
    """

    def __init__(self, linear: nn.Linear) -> None:
        self.shard = linear.weight.detach().clone().requires_grad_(True)
        self.gathers = 0
        linear.weight.data = torch.empty(0)
        self.own = linear.weight
        linear.register_forward_pre_hook(self._gather)
        linear.register_forward_hook(self._release, always_call=True)

    def _gather(self, module: nn.Module, args: Any) -> None:
        self.gathers += 1
        del module._parameters["weight"]
        module.weight = self.shard * 1.0

    def _release(self, module: nn.Module, args: Any, output: Any) -> None:
        del module.weight
        module._parameters["weight"] = self.own


@pytest.mark.parametrize("training", [True, False])
def test_c086_the_heads_hooks_run(training: bool) -> None:
    model, oracle = pair("llama")
    sharded = GatherOnForward(model.lm_head)
    patch(model).train(training)
    oracle.train(training)
    got, wanted = model(**batch()), oracle(**batch())
    torch.testing.assert_close(got.loss, wanted.loss, rtol=3e-6, atol=0)
    assert sharded.gathers == (1 if training else 2)  # the loss; in evaluation the logits too
    got.loss.backward()
    wanted.loss.backward()
    torch.testing.assert_close(sharded.shard.grad, oracle.lm_head.weight.grad)
    assert model.lm_head.weight.numel() == 0


def test_c086_a_weight_that_nobody_gathers_is_refused() -> None:
    model = patch(tiny_model("llama"))
    model.lm_head.weight.data = torch.empty(0)
    with pytest.raises(RuntimeError, match="has not gathered it"):
        model(**batch())


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _one_rank() -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(_free_port()), RANK="0", WORLD_SIZE="1"
    )
    torch.distributed.init_process_group("gloo")


@pytest.fixture
def process_group() -> Any:
    _one_rank()
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("own_unit", [False, True])
def test_fully_shard(process_group: Any, own_unit: bool) -> None:
    from torch.distributed.fsdp import fully_shard

    model, oracle = pair("llama")
    patch(model)
    if own_unit:
        fully_shard(model.lm_head)
    fully_shard(model)
    got, wanted = model(**batch()), oracle(**batch())
    torch.testing.assert_close(got.loss, wanted.loss, rtol=3e-6, atol=0)
    got.loss.backward()
    wanted.loss.backward()
    for (name, p), (_, q) in zip(model.named_parameters(), oracle.named_parameters(), strict=True):
        torch.testing.assert_close(p.grad.full_tensor(), q.grad, msg=name)
    # Under another wrapper's class the patch's own stays, and does nothing any more.
    unpatch(model)
    again = model(**batch())
    torch.testing.assert_close(again.loss, wanted.loss)
    torch.testing.assert_close(again.logits, wanted.logits)


def test_distributed_data_parallel(process_group: Any) -> None:
    model, oracle = pair("smollm")
    patch(model)
    wrapped = nn.parallel.DistributedDataParallel(model)
    wrapped(**batch()).loss.backward()
    oracle(**batch()).loss.backward()
    assert_same_gradients(model, oracle, 2e-5)


def test_c003_two_ranks_of_which_one_is_all_ignored() -> None:
    program = Path(__file__).with_name("two_ranks.py")
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, program],
            env=child.environment(**place, RANK=str(rank), OMP_NUM_THREADS="1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    for rank, process in enumerate(ranks):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert f"rank {rank} agrees" in out


def test_a_loader_that_moves_offloaded_weights() -> None:
    accelerate = pytest.importorskip("accelerate")
    for patch_first in (False, True):
        model, oracle = pair("llama")
        if patch_first:
            patch(model)
        weights = {"weight": model.lm_head.weight.detach().clone()}
        hook = accelerate.hooks.AlignDevicesHook(
            execution_device="cpu", offload=True, weights_map=weights
        )
        accelerate.hooks.add_hook_to_module(model.lm_head, hook)
        assert model.lm_head.weight.device.type == "meta"
        patch(model)
        with torch.no_grad():
            got, wanted = model(**batch()).loss, oracle(**batch()).loss
        torch.testing.assert_close(got, wanted, rtol=3e-6, atol=0)
