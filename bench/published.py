# SPDX-License-Identifier: Apache-2.0
"""Figures that others published about the memory of the loss, each once, with its source.

bench/report_cuda.py and bench/report_figures.py put them beside what the planner and a card say.
This file knows the published side alone.
"""

from typing import NamedTuple

TRILLION = "Trillion Labs Research, 2026-07-04"
PEGOUD = "[Ryan Pégoud, Towards Data Science, 2026-01-16][pegoud]"
LIGER = "[Liger Kernel, README and benchmark][liger]"
TORCH = "[pytorch/pytorch issue 124480][torch]"
LINKS = """\
[liger]: https://github.com/linkedin/Liger-Kernel
[pegoud]: https://towardsdatascience.com/cutting-llm-memory-by-84-a-deep-dive-into-fused-kernels/
[torch]: https://github.com/pytorch/pytorch/issues/124480"""

# N=16384, H=4096, V=128256 in bf16: the peak with eager code and with a fused kernel in GB, and
# the saving in percent as they give it.
SHAPE = "16384x4096x128256"
BEFORE, AFTER, SAVING = 36.02, 5.04, 84


class Figure(NamedTuple):
    key: str  # of the functions in report_figures.py that give the planner's and the measured side
    what: str
    published: str
    source: str


FIGURES = (
    Figure("hidden", "hidden states, Qwen3-8B, 4 × 4096 tokens, bf16", "0.13 GB", TRILLION),
    Figure("logits", "their logits, bf16", "4.97 GB", TRILLION),
    Figure("long", "logits at a context of 128K (131072 tokens), bf16", "40 GB", TRILLION),
    Figure("bf16", "logits, Llama-3, 65536 tokens, bf16", "16.8 GB", PEGOUD),
    Figure("f32", "the same in f32", "33.6 GB", PEGOUD),
    Figure("gib", "logits, Llama-3, 81920 tokens, bf16", "19.57 GiB", TORCH),
    Figure("before", "peak, 16384×4096×128256, eager code", f"{BEFORE} GB", PEGOUD),
    Figure("after", "peak, the same, fused", f"{AFTER} GB", PEGOUD),
    Figure("saving", "saved by that", f"{SAVING} %", PEGOUD),
    Figure("plateau", "the plateau of chunks whose graph is kept, Qwen3-8B", "4.7 GB", TRILLION),
    Figure("range", "memory saved, the range of all claims", "60-84 %", f"{LIGER}; {PEGOUD}"),
    Figure("throughput", "throughput of multi-GPU training", "+20 %", LIGER),
    Figure("training", "memory of multi-GPU training", "-60 %", LIGER),
    Figure("post_training", "memory of post-training losses", "-80 %", LIGER),
)
