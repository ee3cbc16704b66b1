"""The functions take what the commands take, and refuse what they refuse."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import click
import pytest

import gnomon
from gnomon.api import options as measuring
from gnomon.api import pareto, space, tune
from gnomon.cli.main import cli, run
from gnomon.errors import UsageError

SHOWN = {"as_json", "quiet", "html"}
"""How the command line shows what was found."""

OF_ONE_MODEL = {"processes", "budget_s"}
WHERE = {"devices": "device"}
COMMANDS: dict[str, tuple[Any, dict[str, str], set[str]]] = {
    # the function, options that it calls otherwise, and parameters that the command does not have
    "place": (gnomon.place, {}, {"device"}),
    # Models beside it are those of `compare_models`.
    "profile": (gnomon.profile, {"beside": ""}, set()),
    "pareto": (gnomon.pareto, {}, set()),
    "solve": (gnomon.solve, {}, set()),
    "devices clean": (gnomon.clean_device, {}, set()),
    "devices remove": (gnomon.remove_device, {}, set()),
    "runs list": (gnomon.runs, {}, set()),
    "table build": (
        gnomon.build_table,
        {"chains": "fuse", "what": "space", "from_models": "models"},
        OF_ONE_MODEL,
    ),
    "exec": (gnomon.execute, {**WHERE, "no_layers": "layers"}, set()),
    "view": (gnomon.tuned_files, {}, set()),
    "overlay collect": (gnomon.overlay_collect, WHERE, set()),
    "front": (gnomon.front, {}, set()),
    "oplist": (gnomon.oplist, {}, set()),
    "runs show": (gnomon.show_run, {}, set()),
    "table check": (gnomon.check_table, {}, set()),
    "table diff": (gnomon.compare_tables, {}, set()),
    "table merge": (gnomon.merge_tables, {}, set()),
    "table import": (gnomon.import_table, {}, set()),
    "table export": (gnomon.export_table, {}, set()),
    "table blocks": (gnomon.sum_blocks, {}, set()),
    "estimator suggest": (gnomon.suggest_nets, {}, set()),
    "estimator import": (gnomon.import_nets, {}, set()),
    "estimator count": (gnomon.count_units, {}, set()),
    "estimator export": (gnomon.export_estimator, {}, set()),
    "estimator fit": (gnomon.fit_estimator, {}, set()),
    "estimator eval": (gnomon.evaluate_estimator, {}, set()),
    "estimator explain": (gnomon.explain_net, {}, set()),
    "space profile": (gnomon.profile_space, {}, OF_ONE_MODEL),
    "space select": (gnomon.select_primitives, {}, set()),
    "space front": (gnomon.find_front, {}, OF_ONE_MODEL),
    "space validate": (gnomon.validate_selection, {}, OF_ONE_MODEL),
    "space show": (gnomon.show_space, {}, set()),
    "space import": (gnomon.import_networks, {}, set()),
    "space export": (gnomon.export_networks, {}, set()),
}


def parameters(function: Any) -> set[str]:
    """The names that a function takes, with those of the options that it unpacks."""
    names: set[str] = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            name = parameter.annotation.removeprefix("Unpack[").removesuffix("]")
            names |= {**vars(measuring), **vars(pareto), **vars(space), **vars(tune)}[name].__annotations__.keys()
        else:
            names.add(parameter.name)
    return names - {"on_progress", "on_message"}


def command(name: str) -> click.Command:
    found: click.Command = cli
    for part in name.split():
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found), part)
        assert inner is not None
        found = inner
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_function_takes_what_its_command_takes(name: str) -> None:
    function, others, more = COMMANDS[name]
    options = (
        {others.get(p.name or "", p.name or "") for p in command(name).params if p.expose_value} - SHOWN - {"", "help"}
    )
    assert options == parameters(function) - more


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two operator types on two backends, each assignment with a time and a memory."""
    rows = [{"id": n, "time": 4.0 - n, "memory": 100 + n} for n in range(4)]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"oplist": ["Conv2D", "Pool2D"], "solutions": rows}))
    return path


def test_python_says_what_the_digits_of_a_dump_mean(dump: Path) -> None:
    found = gnomon.pareto(source=dump, codes=["cpu", "npu"], search="brute")
    assert {name for point in found.points for name in found.space.names(point.assignment)} == {"cpu", "npu"}


def test_python_refuses_what_says_nothing_of_a_dump(dump: Path) -> None:
    with pytest.raises(UsageError, match="device says nothing of a dump"):
        gnomon.pareto(source=dump, device="board")
    with pytest.raises(UsageError, match="by says nothing of a dump"):
        gnomon.pareto(source=dump, by="group")
    with pytest.raises(UsageError, match="a model and a dump are given"):
        gnomon.pareto("m.tflite", source=dump)
    with pytest.raises(UsageError, match="--codes names the digits of a dump"):
        gnomon.pareto("m.tflite", codes=["cpu"])


def test_nothing_starts_anew_and_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["place", "m", "--no-profile", "--fresh"]) == 2
    assert "--fresh measures again and --no-profile measures nothing" in capsys.readouterr().err
    for call in (gnomon.place, gnomon.pareto):
        with pytest.raises(UsageError, match="--fresh measures again and --no-profile measures nothing"):
            call("m.tflite", fresh=True, measure=False)
    with pytest.raises(UsageError, match="--fresh measures again"):
        gnomon.place_on("m.tflite", ["local"], fresh=True, measure=False)


@pytest.mark.parametrize("seed", [-1, 2**31 - 1])
def test_python_refuses_a_seed_that_the_command_refuses(seed: int) -> None:
    with pytest.raises(UsageError, match=f"seed is {seed}"):
        gnomon.profile("m.tflite", seed=seed)


@pytest.mark.parametrize("call", ["tune", "execute", "overlay_collect", "overlay_deploy"])
def test_an_option_that_tuning_does_not_have_is_refused(call: str) -> None:
    first: Any = [] if call == "overlay_collect" else "none.onnx"
    with pytest.raises(UsageError, match="there is no option 'watch'") as refused:
        getattr(tune, call)(first, watch=print)
    assert "on_progress" in refused.value.hint
