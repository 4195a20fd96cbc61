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
from torch.nn.parallel import DistributedDataParallel

from flce.torch import FusedLinearHead, linear_cross_entropy
from support import problem


def gradients(x: Any, w: Any, y: Any, **options: Any) -> list[Any]:
    loss = linear_cross_entropy(x, w, y, **options)
    return [loss.detach(), *torch.autograd.grad(loss.sum(), (x, w))]


def test_threads_do_not_disturb_each_other() -> None:
    jobs = []
    for i in range(24):
        x, w, y, _ = problem((20 + i % 3,), 8, 200, torch.float32)
        jobs.append((x, w, y, {"reduction": "none" if i % 2 else "mean"}))
    want = [gradients(*job[:3], **job[3]) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            got = list(pool.map(lambda job: gradients(*job[:3], **job[3]), jobs))
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


def test_c003_a_masked_rank_does_not_stop_the_others(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=masked_rank, args=(r, str(tmp_path))) for r in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(timeout=120)
        assert rank.exitcode == 0
    saved = [torch.load(tmp_path / f"rank{r}.pt") for r in range(2)]
    x, y, w, grad = saved[0]
    w = w.double().requires_grad_()
    nn.functional.cross_entropy(x.double() @ w.T, y, reduction="sum").backward()
    for *_, of_rank in saved:
        torch.testing.assert_close(of_rank, (w.grad / 2).float(), rtol=1e-5, atol=1e-6)
    assert torch.equal(grad, saved[1][3])
