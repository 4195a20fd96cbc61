# SPDX-License-Identifier: Apache-2.0
"""Rows of a results file in, a Markdown table out: what the reports have in common."""
import csv
import os


def read_rows(path, columns):
    """The rows of a CSV file, each a dict of texts; ValueError where a column is missing."""
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path}: no column {', '.join(missing)}")
        return list(reader)


def replace_file(path, text):
    """The whole text or, if the process is killed, what stood there before."""
    part = path + ".part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)


def table(header, lines):
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in [header, rule] + lines)
