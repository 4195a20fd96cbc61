# SPDX-License-Identifier: Apache-2.0
"""Rows of the files that `flce bench --device cuda` writes (bench/results/<card>/*.csv), their
numbers as numbers, and how the reports write them.
"""

import os

from tables import read_rows

COLUMNS = (
    "device",
    "date",
    "shape",
    "dtype",
    "method",
    "route",
    "chunk",
    "median_ms",
    "floor_ms",
    "hard_floor_ms",
    "ratio",
    "extra_bytes",
    "peak_bytes",
    "predicted_bytes",
    "err_loss",
    "err_grad_hidden",
    "err_grad_weight",
    "data",
    "set",
)
KEY = ("shape", "dtype", "method", "chunk", "data", "policy")
FILES = ("headline", "f32", "sweep", "memory", "limits", "small")
NUMBERS = (
    "median_ms",
    "min_ms",
    "max_ms",
    "floor_ms",
    "hard_floor_ms",
    "ratio",
    "extra_bytes",
    "peak_bytes",
    "predicted_bytes",
    "predicted_peak_bytes",
    "device_bytes",
    "err_loss",
    "err_grad_hidden",
    "err_grad_weight",
    "watts",
    "sm_mhz",
)


def load(path):
    """Rows with numbers as floats, None where a field is empty; ValueError for other columns."""
    rows = {}
    for row in read_rows(path, COLUMNS):
        for name in NUMBERS:
            row[name] = float(row[name]) if row.get(name) else None
        row["chunk"] = int(row["chunk"])
        row["num_chunks"] = int(row.get("num_chunks") or 0)
        key = tuple(row.get(name) for name in KEY)
        rows.pop(key, None)
        rows[key] = row
    return list(rows.values())


def load_folder(folder):
    found = {}
    for name in FILES:
        path = os.path.join(folder, name + ".csv")
        found[name] = load(path) if os.path.exists(path) else []
    return found


def shape_text(row):
    return row["shape"].replace("x", "×")


def tokens(row):
    return int(row["shape"].split("x")[0])


def number(value, pattern="{:.3f}"):
    return "-" if value is None else pattern.format(value)


def ms(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def error(value):
    return number(value, "{:.1e}")


def is_timed(row):
    return row["median_ms"] is not None


def hard_ratio(row):
    if not is_timed(row) or not row["hard_floor_ms"]:
        return None
    return row["median_ms"] / row["hard_floor_ms"]


def find(rows, **wanted):
    return next(
        (row for row in rows if all(row[name] == value for name, value in wanted.items())), None
    )


def by_chunks(rows, method):
    return sorted(
        (row for row in rows if row["method"] == method and row["peak_bytes"] is not None),
        key=lambda row: row["num_chunks"],
    )
