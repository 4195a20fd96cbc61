# SPDX-License-Identifier: Apache-2.0
"""Every program of examples/torch and examples/jax runs on the CPU and shows what it says that it
shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import child

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "torch"
TESTED = {"minimal", "hf_trainer", "grpo_logprob", "train_text"}


def run(name: str, *arguments: str, folder: Path = EXAMPLES) -> str:
    command = [sys.executable, str(folder / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=child.environment())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_example_has_a_test() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TESTED
    assert {path.stem for path in (EXAMPLES.parent / "jax").glob("*.py")} == {"minimal"}


def test_minimal() -> None:
    # The program fails where the gradients differ.
    loss = next(line for line in run("minimal").splitlines() if line.startswith("loss"))
    ours, theirs = (float(word) for word in loss.replace(",", "").split() if word[0].isdigit())
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_minimal_of_jax() -> None:
    pytest.importorskip("jax")
    lines = run("minimal", folder=EXAMPLES.parent / "jax").splitlines()
    losses = [(float(words[2].strip(",")), float(words[3])) for words in map(str.split, lines[:2])]
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-6)
    assert losses[0][1] > losses[1][1], "megabytes beside"


def trainer_losses(*arguments: str) -> list[float]:
    lines = run("hf_trainer", "--steps", "4", *arguments).splitlines()
    losses = next(line for line in lines if line.startswith("losses")).split()[1:]
    evaluation = next(line for line in lines if line.startswith("evaluation")).split()[1]
    return [float(value) for value in (*losses, evaluation)]


def test_hf_trainer() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    ours, theirs = trainer_losses(), trainer_losses("--unpatched")
    assert len(ours) == 5
    assert ours == pytest.approx(theirs, abs=2e-4)
    assert ours[-1] < ours[0]


def test_grpo_logprob() -> None:
    words = run("grpo_logprob").replace(",", "").split()
    first, last = (float(word) for word in words if word[0].isdigit())
    assert last > first + 0.1


def test_training_on_a_real_text() -> None:
    """Fused, eager and a loop over chunks: the same curve. Memory and time are for the reader."""
    pytest.importorskip("mistral_common")
    runs = {}
    for loss in ("fused", "eager", "chunk-loop"):
        runs[loss] = json.loads(run("train_text", "--loss", loss, "--steps", "6").splitlines()[-1])
        print(
            f"{loss:<11} {runs[loss]['seconds_of_loss_and_backward']:.2f} s for loss and backward, "
            f"{runs[loss]['peak_rss_bytes'] / 1e6:.0f} MB at most"
        )
    wanted = runs["eager"]["losses"]
    assert wanted[-1] < wanted[0] - 0.5, "nothing was learnt"
    for loss in ("fused", "chunk-loop"):
        assert runs[loss]["losses"] == pytest.approx(wanted, rel=1e-4), loss
