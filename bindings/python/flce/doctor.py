# SPDX-License-Identifier: Apache-2.0
"""`python -m flce doctor`: is the loss what runs out of memory?

The terms are the planner's, asked through the command line program; nothing is computed twice.
Where PyTorch sees a CUDA card, one step is measured beside them. Works without torch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from . import _abi

_EPILOG = """
MODEL is a Hugging Face config.json, a folder that holds one (a downloaded model), or a name that
`flce plan --help` lists under --preset. Nothing is downloaded. Exit codes: 0 answered, 2 wrong
usage or input.
"""


_LOGITS = "logits and their copies"


class DoctorError(Exception):
    """A sentence for the user: what was wrong, what was given, what would work."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flce doctor",
        description="whether the loss is what runs out of memory in a training step",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL", help="config.json, its folder, or a known model")
    parser.add_argument(
        "--tokens", type=int, required=True, metavar="N", help="tokens of a step on one device"
    )
    parser.add_argument("--budget", metavar="BYTES", help="most extra memory, such as 2GiB")
    parser.add_argument("--memory", metavar="BYTES", help="the device's memory, such as 80GiB")
    parser.add_argument("--dtype", metavar="DTYPE", help="f32, bf16 or f16 (default: the config's)")
    parser.add_argument("--shards", type=int, metavar="D", help="devices that share the weights")
    parser.add_argument(
        "--checkpointing", action="store_true", help="layers' activations are recomputed"
    )
    parser.add_argument(
        "--no-measure", action="store_true", help="only plan, also where there is a CUDA card"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    return parser


def diagnose(
    model: str | Path,
    tokens: int,
    *,
    budget: str | int | None = None,
    memory: str | int | None = None,
    dtype: str | None = None,
    shards: int | None = None,
    checkpointing: bool = False,
    measure: bool = True,
) -> dict[str, Any]:
    """What `flce doctor --json` prints.

    loss_is_the_cause: True where the step fits into the device with the fused loss only, False
    where it fits anyway or never, None where that cannot be said: the device's memory is unknown,
    or the config does not give the whole model. why: the numbers that say so. budget_that_fits: of
    the fused loss, where it only fits with one or one was given. terms: (name, bytes) of a step of
    eager PyTorch code, the largest first. plan: what the program says, with every method. measured:
    of one step on the card here (see flce.torch.measure), or why there is none. Raises
    DoctorError.
    """
    options = {
        "--budget": budget,
        "--memory": memory,
        "--dtype": dtype,
        "--shards": shards,
    }
    arguments = [f"{name}={value}" for name, value in options.items() if value is not None]
    if checkpointing:
        arguments.append("--checkpointing")
    plan = _planned([*_model_option(model), f"--tokens={tokens}", *arguments])
    terms = _terms(plan, checkpointing)
    answer, why = _cause_in_step(plan, terms) if "step" in plan else _cause_in_head(plan)
    return {
        "loss_is_the_cause": answer,
        "why": why,
        "budget_that_fits": _budget_that_fits(plan) if answer and "step" in plan else None,
        "terms": terms,
        "reason": plan["verdict"]["reason"],
        "measured": _measured(model, tokens, dtype, checkpointing) if measure else "not asked for",
        "plan": plan,
    }


def _model_option(model: str | Path) -> list[str]:
    if not str(model):
        raise DoctorError("MODEL is empty; give a config.json, its folder, or a known model")
    path = Path(model)
    if path.exists() or path.suffix == ".json":
        return [f"--config={path}"]
    return [f"--preset={model}"]


def _planned(arguments: list[str]) -> dict[str, Any]:
    try:
        path = _abi.find_program()
    except ImportError as error:
        raise DoctorError(str(error)) from error
    if path is None:
        raise DoctorError(
            "this installation has no command line program (it was built with "
            "FLCE_BUILD_TOOLS=OFF), which makes the plan; reinstall without that"
        )
    done = subprocess.run(
        [path, "plan", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    # What does not fit into a device is an answer, what does not fit into a budget is none.
    has_answer = bool(done.stdout) and json.loads(done.stdout)["budget_bytes"] is None
    if done.returncode != 0 and not has_answer:
        text = done.stderr.strip().removeprefix("flce: error: ")
        if text.startswith("unknown model"):
            text += "; or give the path of a config.json or of the folder that holds it"
        raise DoctorError(text)
    return json.loads(done.stdout)


class _Step(NamedTuple):
    """Bytes of a step."""

    eager: int
    fused: int
    rest: int
    least: int  # fused, with the smallest budget


def _step(plan: dict[str, Any]) -> _Step:
    eager = plan["verdict"]["eager"]
    whole = eager["step_bytes"]
    rest = whole - _method(plan, "naive-eager")["extra_bytes"]
    fused = whole - eager["saved_bytes"]
    least = min([fused, *(rest + offer["extra_bytes"] for offer in plan["offers"])])
    return _Step(whole, fused, rest, least)


def _budget_that_fits(plan: dict[str, Any]) -> int | None:
    memory, step = plan["device"]["memory_bytes"], _step(plan)
    if memory is None or step.fused <= memory:
        return plan["budget_bytes"]  # that was given
    return memory - step.rest


def _cause_in_step(plan: dict[str, Any], terms: list[dict[str, Any]]) -> tuple[bool | None, str]:
    """Whether the loss is what decides if the whole step fits."""
    memory, name = plan["device"]["memory_bytes"], plan["device"]["name"]
    if "eager" not in plan["verdict"]:
        return None, "No fused method serves such a step"
    whole, fused, rest, least = _step(plan)
    if memory is None:
        if not plan["verdict"]["eager"]["pays"]:
            return False, f"The largest part is {terms[0]['name']}"
        if terms[0]["name"] == _LOGITS:
            return True, f"The {_LOGITS} are the largest part"
        return None, (
            f"With {_size(least)} to {_size(whole)} of memory it is; with less the rest of the "
            f"step is, above all {terms[0]['name']}, and with more nothing is (--memory)"
        )
    if whole <= memory:
        return False, f"Eager code fits into the {_size(memory)} of {name}"
    if fused <= memory:
        return True, f"Only the step with the fused loss fits into the {_size(memory)} of {name}"
    if least <= memory:
        return True, (
            f"The rest leaves {_size(memory - rest)} of the {_size(memory)} of {name}, into which "
            "only a fused loss with a budget fits"
        )
    return False, (
        f"The rest of the step takes {_size(rest)}, and with the least that a fused loss needs it "
        f"is {_size(least)}; {name} has {_size(memory)}"
    )


def _cause_in_head(plan: dict[str, Any]) -> tuple[bool | None, str]:
    """The same where nothing is known but the head."""
    memory, verdict = plan["device"]["memory_bytes"], plan["verdict"]
    whole = _method(plan, "naive-eager")["peak_bytes"]
    sizes = "What a fused loss saves is a small part of the head"
    if memory is not None:
        sizes = f"The head with eager code takes {_size(whole)}, the device has {_size(memory)}"
        if whole > memory:
            fits = verdict["method"] and _method(plan, verdict["method"])["peak_bytes"] <= memory
            return bool(fits), sizes
    if verdict["pays"] is False:
        return False, sizes
    return None, "The config does not give the whole model, and its head alone decides nothing"


def _method(plan: dict[str, Any], name: str) -> dict[str, Any]:
    return next(m for m in plan["methods"] if m["name"] == name)


def _terms(plan: dict[str, Any], checkpointing: bool) -> list[dict[str, Any]]:
    """The parts of a step of eager code; the head's alone where the model is not known."""
    terms = [{"name": _LOGITS, "bytes": _method(plan, "naive-eager")["extra_bytes"]}]
    if "step" not in plan:
        terms.append({"name": "hidden states", "bytes": plan["hidden_bytes"]})
        terms.append({"name": "weight of the head", "bytes": plan["weight_bytes"]})
    else:
        without = {"activations"} if checkpointing else {"checkpoints", "recomputed layer"}
        terms += [
            {"name": t["name"], "bytes": t["bytes"]}
            for t in plan["step"]["terms"]
            if t["name"] not in without
        ]
    return sorted(terms, key=lambda term: -(term["bytes"] or 0))


def _measured(
    model: str | Path, tokens: int, dtype: str | None, checkpointing: bool
) -> dict[str, Any] | str:
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed, so no step was measured"
    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA card, so no step was measured"
    if not Path(model).exists():
        return "a step is measured for a config.json only, not for a name"
    from .torch.measure import measure_steps

    try:
        return measure_steps(Path(model), tokens, dtype, checkpointing)
    except ImportError as error:
        return f"no step was measured: {error}"


# --- for people -----------------------------------------------------------------------------------


def _size(count: int | None) -> str:
    return "?" if count is None else f"{count / 1e9:.2f} GB"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="  ")


def _as_text(result: dict[str, Any]) -> str:
    answers = {True: "Yes", False: "No", None: "That depends"}
    lines = [f"Is the loss what runs out of memory? {answers[result['loss_is_the_cause']]}."]
    lines.append(_wrapped(result["why"] + "."))
    eager = result["plan"]["verdict"].get("eager")
    if eager is not None:
        lines.append(
            _wrapped(
                f"Eager PyTorch code takes {_size(eager['step_bytes'])} for such a step; the fused "
                f"loss saves {_size(eager['saved_bytes'])} of it, {eager['saved_share']:.1%}."
            )
        )
    # The program's is whether fusing pays, against its own unfused method; where that is another
    # answer, the sentences above are the ones that answer.
    if result["plan"]["verdict"]["pays"] == result["loss_is_the_cause"]:
        lines.append(_wrapped(result["reason"]))
    lines += ["", "Where the memory of eager code goes"]
    lines += [f"  {term['name']:<26}{_size(term['bytes']):>12}" for term in result["terms"]]
    lines += ["", "Measured", *_measured_lines(result["measured"])]
    plan = result["plan"]
    if result["loss_is_the_cause"] is not False and plan["chosen"]:
        budget = result["budget_that_fits"] or plan["budget_bytes"]
        helps = (
            f"flce.torch.patch(model): {_choice(plan)}"
            if budget is None
            else f"flce.torch.patch(model, budget={budget})"
        )
        lines += ["", "What helps", _wrapped(helps + ".")]
    lines += ["", "'flce plan' with the same options has every method and what to check."]
    return "\n".join(lines)


def _choice(plan: dict[str, Any]) -> str:
    chosen = _method(plan, plan["chosen"])
    return (
        f"{chosen['name']} in {chosen['num_chunks']} chunk(s) of {chosen['chunk']} tokens takes "
        f"{_size(chosen['extra_bytes'])} beyond inputs and gradients"
    )


def _measured_lines(measured: dict[str, Any] | str) -> list[str]:
    if isinstance(measured, str):
        return [_wrapped(measured + ".")]
    lines = [f"  on {measured['device']}, {measured['tokens']} tokens, without an optimizer"]
    for step in measured["steps"]:
        phases = ", ".join(f"{name} {_size(count)}" for name, count in step["peaks"].items())
        failed = step["out_of_memory_in"]
        lines.append(
            f"  {step['loss']:<8}peaks: {phases}" + (f"; {failed} failed" if failed else "")
        )
    return lines


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    given = _parser().parse_args(arguments)
    try:
        result = diagnose(
            given.model,
            given.tokens,
            budget=given.budget,
            memory=given.memory,
            dtype=given.dtype,
            shards=given.shards,
            checkpointing=given.checkpointing,
            measure=not given.no_measure,
        )
    except DoctorError as error:
        print(f"flce doctor: error: {error}", file=sys.stderr)
        return 2
    try:
        print(json.dumps(result, indent=2) if given.json else _as_text(result), flush=True)
    except BrokenPipeError:  # whoever read it has seen enough; nothing is left to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
