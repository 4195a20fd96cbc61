# SPDX-License-Identifier: Apache-2.0
"""Trains a small decoder on a real text in four ways, and keeps what each takes.

    python bench/train/train.py                          # on a card: bench/results/<card>
    python bench/train/train.py --minutes 4              # begins nothing later; call it again
    python bench/train/train.py --device cpu --out DIR   # a tiny model

`eager` is F.cross_entropy of float32 logits, `compile` the same by torch.compile, `flce` is
flce.torch.linear_cross_entropy, `flce-compile` that by torch.compile. Each measurement is a process
of its own with the same seed and batches: `steps` (loss of each step, time, peak) and `largest`
(the most sequences that fit). What the files hold of this card, version and setup is not measured
again (--again: it is). The text is this Python's library or --text FILE, its ids are text.py's.
bench/report.py makes the tables and the plot.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import flce

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for tables, bench's own
from tables import write_rows

from model import DTYPES, WAYS, Setup
from text import load, tokens_of

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
# In this order, so that the first minutes show most.
PIECES = (("steps", "eager"), ("steps", "flce"), ("steps", "compile"), ("largest", "eager"),
          ("largest", "flce"), ("steps", "flce-compile"), ("largest", "compile"),
          ("largest", "flce-compile"))  # fmt: skip

PLACE = ("device", "torch", "version", "layers", "hidden", "heads", "vocab", "sequence", "dtype",
         "seed", "text")  # fmt: skip
COLUMNS = (*PLACE, "date", "what", "way", "batch", "steps", "rate", "step_ms", "min_ms", "max_ms",
           "head_ms", "peak_bytes", "total_bytes", "parameter_bytes", "seconds")  # fmt: skip
LOSS_COLUMNS = (*PLACE, "way", "batch", "step", "loss")

ON_A_CARD = Setup(8, 1024, 16, 131072, 4096, 4, "bf16", 20261202)
ON_A_CPU = Setup(2, 32, 2, 2048, 32, 2, "f32", 20261202)


class Rows:
    """The rows of a CSV file, of which some take the place of others."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.path, self.columns = path, columns
        self.rows: list[dict[str, str]] = []
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                self.rows = list(csv.DictReader(file))
            if self.rows and tuple(self.rows[0]) != columns:
                raise SystemExit(f"{path}: other columns than {', '.join(columns)}; move it away")

    def has(self, wanted: dict[str, Any]) -> bool:
        return any(_agrees(row, wanted) for row in self.rows)

    def replace(self, key: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        """New rows in place of those that agree with `key`."""
        kept = [row for row in self.rows if not _agrees(row, key)]
        self.rows = kept + [{name: str(row.get(name, "")) for name in self.columns} for row in rows]
        write_rows(self.path, self.columns, self.rows)


def _agrees(row: dict[str, str], wanted: dict[str, Any]) -> bool:
    return all(row[name] == str(value) for name, value in wanted.items())


def name_of(device: str) -> str:
    """By a process of its own: this one must hold nothing of the card while others measure."""
    if device != "cuda":
        return "CPU"
    ask = "import torch; print(torch.cuda.get_device_name())"
    command = [sys.executable, "-c", ask]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def slug(device_name: str) -> str:
    """'NVIDIA H200' -> 'h200', as scripts/dev/bench_cuda.sh names the folder of a card."""
    return re.sub("[^a-z0-9]+", "-", device_name.removeprefix("NVIDIA ").lower()).strip("-")


def measured(what: str, asked: dict[str, Any]) -> dict[str, Any]:
    """What the child gives; RuntimeError where it ends badly."""
    command = [sys.executable, str(HERE / "measure.py"), what, json.dumps(asked)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{what} of {asked['way']}: exit status {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def shown(what: str, way: str, row: dict[str, Any]) -> str:
    """A line for the terminal."""
    text = f"{what:8s} {way:13s} {row['batch']:4d} sequences, {row['peak_bytes'] / 1e9:7.2f} GB"
    if what == "steps":
        share = 100 * row["head_ms"] / row["step_ms"]
        text += f", {row['step_ms']:8.2f} ms a step, {row['head_ms']:7.2f} of it the head's"
        text += f" ({share:.0f} %), loss {row['losses'][0]:.3f} to {row['losses'][-1]:.3f}"
    return f"{text} ({row['seconds']:.0f} s)"


class Run:
    """Files, what is asked, and the time that is left."""

    def __init__(
        self, options: argparse.Namespace, setup: Setup, device_name: str, folder: Path
    ) -> None:
        self.options, self.setup = options, setup
        self.until = time.monotonic() + 60 * options.minutes
        text = load(options.text, options.characters)
        self.text = text
        values = {"device": device_name,
                  "torch": torch.__version__, "version": flce.__version__, "text": text.name,
                  **setup._asdict()}  # fmt: skip
        self.place = {name: values[name] for name in PLACE}
        self.table = Rows(folder / "train.csv", COLUMNS)
        self.curves = Rows(folder / "train_loss.csv", LOSS_COLUMNS)

    def key(self, what: str, way: str) -> dict[str, Any]:
        how_long = {"batch": self.setup.batch, "steps": self.options.steps}
        return {**self.place, "what": what, "way": way, **(how_long if what == "steps" else {})}

    def measure(self, what: str, way: str, tokens: Path) -> None:
        asked = {
            "setup": self.setup._asdict(),
            "way": way,
            "device": self.options.device,
            "backend": self.options.backend,
            "tokens": str(tokens),
            "steps": self.options.steps,
            "rate": self.options.rate,
        }
        start = time.monotonic()
        result = measured(what, asked)
        row = {**self.key(what, way), **result, "seconds": round(time.monotonic() - start, 1)}
        row["date"] = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        if what == "steps":
            row["rate"] = self.options.rate
        print(shown(what, way, row), flush=True)
        for name in ("step_ms", "min_ms", "max_ms", "head_ms"):
            if name in row:
                row[name] = f"{row[name]:.3f}"
        # Of another version or text of the same setup too: the newest counts.
        same = {"device": self.place["device"], **self.setup._asdict(), "way": way}
        batch = same.pop("batch")
        if what == "steps":
            losses = [
                {**self.place, "way": way, "batch": batch, "step": n, "loss": f"{loss:.6f}"}
                for n, loss in enumerate(result["losses"], 1)
            ]
            self.curves.replace({**same, "batch": batch}, losses)
        self.table.replace({**same, "what": what}, [row])

    def all_pieces(self) -> int:
        """The number of pieces that failed or were left out."""
        ways = self.options.ways.split(",")
        pieces = [(what, way) for what, way in PIECES if way in ways]
        if self.options.device != "cuda":
            pieces = [(what, way) for what, way in pieces if what == "steps"]
        again = self.options.again
        missing = [p for p in pieces if again or not self.table.has(self.key(*p))]
        print(f"{len(pieces) - len(missing)} of {len(pieces)} pieces are there", flush=True)
        if not missing:
            return 0
        undone = 0
        with tempfile.TemporaryDirectory() as folder:
            tokens = Path(folder) / "tokens.pt"
            ids = tokens_of(self.text.content, self.setup.vocab)
            torch.save(torch.tensor(ids, dtype=torch.int32), tokens)
            print(f"{self.text.name}: {len(ids)} tokens, {len(set(ids))} different", flush=True)
            for what, way in missing:
                if time.monotonic() > self.until:
                    print(f"{what:8s} {way:13s} left out: the time is over", flush=True)
                    undone += 1
                    continue
                try:
                    self.measure(what, way, tokens)
                except RuntimeError as error:
                    print(f"failed: {error}", file=sys.stderr, flush=True)
                    undone += 1
        return undone


def setup_of(options: argparse.Namespace) -> Setup:
    """The device's usual setup, with what was given otherwise."""
    usual = ON_A_CARD if options.device == "cuda" else ON_A_CPU
    given = {name: getattr(options, name) for name in Setup._fields}
    return usual._replace(**{name: value for name, value in given.items() if value is not None})


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="the folder of the CSV files")
    parser.add_argument("--minutes", type=float, default=30.0, help="nothing begins later")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rate", type=float, default=6e-4, help="of AdamW, after a warm-up")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--characters", type=int, default=12_000_000, help="of the text, at most")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    parser.add_argument("--dtype", choices=tuple(DTYPES))
    for name in ("layers", "hidden", "heads", "vocab", "sequence", "batch", "seed"):
        parser.add_argument(f"--{name}", type=int)
    return parser


def main() -> None:
    parser = arguments()
    options = parser.parse_args()
    unknown = set(options.ways.split(",")) - set(WAYS)
    if unknown:
        parser.error(f"--ways: unknown {', '.join(sorted(unknown))}; known: {', '.join(WAYS)}")
    if options.out is None and options.device != "cuda":
        parser.error("--out: give a folder; bench/results is for cards")
    name = name_of(options.device)
    folder = options.out or RESULTS / slug(name)
    undone = Run(options, setup_of(options), name, folder).all_pieces()
    if undone:
        raise SystemExit(f"{undone} pieces are missing; call it again for them")


if __name__ == "__main__":
    main()
