# SPDX-License-Identifier: Apache-2.0
"""Several threads and several processes."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from flce.torch import FusedLinearHead, linear_cross_entropy
from support import problem


def gradients(x: Any, w: Any, y: Any, **options: Any) -> list[Any]:
    loss = linear_cross_entropy(x, w, y, **options)
    return [loss.detach(), *torch.autograd.grad(loss.sum(), (x, w))]


OPTIONS: tuple[dict[str, Any], ...] = (
    {"reduction": "mean"},
    {"reduction": "none"},
    {"reduction": "sum", "method": "recompute", "chunk": 7},
    {"method": "chunked", "chunk": 5, "label_smoothing": 0.1},
    {"method": "naive", "softcap": 20.0},
    {"z_loss": 0.01, "scale": 0.5},
    {"reduction": "none", "shift": 1},
    {"chunk": 9, "temperature": 0.7},
)
DTYPES = (torch.float32, torch.bfloat16, torch.float64)


def backward(x: Any, w: Any, y: Any, **options: Any) -> list[Any]:
    """Loss and gradients by backward(), of leaves that are this call's alone."""
    x, w = (t.detach().clone().requires_grad_() for t in (x, w))
    loss = linear_cross_entropy(x, w, y, **options)
    loss.sum().backward()
    return [loss.detach(), x.grad, w.grad]


def test_eight_threads_do_not_disturb_each_other() -> None:
    jobs = []
    for i in range(48):
        x, w, y, _ = problem((20 + i % 5,), 8 + i % 3, 200 + 30 * (i % 4), DTYPES[i % 3])
        jobs.append((gradients if i % 2 else backward, (x, w, y), OPTIONS[i % len(OPTIONS)]))
    want = [call(*tensors, **options) for call, tensors, options in jobs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            got = list(pool.map(lambda job: job[0](*job[1], **job[2]), jobs))
            for a, b in zip(got, want, strict=True):
                assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


def test_a_child_of_fork_may_call() -> None:
    x, w, y, _ = problem((20,), 8, 200)
    want = gradients(x, w, y)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        same = all(torch.equal(a, b) for a, b in zip(gradients(x, w, y), want, strict=True))
        os.write(write, b"same" if same else b"other")
        os._exit(0)
    os.close(write)
    assert os.read(read, 16) == b"same"
    assert os.waitpid(child, 0)[1] == 0


def masked_rank(rank: int, folder: str) -> None:
    """One DDP step in which rank 1 has no valid token."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    head = FusedLinearHead(nn.Linear(8, 33, bias=False), reduction="sum")
    wrapped = DistributedDataParallel(head)
    x, y = torch.randn(5, 8), torch.randint(0, 33, (5,))
    wrapped(x, torch.full_like(y, -100) if rank == 1 else y).backward()
    torch.save((x, y, head.weight.detach(), head.weight.grad), f"{folder}/rank{rank}.pt")
    distributed.destroy_process_group()


def run_ranks(function: Any, folder: Path) -> list[Any]:
    """function(rank, folder) in two processes; what each has saved as rank<r>.pt."""
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=function, args=(r, str(folder))) for r in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(timeout=120)
        assert rank.exitcode == 0
    return [torch.load(folder / f"rank{r}.pt") for r in range(2)]


def test_c003_a_masked_rank_does_not_stop_the_others(tmp_path: Path) -> None:
    saved = run_ranks(masked_rank, tmp_path)
    x, y, w, grad = saved[0]
    w = w.double().requires_grad_()
    nn.functional.cross_entropy(x.double() @ w.T, y, reduction="sum").backward()
    for *_, of_rank in saved:
        torch.testing.assert_close(of_rank, (w.grad / 2).float(), rtol=1e-5, atol=1e-6)
    assert torch.equal(grad, saved[1][3])


def sharded_head(rank: int, folder: str) -> None:
    """One FSDP2 step of a head whose rows lie on two ranks."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    head = FusedLinearHead(nn.Linear(8, 33))
    w, bias = head.weight.detach().clone(), head.bias.detach().clone()
    fully_shard(head, mesh=init_device_mesh("cpu", (2,)))
    torch.manual_seed(rank)
    x, y = torch.randn(5, 8), torch.randint(0, 33, (5,))
    try:
        linear_cross_entropy(x, head.weight, y)
        refusal = ""
    except TypeError as error:
        refusal = str(error)
    with torch.no_grad():
        evaluated = head(x, y)
    loss = head(x, y)
    loss.backward()
    grads = [p.grad.full_tensor() for p in (head.weight, head.bias)]
    torch.save((x, y, w, bias, evaluated, loss.detach(), grads, refusal), f"{folder}/rank{rank}.pt")
    distributed.destroy_process_group()


def test_c086_fsdp_gathers_the_head_and_scatters_its_gradient(tmp_path: Path) -> None:
    saved = run_ranks(sharded_head, tmp_path)
    w, bias = (t.double().requires_grad_() for t in saved[0][2:4])
    total = torch.zeros((), dtype=torch.float64)
    for x, y, _, _, evaluated, loss, _, refusal in saved:
        want = nn.functional.cross_entropy(nn.functional.linear(x.double(), w, bias), y)
        torch.testing.assert_close(loss.double(), want.detach(), rtol=1e-6, atol=1e-6)
        assert torch.equal(evaluated, loss)
        assert "linear_weight is a DTensor" in refusal and "FusedLinearHead" in refusal
        total = total + want / 2
    total.backward()
    for grads in (saved[0][6], saved[1][6]):
        for got, leaf in zip(grads, (w, bias), strict=True):
            torch.testing.assert_close(got.double(), leaf.grad, rtol=1e-5, atol=1e-6)
