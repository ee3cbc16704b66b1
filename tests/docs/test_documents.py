"""What the documents say works: links lead somewhere, commands parse, and marked ones run."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.docs.documents import DOCUMENTS, ROOT, Block, Place, anchors, blocks_of, links
from tests.shortkit import SPACES_SHORTLY

import gnomon
from gnomon.cli.main import cli
from gnomon.cli.main import run as main

LIMIT_S = 1200.0
LITTLE_EFFORT = {
    "place": "-n 1 --processes 1 --budget 0.2",
    "profile": "-n 1 --processes 1 --budget 0.2",
    "pareto": "--processes 1 --budget 0.2",
}
"""Options that a command is given beside its own, so that it ends soon."""
TWO_RUNTIMES = "--runtime onnxruntime --runtime openvino"
"""What measures an ONNX file in most documents; what README.md places is so by every runtime that takes it."""

CONSOLE = blocks_of("console")
COMMANDS = [(block, command) for block in CONSOLE for command in block.commands()]


def name_of(value: object) -> str:
    if isinstance(value, Block):
        return value.name
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else ""


def gnomon_calls(command: str) -> list[list[str]]:
    """The arguments of each call of gnomon in a shell command, which may be a pipe or redirected."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    calls: list[list[str]] = []
    current: list[str] = []
    redirected = False
    for word in [*lexer, ";"]:
        if set(word) <= set(";|&"):
            calls.append(current)
            current = []
        elif set(word) <= set("<>"):
            redirected = True
        elif redirected:
            redirected = False
        else:
            current.append(word)
    found = []
    for words in calls:
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words and Path(words[0]).name == "gnomon":
            found.append(words[1:])
    return found


def parse(arguments: list[str]) -> None:
    """Parse arguments as gnomon does, without running the command. Raises click.ClickException."""
    command: click.Command = cli
    parent: click.Context | None = None
    name: str | None = "gnomon"
    rest = arguments
    while True:
        context = command.make_context(name, list(rest), parent=parent)
        if not isinstance(command, click.Group):
            return
        kept = vars(context)  # Click before 9 keeps the subcommand's name apart, under one of two names.
        rest = [*kept.get("_protected_args", kept.get("protected_args", ())), *context.args]
        if not rest:
            return
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, parent = found, context


def with_little_effort(command: str, *, all_runtimes: bool = True) -> str:
    """The command with options that end it soon."""
    match = re.match(r"(?:nohup )?gnomon (\w+)", command)
    extra = LITTLE_EFFORT.get(match[1], "") if match else ""
    if not extra or "--processes" in command or " --from " in command:
        return command.replace("--processes 6", "--processes 2")
    if not all_runtimes and ".onnx" in command and "--runtime" not in command:
        extra += f" {TWO_RUNTIMES}"
    call, separator, rest = (
        re.split(r"( [|>;&])", command, maxsplit=1) if re.search(" [|>;&]", command) else (command, "", "")
    )
    return f"{call} {extra}{separator}{rest}"


def skip_without(block: Block) -> None:
    """Skip a block whose word `needs=MODULE` names what is not installed here."""
    for word in block.words:
        module = word.removeprefix("needs=")
        if module != word and importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


