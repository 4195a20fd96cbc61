# SPDX-License-Identifier: Apache-2.0
"""The words of what bench/report_readme.py makes, in the languages of the README. A text in braces
is filled in; both languages have the same ones, and no figure of their own.
"""

WORDS = {
    "en": {
        "setup": "One step, the loss and both gradients, on one {device} in {dtype}; {date}, torch "
        "{torch}. Time and peak memory by N×H×V; errors are relative, against float64, at "
        "{shape}.",
        "system": "system",
        "bare": "three bare products, nothing else",
        "loss": "error of the loss",
        "grad_hidden": "of grad_hidden",
        "grad_weight": "of grad_weight",
        "lost": "* {shape}: ours takes {ours} ms, the bare products {floor} ms. Faster than "
        "`flce-fused`: {faster}. In less memory than its {peak}: {smaller}. Both faster and in "
        "less memory than `flce-recompute`: {beats}.",
        "nobody": "none of these",
        "train": "In training: a step of a decoder ({layers} layers, H={hidden}, V={vocab}, "
        "{batch} sequences of {sequence} tokens) takes {ours} ms and {our_peak} with ours, {eager} "
        "ms and {eager_peak} with eager code; {our_most} such sequences fit on the card, {most} "
        "with eager code.",
        "cpu": (
            "N×H×V",
            "dtype, processor",
            "fused",
            "unfused time / fused time",
            "extra memory, fused / unfused",
        ),
        "processors": (
            "f32, AMD Zen 3 (AVX2)",
            "f32, AMD Zen 3 (AVX2)",
            "f32, Intel Xeon (AVX-512)",
            "bf16, Intel Xeon, without AMX",
            "bf16, Intel Xeon, oneDNN with AMX",
        ),
        "none": "No figures of a card are here yet; `./dev bench peers` makes them.",
    },
    "ko": {
        "setup": "{device}, {dtype}에서 손실과 두 그래디언트를 만드는 한 단계. {date}, torch "
        "{torch}. N×H×V별 시간과 최대 메모리, 오차는 {shape}에서 float64와 견준 상대 오차.",
        "system": "시스템",
        "bare": "순수 행렬곱 세 개만",
        "loss": "손실의 오차",
        "grad_hidden": "grad_hidden의 오차",
        "grad_weight": "grad_weight의 오차",
        "lost": "* {shape}: 우리는 {ours} ms, 순수 행렬곱만은 {floor} ms. `flce-fused`보다 "
        "빠른 것: {faster}. 그 {peak}보다 메모리를 덜 쓰는 것: {smaller}. `flce-recompute`보다 "
        "빠르면서 메모리도 덜 쓰는 것: {beats}.",
        "nobody": "이 가운데 없음",
        "train": "학습에서: 디코더(층 {layers}개, H={hidden}, V={vocab}, 길이 {sequence}인 시퀀스 "
        "{batch}개)의 한 스텝이 FLCE로는 {ours} ms와 {our_peak}, eager 코드로는 {eager} ms와 "
        "{eager_peak}입니다. 그런 시퀀스가 이 카드에 FLCE로는 {our_most}개, eager 코드로는 "
        "{most}개 들어갑니다.",
        "cpu": (
            "N×H×V",
            "dtype, 프로세서",
            "fused",
            "비융합 시간 / fused 시간",
            "추가 메모리, fused / 비융합",
        ),
        "processors": (
            "f32, AMD Zen 3 (AVX2)",
            "f32, AMD Zen 3 (AVX2)",
            "f32, Intel Xeon (AVX-512)",
            "bf16, Intel Xeon, AMX 없이",
            "bf16, Intel Xeon, AMX를 쓰는 oneDNN",
        ),
        "none": "카드에서 잰 값이 아직 없습니다. `./dev bench peers`가 만듭니다.",
    },
}
