# SPDX-License-Identifier: Apache-2.0
"""One rank of test_hf_sharded.py: a patched model under DDP and under FSDP2, one rank all ignored.

RANK=r WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... python two_ranks.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from flce.torch import patch
from hf_support import batch, pair


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    inputs = batch(seed=1)
    valid = (inputs["labels"][:, 1:] != -100).sum()
    if rank == 1:
        inputs["labels"][:] = -100
    divisor = {"num_items_in_batch": valid}

    model, oracle = pair("llama")
    own = batch(seed=1)
    oracle(**own, **divisor).loss.backward()

    wrapped = nn.parallel.DistributedDataParallel(patch(model))
    wrapped(**inputs, **divisor).loss.backward()
    for (name, p), q in zip(model.named_parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad / 2, msg=name)

    sharded, _ = pair("llama")
    fully_shard(patch(sharded))
    sharded(**inputs, **divisor).loss.backward()
    for (name, p), q in zip(sharded.named_parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(p.grad.full_tensor(), q.grad / 2, msg=name)
    print(f"rank {rank} agrees")
    dist.barrier()  # neither leaves while the other still needs it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
