#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/plan_cases.py and run_snippets.py, tried on made-up answers."""

import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench"))
import plan_cases  # noqa: E402
import run_snippets  # noqa: E402

PAGE = """# Page
```bash
flce plan --tokens 5   # words
flce plan --config config.json
./dev test
flce train book.txt
```
```bash
flce bench --device cuda "n5_h4_v3 f32"
```
"""


def row(method, route, extra):
    values = dict.fromkeys(plan_cases.COLUMNS, "")
    values.update(case="qwen", method=method, route=route, extra_bytes=extra)
    return values


class PlanCases(unittest.TestCase):
    def faults(self, rows, steps=(), has_hopper=True):
        stored = [row("fused", "hopper", "10"), row("naive", "portable", "30")]
        with tempfile.TemporaryDirectory() as folder:
            for name, columns, lines in (
                ("published", plan_cases.COLUMNS, stored),
                ("checklist", plan_cases.STEPS, []),
            ):
                with open(os.path.join(folder, name + ".csv"), "w", encoding="utf-8") as file:
                    file.write(plan_cases.text_of(columns, lines))
            return list(plan_cases.faults(folder, rows, list(steps), has_hopper))

    def test_the_same_rows_are_right(self):
        self.assertEqual(
            self.faults([row("fused", "hopper", "10"), row("naive", "portable", "30")]), []
        )

    def test_another_answer_is_named(self):
        rows = [row("fused", "hopper", "11"), row("naive", "portable", "30")]
        self.assertEqual(
            self.faults(rows),
            ["published.csv: qwen, fused: extra_bytes 10, the planner says 11"],
        )
        self.assertEqual(len(self.faults(rows[:1])), 2)
        self.assertIn("otherwise", self.faults(rows, [{"case": "x"}])[-1])

    def test_a_build_without_the_hopper_kernels_is_asked_for_the_rest(self):
        rows = [row("fused", "portable", "20"), row("naive", "portable", "31")]
        self.assertEqual(
            self.faults(rows, [{"case": "x"}], has_hopper=False),
            ["published.csv: qwen, naive: extra_bytes 30, the planner says 31"],
        )


class Snippets(unittest.TestCase):
    def test_the_commands_of_a_page(self):
        found = list(run_snippets.commands(PAGE, ("plan", "bench")))
        self.assertEqual(
            found,
            [
                (3, ["flce", "plan", "--tokens", "5"]),
                (9, ["flce", "bench", "--device", "cuda", "n5_h4_v3 f32"]),
            ],
        )
        self.assertEqual(list(run_snippets.commands(PAGE, ("verify",))), [])

    def test_what_a_command_may_answer(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "flce")
            with open(program, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho \"device 'cuda': none\" >&2\nexit 2\n")
            os.chmod(program, 0o755)
            card, other = ["flce", "bench", "--device", "cuda"], ["flce", "bench"]
            self.assertIsNone(run_snippets.fault_of(program, card, folder))
            self.assertIn("exit status 2", run_snippets.fault_of(program, other, folder))
            with open(program, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n")
            self.assertIsNone(run_snippets.fault_of(program, other, folder))
            self.assertIn("missing card", run_snippets.fault_of(program, card, folder))
            plot = [*other, "--svg", "x.svg"]
            self.assertEqual(run_snippets.fault_of(program, plot, folder), "--svg wrote nothing")


if __name__ == "__main__":
    unittest.main()
