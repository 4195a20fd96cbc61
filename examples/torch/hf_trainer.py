# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning with transformers.Trainer: `patch(model)` is all that is added.

Trains a tiny Llama with random weights on repeating sequences, with gradient accumulation, and
prints its losses. `--unpatched` is the same run with the model's own loss.

    python examples/torch/hf_trainer.py [--unpatched] [--steps 8]
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from flce.torch import patch

VOCAB = 4096


class Counting(torch.utils.data.Dataset):
    """Sequences that count upwards; the first tokens are a prompt without a target."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(32) * (1 + index % 3) + index) % VOCAB
        labels = tokens.clone()
        labels[: 4 + index % 8] = -100
        return {"input_ids": tokens, "labels": labels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--unpatched", action="store_true")
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )
    if not options.unpatched:
        patch(model)  # in evaluation there are logits again; logits="never" keeps them away

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=4,
                gradient_accumulation_steps=2,
                max_steps=options.steps,
                learning_rate=3e-3,
                logging_steps=1,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
                use_cpu=not torch.cuda.is_available(),
            ),
            train_dataset=Counting(),
            eval_dataset=torch.utils.data.Subset(Counting(), range(8)),
        )
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        print("losses", " ".join(f"{loss:.4f}" for loss in losses))
        print(f"evaluation {trainer.evaluate()['eval_loss']:.4f}")


if __name__ == "__main__":
    main()
