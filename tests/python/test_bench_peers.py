# SPDX-License-Identifier: Apache-2.0
"""bench/peers on the CPU with tiny shapes: systems agree, what is missing is listed, what is done
is not done again, and what goes wrong in a process becomes a row."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

BENCH = Path(__file__).resolve().parents[2] / "bench"
if not (BENCH / "peers").is_dir():
    pytest.skip("no bench/peers here", allow_module_level=True)
sys.path.insert(0, str(BENCH))

import report_peers  # noqa: E402
from peers import (  # noqa: E402
    child,
    children,
    command_line,
    features,
    measure,
    oracle,
    problem,
    rows,
    systems,
)

SHAPE = problem.Shape(24, 16, 101)
QUICK = measure.Settings(rounds=2, seconds=1.0, warm_seconds=0.0)
ADAPTER = """
import os, signal
from peers.systems import Peer, Result

class Absent(Peer):
    name, get, devices = "absent", "pip install absent-package", ("cpu",)
    def load(self):
        import absent_package

class Crashes(Peer):
    name, get, devices = "crashes", "nowhere", ("cpu",)
    def loss(self, hidden, weight, target, **options):
        os.kill(os.getpid(), signal.SIGSEGV)

class Elsewhere(Peer):
    name, get, devices = "elsewhere", "nowhere", ("cuda",)
    def version(self):
        return "1"

class Exhausts(Peer):
    name, get, devices = "exhausts", "nowhere", ("cpu",)
    def loss(self, hidden, weight, target, **options):
        raise MemoryError
