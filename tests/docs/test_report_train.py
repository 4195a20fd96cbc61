#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/report_train.py, tried on made-up results."""

import csv
import os
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(HERE, "..", "..", "bench")
sys.path.insert(0, BENCH)
import report  # noqa: E402
import report_pages  # noqa: E402
import report_train  # noqa: E402

SETUP = {
    "layers": 8,
    "hidden": 1024,
    "heads": 16,
    "vocab": 131072,
    "sequence": 4096,
    "dtype": "bf16",
}


def row(what, way, **changes):
    base = dict(
        SETUP,
        device="NVIDIA H200",
        torch="2.11.0",
        version="7.8.9",
        text="a text",
        date="2026-12-02",
        what=what,
        way=way,
        batch=4,
        steps=100,
        step_ms=100.0,
        min_ms=99.0,
        max_ms=102.0,
        head_ms=60.0,
        peak_bytes=40e9,
        total_bytes=150e9,
        parameter_bytes=0.74e9,
    )
    base.update(changes)
    return base


def curve(way, losses):
    return [dict(SETUP, way=way, batch=4, step=n, loss=loss) for n, loss in enumerate(losses, 1)]


class ReportTrain(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        self.root = root.name
        self.folder = os.path.join(self.root, "bench", "results", "h200")
        os.makedirs(self.folder)
        self.page = os.path.join(self.root, "docs", "measured.md")
        report_pages.write(self.root)

    def write(self, name, columns, rows):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)

    def write_rows(self, *rows):
        self.write("train.csv", (*report_train.COLUMNS, "heads"), rows)

    def write_curves(self, **curves):
        rows = [row for way, losses in curves.items() for row in curve(way, losses)]
        self.write("train_loss.csv", (*report_train.LOSS_COLUMNS, "heads"), rows)

    def text(self):
        return report_train.generated(self.root)

    def test_without_rows_it_says_so(self):
        self.assertIn("not measured yet", self.text())
        self.assertEqual(report_train.plots(self.root), {})

    def test_times_and_shares(self):
        self.write_rows(
            row("steps", "eager"), row("steps", "flce", step_ms=60.0, head_ms=21.0, peak_bytes=12e9)
        )
        text = self.text()
        self.assertIn(
            "| `flce` | 60.0 (99.0–102.0) | 0.600 | 273067 | 21.0 | 35 % | 12.00 GB |", text
        )
        self.assertIn("60 % of a step before (`eager`), 35 % after (`flce`).", text)
        self.assertIn("| `compile` | not measured yet |", text)
        self.assertIn("8 layers, H=1024, 16 heads, V=131072, 0.74 GB of bf16", text)
        self.assertIn("Losses: not measured yet.", text)
        self.assertNotIn("svg", text)

    def test_the_largest_batch(self):
        self.write_rows(
            row("largest", "eager", batch=13, step_ms="", head_ms=""),
            row("largest", "flce", batch=52, step_ms="", head_ms=""),
        )
        self.assertIn("| `flce` | 52 | 212992 | 4.0 | 40.00 GB of 150.00 GB |", self.text())

    def test_rows_of_another_setup_do_not_stand_beside(self):
        self.write_rows(row("steps", "eager"), row("steps", "flce", layers=2))
        self.assertIn("| `flce` | not measured yet |", self.text())

    def test_curves(self):
        self.write_rows(row("steps", "eager"))
        self.write_curves(eager=[11.0, 10.0, 9.0, 8.0], flce=[11.0, 10.01, 9.0, 8.002])
        text = self.text()
        self.assertIn("| `flce` | 11.0000 | 10.0100 | 9.0000 | 8.0020 | 0.0100 |", text)
        self.assertIn("train_loss.svg", text)
        ((path, svg),) = report_train.plots(self.root).items()
        self.assertEqual(os.path.basename(path), "train_loss.svg")
        lines = ET.fromstring(svg).findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual([len(line.get("points").split()) for line in lines], [4, 4])
        for line in lines:
            for point in line.get("points").split():
                x, y = map(float, point.split(","))
                self.assertTrue(report_train.LEFT <= x <= report_train.RIGHT, point)
                self.assertTrue(report_train.TOP <= y <= report_train.BOTTOM, point)

    def test_the_page_and_the_plot_are_checked(self):
        self.write_rows(row("steps", "eager"))
        self.write_curves(eager=[11.0, 10.0])
        self.assertIn("measured.md", report.update(self.root, check=True))
        self.assertIsNone(report.update(self.root, check=False))
        self.assertIsNone(report.update(self.root, check=True))
        plot = os.path.join(self.folder, "train_loss.svg")
        with open(plot, "a", encoding="utf-8") as file:
            file.write("<!-- edited -->")
        self.assertIn("train_loss.svg", report.update(self.root, check=True))
        os.remove(plot)
        self.assertIn("train_loss.svg", report.update(self.root, check=True))

    def test_the_program_writes_these_columns(self):
        with open(os.path.join(BENCH, "train", "train.py"), encoding="utf-8") as file:
            text = file.read()
        for name in report_train.COLUMNS + report_train.LOSS_COLUMNS:
            self.assertIn(f'"{name}"', text)


if __name__ == "__main__":
    unittest.main()
