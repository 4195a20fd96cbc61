#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/report_cuda.py, tried on made-up results."""

import csv
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import cuda_rows  # noqa: E402
import report  # noqa: E402
import report_cuda  # noqa: E402
import report_pages  # noqa: E402

EXTRA = (
    "num_chunks",
    "predicted_peak_bytes",
    "device_bytes",
    "min_ms",
    "max_ms",
    "rounds",
    "watts",
    "sm_mhz",
    "policy",
    "pays",
    "problem",
    "version",
    "refused",
)
LLAMA = "16384x4096x128256"


def row(method, **changes):
    base = dict.fromkeys(cuda_rows.COLUMNS + EXTRA, "")
    base.update(
        device="NVIDIA H200",
        date="2026-12-01T10:00:00Z",
        shape="4096x4096x128256",
        dtype="bf16",
        method=method,
        route="portable",
        chunk=4096,
        num_chunks=1,
        median_ms=18.0,
        min_ms=17.9,
        max_ms=18.3,
        floor_ms=18.75,
        hard_floor_ms=17.9,
        ratio=0.96,
        extra_bytes=1000000000,
        peak_bytes=3000000000,
        predicted_bytes=1000000000,
        predicted_peak_bytes=3000000000,
        err_loss=1e-7,
        err_grad_hidden=1.7e-3,
        err_grad_weight=1.6e-3,
        data="random",
        set="headline",
        watts=690,
        sm_mhz=1500,
        policy="measured",
        pays="yes",
        version="7.8.9",
    )
    base.update(changes)
    return base


def refused(method, **changes):
    empty = dict.fromkeys(cuda_rows.NUMBERS, "")
    empty.update(
        predicted_bytes=4e11, predicted_peak_bytes=4e11, refused="needs 400 GB, has 150", chunk=0
    )
    empty.update(changes)
    return row(method, **empty)


