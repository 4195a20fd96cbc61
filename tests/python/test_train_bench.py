# SPDX-License-Identifier: Apache-2.0
"""bench/train, with a tiny model on the CPU: all ways learn the same, and the files go on."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import child

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench" / "train"
STEPS, RATE = 12, 0.02
pytestmark = pytest.mark.skipif(not BENCH.exists(), reason="bench/train is not beside the tests")


@pytest.fixture
def modules() -> Iterator[dict[str, Any]]:
    """The programs' modules, whose short names are gone afterwards."""
    names = ("model", "text", "measure", "train")
    sys.path.insert(0, str(BENCH))
    try:
        yield {name: __import__(name) for name in names}
    finally:
        sys.path.remove(str(BENCH))
        for name in names:
            sys.modules.pop(name, None)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def compiled_losses(modules: dict[str, Any], tokens: Path) -> list[float]:
    """In this process: importing torch once more would take longer than the training."""
    asked = modules["measure"].Asked(
        modules["train"].ON_A_CPU, "compile", "cpu", "aot_eager", str(tokens), STEPS, RATE
    )
    result = modules["measure"].steps(modules["measure"].Trainer(asked))
    losses: list[float] = result["losses"]
    return losses


def test_the_ways_have_one_curve(tmp_path: Path, modules: dict[str, Any]) -> None:
    text, out, tokens = tmp_path / "text.txt", tmp_path / "out", tmp_path / "tokens.pt"
    text.write_text((ROOT / "README.md").read_text()[:1500])  # short, so that it is soon known
    command = [sys.executable, str(BENCH / "train.py"), "--device", "cpu", "--out", str(out)]
    command += ["--steps", str(STEPS), "--rate", str(RATE), "--text", str(text)]
    command += ["--ways", "eager,flce"]
    done = subprocess.run(command, capture_output=True, text=True, env=child.environment())
    assert done.returncode == 0, done.stdout + done.stderr

    table = rows(out / "train.csv")
    assert [row["way"] for row in table] == ["eager", "flce"]
    for row in table:
        assert row["what"] == "steps"
        assert 0 < float(row["min_ms"]) <= float(row["step_ms"]) <= float(row["max_ms"])
        assert float(row["head_ms"]) > 0
    curves = defaultdict(list)
    for row in rows(out / "train_loss.csv"):
        curves[row["way"]].append(float(row["loss"]))
    ids = modules["text"].tokens_of(text.read_text(), modules["train"].ON_A_CPU.vocab)
    torch.save(torch.tensor(ids, dtype=torch.int32), tokens)
    curves["compile"] = compiled_losses(modules, tokens)

    assert len(curves["eager"]) == STEPS and curves["eager"][-1] < curves["eager"][0] - 0.5
    for way in ("flce", "compile"):
        assert curves[way] == pytest.approx(curves["eager"], rel=1e-4), way
    assert {path.name for path in out.iterdir()} == {"train.csv", "train_loss.csv"}


def test_files_are_replaced_row_by_row(tmp_path: Path, modules: dict[str, Any]) -> None:
    columns, path = ("way", "step", "loss"), tmp_path / "new" / "train_loss.csv"
    kept = modules["train"].Rows(path, columns)
    kept.replace({"way": "eager"}, [{"way": "eager", "step": n, "loss": 9.5} for n in (1, 2)])
    kept.replace({"way": "flce"}, [{"way": "flce", "step": 1, "loss": 9.25}])
    again = modules["train"].Rows(path, columns)
    assert again.has({"way": "flce", "step": 1}) and not again.has({"way": "flce", "step": 2})
    again.replace({"way": "eager"}, [{"way": "eager", "step": 1}])
    assert path.read_text() == "way,step,loss\nflce,1,9.25\neager,1,\n"
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(SystemExit, match="other columns"):
        modules["train"].Rows(path, ("way", "step"))


def test_what_is_there_is_not_measured_again(
    tmp_path: Path, modules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, str]] = []

    def measured(what: str, asked: dict[str, Any]) -> dict[str, Any]:
        called.append((what, asked["way"]))
        if asked["way"] == "compile":
            raise RuntimeError("it ended badly")
        times = dict.fromkeys(("step_ms", "min_ms", "max_ms", "head_ms"), 1.0)
        return {"losses": [2.0, 1.0], "peak_bytes": 0, "parameter_bytes": 0, **times}

    train = modules["train"]
    monkeypatch.setattr(train, "measured", measured)
    text = ["--device", "cpu", "--text", str(ROOT / "README.md")]

    def run(*more: str) -> int:
        called.clear()
        options = train.arguments().parse_args([*text, *more])
        undone: int = train.Run(options, train.setup_of(options), "CPU", tmp_path).all_pieces()
        return undone

    assert run("--ways", "eager") == 0 and called == [("steps", "eager")]
    assert run("--minutes", "0") == 3 and not called
    assert run() == 1 and [way for _, way in called] == ["flce", "compile", "flce-compile"]
    assert run() == 1 and [way for _, way in called] == ["compile"]
    assert run("--steps", "3", "--ways", "flce") == 0 and called == [("steps", "flce")]
    assert run("--again", "--ways", "eager") == 0 and called == [("steps", "eager")]
    assert len(rows(tmp_path / "train.csv")) == 3
    assert len(rows(tmp_path / "train_loss.csv")) == 6


@pytest.mark.parametrize("vocab", (256, 300, 100000))
def test_ids_give_the_text_back(modules: dict[str, Any], vocab: int) -> None:
    text = (ROOT / "README.md").read_text()
    pieces = modules["text"].PIECE.findall(text)
    ids = modules["text"].vocabulary(pieces, vocab)
    tokens = modules["text"].tokens_of(text, vocab)
    assert max(tokens) < vocab and len(ids) <= vocab - 256
    spelt = {number: piece.encode() for piece, number in ids.items()}
    read = b"".join(spelt.get(token, bytes((token % 256,))) for token in tokens)
    assert read.decode() == text


@pytest.mark.parametrize("fits", (0, 1, 3, 8, 13, 57, 200))
@pytest.mark.parametrize("bend", (0, 5, -5))
def test_the_search_finds_the_largest_batch(modules: dict[str, Any], fits: int, bend: int) -> None:
    """Peaks that are about a line; the limit is where one more does not fit."""
    tried: list[int] = []

    def peak_of(batch: int) -> int | None:
        assert batch not in tried, "tried twice"
        tried.append(batch)
        return 1000 + 10 * batch + bend * (batch % 3) if batch <= fits else None

    total = 1000 + 10 * fits + 9
    batch, peak = modules["measure"].search(peak_of, 1000, total, start=8, most=150)
    assert batch == min(fits, 150)
    assert (peak > 0) == (batch > 0)
    assert len(tried) <= 10
