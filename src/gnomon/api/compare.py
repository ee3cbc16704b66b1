"""Comparing runs from Python."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack, cast

from gnomon.api.options import CommandOptions, DeviceName, PathLike, Processes, Record, Timeout
from gnomon.errors import UsageError
from gnomon.options import option, refuse_unknown
from gnomon.store.address import record_address
from gnomon.values import file, percent

if TYPE_CHECKING:
    from gnomon.api.options import Options
    from gnomon.jobs.compare.document import CompareDocument
    from gnomon.jobs.compare.sides import Side
    from gnomon.measure.progress import Watch

Run = Annotated[PathLike, option(metavar="[RUN|MODEL]", complete="run")]
Sessions = Annotated[
    float,
    option(
        read=percent,
        metavar="2%",
        default=0.02,
        help="How much runs of the same model are assumed to differ (standard deviation), where the results database "
        "has fewer than five earlier ones.  [default: 2%]",
    ),
]
Changed = Annotated[
    Sequence[Literal["machine", "governor", "version", "threads", "shapes", "inputs", "precision", "options"]],
    option(repeat=True, help="What was changed on purpose and is compared. May be repeated."),
]
_COMMAND = "command"
"""What commands are called that are compared with each other."""
TURNS = 30
"""Fresh processes of each model that `compare_models` measures by turns."""


class CompareOptions(TypedDict, total=False):
    """How runs are compared."""

    fail_slower: Annotated[
        float | None,
        option(
            read=percent,
            metavar="3%",
            help="Exit with 1 where a configuration is certainly slower by more than this, or is missing; with 7 where "
            "nothing could be compared.",
        ),
    ]
    relevant: Annotated[
        float,
        option(
            read=percent, metavar="1%", default=0.01, help="Differences within this count as the same.  [default: 1%]"
        ),
    ]
    alpha: Annotated[
        float,
        option(
            least=1e-6,
            most=0.5,
            default=0.01,
            help="The largest probability that any verdict is wrong, over all that are compared at once.",
        ),
    ]
    sessions: Sessions
    changed: Changed
    record: Record


class MeasuredOptions(CommandOptions, total=False):
    """Two commands that are measured by turns, in place of runs."""

    device: DeviceName
    processes: Processes
    timeout_s: Timeout


class RunOptions(MeasuredOptions, CompareOptions, total=False):
    """What is compared, and how."""


def compare(
    *runs: Run,
    junit: Annotated[
        PathLike | None, option(read=file, metavar="FILE", help="Write JUnit XML: a test case a configuration.")
    ] = None,
    markdown: Annotated[
        PathLike | None, option(read=file, metavar="FILE", help="Write a table in Markdown, for a pull request.")
    ] = None,
    action_benchmark: Annotated[
        PathLike | None, option(read=file, metavar="FILE", help="Write what github-action-benchmark reads.")
    ] = None,
    bencher: Annotated[PathLike | None, option(read=file, metavar="FILE", help="Write Bencher's metrics.")] = None,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[RunOptions],
) -> CompareDocument:
    """Compare each later RUN with the first: every configuration, and every kernel that the runtime reports.

    A RUN is the id of a run (or how it begins; last; last~1: the one before), a file that --json wrote, a report in
    HTML, a package, or a results database, of which the newest run counts. Runs of other machines, governors,
    versions, shapes or inputs are not compared, nor are configurations of other threads, precision or options, unless
    --changed says that this is the change.

    With two or more --command, these are measured and compared instead: by turns, a process of each and then of each
    again, 30 times each unless --processes says otherwise. MODEL is their {model}, where they have one.

    Raises GnomonError.
    """
    from gnomon.jobs.compare.job import compare as compare_job

    measuring = {name: value for name, value in options.items() if name in MeasuredOptions.__annotations__}
    asked = {name: value for name, value in options.items() if name not in measuring}
    fail_slower, how = compare_settings(cast("CompareOptions", asked))
    sides: list[str | Side] = [str(run) for run in runs]
    if measuring:
        measuring["record"] = how["record"]
        sides = _measured_commands([*runs], cast("Options", measuring), on_progress, on_message)
        how |= {"sessions": 0.0, "changed": ("options", "version", *how["changed"])}
    compared = replace(compare_job(sides, **how), fail_slower=fail_slower)
    files = {"junit": junit, "markdown": markdown, "action_benchmark": action_benchmark, "bencher": bencher}
    compared.write({form: None if path is None else Path(path) for form, path in files.items()})
    return compared


def _measured_commands(
    models: Sequence[PathLike],
    options: Options,
    on_progress: Watch | None,
    on_message: Callable[[str], None] | None,
) -> list[str | Side]:
    """The sides of a comparison of commands, each of which is measured as the one configuration of its side."""
    from gnomon.api.options import commands_of, model_request
    from gnomon.jobs.compare.document import NO_MODEL
    from gnomon.jobs.compare.sides import Side
    from gnomon.jobs.place.job import profile_by_turns
    from gnomon.jobs.runs.answers import keep
    from gnomon.system.process import guarded_folder

    commands = commands_of(options, model=bool(models))
    if len(commands) < 2 or len(models) > 1:
        raise UsageError(
            f"{len(commands)} commands and {len(models)} models cannot be compared",
            hint='Give two commands, and a model if they take one: gnomon compare --command "A {model}" '
            '--command "B {model}" net.onnx',
        )
    with guarded_folder("gnomon-compare-") as folder:
        nothing = folder / NO_MODEL
        nothing.touch()
        measuring = {name: given for name, given in options.items() if name not in CommandOptions.__annotations__}
        alike = model_request(models[0] if models else nothing, cast("Options", {"processes": TURNS, **measuring}))
        wishes = [replace(alike.wish, commands=(replace(one, name=_COMMAND),)) for one in commands]
        requests = [replace(alike, runtimes=(_COMMAND,), wish=wish) for wish in wishes]
        profiles = profile_by_turns(requests, watch=on_progress, tell=on_message)
        for profile in profiles:
            keep(profile.document(), on_message)
    return [
        Side(name=shlex.join(command.run), document=profile)
        for command, profile in zip(commands, profiles, strict=True)
    ]


def compare_settings(options: CompareOptions) -> tuple[float | None, dict[str, Any]]:
    """The limit of the gate, and what else the options mean, with their defaults. UsageError for an unknown one."""
    refuse_unknown(options, CompareOptions)
    how: dict[str, Any] = {"relevant": 0.01, "alpha": 0.01, "sessions": 0.02, "changed": (), **options}
    fail_slower = how.pop("fail_slower", None)
    return fail_slower, how | {"record": record_address(how.get("record")), "changed": tuple(how["changed"])}


def compare_models(
    before: PathLike,
    *others: PathLike,
    alpha: float = 0.01,
    relevant: float = 0.01,
    changed: Iterable[str] = (),
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> CompareDocument:
    """Measure models by turns, a fresh process of each and then of each again, and compare the others with the first.

    The options are those of `profile`, where `processes` is 30 if it is not given. What moves the machine moves all
    alike, so that small differences show. Each is a run of its own in the results database, the last one the newest.
    Raises GnomonError; what was measured until then is kept, and the same call goes on from there.
    """
    from gnomon.api.options import model_request
    from gnomon.jobs.compare.job import compare as compare_job
    from gnomon.jobs.compare.sides import Side
    from gnomon.jobs.place.job import profile_by_turns
    from gnomon.jobs.runs.answers import keep

    if not others:
        raise UsageError("a comparison needs two models", hint='For example: compare_models("old.onnx", "new.onnx")')
    if options.get("processes") is None:
        options["processes"] = TURNS
    requests = [model_request(model, options, sweeps=True, limited=True) for model in (before, *others)]
    profiles = profile_by_turns(requests, watch=on_progress, tell=on_message)
    for profile in profiles:
        keep(profile.document(), on_message)
    sides = [Side(name=profile.model.path, document=profile) for profile in profiles]
    return compare_job(
        sides, record=requests[0].record, alpha=alpha, relevant=relevant, changed=tuple(changed), sessions=0.0
    )
