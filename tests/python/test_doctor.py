# SPDX-License-Identifier: Apache-2.0
"""`python -m flce doctor`, on models for which the answer differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import child
from flce.doctor import DoctorError, diagnose, main

GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 50257,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "dtype": "float32",
}
LLAMA3_8B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
# Bytes as tokens, long context: the layers keep far more than the logits take.
BYTES = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "dtype": "bfloat16",
}
SHALLOW = {**LLAMA3_8B, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
           "num_attention_heads": 8}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(values: dict[str, Any]) -> Path:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(values))
        return path

    return write


def term(result: dict[str, Any], name: str) -> int:
    return next(t["bytes"] for t in result["terms"] if t["name"] == name)


@pytest.mark.parametrize(
    ("values", "tokens", "answer", "largest"),
    [
        (GPT2, 128, False, "optimizer"),
        (LLAMA3_8B, 16384, None, "optimizer"),
        (SHALLOW, 65536, True, "logits and their copies"),
        (BYTES, 131072, False, "activations"),
    ],
    ids=["gpt2", "llama3-8b", "shallow", "bytes"],
)
def test_the_answer_and_what_it_is(
    config: Any, values: dict[str, Any], tokens: int, answer: bool | None, largest: str
) -> None:
    result = diagnose(config(values), tokens, measure=False)
    assert result["loss_is_the_cause"] is answer
    assert result["terms"][0]["name"] == largest
    sizes = [t["bytes"] for t in result["terms"]]
    assert sizes == sorted(sizes, reverse=True)
    # What eager code keeps of a logit: 16 bytes with 16-bit inputs, 12 with f32.
    per_logit = 12 if values["dtype"] == "float32" else 16
    logits = tokens * values["vocab_size"] * per_logit
    hidden = tokens * values.get("hidden_size", values.get("n_embd"))
    assert logits <= term(result, "logits and their copies") <= 1.001 * logits + 6 * hidden
    eager = result["plan"]["verdict"]["eager"]
    assert (answer is not False) == (eager["saved_share"] >= 0.1)
    assert sum(sizes) == eager["step_bytes"]
    if answer is False:
        assert f"the largest part is {largest}" in result["reason"]


def test_checkpointing_shards_and_memory_change_the_answer(config: Any) -> None:
    path = config(LLAMA3_8B)
    plain = diagnose(path, 4096, measure=False)
    assert plain["loss_is_the_cause"] is False
    both = diagnose(path, 4096, shards=8, checkpointing=True, measure=False)
    assert both["loss_is_the_cause"] is None
    assert {"checkpoints", "recomputed layer"} <= {t["name"] for t in both["terms"]}
    assert "activations" not in {t["name"] for t in both["terms"]}
    # A card into which only the fused step fits.
    eager = plain["plan"]["verdict"]["eager"]
    between = eager["step_bytes"] - eager["saved_bytes"] // 2
    tight = diagnose(path, 4096, memory=between, measure=False)
    assert tight["loss_is_the_cause"] is True


@pytest.mark.parametrize("options", [{}, {"shards": 8, "checkpointing": True}])
def test_what_fits_decides(config: Any, options: Any) -> None:
    """At every limit of the memory, to the byte."""
    path = config(LLAMA3_8B)

    def at(memory: int) -> dict[str, Any]:
        return diagnose(path, 16384, memory=memory, measure=False, **options)

    def cause(memory: int) -> bool | None:
        return at(memory)["loss_is_the_cause"]

    ample = diagnose(path, 16384, memory="1000GB", measure=False, **options)
    assert ample["loss_is_the_cause"] is False
    whole = ample["plan"]["verdict"]["eager"]["step_bytes"]
    fused = whole - ample["plan"]["verdict"]["eager"]["saved_bytes"]
    rest = whole - term(ample, "logits and their copies")
    least = rest + ample["plan"]["offers"][-1]["extra_bytes"]
    assert rest < least < fused < whole
    assert cause(whole) is False
    assert cause(whole - 1) is cause(fused) is True
    assert at(fused)["budget_that_fits"] is None
    # A smaller chunk than the planner prefers: the answer says which budget.
    tight = at(fused - 1)
    assert tight["loss_is_the_cause"] is cause(least) is True
    assert tight["budget_that_fits"] == fused - 1 - rest
    # Nothing that the loss could save would help, also where it is a large part.
    assert cause(least - 1) is False
    assert "rest of the step" in at(least - 1)["why"]
    assert cause(rest // 2) is cause(10**9) is False


def test_dtype_and_budget_reach_the_plan(config: Any) -> None:
    path = config(LLAMA3_8B)
    assert diagnose(path, 64, dtype="f32", measure=False)["plan"]["dtype"] == "f32"
    budget = diagnose(path, 16384, budget="600MB", measure=False)["plan"]
    chosen = next(m for m in budget["methods"] if m["name"] == budget["chosen"])
    assert chosen["extra_bytes"] <= 600_000_000
    with pytest.raises(DoctorError, match="budget"):
        diagnose(path, 16384, budget="1KiB", measure=False)
    # What is said to help was planned with that budget.
    whole = budget["verdict"]["eager"]["step_bytes"]
    tight = diagnose(path, 16384, budget="600MB", memory=whole - 1, measure=False)
    assert tight["loss_is_the_cause"] is True
    assert tight["budget_that_fits"] == 600_000_000


def test_folders_and_names_of_models(config: Any, tmp_path: Path) -> None:
    config(LLAMA3_8B)
    by_folder = diagnose(tmp_path, 16384, measure=False)
    by_name = diagnose("llama3-8b", 16384, measure=False)
    assert by_folder["terms"] == by_name["terms"]
    with pytest.raises(DoctorError, match=r"qwen3-8b.*config\.json"):
        diagnose("meta-llama/Meta-Llama-3-8B", 16384, measure=False)
    with pytest.raises(DoctorError, match="config.json"):
        diagnose(tmp_path / "nowhere" / "config.json", 16384, measure=False)
    with pytest.raises(DoctorError, match="MODEL is empty"):
        diagnose("", 16384, measure=False)
    # What is wrong is the budget: no word about the model.
    with pytest.raises(DoctorError, match=r"^--budget: '12QB'(?!.*config\.json)"):
        diagnose("llama3-8b", 16384, budget="12QB", measure=False)


def test_a_reader_that_leaves_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "flce", "doctor", "llama3-8b", "--tokens=8", "--no-measure"]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, env=child.environment()
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mixture_of_experts_is_judged_by_its_head(config: Any) -> None:
    values = {**LLAMA3_8B, "model_type": "mixtral", "vocab_size": 32000}
    result = diagnose(config(values), 16384, measure=False)
    assert "step" not in result["plan"]
    assert {t["name"] for t in result["terms"]} == {
        "logits and their copies",
        "hidden states",
        "weight of the head",
    }
    assert result["loss_is_the_cause"] is result["plan"]["verdict"]["pays"] is False
    path = config({**values, "vocab_size": 128256})
    for memory, answer in ((None, None), ("80GiB", None), ("24GiB", True), ("1GiB", False)):
        result = diagnose(path, 16384, memory=memory, measure=False)
        assert result["loss_is_the_cause"] is answer


@pytest.mark.parametrize(
    ("values", "tokens", "memory", "first"),
    [
        (GPT2, 128, None, "No."),
        (LLAMA3_8B, 16384, None, "That depends."),
        (LLAMA3_8B, 16384, "230GB", "Yes."),
        (LLAMA3_8B, 16384, "80GB", "No."),
    ],
)
def test_text(
    config: Any, capsys: Any, values: Any, tokens: int, memory: str | None, first: str
) -> None:
    more = [] if memory is None else ["--memory", memory]
    code = main([str(config(values)), "--tokens", str(tokens), "--no-measure", *more])
    out = capsys.readouterr().out
    assert code == 0
    assert out.splitlines()[0].endswith(first)
    assert "logits and their copies" in out
    assert max(map(len, out.splitlines())) <= 100
    assert ("flce.torch.patch" in out) == (first != "No.")


def test_as_a_command(config: Any) -> None:
    env = child.environment()
    command = [sys.executable, "-m", "flce", "doctor", str(config(LLAMA3_8B)), "--tokens=16384"]
    command.append("--memory=230GB")
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, env=env)
    result = json.loads(done.stdout)
    assert result["loss_is_the_cause"] is True
    assert isinstance(result["measured"], (str, dict))
    failed = subprocess.run([*command, "--budget=lots"], capture_output=True, text=True, env=env)
    assert failed.returncode == 2
    assert "lots" in failed.stderr
    assert subprocess.run(command[:-2], capture_output=True, env=env).returncode == 2


# --- measuring ------------------------------------------------------------------------------------


class ScriptedMeter:
    """Memory of the CPU that grows as told; keeps what it was asked."""

    device = torch.device("cpu")
    name = "a script"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.next_peak = 0

    def restart(self) -> None:
        self.asked.append("restart")

    def peak(self) -> int:
        self.asked.append("peak")
        self.next_peak += 100
        return self.next_peak

    def clear(self) -> None:
        self.asked.append("clear")


TINY = {
    **LLAMA3_8B,
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
}


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_phases_of_a_measured_step(config: Any, checkpointing: bool) -> None:
    pytest.importorskip("transformers")
    from flce.torch.measure import PHASES, measure_steps

    meter = ScriptedMeter()
    result = measure_steps(config(TINY), 40, checkpointing=checkpointing, meter=meter)
    assert [step["loss"] for step in result["steps"]] == ["eager", "fused"]
    for i, step in enumerate(result["steps"]):
        assert tuple(step["peaks"]) == PHASES
        assert list(step["peaks"].values()) == [400 * i + 100 * n for n in (1, 2, 3, 4)]
        assert step["out_of_memory_in"] is None
    assert meter.asked.count("clear") == 2


@pytest.mark.parametrize("phase", ["trunk forward", "loss", "trunk backward"])
def test_where_memory_runs_out(config: Any, phase: str) -> None:
    pytest.importorskip("transformers")
    from flce.torch import measure

    class Full(ScriptedMeter):
        """Out of memory as soon as the phase begins."""

        def restart(self) -> None:
            super().restart()
            if self.asked.count("restart") == 1 + measure.PHASES.index(phase):
                raise torch.OutOfMemoryError("full")

    result = measure.measure_steps(config(TINY), 16, meter=Full())
    assert result["steps"][0]["out_of_memory_in"] == phase
    assert result["steps"][1]["out_of_memory_in"] is None


@pytest.mark.gpu
def test_a_measured_step(config: Any) -> None:
    values = {**TINY, "vocab_size": 131072, "hidden_size": 256, "max_position_embeddings": 4096}
    result = diagnose(config(values), 4096)
    steps = {step["loss"]: step["peaks"] for step in result["measured"]["steps"]}
    # The logits of eager code in bf16 and f32 at least, and nothing of their size in ours.
    logits = 4096 * 131072
    assert steps["eager"]["loss"] - steps["eager"]["trunk forward"] > 6 * logits
    assert steps["fused"]["loss"] < steps["eager"]["loss"] - 4 * logits