def run(command: list[str], place: Place) -> subprocess.CompletedProcess[str]:
    """Run a command as the documents' reader, and return how it ended."""
    return subprocess.run(
        command,
        cwd=place.folder,
        env=place.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.fixture
def here(
    place_to_run: Place, short_visits: None, few_blocks: None, few_runtimes: None, monkeypatch: pytest.MonkeyPatch
) -> Place:
    """This process works where the reader is, with short visits: importing gnomon takes longer than most commands."""
    monkeypatch.chdir(place_to_run.folder)
    monkeypatch.delenv("GNOMON_HOME")
    for name, value in place_to_run.environment.items():
        monkeypatch.setenv(name, value)
    return place_to_run


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for link in links(path):
        if re.match(r"[a-z]+:", link):
            assert link.startswith(("https://", "mailto:")), f"{link} is not safe to follow"
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.is_relative_to(ROOT), f"{link} leads out of the project"
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{link}: there is no such heading"


def test_files_that_contributors_shall_read_are_there() -> None:
    tops = ("src", "tests", "fuzz", "zoo", "benchmarks", "scripts")
    files = {"/" + path.relative_to(ROOT).as_posix() for top in tops for path in (ROOT / top).rglob("*.py")}
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []


def test_every_document_can_be_reached_from_the_index() -> None:
    reached = {ROOT / "README.md"}
    waiting = [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        for link in links(path):
            target = (path.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_file() and target not in reached:
                reached.add(target)
                waiting.append(target)
    assert set(DOCUMENTS) - reached == set()


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=name_of)
def test_commands_are_ones_that_gnomon_takes(
    block: Block, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for problem in (Path("problem.json"), Path("docs/examples/problem.json")):  # which are read with the option
        problem.parent.mkdir(parents=True, exist_ok=True)
        problem.touch()
    for arguments in gnomon_calls(command):
        if not {"--help", "-h", "--version"} & set(arguments):
            parse(arguments)


@pytest.mark.parametrize("block", CONSOLE, ids=name_of)
def test_console_blocks_hold_commands(block: Block) -> None:
    assert block.commands(), "a console block shows what is typed after '$ '"
    unknown = [w for w in block.words if w != "run" and not w.startswith(("exit=", "needs="))]
    assert unknown == []


@pytest.fixture(scope="module")
def ran() -> set[str]:
    """The commands that were run already."""
    return set()


@pytest.mark.parametrize("block", [b for b in CONSOLE if "run" in b.words], ids=name_of)
def test_marked_commands_run(block: Block, here: Place, ran: set[str], capfd: pytest.CaptureFixture[str]) -> None:
    skip_without(block)
    wanted = next((int(w.removeprefix("exit=")) for w in block.words if w.startswith("exit=")), 0)
    for command in block.commands():
        if command in ran & {"gnomon runtimes"}:  # what it answers does not depend on what was done before
            continue
        ran.add(command)
        every = block.path == ROOT / "README.md" and command.startswith("gnomon place ")
        little = with_little_effort(command, all_runtimes=every)
        if command.startswith("gnomon ") and not set(command) & set("|<>&;"):
            code, told = main(shlex.split(little)[1:]), "\n".join(capfd.readouterr())
        else:
            done = run(["bash", "-o", "pipefail", "-c", little], here)
            code, told = done.returncode, f"{done.stdout}\n{done.stderr}"
        assert code == wanted, f"$ {command}\n{told[-8000:]}"


@pytest.mark.parametrize("block", [b for b in blocks_of("python") if "run" in b.words], ids=name_of)
def test_marked_python_runs(block: Block, here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if "profile_space(" in block.text:  # whose workers import what runs as the main module
        done = run([sys.executable, "-W", "error", "-c", SPACES_SHORTLY + block.text], here)
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return
    few = functools.partial(gnomon.place, runtimes=("onnxruntime", "openvino"), threads=1)
    monkeypatch.setattr(gnomon, "place", few)
    monkeypatch.syspath_prepend(here.folder)
    code = compile(block.text, block.name, "exec", dont_inherit=True)
    exec(code, {"__name__": "__main__"})  # noqa: S102 - it is what the documents show


def test_nothing_but_the_record_is_left_in_the_home(here: Place, ran: set[str]) -> None:
    """Runtimes that report to their makers keep identifiers and queues in the home: none may be asked to."""
    if "gnomon place model.onnx" not in ran:
        assert main(shlex.split("profile model.onnx -n 1 --processes 1 --budget 0.2")) == 0
    record = Path(".local/share/gnomon")
    left = {path.relative_to(here.home) for path in here.home.rglob("*") if path.is_file()}
    assert record / "record.sqlite" in left
    assert {path for path in left if not path.is_relative_to(record)} == set()


@pytest.mark.parametrize("block", blocks_of("python"), ids=name_of)
def test_python_imports_what_is_there(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "gnomon":
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"


@pytest.mark.parametrize("block", blocks_of("json"), ids=name_of)
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


def test_calls_are_found_in_shell_commands() -> None:
    assert gnomon_calls("gnomon runs export last --format csv > runs.csv") == [
        ["runs", "export", "last", "--format", "csv"]
    ]
    assert gnomon_calls("cat p.json | gnomon solve -") == [["solve", "-"]]
    assert gnomon_calls("GNOMON_HOME=/x gnomon runs; gnomon runtimes") == [["runs"], ["runtimes"]]
    assert gnomon_calls("pip install gnomon") == []


@pytest.mark.parametrize(
    "arguments", [["plaec", "m.onnx"], ["place"], ["place", "m.onnx", "--no-such"], ["runs", "shwo"]]
)
def test_wrong_commands_are_found(arguments: list[str]) -> None:
    with pytest.raises(click.ClickException):
        parse(arguments)
