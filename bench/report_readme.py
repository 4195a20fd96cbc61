# SPDX-License-Identifier: Apache-2.0
"""The tables of README.md and README.ko.md, the same rows in two languages.

They show a few rows of bench/results; bench/report.py puts them between the pages' markers.
"""

import os

import report_cuda
import results
from report_cuda import find, gigabytes
from tables import table

CARD = "h200"
SHAPES = ("16384x4096x128256", "4096x4096x128256", "8192x2304x256000")
RULE_SHAPE = "16384x4096x128256"  # also with the chunk of the published rule

# (file, N, H, V, dtype, rival; None: the best of them)
CPU_ROWS = (
    ("amd-epyc-family-25-model-1", 2048, 1024, 32000, "f32", None),
    ("amd-epyc-family-25-model-1", 2048, 2048, 128256, "f32", None),
    ("intel-xeon-family-6-model-207", 2048, 1024, 32000, "f32", None),
    ("intel-xeon-family-6-model-207", 2048, 1024, 32000, "bf16", "onednn-avx512_core_bf16"),
    ("intel-xeon-family-6-model-207", 2048, 1024, 32000, "bf16", "onednn"),
)

WORDS = {
    "en": {
        "card": (
            "N×H×V",
            "`fused`",
            "of the bare products",
            "peak memory, `fused` / eager",
            "time of eager code, of the bare products",
        ),
        "rule": "the same, the published chunk of {}",
        "cpu": (
            "N×H×V",
            "dtype, processor",
            "fused",
            "of it the unfused takes",
            "extra memory, fused / unfused",
        ),
        "processors": (
            "f32, AMD Zen 3 (AVX2)",
            "f32, AMD Zen 3 (AVX2)",
            "f32, Intel Xeon (AVX-512)",
            "bf16, Intel Xeon, without AMX",
            "bf16, Intel Xeon, oneDNN with AMX",
        ),
        "none": "No figures of a card are here yet; `./dev bench cuda` makes them.",
    },
    "ko": {
        "card": (
            "N×H×V",
            "`fused`",
            "순수 행렬곱 대비",
            "최대 메모리, `fused` / eager",
            "eager 코드의 시간, 순수 행렬곱 대비",
        ),
        "rule": "같은 크기, 공개된 규칙의 청크 {}",
        "cpu": (
            "N×H×V",
            "dtype, 프로세서",
            "fused",
            "그중 비융합 코드가 쓰는 시간",
            "추가 메모리, fused / 비융합",
        ),
        "processors": (
            "f32, AMD Zen 3 (AVX2)",
            "f32, AMD Zen 3 (AVX2)",
            "f32, Intel Xeon (AVX-512)",
            "bf16, Intel Xeon, AMX 없이",
            "bf16, Intel Xeon, AMX를 쓰는 oneDNN",
        ),
        "none": "카드에서 잰 값이 아직 없습니다. `./dev bench cuda`가 만듭니다.",
    },
}


def card_line(name, row, eager):
    if row is None or eager is None or row["median_ms"] is None or eager["median_ms"] is None:
        return None
    peaks = [gigabytes(which["peak_bytes"]) for which in (row, eager)]
    if peaks[0].endswith("GB") and peaks[1].endswith("GB"):
        peaks[0] = peaks[0][: -len(" GB")]
    return [name, f"{row['median_ms']:.1f} ms", f"{row['ratio']:.2f}", " / ".join(peaks),
            f"{eager['ratio']:.2f}"]  # fmt: skip


def card_table(root, language):
    words = WORDS[language]
    path = os.path.join(root, "bench", "results", CARD, "headline.csv")
    rows = report_cuda.load(path) if os.path.exists(path) else []
    lines = []
    for shape in SHAPES:
        here = [row for row in rows if row["shape"] == shape and row["data"] == "random"]
        eager = find(here, method="naive-eager")
        lines.append(card_line(shape.replace("x", "×"), find(here, method="fused"), eager))
        if shape == RULE_SHAPE:
            ruled = find(here, method="fused-liger")
            name = words["rule"].format(ruled and ruled["chunk"])
            lines.append(card_line(name, ruled, eager))
    lines = [line for line in lines if line]
    return table(list(words["card"]), lines) if lines else words["none"]


def seconds(text):
    value = float(text) / 1e3
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def is_rival(row, rival):
    if rival:
        return row["system"] == rival
    return row["system"] in ("openblas", "onednn")


def cpu_line(root, words, number):
    name, tokens, hidden, vocab, dtype, rival = CPU_ROWS[number]
    rows = results.load(os.path.join(root, "bench", "results", "cpu", name + ".csv"))
    asked = {
        "series": "headline",
        "tokens": tokens,
        "hidden": hidden,
        "vocab": vocab,
        "dtype": dtype,
    }
    here = [row for row in rows if all(row[key] == str(value) for key, value in asked.items())]
    ours = find(here, system="flce-fused")
    rivals = [row for row in here if is_rival(row, rival)]
    if ours is None or not rivals:
        return None
    best = min(rivals, key=lambda row: float(row["ratio_to_ours"]))
    extra = [float(row["extra_bytes"]) / 1e6 for row in (ours, best)]
    return [
        f"{tokens}×{hidden}×{vocab}",
        words["processors"][number],
        seconds(best["ours_ms"]),
        f"{float(best['ratio_to_ours']):.2f}",
        f"{extra[0]:.0f} / {extra[1]:.0f} MB",
    ]


def cpu_table(root, language):
    words = WORDS[language]
    lines = [cpu_line(root, words, number) for number in range(len(CPU_ROWS))]
    return table(list(words["cpu"]), [line for line in lines if line])


def parts(language):
    return (
        ("readme-card", lambda root: card_table(root, language)),
        ("readme-cpu", lambda root: cpu_table(root, language)),
    )
