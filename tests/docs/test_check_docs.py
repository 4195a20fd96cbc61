#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The docs test, tried on made-up pages."""

import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_docs  # noqa: E402

FENCED = """
```bash
[not a link](gone.md) `src/gone.cpp`
```
"""


class Docs(unittest.TestCase):
    def faults(self, text, **more):
        with tempfile.TemporaryDirectory() as root:
            for path, content in {
                "docs/page.md": text,
                "src/core/check.hpp": "",
                "dev": "",
                "docs/other.md": "# The `rooms`, one by one\n## Twice\n## Twice\n",
                **more,
            }.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(content)
            return check_docs.check(root)[0]

    def test_what_is_right(self):
        for text in (
            "[a](other.md)",
            "[a](other.md#the-rooms-one-by-one)",
            "[a](#here)\n# Here\n",
            "[a](other.md#twice-1)",
            "![p](../dev)",
            "[a](https://example.org/gone.md)",
            "`src/core/check.hpp`",
            "`src/core/check.hpp:12`",
            "`src/core/`",
            "`./dev test`",
            "`src/core/check`",
            "`src/<arch>/x.cpp`",
            "`tests/*.cpp`",
            "`build/x/bin/y`",
            "`a/b`",
            "`src`",
            "[`a](b)` c](other.md)",
            "[r]: other.md",
            FENCED,
        ):
            self.assertEqual(self.faults(text), [], text)

    def test_what_is_wrong(self):
        for text, part in (
            ("\n[a](gone.md)", "docs/page.md:2: link to 'gone.md'"),
            ("[a](other.md#gone)", "no such heading"),
            ("[a](#gone)", "no such heading"),
            ("[a](../../no-room-of-ours)", "no such file"),
            ("[r]: gone.md", "no such file"),
            ("`src/core/gone.hpp`", "no such file or folder"),
            ("`./gone --help`", "no such file or folder"),
        ):
            faults = self.faults(text)
            self.assertEqual(len(faults), 1, (text, faults))
            self.assertIn(part, faults[0])

    def test_the_readme_shows_the_example(self):
        shown = "#include <a>\nint main() {}\n"
        tree = {check_docs.EXAMPLE: "// Says what, and that it has an #include.\n" + shown}
        for program, is_right in ((shown, True), (shown + "\n", False)):
            faults = self.faults("", **tree, **{"README.md": f"```cpp\n{program}```\n"})
            self.assertEqual(not faults, is_right, faults)
        self.assertIn(check_docs.EXAMPLE, self.faults("", **tree, **{"README.md": "none\n"})[0])


if __name__ == "__main__":
    unittest.main()
