# SPDX-License-Identifier: Apache-2.0
"""transformers.Trainer over a patched model: steps with accumulation, evaluation, columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from flce.torch import patch  # noqa: E402
from hf_support import VOCAB, pair  # noqa: E402


class Sequences(torch.utils.data.Dataset):
    """Sequences whose number of valid tokens differs, so that a mean per micro-batch is wrong."""

    def __init__(self, count: int = 8) -> None:
        generator = torch.Generator().manual_seed(2)
        self.rows = []
        for i in range(count):
            tokens = torch.randint(3, VOCAB, (10,), generator=generator)
            labels = tokens.clone()
            labels[: 1 + i] = -100
            self.rows.append({"input_ids": tokens, "labels": labels, "unused": torch.zeros(3)})

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


def trainer_of(model: Any, folder: Path, **more: Any) -> Any:
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=3,
        learning_rate=1e-2,
        optim="sgd",
        lr_scheduler_type="constant",
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        seed=0,
        **more,
    )
    return transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=Sequences(),
        eval_dataset=Sequences(4),
        compute_metrics=_accuracy,
    )


def _accuracy(prediction: Any) -> dict[str, float]:
    logits = prediction.predictions
    logits = logits[0] if isinstance(logits, tuple) else logits
    guessed, labels = logits[:, :-1].argmax(-1), prediction.label_ids[:, 1:]
    valid = labels != -100
    return {"accuracy": float(np.mean(guessed[valid] == labels[valid]))}


def losses_of(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_steps_with_accumulation(name: str, tmp_path: Path) -> None:
    model, oracle = pair(name)
    start = {key: p.detach().clone() for key, p in model.named_parameters()}
    patch(model)
    ours, theirs = trainer_of(model, tmp_path), trainer_of(oracle, tmp_path)
    # Both are handed the divisor of the whole step, and drop the column that forward does not take.
    assert ours.model_accepts_loss_kwargs
    assert theirs.model_accepts_loss_kwargs
    ours.train()
    theirs.train()
    assert losses_of(ours) == pytest.approx(losses_of(theirs), rel=1e-4)
    assert len(losses_of(ours)) == 3
    for (key, p), (_, q) in zip(model.named_parameters(), oracle.named_parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6, msg=key)
    assert any(not torch.equal(p, start[key]) for key, p in model.named_parameters())


def test_evaluation_has_metrics(tmp_path: Path) -> None:
    model, oracle = pair("llama")
    patch(model)
    ours = trainer_of(model, tmp_path).evaluate()
    theirs = trainer_of(oracle, tmp_path).evaluate()
    assert ours["eval_loss"] == pytest.approx(theirs["eval_loss"], rel=1e-5)
    assert ours["eval_accuracy"] == theirs["eval_accuracy"]


def test_evaluation_without_logits(tmp_path: Path) -> None:
    model, oracle = pair("llama")
    patch(model, logits="never")
    ours, theirs = trainer_of(model, tmp_path), trainer_of(oracle, tmp_path)
    ours.compute_metrics = theirs.compute_metrics = None
    assert ours.evaluate()["eval_loss"] == pytest.approx(theirs.evaluate()["eval_loss"], rel=1e-5)


def test_gradient_checkpointing_and_label_smoothing(tmp_path: Path) -> None:
    # Trainer's own label smoothing takes the labels away and works on logits: the patch stays out.
    model, oracle = pair("llama")
    patch(model)
    more = {"label_smoothing_factor": 0.1, "gradient_checkpointing": True}
    ours, theirs = trainer_of(model, tmp_path, **more), trainer_of(oracle, tmp_path, **more)
    ours.train()
    theirs.train()
    assert losses_of(ours) == pytest.approx(losses_of(theirs), rel=1e-4)
