# SPDX-License-Identifier: Apache-2.0
"""The pages that bench/report.py fills, with empty parts, for tests in a made-up root."""

import os

import report


def write(root):
    for page, parts in report.PAGES:
        path = os.path.join(root, page)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            for word, _ in parts:
                file.write(f"<!-- generated: {word} -->\n<!-- end generated -->\n")