class ReportCuda(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.TemporaryDirectory()
        self.addCleanup(self.root.cleanup)
        self.folder = os.path.join(self.root.name, "bench", "results", "h200")
        os.makedirs(self.folder)
        os.makedirs(os.path.join(self.root.name, "bench", "results", "cpu"))

    def write(self, name, rows):
        path = os.path.join(self.folder, name + ".csv")
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, cuda_rows.COLUMNS + EXTRA, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        return path

    def text(self):
        return report_cuda.generated(self.root.name)

    def test_without_files_the_section_says_so(self):
        self.assertIn("No figures of a card are here yet", self.text())
        self.write("headline", [])
        self.assertIn("No figures of a card are here yet", self.text())

    def test_the_headline_and_its_floors(self):
        self.write("headline", [row("naive"), row("fused", median_ms=99.0), row("fused")])
        text = self.text()
        self.assertIn("### NVIDIA H200\n\n2026-12-01; flce 7.8.9;", text)
        self.assertIn(
            "| 4096×4096×128256 | bf16 | fused | 4096 | 18.0 (17.9–18.3) | 0.960 | 1.006 "
            "| 1.00 GB | 3.00 GB | 1.0e-07 | 1.7e-03 | 1.6e-03 |",
            text,
        )
        self.assertNotIn("99.0", text)  # the later row of a key counts
        self.assertIn("| 18.8 | 17.9 | 689 | 690 | 1500 |", text)
        self.assertIn("In all 2 measurements of memory", text)
        self.assertIn("Where we lose: nowhere", text)

    def test_where_we_lose(self):
        rows = [
            row("naive", median_ms=17.0),
            row("fused", ratio=1.01, extra_bytes=1300000000),
            row("recompute", ratio=1.34, err_grad_weight=9e-3),
            row("naive-eager", ratio=1.9),
        ]
        text = "\n".join(report_cuda.losses(cuda_rows.load(self.write("headline", rows))))
        self.assertIn("`fused`: 1.010 of the usual floor, target 0.96", text)
        self.assertIn("`fused`: 1.059 of the time of `naive`", text)
        self.assertIn("1.30 GB of extra memory, target 1.2 GB", text)
        self.assertIn("`recompute`, random data: err_grad_weight 9.0e-03, `naive` 1.6e-03", text)
        self.assertEqual(text.count("\n"), 3, text)

    def test_errors_are_judged_on_their_own_data(self):
        rows = [
            row("naive", data="peaked", median_ms="", err_loss=1e-6),
            row("fused", data="peaked", median_ms="", err_loss=1e-6),
        ]
        self.write("headline", rows)
        self.assertEqual(report_cuda.losses(cuda_rows.load_folder(self.folder)["headline"]), [])
        self.assertIn("| peaked | fused | 1.0e-06 |", self.text())

    def test_plan_and_card_must_agree(self):
        self.write("headline", [row("fused", peak_bytes=3000000512)])
        self.assertIn("peak 3000000000 planned, 3000000512 allocated", self.text())

    def test_the_published_saving_both_ways(self):
        self.write(
            "headline",
            [
                row("naive-eager", shape=LLAMA, peak_bytes=35990000000, extra_bytes=33.6e9),
                row("fused", shape=LLAMA, peak_bytes=4600000000),
                row("fused-liger", shape=LLAMA, peak_bytes=4700000000, chunk=512, policy="liger"),
            ],
        )
        text = self.text()
        self.assertIn(
            "| published | 36.02 GB | 5.04 GB | 84 % as published; the two figures give 86 % |",
            text,
        )
        self.assertIn("| fused, chunk 4096 | 35.99 GB | 4.60 GB | 87.2 % |", text)
        self.assertIn("| fused-liger, chunk 512 | 35.99 GB | 4.70 GB | 86.9 % |", text)

    def test_the_plateau_and_the_sweep(self):
        memory = [row("naive", shape=LLAMA, peak_bytes=12e9, median_ms="", set="sweep")]
        for count in (1, 2, 64):
            chunk = 16384 // count
            memory += [
                row(
                    "chunked",
                    shape=LLAMA,
                    num_chunks=count,
                    chunk=chunk,
                    median_ms="",
                    peak_bytes=11e9 + 5e9 / count,
                    set="sweep",
                ),
                row(
                    "fused",
                    shape=LLAMA,
                    num_chunks=count,
                    chunk=chunk,
                    median_ms="",
                    peak_bytes=4e9 + 8e9 / count,
                    set="sweep",
                ),
            ]
        self.write("memory", memory)
        self.write(
            "sweep",
            [
                row("fused", shape=LLAMA, chunk=c, num_chunks=16384 // c, median_ms=t, set="sweep")
                for c, t in ((64, 400.0), (2048, 76.0), (4096, 75.0))
            ],
        )
        with open(os.path.join(self.folder, "time_vs_chunk.svg"), "w", encoding="utf-8"):
            pass
        text = self.text()
        self.assertIn("| 64 | 11.08 GB | 4.12 GB |", text)
        self.assertIn("`naive` 12.00 GB", text)
        self.assertIn("`chunked`: 16.00 GB with one chunk, 11.08 GB with 64; the logits", text)
        self.assertIn("The fastest is 4096; 2048 is the smallest within 2 % of it.", text)
        self.assertIn("(../bench/results/h200/time_vs_chunk.svg)", text)
        self.assertNotIn("memory_vs_chunks.svg", text)

    def test_limits_and_the_small_vocabulary(self):
        self.write(
            "limits",
            [
                row("fused", shape="131072x4096x151936"),
                refused("naive-eager", shape="131072x4096x151936"),
            ],
        )
        gpt2 = "1024x768x50257"
        self.write(
            "small",
            [
                row("naive", shape=gpt2, pays="no", median_ms=0.5, extra_bytes=2e8),
                row("fused", shape=gpt2, pays="no", median_ms=0.6, extra_bytes=2e8),
            ],
        )
        text = self.text()
        self.assertIn(
            "| 131072×4096×151936 | naive-eager | - | 400.00 GB | - | - | needs 400 GB, has 150 |",
            text,
        )
        self.assertIn("verdict on fusing: **it does not pay**", text)
        self.assertIn("`fused` takes 1.200 of the time of `naive`", text)

    def test_other_columns_are_refused(self):
        path = os.path.join(self.folder, "headline.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("a,b\n1,2\n")
        with self.assertRaises(ValueError):
            cuda_rows.load(path)

    def test_the_program_writes_these_columns(self):
        path = os.path.join(ROOT, "tools", "flce", "bench_cuda_report.cpp")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        written = [part.split('"')[1] for part in text.split("values[")[1:]]
        self.assertEqual(tuple(written[: len(cuda_rows.COLUMNS)]), cuda_rows.COLUMNS)
        self.assertEqual(tuple(written[len(cuda_rows.COLUMNS) :]), EXTRA)

    def test_the_page_has_a_cards_part(self):
        report_pages.write(self.root.name)
        self.write("headline", [row("fused")])
        self.assertIsNone(report.update(self.root.name, check=False))
        self.assertIsNone(report.update(self.root.name, check=True))
        self.write("headline", [row("fused", median_ms=20.0)])
        self.assertIn("not what", report.update(self.root.name, check=True))


if __name__ == "__main__":
    unittest.main()
