#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tests of layers, budgets and the version, tried on made-up trees with one fault each."""

import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_budgets  # noqa: E402
import check_layers  # noqa: E402
import check_version  # noqa: E402

GOOD = {
    "include/flce/flce.hpp": "#include <cstdint>\n",
    "src/core/int_math.hpp": "#include <cstdint>\n",
    "src/core/check.hpp": '#include <fmt/format.h>\n#include "flce/flce.hpp"\n',
    "src/math/lse.hpp": '#include "core/int_math.hpp"\n',
    "src/backend/backend.hpp": '#include "core/check.hpp"\n',
    "src/kernels/sm90/row.cuh": '#include "math/lse.hpp"\n',
    "src/cpu/tile.hpp": '#include "backend/backend.hpp"\n#include "math/lse.hpp"\n',
    "src/cuda/sizes.hpp": '#include "backend/backend.hpp"\n',
    "src/cuda/run/verbs.hpp": '#include <cuda_runtime.h>\n#include "cuda/sizes.hpp"\n',
    "src/methods/method.hpp": '#include "backend/backend.hpp"\n',
    "src/methods/fused.cpp": '#include "methods/method.hpp"\n',
    "src/plan/planner.cpp": '#include "methods/method.hpp"\n',
    "src/api/run.cpp": '#include "cpu/tile.hpp"\n',
    "tests/oracle/oracle.hpp": "#include <vector>\n",
    "tests/unit/test_tile.cpp": '#include <gtest/gtest.h>\n#include "cpu/tile.hpp"\n',
    "tools/io/npy.hpp": "#include <string>\n",
    "tools/flce/verify.cpp": '#include "io/npy.hpp"\n#include "oracle/oracle.hpp"\n',
    "tools/flce/main.cpp": "#include <CLI/CLI.hpp>\n#include <flce/flce.hpp>\n",
    "examples/c/a.c": "#include <flce/flce.hpp>\n",
}


def tree(folder, extra):
    for path, text in {**GOOD, **extra}.items():
        full = os.path.join(folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)


class Layers(unittest.TestCase):
    def faults(self, extra):
        with tempfile.TemporaryDirectory() as folder:
            tree(folder, extra)
            return check_layers.check(folder)[0]

    def one(self, path, text, *parts):
        faults = self.faults({path: text})
        self.assertEqual(len(faults), 1, faults)
        for part in parts:
            self.assertIn(part, faults[0])

    def test_a_good_tree_has_no_fault(self):
        self.assertEqual(self.faults({}), [])

    def test_wrong_rooms_are_named_with_line_and_what_is_allowed(self):
        self.one(
            "src/math/lse.hpp",
            '\n#include "cpu/tile.hpp"\n',
            "src/math/lse.hpp:2:",
            "'src/math'",
            "'src/cpu'",
            "allowed: src/math, include/flce/types.hpp, src/core/int_math.hpp",
        )
        self.one("src/core/a.cpp", '#include "backend/backend.hpp"\n', "'src/core'")
        self.one("src/math/a.hpp", '#include "core/check.hpp"\n', "'src/core'")
        self.one("src/math/a.hpp", '#include "flce/flce.hpp"\n', "'include'")
        self.one("src/kernels/sm90/a.cuh", '#include "flce/flce.hpp"\n', "'include'")
        self.one("src/methods/a.cpp", '#include "cpu/tile.hpp"\n', "'src/cpu'")
        self.one("src/plan/a.cpp", '#include "../cpu/tile.hpp"\n', "'src/cpu'")
        self.one("src/api/a.cpp", '#include "kernels/sm90/row.cuh"\n', "'src/kernels'")
        self.one("src/cpu/a.cpp", '#include "methods/method.hpp"\n', "'src/methods'")
        self.one("include/flce/a.hpp", '#include "core/check.hpp"\n', "'src/core'")
        self.one("tools/flce/run.cpp", '#include "core/check.hpp"\n', "'src/core'")
        self.one("tools/flce/run.cpp", '#include "oracle/oracle.hpp"\n', "'tests/oracle'")
        self.one("tests/oracle/a.hpp", "#include <flce/flce.hpp>\n", "'tests/oracle'")
        self.one("examples/cpp/a.cpp", '#include "core/check.hpp"\n', "'examples'")

    def test_a_room_in_a_room_is_another_one(self):
        self.one(
            "src/cuda/a.cpp", '#include "cuda/run/verbs.hpp"\n', "'src/cuda'", "'src/cuda/run'"
        )
        self.one("src/cuda/a.cpp", "#include <cuda_runtime.h>\n", "'src/cuda'")

    def test_plan_may_include_one_file_of_methods(self):
        faults = self.faults(
            {"src/methods/other.hpp": "", "src/plan/a.cpp": '#include "methods/other.hpp"\n'}
        )
        self.assertEqual(len(faults), 1, faults)
        self.assertIn("src/methods/method.hpp", faults[0])

    def test_third_party(self):
        self.one("include/flce/a.hpp", "#include <fmt/format.h>\n", "<fmt/format.h>")
        self.one("include/flce/a.h", "#include <stdio.h>\n", "<stdio.h>")
        self.one("src/cpu/a.cpp", "#include <omp.h>\n", "<omp.h>")
        self.one("tools/flce/run.cpp", "#include <gtest/gtest.h>\n", "<gtest/gtest.h>")

    def test_unknown_file_and_unknown_room(self):
        self.one("src/cpu/a.cpp", '#include "cpu/gone.hpp"\n', '"cpu/gone.hpp" is no file')
        self.one("src/attic/a.cpp", "", "no room")

    def test_calls(self):
        for call in (
            "exit(1)",
            "std::abort()",
            "printf(x)",
            "std::fprintf(x)",
            "std::cout << 1",
            "::exit(2)",
            "fmt::print(x)",
            "std::terminate()",
        ):
            self.one("src/cpu/a.cpp", f"int f() {{\n  {call};\n}}\n", "src/cpu/a.cpp:2:")
        self.one("src/cpu/a.cpp", 'auto x = getenv("A");\n', "src/core/env.cpp alone")
        quiet = (
            '// exit(1)\n/* abort() */ const char* s = "printf(x)"; snprintf(b, 1, s);\n'
            "pool.exit(); pool->abort(); int num = 1'000; on_exit(3);\n"
        )
        self.assertEqual(self.faults({"src/cpu/a.cpp": quiet}), [])
        self.assertEqual(self.faults({"src/core/env.cpp": 'auto x = std::getenv("A");\n'}), [])
        self.assertEqual(self.faults({"tools/flce/run.cpp": "int f() { exit(1); }\n"}), [])

    def test_comments_hide_includes(self):
        self.assertEqual(self.faults({"src/math/a.hpp": '// #include "cpu/tile.hpp"\n'}), [])

    def test_the_rooms_of_the_library_have_no_cycle(self):
        rooms = {
            room: {
                other
                for other in check_layers.RULES
                if other.startswith("src/") and other != room and other in allowed
            }
            for room, allowed in check_layers.RULES.items()
            if room.startswith("src/")
        }
        while rooms:
            free = [room for room, below in rooms.items() if not below & rooms.keys()]
            self.assertTrue(free, f"a cycle among {sorted(rooms)}")
            for room in free:
                del rooms[room]


