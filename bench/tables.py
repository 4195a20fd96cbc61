# SPDX-License-Identifier: Apache-2.0
"""Rows of a results file in and out, a Markdown table out: what the benchmarks' programs and the
reports have in common."""

import csv
import io
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
    part = f"{path}.part"
    os.makedirs(os.path.dirname(part) or ".", exist_ok=True)
    try:
        with open(part, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)


def write_rows(path, columns, rows):
    """A CSV file in the place of the old one, as a whole."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    replace_file(path, text.getvalue())


def table(header, lines):
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in [header, rule, *lines])


def gigabytes(value, digits=2):
    """Of bytes, as a number or as a file's text; "-" where there are none."""
    if value in (None, ""):
        return "-"
    size = float(value)
    return f"{size / 1e6:.1f} MB" if abs(size) < 1e8 else f"{size / 1e9:.{digits}f} GB"
