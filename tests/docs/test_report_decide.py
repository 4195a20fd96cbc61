#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/report_decide.py and report_map.py, tried on made-up results."""

import csv
import os
import re
import sys
import tempfile
import unittest
import xml.dom.minidom

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import cuda_rows  # noqa: E402
import plan_cases  # noqa: E402
import published  # noqa: E402
import report_decide  # noqa: E402
import report_figures  # noqa: E402
import report_map  # noqa: E402
from test_report_cuda import EXTRA, LLAMA, refused, row  # noqa: E402

COLUMNS = cuda_rows.COLUMNS + EXTRA
QWEN = "16384x4096x151936"


class Made(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def write(self, path, columns, rows):
        path = os.path.join(self.root, "bench", "results", path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def card(self, name, rows):
        self.write(os.path.join("h200", name + ".csv"), COLUMNS, rows)

    def plans(self, *rows):
        empty = dict.fromkeys(plan_cases.COLUMNS, "")
        self.write("plan/published.csv", plan_cases.COLUMNS, [dict(empty, **row) for row in rows])


class Figures(Made):
    def line(self, key):
        what = next(figure.what for figure in published.FIGURES if figure.key == key)
        return next(
            line for line in report_figures.figures(self.root).split("\n") if f"| {what} |" in line
        )

    def test_without_files_every_figure_says_so(self):
        self.assertIn("| +20 % |", self.line("throughput"))
        self.card("headline", [row("fused")])
        for figure in published.FIGURES:
            words = self.line(figure.key).split(" | ")
            self.assertIn(figure.published, words)
            only = figure.key in ("throughput", "training", "post_training")
            measured = (
                "published only" if only else "-" if figure.key == "hidden" else "not measured yet"
            )
            self.assertEqual(words[-1], f"{measured} |", figure.key)
        self.assertIn("[liger]: https://", report_figures.figures(self.root))

    def test_the_planners_side(self):
        self.plans(
            {
                "case": "qwen",
                "method": "fused",
                "logits_bytes": 4978638848,
                "hidden_bytes": 134217728,
            },
            {"case": "llama_81920", "method": "fused", "logits_bytes": 21013463040},
        )
        self.assertIn(
            "| 0.13 GB | Trillion Labs Research, 2026-07-04 | 0.13 GB |", self.line("hidden")
        )
        self.assertIn("| 4.98 GB |", self.line("logits"))
        self.assertIn("| 19.57 GiB |", self.line("gib"))
        self.assertIn("4.64 GiB", self.line("plateau"))
        self.assertIn("not measured yet", self.line("long"))

    def test_the_measured_side(self):
        self.card(
            "headline",
            [
                row("naive-eager", shape=LLAMA, peak_bytes=36e9),
                row("fused", shape=LLAMA, peak_bytes=9e9),
                row("fused-liger", shape=LLAMA, peak_bytes=4.5e9, chunk=512, policy="liger"),
            ],
        )
        self.card(
            "memory",
            [
                row(
                    "chunked-eager",
                    shape=QWEN,
                    chunk=chunk,
                    num_chunks=16384 // chunk,
                    median_ms="",
                    extra_bytes=5_000_000_000 + chunk * 1_000_000,
                )
                for chunk in (1024, 512, 256)
            ],
        )
        self.assertIn("| 36.00 GB |", self.line("before"))
        self.assertIn("4.50 GB with the rule's chunk of 512, 9.00 GB with ours", self.line("after"))
        self.assertIn("| 87.5 %, 75.0 % |", self.line("saving"))
        self.assertIn("| 5.00 GB, what the graph of all chunks keeps |", self.line("logits"))
        self.assertIn("5.26 GB with 64 chunks, towards 5.00 GB (4.66 GiB)", self.line("plateau"))

    def test_every_figure_of_the_argument_is_there(self):
        text = " ".join(figure.published for figure in published.FIGURES)
        for figure in (
            "0.13 GB",
            "4.97 GB",
            "40 GB",
            "16.8 GB",
            "33.6 GB",
            "19.57 GiB",
            "36.02 GB",
            "5.04 GB",
            "4.7 GB",
            "60-84 %",
            "+20 %",
            "-60 %",
            "-80 %",
        ):
            self.assertIn(figure, text)


class Questions(Made):
    def test_without_files_each_part_says_so(self):
        for _, part in report_decide.PARTS[:4]:
            self.assertIn("No figures of a card are here yet", part(self.root))

    def test_the_rule_is_marked_among_the_chunks(self):
        self.card(
            "sweep",
            [
                row("fused", shape=LLAMA, chunk=c, num_chunks=16384 // c, median_ms=t, set="sweep")
                for c, t in ((256, 200.0), (512, 150.0), (4096, 100.0))
            ],
        )
        text = report_decide.chunks(self.root)
        self.assertIn("| 512 | 32 | 0.98 | 150.0 | 1.50 | 3.00 GB | the rule |", text)
        self.assertEqual(text.count("the rule"), 1)

    def test_the_rule_beside_our_chunk(self):
        self.card(
            "headline",
            [
                row("fused", median_ms=20.0),
                row("fused-liger", chunk=128, median_ms=50.0, policy="liger"),
            ],
        )
        self.assertIn(
            "| 4096×4096×128256 | 32 | 128 | 50.0 ms | 3.00 GB | 4096 | 20.0 ms | 3.00 GB | 2.50 |",
            report_decide.chunks(self.root),
        )

    def test_the_curves(self):
        self.card(
            "memory",
            [row("naive", shape=QWEN, peak_bytes=12e9, median_ms="")]
            + [
                row("fused", shape=QWEN, chunk=16384 // n, num_chunks=n, peak_bytes=p, median_ms="")
                for n, p in ((1, 8e9), (8, 4e9), (64, 5e9))
            ],
        )
        text = report_decide.curves(self.root)
        self.assertIn("| `naive` | 12.00 GB | - | - | - |", text)
        self.assertIn("| `fused` | 8.00 GB | 5.00 GB (64) | 4.00 GB (8) | 50.0 % |", text)

    def test_the_planners_list(self):
        self.write(
            "plan/checklist.csv",
            plan_cases.STEPS,
            [
                {"case": "x", "step": 1, "text": "Look, here?"},
                {"case": "x", "step": 2, "text": "There."},
            ],
        )
        self.card("limits", [row("fused", shape=LLAMA), refused("naive-eager", shape=LLAMA)])
        text = report_decide.memory(self.root)
        self.assertIn("1. Look, here?\n2. There.", text)
        self.assertIn("| `naive-eager` | 400.00 GB | does not fit |", text)


class Map(Made):
    def cells(self, against="naive-eager", **changes):
        eager = {"shape": "512x2048x8192", "median_ms": 100.0, "peak_bytes": 10e9}
        rows = [row("fused", **dict(eager, **changes)), row("naive-eager", **eager)]
        self.card("map", rows)
        text = report_decide.the_map(self.root)
        return re.search(r"^\| 4 \| ([^|]*) \|", text, re.M)[1], text

    def test_verdicts(self):
        self.card("headline", [row("fused", median_ms="", peak_bytes="")])
        for time, peak, expected in (
            (102, 5e9, "yes: 1.02, 0.50"),
            (103, 5e9, "memory only: 1.03, 0.50"),
            (90, 9.5e9, "time only: 0.90, 0.95"),
            (99, 10e9, "no: 0.99, 1.00"),
        ):
            cell, text = self.cells(median_ms=time, peak_bytes=peak)
            self.assertEqual(cell, expected)
            self.assertIn("Measured: 1 of 24 cells", text)
            self.assertEqual(text.count(report_map.NOT_YET), 23 + 24)  # naive has no row at all

    def test_where_eager_code_does_not_fit(self):
        self.card("headline", [row("fused", median_ms="", peak_bytes="")])
        shape = "512x2048x8192"
        self.card("map", [row("fused", shape=shape), refused("naive-eager", shape=shape)])
        self.assertIn("| 4 | yes: `naive-eager` does not fit |", report_decide.the_map(self.root))

    def test_without_rows_the_command_is_named_and_nothing_is_guessed(self):
        self.card(
            "headline",
            [row("naive", median_ms=20.0), row("fused"), row("naive-eager", median_ms=36.0)],
        )
        text = report_decide.the_map(self.root)
        self.assertIn("`./dev bench cuda --map` has not been run", text)
        self.assertEqual(text.count(report_map.NOT_YET), 24)
        self.assertIn(
            "| 31 | 4096 | 4096×4096×128256 | 4096, portable | yes: 0.50, 1.00".replace(
                "yes", "time only"
            ),
            text,
        )

    def heads(self):
        """A head asked about by sizes with 16384 tokens, by its model with 65536."""
        long = LLAMA.replace("16384", "65536")
        self.card("headline", [row("fused", shape=LLAMA, pays="yes")])
        self.card("limits", [row("fused", shape=long, chunk=1024, pays="no")])
        sizes = {"case": "x", "dtype": "bf16", "hidden": 4096, "vocab": 128256}
        self.plans(
            *(
                dict(sizes, tokens=n, method=method, route="hopper", chunk=4096, step_bytes=step)
                for n, method, step in (
                    (16384, "fused", 970),
                    (16384, "naive", 1000),
                    (65536, "fused", 940),
                    (65536, "naive", 1000),
                )
            )
        )

    def test_a_verdict_that_turns_says_which_question_it_answers(self):
        self.heads()
        text = report_decide.the_map(self.root)
        self.assertIn("| it pays, by the head alone |", text)
        self.assertIn("| it does not pay, of the whole step |", text)
        self.assertIn(
            "by the head alone it pays with 16384 tokens; of the whole step it does not pay with "
            "65536 tokens.",
            text,
        )
        self.assertIn("`fused` saves 3.0 % with 16384 and 6.0 % with 65536 tokens; 10 %", text)

    def test_verdicts_that_agree_need_no_words(self):
        self.heads()
        self.card("headline", [row("fused", shape=LLAMA, pays="no")])
        self.assertNotIn("turns where", report_decide.the_map(self.root))
        self.card("limits", [row("fused", median_ms="", shape=LLAMA)])
        self.assertNotIn("two questions", report_decide.the_map(self.root))

    def test_a_chunk_that_is_not_the_planners_is_named(self):
        self.heads()
        text = report_decide.the_map(self.root)
        self.assertIn("65536×4096×128256 ran with chunks of 1024 tokens", text)
        self.assertIn("the planner's own choice is 4096, by `hopper`.", text)
        self.assertNotIn("Where both were measured", text)
        self.card(
            "sweep",
            [
                row("fused", shape=LLAMA, chunk=chunk, route=route, median_ms=time, set="sweep")
                for chunk, route, time in ((1024, "portable", 150.0), (4096, "hopper", 100.0))
            ],
        )
        text = report_decide.the_map(self.root)
        self.assertIn("the former took 1.50 of the latter's time", text)

    def test_the_questions_are_those_that_were_put(self):
        with open(os.path.join(ROOT, "scripts", "dev", "bench_cuda.sh"), encoding="utf-8") as file:
            text = file.read().replace("\\\n", " ")
        for name, judged in report_map.JUDGED.items():
            lines = re.findall(rf'card_step "[^"]*" {name} .*', text)
            self.assertTrue(lines, name)
            for line in lines:
                self.assertEqual("--preset" in line, judged == report_map.STEP, line)
        with open(os.path.join(ROOT, "src", "plan", "advice.cpp"), encoding="utf-8") as file:
            share = re.search(r"kPaysShare = ([0-9.]+);", file.read())[1]
        self.assertEqual(float(share), report_map.PAYS_SHARE)

    def test_a_cpu(self):
        base = dict.fromkeys(report_map.CPU_COLUMNS, "")
        base.update(
            tokens=2048,
            hidden=512,
            vocab=16384,
            dtype="f32",
            cpu_model="Some CPU",
            isa="avx2",
            threads=2,
            date="2026-12-02T10:00:00Z",
            peak_bytes=1e9,
        )
        self.write(
            "cpu-map/some.csv",
            report_map.CPU_COLUMNS,
            [
                dict(base, method=name, median_ms=time, peak_bytes=peak)
                for name, time, peak in (("fused", 105, 5e8), ("naive-eager", 100, 1e9))
            ],
        )
        text = report_decide.the_map(self.root)
        self.assertIn("### Some CPU (some), 2 threads", text)
        self.assertIn("| 32 | not measured yet | yes: 1.05, 0.50 |", text)

    def test_the_grid_is_that_of_the_command(self):
        with open(os.path.join(ROOT, "scripts", "dev", "bench_cuda.sh"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn(f"for ratio in {' '.join(map(str, report_map.RATIOS))}; do", text)
        for counts in (report_map.CARD_TOKENS, report_map.CPU_TOKENS):
            self.assertIn(f"counts=({' '.join(map(str, counts))})", text)


class Picture(Made):
    def test_a_map_with_rows_has_a_picture_beside_them(self):
        self.card("headline", [row("fused")])
        self.assertEqual(report_decide.pictures(self.root), {})
        shape = "512x2048x8192"
        self.card("map", [row("fused", shape=shape), refused("naive-eager", shape=shape)])
        path = os.path.join("bench", "results", "h200", "map.svg")
        self.assertEqual(list(report_decide.pictures(self.root)), [path])
        text = report_decide.pictures(self.root)[path]
        xml.dom.minidom.parseString(text)
        self.assertIn("naive-eager does not fit", text)
        self.assertEqual(text.count(report_map.NOT_YET), 23)
        self.assertIn(f"](../{path})", report_decide.the_map(self.root))


if __name__ == "__main__":
    unittest.main()
