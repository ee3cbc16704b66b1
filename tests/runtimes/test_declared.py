"""Declarations of commands: files that are read, lines of a command line, and what is wrong with either."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.errors import UsageError
from gnomon.runtimes.declared import chosen_commands, declarations
from gnomon.serving.job import Job, job_of, to_line
from gnomon.serving.settings import Limits, Measuring

GOOD = """
[commands.bench]
run = "bench --model={model} -n {runs} --{precision}"
read = "json:latency[].ms"
choices = { precision = ["fp32", "fp16"] }
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's own files; the working folder is another."""
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def test_commands_come_with_gnomon() -> None:
    assert [one.name for one in chosen_commands(["benchmark_app"])] == ["benchmark_app"]


def test_a_later_file_takes_the_place_of_an_earlier_one(home: Path, tmp_path: Path) -> None:
    written(home / "commands.toml", GOOD + "[commands.benchmark_app]\nrun = 'mine {model}'\n")
    config = written(tmp_path / "more.toml", "[commands.bench]\nrun = ['other', '{model}']\n")
    assert chosen_commands(["benchmark_app"])[0].run == ("mine", "{model}")
    assert [one.run for one in chosen_commands(["bench", "benchmark_app"], config=config)] == [
        ("other", "{model}"),
        ("mine", "{model}"),
    ]
    assert declarations(config)["bench"][1] == config


def test_nothing_in_the_working_folder_is_read() -> None:
    for name in ("commands.toml", "gnomon.toml"):
        written(Path(name), GOOD)
    assert "bench" not in declarations()
    with pytest.raises(UsageError, match="there is no command 'bench'") as refused:
        chosen_commands(["bench"])
    assert "--config gnomon.toml" in refused.value.hint


def test_a_file_that_others_can_write_is_not_read(home: Path) -> None:
    written(home / "commands.toml", GOOD).chmod(0o666)
    with pytest.raises(UsageError, match="every user can write to it") as refused:
        declarations()
    assert "chmod go-w" in refused.value.hint


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        declarations(tmp_path / "no.toml")


WRONG = """
other = 1
[commands.a]
run = "a '{model}"
colour = "red"
[commands.b]
run = ["b", "{model}"]
files = { "a/../../b" = "text" }
[commands.c]
run = ["c", "{model}"]
unit = "hours"
each = "max"
[commands.d]
run = "d {model}"
operators = { read = "csv:time" }
[commands."no such name"]
run = "e {model}"
"""


def test_all_that_is_wrong_with_a_file_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        declarations(written(tmp_path / "wrong.toml", WRONG))
    told = refused.value.message
    for place in (
        "other: there is no such key; the only key at the top level is commands",
        "commands.a.run: a command expected (No closing quotation)",
        "commands.a.colour: there is no such field",
        "commands.b.files",
        "commands.c.unit",
        "commands.c.each",
        "commands.d.operators.label: missing",
        "commands.'no such name'.name",
    ):
        assert place in told, told


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("run = 'b {model} {modle}'", "run: there is no placeholder {modle}; there are"),
        ("run = 'b {model} {runs}'", "read: a process with {runs} calls"),
        ("run = 'b {model}'\nfiles = { x = '{y}' }", "run: there is no placeholder {y}"),
        ("run = 'b {model}'\noutputs = '{index}.{y}'", "run: there is no placeholder {y}"),
        ("run = 'b {model}'\nversion = 'b {y}'", "run: there is no placeholder {y}"),
        ("run = 'b {model}'\nread = 'json:latency'", "read: it names no unit"),
        ("run = 'b {model}'\nread = 'took (?P<ms>'", "read: it is not a regular expression"),
        ("run = 'b {model}'\nread = 'json:a_ms'\nunit = 's'", "unit: it is s, but read names ms"),
        ("run = 'b {model}'\nrefused_if = '('", "refused_if: it is not a regular expression"),
        ("run = 'b {model}'\nformats = ['gif']", "formats: there is no format 'gif'; there are"),
        ("run = 'b {model}'\nchoices = { model = ['x'] }", "choices.model: a built-in placeholder has this name"),
        ("run = 'b {model}'\noperators = { read = 'csv:t', label = 'n' }", "operators.read: it names no unit"),
        ("name = 'c'\nrun = 'b {model}'", "name: there is no such key"),
    ],
)
def test_what_does_not_go_together(table: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        declarations(written(tmp_path / "wrong.toml", f"[commands.b]\n{table}\n"))
    assert f"commands.b.{told}" in refused.value.message
    assert "docs/jobs/commands.md" in refused.value.hint


def test_a_line_is_a_command_of_the_programs_name(tmp_path: Path) -> None:
    program = written(Path("my bench.py"), "")
    first, second, third = chosen_commands(
        ["/opt/bin/bench {model}", "bench -q '{model} x'", "python3 'my bench.py' {model}"],
        ["(?P<ms>.*)", "json:a_us", ""],
    )
    assert (first.name, first.run, first.read) == ("bench", ("/opt/bin/bench", "{model}"), "(?P<ms>.*)")
    assert (second.name, second.run, second.read) == ("bench-2", ("bench", "-q", "{model} x"), "json:a_us")
    # It runs in a folder of its own: a file that is named from here is named whole.
    assert (third.name, third.run) == ("my_bench", ("python3", str(program.absolute()), "{model}"))


def test_a_program_in_the_working_folder_is_started_by_its_path_alone() -> None:
    written(Path("bench"), "")
    found = chosen_commands(["bench {model}", "./bench {model}"])
    assert [one.run[0] for one in found] == ["bench", str(Path("bench").absolute())]


def test_a_word_may_be_longer_than_any_files_name() -> None:
    assert chosen_commands([f"sh -c '{'true;' * 1000}' {{model}}"])[0].run[2] == "true;" * 1000


def test_one_way_to_read_is_that_of_all_lines() -> None:
    assert {one.read for one in chosen_commands(["a {model}", "b {model}"], ["json:ms"])} == {"json:ms"}
    assert [one.read for one in chosen_commands(["a {model}", "a {model}"], ["json:ms", "json:us"])] == [
        "json:ms",
        "json:us",
    ]
    with pytest.raises(UsageError, match="--read is given 2 times, but the number of command lines is 3"):
        chosen_commands(["a {model}", "b {model}", "c {model}"], ["json:ms", "json:us"])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("x '{model}", "No closing quotation"),
        ("x --fast", "it has no {model}"),
        ("x {model} {arch}", "there is no placeholder {arch}"),
        ("benchmark_ap", "there is no command 'benchmark_ap'"),
        ("", "command"),
    ],
)
def test_a_line_that_is_no_command(line: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        chosen_commands([line])
    assert told in refused.value.message
    assert refused.value.hint


def test_a_declaration_goes_to_another_process_and_back(tmp_path: Path) -> None:
    (command,) = chosen_commands(["bench"], config=written(tmp_path / "good.toml", GOOD))
    job = Job(measuring=Measuring(command=command), limits=Limits())
    assert job_of(to_line(job)) == job


def test_what_a_device_gets_has_one_value_of_each_choice_and_what_is_set(tmp_path: Path) -> None:
    (command,) = chosen_commands(["bench"], config=written(tmp_path / "good.toml", GOOD))
    assert command.spec({"precision": "fp16"}) == {
        "name": "bench",
        "run": ["bench", "--model={model}", "-n", "{runs}", "--{precision}"],
        "read": "json:latency[].ms",
        "each": "call",
        "choices": {"precision": "fp16"},
    }
