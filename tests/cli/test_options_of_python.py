"""The functions take what the commands take, and refuse what they refuse."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import click
import pytest

import gnomon
from gnomon.api import tune
from gnomon.api.options import model_request
from gnomon.builtin import JOBS
from gnomon.cli import declared
from gnomon.cli.main import run
from gnomon.errors import UsageError
from gnomon.options import CommandRow, GroupRow

NOT_TYPED = {"on_progress", "on_message"}
"""Parameters that the command line gives by itself."""


def _functions(row: CommandRow) -> list[str]:
    """The function of a row's command, or those of a group."""
    rows = row.commands().values() if isinstance(row, GroupRow) else [row]
    parts = {one.place: one.place.split(":") for one in rows}
    made = {place: getattr(import_module(module), attribute) for place, (module, attribute) in parts.items()}
    return [place for place, function in made.items() if not isinstance(function, click.Command)]


FUNCTIONS = [place for job in JOBS.values() for command in job.commands.values() for place in _functions(command)]


@pytest.mark.parametrize("place", FUNCTIONS)
def test_every_parameter_is_an_option_with_help(place: str) -> None:
    module, _, name = place.partition(":")
    function = getattr(import_module(module), name)
    declared_names = set()
    for one in declared.declared_by(function):
        declared_names.add(one.name)
        assert one.option.metavar if one.has_place else one.option.help, one.name
    own = {p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD}
    assert own - NOT_TYPED <= declared_names
    assert not inspect.signature(function).parameters.keys() & {"as_json", "quiet", "html"}


def test_nothing_starts_anew_and_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["place", "m", "--no-profile", "--fresh"]) == 2
    assert "--fresh measures everything again, but --no-profile measures nothing" in capsys.readouterr().err
    for call in (gnomon.place, gnomon.pareto):
        with pytest.raises(UsageError, match="--fresh measures everything again, but --no-profile measures nothing"):
            call("m.tflite", fresh=True, measure=False)
    with pytest.raises(UsageError, match="--fresh measures everything again"):
        gnomon.place_on("m.tflite", ["local"], fresh=True, measure=False)


def test_one_name_is_a_list_of_one() -> None:
    request = model_request("m.onnx", {"runtimes": "ORT", "backends": "cpu", "precisions": "bfloat16"})
    assert request.runtimes == ("onnxruntime",)
    assert (request.settings.backends, request.settings.precisions) == (("cpu",), ("bfloat16",))


@pytest.mark.parametrize("seed", [-1, 2**31 - 1])
def test_python_refuses_a_seed_that_the_command_refuses(seed: int) -> None:
    with pytest.raises(UsageError, match=f"seed is {seed}"):
        gnomon.profile("m.tflite", seed=seed)


@pytest.mark.parametrize("call", ["tune", "execute", "overlay_collect", "overlay_analyze"])
def test_an_option_that_tuning_does_not_have_is_refused(call: str) -> None:
    first: Any = [] if call.startswith("overlay") else "none.onnx"
    with pytest.raises(UsageError, match="there is no option 'watch'") as refused:
        getattr(tune, call)(first, watch=print)
    assert "min_repeat_ms" in refused.value.hint
    assert ("target" in refused.value.hint) is (call != "overlay_analyze"), "records say it"