"""


@pytest.fixture
def adapter(tmp_path: Path) -> str:
    path = tmp_path / "adapter.py"
    path.write_text(ADAPTER)
    return str(path)


def peer(name: str) -> systems.Peer:
    found = systems.known()[name]()
    found.load()
    return found


def job(task: str, name: str, adapter: str, **more: Any) -> dict[str, Any]:
    return {"task": task, "system": name, "adapters": [adapter], "device": "cpu", "dtype": "f32",
            "shape": "24x16x101", "settings": QUICK._asdict(), **more}  # fmt: skip


@pytest.mark.parametrize("data", ["random", "peaked"])
@pytest.mark.parametrize(
    "name", ["torch-linear+cross_entropy", "torch-chunk-loop", "flce-fused", "flce-recompute"]
)
def test_systems_agree(name: str, data: str) -> None:
    row = measure.measured(peer(name), SHAPE, "f32", "cpu", data, QUICK)
    for column in ("err_loss", "err_grad_hidden", "err_grad_weight"):
        assert float(str(row[column])) < 1e-5, column
    assert ("median_ms" in row) == (data == "random")
    assert set(row) <= set(rows.COLUMNS)
    if data == "random":
        assert float(str(row["ratio"])) > 0 and row["rounds"] == 2 and row["peak_bytes"] == ""


def test_the_chunk_loop_has_several_chunks() -> None:
    loop = peer("torch-chunk-loop")
    p = problem.make(problem.Shape(1200, 8, 33), "f32", "cpu")
    assert loop.chunk(p.hidden, p.weight) == 512
    loss = loop.step(*p).loss
    for name, off in measure.errors(loss, p).items():
        assert float(str(off)) < 1e-5, name


def test_blocks_of_the_oracle_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    p = problem.make(SHAPE, "f32", "cpu", "peaked")
    whole = oracle.expected(*p, label_smoothing=0.1, z_loss=0.1)
    monkeypatch.setattr(oracle, "BLOCK_NUMBERS", 5 * SHAPE.vocab)
    split = oracle.expected(*p, label_smoothing=0.1, z_loss=0.1)
    for one, other in zip(whole[:6], split[:6], strict=True):
        torch.testing.assert_close(one, other)
    logits = p.hidden.double() @ p.weight.double().T
    plain = oracle.expected(*p, label_smoothing=0.1).loss
    torch.testing.assert_close(
        plain, torch.nn.functional.cross_entropy(logits, p.target, label_smoothing=0.1)
    )


@pytest.mark.parametrize("name", list(features.FEATURES))
def test_ours_has_the_feature(name: str) -> None:
    answer = features.tried(features.Case(peer("flce-fused"), "f32", "cpu"), name)
    expected = "no" if name == "vocab-parallel" else "yes"
    if name == "torch.compile fullgraph":
        pytest.skip("seconds of compiling; test_compile.py has it")
    if name in BY_RECOMPUTE and answer[0] == "no":  # `fused` says so, and recompute takes it
        answer = features.tried(features.Case(peer("flce-recompute"), "f32", "cpu"), name)
    assert answer[0] == expected, answer


BY_RECOMPUTE = ("reduction none", "grad_weight added to an f32 buffer")


def test_an_option_that_is_ignored_is_no_support() -> None:
    class Deaf(systems.Peer):
        def loss(self, hidden: Any, weight: Any, target: Any, **_: Any) -> systems.Result:
            return systems.Result(torch.nn.functional.cross_entropy(hidden @ weight.T, target))

    case = features.Case(Deaf(), "f32", "cpu")
    assert features.tried(case, "loss and gradients") == ("yes", "")
    taken = ("bias", "label smoothing", "class weights", "token weights", "softcap", "z-loss",
             "temperature", "reduction sum", "reduction none", "normalizer", "ignore_index",
             "lse output", "logprob output", "entropy output",
             "grad_weight added to an f32 buffer")  # fmt: skip
    for name in taken:
        supported, answer = features.tried(case, name)
        assert supported == "no" and answer, name


def test_unknown_options_are_refused_in_the_systems_words() -> None:
    case = features.Case(peer("torch-linear+cross_entropy"), "f32", "cpu")
    assert features.tried(case, "class weights") == ("yes", "")
    supported, answer = features.tried(case, "softcap")
    assert supported == "no" and "unexpected keyword argument 'softcap'" in answer


def test_an_error_without_words_gives_its_line() -> None:
    class Asserts(systems.Peer):
        def loss(self, hidden: Any, weight: Any, target: Any, **_: Any) -> systems.Result:
            raise AssertionError

    found = features.tried(features.Case(Asserts(), "f32", "cpu"), "loss and gradients")
    assert found == ("no", "AssertionError: raise AssertionError")


def test_a_missing_one_is_listed(
    adapter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = child.check(job("check", "absent", adapter))
    assert "absent_package" in facts["missing"]
    found = command_line.Found("absent", "", facts)
    command_line.show([found])
    assert "to get it: pip install absent-package" in capsys.readouterr().out
    file = rows.timings(tmp_path / "peers.csv")
    command_line.store_missing(file, [found])
    (row,) = rows.timings(file.path).rows.values()
    assert row["refused"].startswith("missing: ") and row["shape"] == ""
    command_line.store_missing(file, [found._replace(facts={**facts, "missing": ""})])
    assert not rows.timings(file.path).rows
    facts = child.check(job("check", "elsewhere", adapter))
    assert facts["missing"] == "does not run on cpu" and facts["version"] == "1"
    command_line.show([command_line.Found("elsewhere", "", facts)])
    assert "does not run on cpu (1)\n" in capsys.readouterr().out


def test_a_crash_and_a_late_one_become_words(adapter: str) -> None:
    crash = children.run(job("measure", "crashes", adapter, data=["random"]), 120)
    assert crash.lines == [] and crash.fault == "ended by SIGSEGV"
    late = children.run(job("check", "absent", adapter), 0.2)
    assert late.fault.startswith("not done after") and late.is_late and not crash.is_late
    (line,) = child.measured(job("measure", "exhausts", adapter, data=["random"]))
    assert line == {"data": "random", "refused": "out of memory"}


class Fake:
    """In the place of processes: counts, and crashes where it is told to."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def __call__(self, job: dict[str, Any], limit: float) -> children.Answer:
        if job["task"] == "check":
            facts = {"device": "a card", "torch": "3.0", "version": f"{job['system']} 1"}
            return children.Answer([facts], "", "")
        self.asked.append(job)
        if job["task"] == "features":
            tried = [n for n in job["features"] if n != "bias"]
            if "bias" in job["features"]:
                tried = job["features"][: job["features"].index("bias")]
            lines = [{"feature": n, "supported": "yes", "answer": ""} for n in tried]
            return children.Answer(lines, "ended by SIGSEGV", "")
        if job["system"] == "crashes":
            return children.Answer([], "ended by SIGSEGV", "")
        return children.Answer([{"data": d, "median_ms": 1} for d in job["data"]], "", "")


def test_the_run_goes_on_and_resumes(
    adapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake()
    monkeypatch.setattr(children, "run", fake)
    call = ["--device", "cpu", "--out", str(tmp_path / "out"), "--adapter", adapter, "--shapes",
            "8x8x9,8x8x10", "--systems", "crashes,flce-fused"]  # fmt: skip
    assert command_line.main(["run", *call]) == 0
    assert len(fake.asked) == 4
    found = rows.timings(tmp_path / "out" / "peers.csv").rows.values()
    assert len(found) == 8
    assert {r["refused"] for r in found if r["system"] == "crashes"} == {"ended by SIGSEGV"}
    assert {r["median_ms"] for r in found if r["system"] == "flce-fused"} == {"1"}
    assert command_line.main(["run", *call]) == 0
    assert len(fake.asked) == 4
    assert command_line.main(["run", *call[:-3], "8x8x9,9x8x10", *call[-2:]]) == 0
    assert len(fake.asked) == 6 and fake.asked[-1]["shape"] == "9x8x10"
    assert command_line.main(["run", *call, "--again"]) == 0
    assert len(fake.asked) == 10
    assert command_line.main(["run", *call, "--again", "--minutes", "0"]) == 0
    assert len(fake.asked) == 10


def test_features_go_on_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "run", Fake())
    call = ["features", "--device", "cpu", "--out", str(tmp_path), "--systems", "flce-fused"]
    assert command_line.main(call) == 0
    found = {r["feature"]: r for r in rows.features(tmp_path / "features.csv").rows.values()}
    assert set(found) == set(features.FEATURES)
    assert found["bias"]["supported"] == "no" and found["bias"]["answer"] == "ended by SIGSEGV"
    assert found["vocab-parallel"]["supported"] == "yes"


