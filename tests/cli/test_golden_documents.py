"""What every command that measures nothing answers, as it was: documents, written files, exit codes, option names.

It guards moves of code between modules, which may change nothing of this. `GNOMON_GOLDEN=write` in the environment
writes the files of tests/cli/golden again; the difference is then to be read before it is committed. Numbers may differ
by a millionth, as libraries of linear algebra do; places, versions and durations are not compared.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.commands.test_stab_command import keep
from tests.cli.commands.test_tune_commands import logs
from tests.jobs.estimator.estimator_kit import kit, measured, save
from tests.jobs.solve.test_solve_job import PROBLEM
from tests.jobs.space.kits.studykit import LAYERS, accuracy, latency, study, synthetic
from tests.spaces.test_latency_table import failed, row, table

import gnomon
from gnomon.cli.main import cli, run
from gnomon.jobs.table.folder import write_table
from gnomon.models.load import load
from gnomon.models.nnpackage import write_nnpackage

HERE = Path(__file__).parent / "golden"
TESTS = HERE.parents[1]
WRITE = os.environ.get("GNOMON_GOLDEN") == "write"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")
MOMENT = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d|(?<=at_s\": )1[6-9]\d{8}(?:\.\d+)?")
"""A time of today, as a date or in seconds."""
FREE = {"seconds", "elapsed_s", "solve_s"}
"""Keys of durations."""
LONGEST = 6000
NETS = "--space space.py:space"
ESTIMATE = f"{NETS} --json"

CASES: dict[str, list[str]] = {
    "problems": [
        "solve problem.json --weights latency=1,memory=0.001 --json",
        "solve problem.json --weights latency=1,memory=0.001 --method milp --json",
        "solve problem.json --weights none=1 --json",
        "solve malformed.json --json",
        "solve absent.json --json",
        "front problem.json --json",
        "front problem.json --epsilon 0.1 --json",
        "front malformed.json --json",
        "front problem.json --epsilon -1 --json",
    ],
    "dumps": [
        "pareto --from dump.json --search brute --json --quiet",
        "pareto --from dump.json --search random --seed 3 --iterations 20 --json --quiet",
        "pareto --from dump.json --search exact --json --quiet",
        "pareto --from dump.json --search hlps --seed 1 --iterations 5 --json --quiet",
        "pareto --from dump.json --search magic --json --quiet",
        "pareto --from absent.json --json --quiet",
        "oplist mix.circle --json",
        "oplist mix.circle --by operator --out made.oplist --json",
        "oplist mix.circle --by group --backends cpu,ruy --json",
        "oplist broken.tflite --json",
    ],
    "tables": [
        "table spaces --json",
        "table check one.table --json",
        "table diff one.table two.table --json",
        "table merge one.table two.table --out joined.table --json",
        "table import snpe.csv --space mobilenetv2-cifar10 --out snpe.table --json",
        "table export snpe.table --out out.csv --json",
        "table export snpe.table --out out.xls --json",
        "table check nowhere --json",
    ],
    "estimators": [
        f"estimator fit --table t.table --samples measured.csv -o e.json {ESTIMATE}",
        f"estimator predict e.json held.csv --bound 60us --out p.csv {ESTIMATE}",
        f"estimator eval e.json held.csv {ESTIMATE}",
        f"estimator eval e.json measured.csv {ESTIMATE}",
        f"estimator explain e.json held.csv {ESTIMATE}",
        f"estimator export e.json -o alone.py {ESTIMATE}",
        f"estimator suggest --table t.table --k 5 --out n.csv {ESTIMATE}",
        f"estimator predict absent.json held.csv {ESTIMATE}",
        "estimator predict e.json held.csv --space nowhere --json",
    ],
    "spaces": [
        "space show profile --json",
        "space select profile --rule pareto -o pareto.yaml --json",
        "space select profile --rule pareto --max-fraction 0.5 -o pareto.yaml --json",
        "space select profile --rule published -o published.yaml --json",
        "space front profile --no-measure --networks 6 --json --quiet",
        "space front profile --no-measure --latency 1us --json --quiet",
        "space select nowhere --json",
        "space primitives --numbering nothing --json",
        "space profile absent.yaml --profile-dir p --json",
    ],
    "stab": [
        "stab --nnpackage net --no-profile --json --quiet",
        "stab --nnpackage net --no-profile --compat --out compat --json --quiet",
        "stab --nnpackage net --no-profile --traces nowhere --json --quiet",
        "stab --nnpackage absent --no-profile --json --quiet",
    ],
    "tuning": [
        "overlay analyze a.json b.json a_b.json b_a.json --no-write --json --quiet",
        "overlay analyze a.json b.json a_b.json b_a.json --portfolio 2 --out overlays --json --quiet",
        "overlay analyze a.json --layer pool --json --quiet",
        "overlay analyze absent.json --json --quiet",
        "overlay collect a.json --device phone --out o --json --quiet",
        "tune list --out overlays --json",
        "tune list --out nowhere --json",
        "exec absent.json --json --quiet",
        "tune absent.onnx --json --quiet",
        "tune problem.json --target abacus --json --quiet",
    ],
    "records": [
        "runs --json",
        "runs --record record.sqlite --json",
        "runs show last --record record.sqlite --json",
        "runs export last --record record.sqlite",
        "runs show last --json",
        "runs show nothing --record record.sqlite --json",
        "runs --record absent.sqlite --json",
        "runs --record problem.json --json",
        "devices add board ssh://a@board:2222 --threads 2 --pin 0-1,3 --env A=b --no-check --json",
        "devices add board ssh://a@board --no-check --json",
        "devices add bad ssh://-x --governor A!b --json",
        "devices remove board --json",
        "devices remove nobody --json",
        "devices check nobody --json",
        "place absent.onnx --json",
        "profile broken.tflite --json",
        "place mix.circle --runtime nothing --json",
        "place mix.circle --threads 0 --json",
        "serve --port 99999999",
        "no-such-command",
    ],
}


@pytest.fixture
def inputs(zoo_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the cases name, which is the working folder."""
    for name in ("TVM_TRACKER_HOST", "TVM_TRACKER_PORT"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("GNOMON_HOME", str(folder / "home"))
    monkeypatch.chdir(folder)
    Path("problem.json").write_text(json.dumps(PROBLEM), encoding="utf-8")
    Path("broken.tflite").write_bytes(b"\x10\0\0\0TFL3" + bytes(range(64)))
    Path("malformed.json").write_text("{", encoding="utf-8")
    golden = TESTS / "formats" / "golden"
    for source, name in (
        (golden / "pareto" / "pareto-brute-force.json", "dump.json"),
        (golden / "snpe" / "snpe-table.csv", "snpe.csv"),
        (zoo_model("mix.circle"), "mix.circle"),
        (TESTS / "store" / "data" / "record_v1.sqlite", "record.sqlite"),
    ):
        shutil.copy(source, name)
    write_table(table(row(8), row(9), failed(10)), Path("one.table"))
    write_table(table(row(9, 2e-4, at_s=2.0), row(11)), Path("two.table"))
    found, _, _ = kit(folder)
    rows = measured(found, 24)
    save(rows[:14], found, Path("measured.csv"))
    save(rows[14:], found, Path("held.csv"))
    synthetic(Path("profile"), study(LAYERS), accuracy, latency)
    write_nnpackage(load(Path("mix.circle")), Path("net"), {})
    keep(load(Path("net")))
    logs(folder)
    return folder


def plain(text: str, folder: Path) -> str:
    """A text without what differs from machine to machine."""
    for true, name in (
        (sys.executable, "PYTHON"),
        (str(folder), "FOLDER"),
        (str(folder.parent), "TMP"),
        (str(TESTS.parent), "ROOT"),
        (f"gnomon {gnomon.__version__}", "gnomon VERSION"),
    ):
        text = text.replace(true, name)
    return MOMENT.sub("MOMENT", text)


def said(text: str, folder: Path) -> Any:
    """A document as it was printed, its durations left out; the text where it is none."""
    try:
        document = json.loads(text)
    except ValueError:
        return plain(text, folder)
    return json.loads(plain(json.dumps(_without(document)), folder))


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "FREE"
            if key in FREE and not isinstance(one, dict)
            else "VERSION"
            if key in {"gnomon", "gnomon_version"}
            else _without(one)
            for key, one in value.items()
        }
    return [_without(one) for one in value] if isinstance(value, list) else value


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def shown(data: bytes, folder: Path) -> str:
    """A file: its text if it is one, the beginning and the length of what is long."""
    try:
        text = plain(data.decode(), folder)
    except UnicodeDecodeError:
        return "no text"
    text = NUMBER.sub(_rounded, text)  # else what is cut off would depend on a last digit
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n.. {len(text.splitlines())} lines"


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.9g}" if "." in number[0] and len(number[0]) > 9 else number[0]


