#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The check of translations, tried on made-up pages."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_translation  # noqa: E402

PAIR = check_translation.Pair("A.md", "B.md")
ORIGINAL = """# Title

[B](B.md), 2 words and `code`, [here](#part), [there](docs/c.md).

```bash
run --fast 3   # in 5 minutes
```

| what | time |
|---|---|
| one | 1.5 ms |

<!-- generated: x -->

## Part

```cpp
f(1);  // one
```
"""
TRANSLATION = (
    ORIGINAL.replace("Title", "제목")
    .replace("[B](B.md), 2 words and", "[A](A.md), 낱말 2개와")
    .replace("[here](#part)", "[여기](#부분)")
    .replace("in 5 minutes", "5분 안에")
    .replace("| what | time |", "| 무엇 | 시간 |")
    .replace("| one |", "| 하나 |")
    .replace("## Part", "## 부분")
    .replace("// one", "// 하나")
)


class Translation(unittest.TestCase):
    def faults(self, translated, original=ORIGINAL):
        return list(check_translation.page_faults(PAIR, original, translated))

    def test_words_are_free(self):
        self.assertEqual(self.faults(TRANSLATION), [])
        self.assertEqual(self.faults(ORIGINAL), [])

    def test_what_is_wrong_is_named_with_both_lines(self):
        for old, new, part in (
            ("2개", "3개", "B.md:3: numbers: lacks 2; has 3 too much (A.md:3)"),
            ("`code`", "code", "B.md:3: words in backticks: lacks code"),
            ("docs/c.md", "docs/d.md", "B.md:3: links: lacks docs/c.md; has docs/d.md too much"),
            (
                "--fast 3",
                "--fast 4",
                "B.md:6: the code is\n  run --fast 4\ninstead of\n  run --fast 3",
            ),
            ("5분", "6분", "B.md:6: the comment: numbers: lacks 5"),
            ("f(1)", "f(2)", "B.md:18: the code is"),
            (
                "1.5 ms",
                "1.6 ms",
                "B.md:11: column 2: numbers: lacks 1.5; has 1.6 too much (A.md:11)",
            ),
            ("| 1.5 ms |", "| 1.5 ms | 2 |", "B.md:11: the row has 3 cells, the original 2"),
            ("generated: x", "generated: y", "B.md:13: another marker"),
            ("## 부분", "### 부분", "B.md:15: a heading 3, where the original has a heading 2"),
        ):
            faults = self.faults(TRANSLATION.replace(old, new))
            self.assertEqual(len(faults), 1, (old, faults))
            self.assertIn(part, faults[0])

    def test_a_cell_that_is_not_in_korean_is_equal(self):
        original = "| a |\n|---|\n| 1 ms |\n"
        fault = self.faults("| a |\n| --- |\n| 1 s |\n", original)
        self.assertEqual(fault, ["B.md:3: column 1: '1 s' instead of '1 ms' (A.md:3)"])

    def test_blocks_that_are_missing_or_new(self):
        missing = self.faults(TRANSLATION[: TRANSLATION.index("## 부분")])
        self.assertEqual(
            missing, ["B.md:13: after this the original's heading 2 is missing (A.md:15)"]
        )
        new = self.faults(TRANSLATION + "\nmore\n")
        self.assertEqual(new, ["B.md:21: a paragraph that the original does not have"])
        row = self.faults(TRANSLATION.replace("| 하나 | 1.5 ms |\n", ""))
        self.assertEqual(row, ["B.md:9: the table has 2 lines, the original 3 (A.md:9)"])

    def test_a_hash_in_a_word_is_no_comment(self):
        original = "```bash\nrun a#b   # said\n```\n"
        self.assertEqual(self.faults("```bash\nrun a#b   # 말\n```\n", original), [])
        self.assertEqual(len(self.faults("```bash\nrun a#c   # 말\n```\n", original)), 1)


if __name__ == "__main__":
    unittest.main()
