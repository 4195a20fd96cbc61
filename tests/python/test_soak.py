# SPDX-License-Identifier: Apache-2.0
"""tests/soak in short: its first steps pass, and it sees what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

SOAK = Path(__file__).resolve().parents[1] / "soak"
SEED = 20261202
MIB = 2**20
pytestmark = pytest.mark.skipif(not SOAK.exists(), reason="tests/soak is not beside the tests")


@pytest.fixture
def soak() -> Iterator[Any]:
    names = ("cases", "checks", "soak")
    sys.path.insert(0, str(SOAK))
    try:
        yield __import__("soak")
    finally:
        sys.path.remove(str(SOAK))
        for name in names:
            sys.modules.pop(name, None)


@pytest.mark.parametrize("device", ("cpu", pytest.param("cuda", marks=pytest.mark.gpu)))
def test_the_first_steps_are_right(soak: Any, device: str) -> None:
    run = soak.Soak(device, SEED)
    functions = {run.step(number).function for number in range(40)}
    assert not run.failed
    assert functions == {"linear_cross_entropy", "linear_logprob", "loss_and_grads"}


def test_a_number_is_the_same_case_every_time(soak: Any) -> None:
    first, second = (soak.cases.draw(SEED, 17, "cpu") for _ in range(2))
    assert first == second != soak.cases.draw(SEED, 18, "cpu")
    for one, other in zip(
        soak.cases.tensors_of(first, SEED, "cpu"),
        soak.cases.tensors_of(second, SEED, "cpu"),
        strict=True,
    ):
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("which", ("loss", "gradient"))
def test_a_wrong_step_is_named_with_its_command(
    soak: Any, which: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = soak.checks.flce_torch.linear_cross_entropy

    def wrong(hidden: torch.Tensor, *others: Any, **options: Any) -> Any:
        """A loss of 1 % too much, or a gradient of 5 %."""
        result = right(hidden, *others, **options)
        loss = result if isinstance(result, torch.Tensor) else result.loss
        more = 1.01 * loss if which == "loss" else loss + 0.05 * (loss - loss.detach())
        return more if isinstance(result, torch.Tensor) else result._replace(loss=more)

    monkeypatch.setattr(soak.checks.flce_torch, "linear_cross_entropy", wrong)
    run = soak.Soak("cpu", SEED)
    numbers = [n for n in range(20) if run.step(n).function == "linear_cross_entropy"]
    assert len(run.failed) > len(numbers) / 2
    said = capsys.readouterr().out
    assert f"--seed {SEED} --case {run.failed[0]}" in said
    assert ("loss: relative error" if which == "loss" else "grad_weight: relative error") in said


@pytest.mark.parametrize(("mib_a_reading", "is_flat"), ((0.0, True), (0.05, True), (0.2, False)))
def test_memory_that_grows_is_a_failure(soak: Any, mib_a_reading: float, is_flat: bool) -> None:
    memory = soak.Memory("cpu")
    start = 30 * MIB  # of a first use, in the warm-up
    memory.readings["resident set"] = [
        int((500 + mib_a_reading * n) * MIB) + start * (n >= 10) for n in range(100)
    ]
    (line,) = memory.verdict()
    assert line.startswith("FAILED") != is_flat
