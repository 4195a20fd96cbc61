#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/report_readme.py, tried on made-up results."""

import csv
import os
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench"))
import report_peers  # noqa: E402
import report_readme  # noqa: E402
import report_train  # noqa: E402
import results  # noqa: E402
from readme_words import WORDS  # noqa: E402
from test_report_train import row as train_row  # noqa: E402

BIG, SMALL = report_readme.SHAPES[:2]


def peer(system, time, peak, **more):
    row = dict.fromkeys((*report_peers.COLUMNS, "peak_bytes"), "")
    row.update(
        device="Some Card",
        date="2026-12-01T00:00:00Z",
        shape=BIG,
        dtype="bf16",
        system=system,
        data="random",
        median_ms=time,
        floor_ms=9.5,
        ratio=1.0,  # not what the README shows
        peak_bytes=peak,
        torch="3.0",
        err_loss="1e-7",
        err_grad_hidden="2e-3",
        err_grad_weight="3e-3",
    )
    return {**row, **more}


ROWS = (
    peer("slow", 30.0, 2e9),
    peer("flce-fused", 10.0, 4e9),
    peer("flce-recompute", 14.0, 3e9),
    peer("quick", 9.75, 5e9),
    peer("both", 13.0, 2.5e9),
    peer("flce-fused", "", "", data="peaked", ratio=""),
    peer("f32", 1.0, 1e9, dtype="f32"),
    peer("crashes", 1.0, 1e9, median_ms="", refused="ended by SIGSEGV"),
)


class Readme(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def write(self, path, rows):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    def peers(self, *rows):
        self.write(os.path.join(report_readme.CARD, "peers.csv"), rows)

    def test_without_figures_it_says_so(self):
        self.assertIn("`./dev bench peers`", report_readme.card_part(self.root, "en"))
        self.assertEqual(report_readme.lost_part(self.root, "en"), WORDS["en"]["none"])
        self.assertEqual(report_readme.pictures(self.root), {})

    def test_both_languages_show_the_same_numbers(self):
        self.peers(*ROWS, peer("flce-fused", 2.0, 1e9, shape=SMALL, floor_ms=1.75))
        english, korean = (report_readme.card_part(self.root, name) for name in ("en", "ko"))
        self.assertIn("on one Some Card in bf16; 2026-12-01, torch 3.0", english)
        lines = english.split("\n")[4:]
        self.assertIn(" | 9.500 ms | 1.750 ms | - | - | - |", lines[0])
        systems = [line.split("`")[1] for line in lines[1:]]
        self.assertEqual(systems, ["quick", "flce-fused", "both", "flce-recompute", "slow"])
        errors = "| 1.0e-07 | 2.0e-03 | 3.0e-03 |"
        self.assertIn(f"| `flce-fused` | 10.0 ms, 4.00 GB | 2.000 ms, 1.00 GB {errors}", lines)
        self.assertIn(f"| `slow` | 30.0 ms, 2.00 GB | - {errors}", lines)
        self.assertEqual(korean.split("\n")[5:], lines[1:])

    def test_where_we_lose_is_what_the_rows_say(self):
        self.peers(*ROWS)
        (line,) = report_readme.lost_part(self.root, "en").split("\n")
        self.assertIn("ours takes 10.0 ms, the bare products 9.500 ms", line)
        self.assertIn("Faster than `flce-fused`: `quick`.", line)
        self.assertIn("In less memory than its 4.00 GB: `both`, `slow`.", line)
        self.assertIn("less memory than `flce-recompute`: `both`.", line)
        self.peers(*[row for row in ROWS if row["system"] != "quick"])
        line = report_readme.lost_part(self.root, "ko")
        self.assertIn(f"`flce-fused`보다 빠른 것: {WORDS['ko']['nobody']}.", line)

    def test_training(self):
        self.peers(*ROWS)
        path = os.path.join(report_readme.CARD, "train.csv")
        rows = [train_row("steps", "eager"), train_row("steps", "flce", step_ms=60.0)]
        self.write(path, rows)
        self.assertEqual(len(report_readme.lost_part(self.root, "en").split("\n")), 1)
        self.write(path, [*rows, train_row("largest", "eager", batch=19),
                          train_row("largest", "flce", batch=127)])  # fmt: skip
        for language in WORDS:
            text = report_readme.lost_part(self.root, language).split("\n")[-1]
            for figure in ("60.0 ms", "100.0 ms", "40.00 GB", "127", "19", "H=1024"):
                self.assertIn(figure, text)
        self.assertTrue(set(rows[0]) >= set(report_train.COLUMNS))

    def test_the_picture_has_a_bar_for_each_figure(self):
        self.peers(*ROWS)
        ((path, text),) = report_readme.pictures(self.root).items()
        self.assertEqual(path, report_readme.PICTURE)
        bars = [n for n in ET.fromstring(text).iter() if n.get("class") in ("o", "t")]
        self.assertEqual([bar.get("class") for bar in bars], list("ttoottoott"))
        widths = [float(bar.get("width")) for bar in bars]
        self.assertAlmostEqual(widths[2] / widths[8], 10 / 30, places=2)
        self.assertAlmostEqual(widths[3] / widths[9], 4 / 2, places=2)

    def test_words_are_there_for_each_row_in_each_language(self):
        for words in WORDS.values():
            self.assertEqual(len(words["processors"]), len(report_readme.CPU_ROWS))
            self.assertEqual(set(words), set(WORDS["en"]))

    def test_the_best_rival_is_taken(self):
        name, tokens, hidden, vocab, dtype, _ = report_readme.CPU_ROWS[0]
        base = dict.fromkeys(results.COLUMNS, "")
        base.update(
            series="headline",
            tokens=tokens,
            hidden=hidden,
            vocab=vocab,
            dtype=dtype,
            isa="avx2",
            threads=2,
            ours_ms=3690,
            extra_bytes=73e6,
        )
        rows = [
            dict(base, system=system, ratio_to_ours=ratio, extra_bytes=extra)
            for system, ratio, extra in (
                ("flce-fused", 1.0, 73e6),
                ("openblas", 0.9, 131e6),
                ("onednn", 0.95, 60e6),
                ("onednn-avx2", 0.5, 1e6),
            )
        ]
        folder = os.path.join(self.root, "bench", "results", "cpu")
        os.makedirs(folder)
        results.store(os.path.join(folder, name + ".csv"), rows)
        self.assertIn(
            "| f32, AMD Zen 3 (AVX2) | 3.69 s | 0.90 | 73 / 131 MB |",
            report_readme.cpu_part(self.root, "en"),
        )


if __name__ == "__main__":
    unittest.main()