class Budgets(unittest.TestCase):
    def faults(self, extra):
        with tempfile.TemporaryDirectory() as folder:
            tree(folder, extra)
            return check_budgets.check(folder)[0]

    def test_lines_and_columns(self):
        self.assertEqual(self.faults({"src/cpu/a.cpp": "x\n" * 399 + "y" * 100}), [])
        faults = self.faults({"src/cpu/a.cpp": "x\n" * 402})
        self.assertIn("src/cpu/a.cpp: 402 lines", faults[0])
        faults = self.faults({"src/cpu/a.cpp": "x\n" + "y" * 101 + "\n"})
        self.assertIn("src/cpu/a.cpp:2: 101 columns", faults[0])

    def test_a_reason_lifts_the_budget(self):
        reason = "// budget: one table, read from top to bottom.\n"
        self.assertEqual(self.faults({"src/cpu/a.cpp": reason + "x\n" * 402}), [])
        self.assertEqual(len(self.faults({"src/cpu/a.cpp": "// budget:\n" + "x\n" * 402})), 1)


class Version(unittest.TestCase):
    PLACE = {
        "CMakeLists.txt": "# of all\nproject(flce VERSION 1.2.3 LANGUAGES C CXX)\n",
        "CHANGELOG.md": "# Changes\n\n## 1.2.3, a day\n\n## 1.2.2, a day before\n",
    }

    def faults(self, extra):
        with tempfile.TemporaryDirectory() as folder:
            tree(folder, {**self.PLACE, **extra})
            return check_version.check(folder)[0]

    def test_one_place(self):
        others = 'x = "11.2.3"; y = "1.2.3.4"; z = "1.2.30"; "v.1.2.3"\n'
        self.assertEqual(self.faults({"src/core/a.cpp": others, "docs/a.md": "1.2.3\n"}), [])

    def test_a_second_place_is_named(self):
        for path in ("src/core/a.cpp", "bench/a.py", "cmake/a.pc.in", "pyproject.toml"):
            faults = self.faults({path: '\nversion = "1.2.3"\n'})
            self.assertEqual(len(faults), 1, faults)
            self.assertIn(f"{path}:2: the version", faults[0])

    def test_the_changelog_follows(self):
        faults = self.faults({"CHANGELOG.md": "## 1.2.2, a day before\n"})
        self.assertIn("CHANGELOG.md: its newest entry", faults[0])
        self.assertIn("0 lines", self.faults({"CMakeLists.txt": "project(flce)\n"})[0])


if __name__ == "__main__":
    unittest.main()
