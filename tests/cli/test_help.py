"""The help of every command: examples that its own options take, options in groups, whatever is omitted is named."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from gnomon.cli.complete import complete_run, complete_runtime, complete_space
from gnomon.cli.help import COMMON, EXAMPLES, GROUPS, SECTIONS, examples_of, path_of
from gnomon.cli.main import _COMMANDS, cli
from gnomon.report.page import Page, Table


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, click.Context(found, info_name=name, parent=context))


EVERY = {path_of(context): command for command, context in commands(cli, click.Context(cli, info_name="gnomon"))}


def test_every_command_has_examples() -> None:
    assert [path for path in EVERY if path and not examples_of(path)] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_taken_by_the_commands_own_options(example: str) -> None:
    words = shlex.split(example.partition(" >")[0])
    assert words[0] == "gnomon"
    at: click.Context = click.Context(cli, info_name="gnomon")
    command: click.Command = cli
    left = words[1:]
    while isinstance(command, click.Group) and left and not left[0].startswith("-"):
        name, found, left = command.resolve_command(at, left)
        assert found is not None
        at, command = click.Context(found, info_name=name, parent=at), found
    assert example in examples_of(path_of(at))
    command.make_parser(at).parse_args(args=list(left))


def test_every_grouped_option_is_some_commands() -> None:
    known = {
        name.lstrip("-")
        for command in EVERY.values()
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    assert not {*COMMON, *(name for names in GROUPS.values() for name in names)} - known - {"help"}


@pytest.mark.parametrize("path", EVERY)
def test_help_fits_a_screen_and_names_every_option_where_it_is_asked_for(path: str) -> None:
    asked = CliRunner().invoke(cli, prog_name="gnomon", args=[*path.split(), "--help"], terminal_width=80)
    assert asked.exit_code == 0
    assert len(asked.stdout.splitlines()) <= 40
    if "--help-all" in asked.stdout and path:
        every = CliRunner().invoke(cli, prog_name="gnomon", args=[*path.split(), "--help-all"])
        assert every.exit_code == 0
        names = [part.opts[0] for part in EVERY[path].params if isinstance(part, click.Option) and not part.hidden]
        assert [name for name in names if not re.search(rf"{name}\b", every.stdout)] == []


def test_commands_have_their_sections_and_other_tools_words_are_taken() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(_COMMANDS)
    assert (
        CliRunner().invoke(cli, prog_name="gnomon", args=["bench", "--help"]).stdout.startswith("Usage: gnomon profile")
    )


def test_help_of_a_command() -> None:
    asked = CliRunner().invoke(cli, prog_name="gnomon", args=["help", "space", "profile"])
    assert asked.exit_code == 0
    assert asked.stdout.startswith("Usage: gnomon space profile [OPTIONS] SPACE\n\n  gnomon space profile ")
    assert CliRunner().invoke(cli, prog_name="gnomon", args=["help", "nothing"]).exit_code == 2
    assert CliRunner().invoke(cli, prog_name="gnomon", args=["help", "place", "more"]).exit_code == 2


def test_names_are_completed() -> None:
    context = click.Context(EVERY["runs show"])
    parameter = EVERY["runs show"].params[0]
    assert "onnxruntime" in complete_runtime(context, parameter, "onn")
    assert "operators" in [one.value for one in complete_space(context, parameter, "oper")]
    assert [one.type for one in complete_space(context, parameter, "./")] == ["file"]
    context.params["record"] = "/nowhere/at/all.sqlite"
    assert complete_run(context, parameter, "") == []


def test_a_brief_page_names_what_it_leaves_out() -> None:
    text = io.StringIO()
    page = Page(text, width=40, brief=True)
    with page.details("the reasons"):
        page.line("because")
    with page.details("nothing"):
        pass
    page.table(Table(["one"], split=1).text("a", str).number("b" * 60, len))
    assert "because" not in text.getvalue()
    assert page.omitted == ["the reasons", "b" * 60]


def test_a_whole_page_leaves_nothing_out() -> None:
    text = io.StringIO()
    page = Page(text, width=40)
    with page.details("the reasons"):
        page.line("because")
    assert "because" in text.getvalue()
    assert page.omitted == []


def test_without_colour_nothing_is_styled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    text = Terminal()
    Page(text, width=40).headline("The answer.")
    assert "\x1b" not in text.getvalue()
    monkeypatch.delenv("NO_COLOR")
    text = Terminal()
    Page(text, width=40).headline("The answer.")
    assert "\x1b" in text.getvalue()