def answers(cases: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each command line answers: its exit code, what it printed, and the files that it wrote or changed."""
    before = contents(folder)
    capsys.readouterr()
    for case in cases:
        code = run(case.split())
        out, err = capsys.readouterr()
        after = contents(folder)
        files = {name: shown(data, folder) for name, data in after.items() if before.get(name) != data}
        answer: dict[str, Any] = {"exit": code, "out": said(out, folder), "files": files}
        if code and not out:
            answer["err"] = plain(err, folder)
        yield case, answer
        before = after


def same(given: Any, true: Any, at: str) -> None:
    """Fail where two answers differ, and say where."""
    if isinstance(true, dict) and isinstance(given, dict):
        assert list(given) == list(true), at
        for key in true:
            same(given[key], true[key], f"{at}.{key}")
    elif isinstance(true, list) and isinstance(given, list):
        assert len(given) == len(true), at
        for number, (one, other) in enumerate(zip(given, true, strict=True)):
            same(one, other, f"{at}[{number}]")
    elif isinstance(true, float) and isinstance(given, float):
        assert _near(given, true), at
    elif isinstance(true, str) and isinstance(given, str):
        assert NUMBER.sub("#", given) == NUMBER.sub("#", true), at
        for one, other in zip(NUMBER.findall(given), NUMBER.findall(true), strict=True):
            assert _near(float(one), float(other)), f"{at}: {one} and {other}"
    else:
        assert (type(given), given) == (type(true), true), at


def _near(given: float, true: float) -> bool:
    return math.isclose(given, true, rel_tol=1e-6, abs_tol=1e-12)


def hold(name: str, found: dict[str, Any]) -> None:
    """Compare with the file of this name, or write it where that is asked for."""
    file = HERE / f"{name}.json"
    if WRITE:
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    same(found, json.loads(file.read_text(encoding="utf-8")), name)


@pytest.mark.parametrize("name", CASES)
def test_commands_answer_as_they_did(name: str, inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hold(name, dict(answers(CASES[name], inputs, capsys)))


def options(command: click.Command, words: str) -> Iterator[tuple[str, list[str]]]:
    """The names of the arguments and options of a command and of those in it."""
    context = click.Context(command)
    yield words, [" ".join(p.opts) for p in command.get_params(context) if not {"--help", "--help-all"} & {*p.opts}]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from options(inner, f"{words} {name}")


def test_commands_and_options_have_their_names() -> None:
    hold("options", dict(options(cli, "gnomon")))
