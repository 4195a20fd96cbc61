# SPDX-License-Identifier: Apache-2.0
"""The result files: bench/results/<card>/peers.csv and features.csv.

Columns are named as in the files of `flce bench --device cuda` (tools/flce/bench_cuda_report.cpp)
where they mean the same.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from tables import write_rows

Row = dict[str, str]

KEY = ("device", "torch", "system", "system_version", "shape", "dtype", "data")
COLUMNS = (
    "device", "date", "shape", "dtype", "system", "chunk", "median_ms", "floor_ms", "ratio",
    "extra_bytes", "peak_bytes", "beyond_inputs_bytes", "err_loss", "err_grad_hidden",
    "err_grad_weight", "data", "min_ms", "max_ms", "rounds", "first_call_ms", "system_version",
    "torch", "note", "refused",
)  # fmt: skip
FEATURE_KEY = ("device", "torch", "system", "system_version", "dtype", "feature")
FEATURE_COLUMNS = (
    "device", "date", "system", "system_version", "torch", "dtype", "feature", "supported",
    "answer",
)  # fmt: skip


def plain(value: object, longest: int = 240) -> str:
    """One line. The columns of words stand last: those before them hold no comma."""
    return " ".join(str("" if value is None else value).split())[:longest]


def number(value: float | None, digits: int = 5) -> str:
    return "" if value is None else f"{value:.{digits}g}"


class File:
    """Rows by their key; one that is stored again takes the place of the older one."""

    def __init__(self, path: Path, columns: Sequence[str], key: Sequence[str]) -> None:
        self.path, self.columns, self.key = path, tuple(columns), tuple(key)
        self.rows: dict[tuple[str, ...], Row] = {}
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                if tuple(reader.fieldnames or ()) != self.columns:
                    raise ValueError(f"{path}: other columns than {','.join(self.columns)}")
                for row in reader:
                    self.rows[self.key_of(row)] = row

    def key_of(self, row: Row) -> tuple[str, ...]:
        return tuple(row.get(name, "") for name in self.key)

    def has(self, row: Row) -> bool:
        return self.key_of(row) in self.rows

    def store(self, rows: Iterable[dict[str, object]]) -> None:
        for row in rows:
            clean = {name: plain(row.get(name)) for name in self.columns}
            self.rows.pop(self.key_of(clean), None)
            self.rows[self.key_of(clean)] = clean
        write_rows(self.path, self.columns, self.rows.values())

    def drop(self, **wanted: str) -> None:
        """Forgets rows with these values; the next store writes the file."""
        for key, row in list(self.rows.items()):
            if all(row[name] == value for name, value in wanted.items()):
                del self.rows[key]


def timings(path: Path) -> File:
    return File(path, COLUMNS, KEY)


def features(path: Path) -> File:
    return File(path, FEATURE_COLUMNS, FEATURE_KEY)
