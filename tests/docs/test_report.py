#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/report.py and bench/results.py, tried on made-up results."""

import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench")
sys.path.insert(0, BENCH)
import report  # noqa: E402
import report_pages  # noqa: E402
import results  # noqa: E402
import tables  # noqa: E402

PAGE = (
    "# Page\n\nbefore\n\n<!-- generated: cpu, by hand -->\nold\n"
    "<!-- end generated -->\n\nafter\n\n<!-- generated: cuda, by hand -->\nold\n"
    "<!-- end generated -->\n\nbetween\n\n<!-- generated: train, by hand -->\nold\n"
    "<!-- end generated -->\n\nend\n"
)


def row(**changes):
    base = dict.fromkeys(results.COLUMNS, "")
    base.update(
        series="headline",
        system="flce-fused",
        tokens=512,
        hidden=256,
        vocab=8192,
        dtype="f32",
        isa="avx2",
        threads=2,
        chunk=480,
        rounds=5,
        median_ms=60.0,
        min_ms=59.0,
        max_ms=66.0,
        gflops=107.0,
        peak_gflops=120.0,
        share_of_peak=0.8917,
        ours_ms=60.0,
        ratio_to_ours=1.0,
        extra_bytes=19000000,
        kernel="avx2",
        cpu_model="Some CPU",
        date="2026-12-01",
    )
    base.update(changes)
    return base


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = self.folder.name
        os.makedirs(os.path.join(self.root, "docs"))
        os.makedirs(os.path.join(self.root, "bench", "results", "cpu"))
        self.page = os.path.join(self.root, "docs", "measured.md")
        self.csv = os.path.join(self.root, "bench", "results", "cpu", "some-cpu.csv")
        report_pages.write(self.root)
        self.assertIsNone(report.update(self.root, check=False))
        self.write(PAGE)

    def tearDown(self):
        self.folder.cleanup()

    def test_writes_plots_and_check_sees_one_that_is_stale(self):
        path = os.path.join(self.root, "bench", "results", "cpu", "x.svg")
        self.assertIn("x.svg: not what", report.update_file(path, "<svg/>", check=True))
        self.assertFalse(os.path.exists(path))
        self.assertIsNone(report.update_file(path, "<svg/>", check=False))
        self.assertIsNone(report.update_file(path, "<svg/>", check=True))
        self.assertIn("x.svg: not what", report.update_file(path, "<svg>2</svg>", check=True))

    def write(self, text):
        with open(self.page, "w", encoding="utf-8") as file:
            file.write(text)

    def read(self):
        with open(self.page, encoding="utf-8") as file:
            return file.read()

    def test_writes_between_the_markers_only_and_check_sees_what_is_stale(self):
        results.store(
            self.csv, [row(), row(system="openblas", ratio_to_ours=0.97, extra_bytes=16800000)]
        )
        self.assertIn("not what", report.update(self.root, check=True))
        self.assertIn("old", self.read())
        self.assertIsNone(report.update(self.root, check=False))
        self.assertIsNone(report.update(self.root, check=True))
        text = self.read()
        self.assertTrue(text.startswith("# Page\n\nbefore\n"))
        self.assertIn("<!-- end generated -->\n\nafter\n", text)
        self.assertIn("<!-- end generated -->\n\nbetween\n", text)
        self.assertTrue(text.endswith("<!-- end generated -->\n\nend\n"))
        self.assertNotIn("old", text)
        self.assertIn("| 512×256×8192 | f32 | avx2 | 2 | 89 % | openblas | 1.031 |", text)
        results.store(self.csv, [row(median_ms=61.0)])
        self.assertIn("not what", report.update(self.root, check=True))

    def test_a_page_that_cannot_be_written_whole_stays_as_it_was(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            tables.replace_file(page, "old\n")
            with self.assertRaises(UnicodeEncodeError):
                tables.replace_file(page, "new\n" * 100000 + "\udc80")
            with open(page, encoding="utf-8") as file:
                self.assertEqual(file.read(), "old\n")
            tables.replace_file(page, "new\n")
            with open(page, encoding="utf-8") as file:
                self.assertEqual(file.read(), "new\n")
            self.assertEqual(os.listdir(folder), ["page.md"])

    def test_without_results_the_page_says_so(self):
        self.assertIsNone(report.update(self.root, check=False))
        self.assertIn("No results yet", self.read())
        self.assertIn("No figures of a card are here yet", self.read())

    def test_a_page_without_markers_is_a_fault(self):
        self.write("# Page\n")
        self.assertIn("0 parts", report.update(self.root, check=False))

    def test_each_page_is_checked_and_each_fault_is_told(self):
        for page, _ in report.PAGES:
            with open(os.path.join(self.root, page), "w", encoding="utf-8") as file:
                file.write("# Page\n")
        text = report.update(self.root, check=True)
        for page, parts in report.PAGES:
            self.assertIn(f"{page}: 0 parts marked '<!-- generated: {parts[0][0]} ... -->'", text)

    def test_a_rerun_replaces_rows_of_its_key(self):
        results.store(self.csv, [row(), row(dtype="bf16")])
        results.store(self.csv, [row(median_ms=50.0), row(threads=1)])
        rows = results.load(self.csv)
        self.assertEqual(
            [(r["dtype"], r["threads"], r["median_ms"]) for r in rows],
            [("f32", "2", "50.0"), ("bf16", "2", "60.0"), ("f32", "1", "60.0")],
        )

    def test_a_file_is_replaced_as_a_whole_or_not_at_all(self):
        path = os.path.join(self.root, "made", "rows.csv")
        tables.write_rows(path, ("a", "b"), [{"a": "1", "b": "2, 3"}])

        def rows_that_end_badly():
            yield {"a": "4"}
            raise KeyError("no more")

        with self.assertRaises(KeyError):
            tables.write_rows(path, ("a", "b"), rows_that_end_badly())
        self.assertEqual(tables.read_rows(path, ("a",)), [{"a": "1", "b": "2, 3"}])
        self.assertEqual(os.listdir(os.path.dirname(path)), ["rows.csv"])

    def test_other_columns_are_refused(self):
        with open(self.csv, "w", encoding="utf-8") as file:
            file.write("a,b\n1,2\n")
        with self.assertRaises(ValueError):
            results.load(self.csv)

    def test_where_we_lose(self):
        rows = [
            row(share_of_peak=0.8),
            row(system="onednn", ratio_to_ours=1.2, extra_bytes=8e6),
            row(system="openblas", ratio_to_ours=0.9, extra_bytes=32e6),
        ]
        text = "\n".join(report.losses(rows))
        self.assertIn("80 % of the peak", text)
        self.assertIn("`openblas` takes 0.900 of our time", text)
        self.assertNotIn("onednn", text)
        self.assertEqual(report.losses([row()]), [])

    def test_slope(self):
        sizes = [1, 2, 4, 8]
        self.assertAlmostEqual(report.slope(sizes, [3 * size for size in sizes]), 1.0)
        self.assertAlmostEqual(report.slope(sizes, [size**2 for size in sizes]), 2.0)
        rows = [row(series="scale_n", tokens=n, median_ms=n / 10) for n in (512, 1024, 2048)]
        self.assertIn("| 1.000 | 1.000 |", report.scaling_table(rows))
        self.assertIn(
            "H=256, V=8192", report.scaling_table(rows).replace("V=8192, H=256", "H=256, V=8192")
        )

    def test_the_program_writes_these_columns(self):
        with open(os.path.join(BENCH, "cpu", "results.cpp"), encoding="utf-8") as file:
            text = file.read()
        start = text.index("kHeader =")
        header = "".join(text[start : text.index(";", start)].split('"')[1::2])
        self.assertEqual(tuple(header.split(",")), results.COLUMNS)

    def test_command_line(self):
        results.store(self.csv, [row()])
        command = [sys.executable, os.path.join(BENCH, "report.py"), "--print", self.csv]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        self.assertIn("### Some CPU", done.stdout)
        command = [sys.executable, os.path.join(BENCH, "report.py"), "--check", "--root", self.root]
        self.assertEqual(subprocess.run(command, capture_output=True, check=False).returncode, 1)


if __name__ == "__main__":
    unittest.main()