def test_a_feature_is_late_only_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_each(job: dict[str, Any], limit: float) -> children.Answer:
        if job["task"] == "check":
            return Fake()(job, limit)
        name = job["features"][0]
        lines = [{"feature": name, "supported": "yes", "answer": ""}] if name != "bias" else []
        return children.Answer(lines, "not done after 1 s", "", True)

    monkeypatch.setattr(children, "run", one_each)
    call = ["features", "--device", "cpu", "--out", str(tmp_path), "--systems", "flce-fused"]
    assert command_line.main(call) == 0
    found = rows.features(tmp_path / "features.csv").rows.values()
    assert {r["feature"]: r["answer"] for r in found if r["supported"] == "no"} == {
        "bias": "not done after 1 s"
    }
    assert len(found) == len(features.FEATURES)


def test_no_half_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = rows.timings(tmp_path / "peers.csv")
    file.store([{"system": "a", "note": 'one, "two"\nthree'}])
    before = file.path.read_text()
    assert rows.timings(file.path).rows == file.rows
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            file.store([{"system": "b"}])
    assert file.path.read_text() == before and list(tmp_path.iterdir()) == [file.path]
    answer = tmp_path / "answer"
    answer.write_text('{"data": "random"}\n{"data": "pea')
    assert children.whole_lines(answer) == [{"data": "random"}]


def measured_row(system: str, **more: str) -> dict[str, str]:
    return {"device": "Some Card", "date": "2026-12-01T00:00:00Z", "torch": "3.0",
            "system": system, "system_version": f"{system} 1", "shape": "8x16x32",
            "dtype": "bf16", "data": "random", "median_ms": "2", "min_ms": "1", "max_ms": "3",
            "floor_ms": "1", "ratio": "2", "beyond_inputs_bytes": "2e9", **more}  # fmt: skip


def test_tables_and_the_plot_come_from_the_rows(tmp_path: Path) -> None:
    folder = tmp_path / "bench" / "results" / "card"
    file = rows.timings(folder / "peers.csv")
    assert report_peers.generated(str(tmp_path)) == report_peers.NOT_YET
    file.store([
        measured_row("slow", ratio="4", note="it is not fast", system_version="slow 0"),
        measured_row("slow", ratio="3", median_ms="3", note="it is not fast"),
        measured_row("flce-fused"),
        measured_row("flce-fused", data="peaked", median_ms="", ratio="", err_loss="0.5"),
        measured_row("crashes", median_ms="", ratio="", refused="ended by SIGSEGV"),
        {**measured_row("absent"), "shape": "", "system_version": "", "ratio": "",
         "refused": "missing: no a|b; to get it: pip install absent"},
    ])  # fmt: skip
    text = report_peers.generated(str(tmp_path))
    assert "| `absent` | - | missing: no a\\|b; to get it: pip install absent |" in text
    fast, slow = text.index("| `flce-fused` | - | 2.000"), text.index("| `slow` | - | 3.000")
    assert fast < slow and "| 3.000 | 2.00 GB |" in text and "| 4.000 |" not in text
    assert "5.0e-01" in text and "| it is not fast |" in text
    assert "* `crashes`: ended by SIGSEGV" in text
    assert "(../bench/results/card/peers.svg)" in text
    ((path, plot),) = report_peers.plots(str(tmp_path)).items()
    assert Path(path) == folder / "peers.svg"
    page, *bars = [n for n in ElementTree.fromstring(plot).iter() if n.tag.endswith("rect")]
    assert page.get("class") == "p"  # its words can be read on a dark page and on a light one
    assert [bar.get("class") for bar in bars] == ["o", "o", "t", "t"]
    assert 3 * float(bars[0].get("width", 0)) == 2 * float(bars[2].get("width", 0))


def test_no_folder_of_this_machine_in_a_row() -> None:
    text = f"no {BENCH.parent}/build/lib.so, no {Path.home()}/x, no /sources/of/it/y"
    got = children.without_paths(text, "/sources/of/it")
    assert got == "no build/lib.so, no x, no y"


@pytest.mark.parametrize("given", [["--shapes", "4x4"], ["--systems", "nobody"],
                                   ["--peer", "nobody=."], ["--peer", "cce=no/such"],
                                   ["--peer", "cce"], ["--data", "flat"]])  # fmt: skip
def test_wrong_arguments(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.main(["list", *given])
    assert "usage" in capsys.readouterr().err
