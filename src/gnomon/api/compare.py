"""Comparing runs from Python."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack, cast

from gnomon.api.options import CommandOptions, ModelOptions, PathLike, Record
from gnomon.errors import UsageError
from gnomon.options import option, refuse_unknown
from gnomon.store.address import record_address
from gnomon.values import file, new_file, percent, seconds, span

if TYPE_CHECKING:
    from gnomon.api.options import Options
    from gnomon.core.decision import Rule
    from gnomon.jobs.compare.document import CompareDocument, Undecided
    from gnomon.jobs.compare.sides import Side
    from gnomon.jobs.place.decide import Enough
    from gnomon.jobs.place.document import ProfileDocument
    from gnomon.measure.effort import Clock
    from gnomon.measure.progress import Watch
    from gnomon.session.document import SampleColumns
    from gnomon.session.request import ModelRequest

Run = Annotated[PathLike, option(metavar="[MODEL|RUN]", complete="run")]
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
_OF_SELF_TEST = re.compile(r" --(self-test|fail-slower|budget)[ =]('[^']*'|\S+)")
"""What a command that compares has otherwise than that of a self-test."""
_LIMIT = 0.03
"""The slow-down that a self-test is for, where no other is given."""
_COMMAND = "command"
"""What commands are called that are compared with each other."""
BUDGET_S = 300.0
"""Seconds that models and commands are measured by turns for, at most."""


class Verdicts(TypedDict, total=False):
    """What is decided, and how surely."""

    fail_slower: Annotated[
        float | None,
        option(
            read=percent,
            metavar="3%",
            help="Exit code 0: nothing is slower by this, for certain; 1: a configuration is certainly slower by more "
            "than half of this, or is missing; 10: undecided; 7: nothing could be compared.",
        ),
    ]
    undecided: Annotated[
        Literal["fail", "warn"],
        option(default="fail", help="With --fail-slower: warn exits with 0 where it is undecided.  [default: fail]"),
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


class CompareOptions(Verdicts, total=False):
    """How runs are compared."""

    record: Record


class TurnOptions(ModelOptions, total=False):
    """How models and commands are measured by turns."""

    processes: Annotated[
        int | None,
        option(
            least=1,
            most=1000,
            metavar="N",
            help="Measure models in so many fresh processes each, and decide once.  [default: until it is decided]",
        ),
    ]
    budget_s: Annotated[
        float,
        option(
            "--budget",
            read=seconds,
            default=BUDGET_S,
            help="Seconds of measuring at most, decided or not.",
        ),
    ]


class RunOptions(TurnOptions, Verdicts, total=False):
    """What is compared, and how."""


def compare(
    *runs: Run,
    self_test: Annotated[
        float | None,
        option(
            read=span,
            metavar="5min",
            help="Measure MODEL beside itself for so long, and say which slow-downs a comparison here finds, and what "
            "effort the limit of --fail-slower (3%) needs. Exits with 0 where --budget is enough for it, else with 10.",
        ),
    ] = None,
    beside_python: Annotated[
        PathLike | None,
        option(
            read=file,
            metavar="PATH",
            help="Measure MODEL by this Python too, whose environment has other versions of runtimes.",
        ),
    ] = None,
    junit: Annotated[
        PathLike | None, option(read=new_file, metavar="FILE", help="Write JUnit XML: a test case a configuration.")
    ] = None,
    action_benchmark: Annotated[
        PathLike | None, option(read=new_file, metavar="FILE", help="Write what github-action-benchmark reads.")
    ] = None,
    bencher: Annotated[PathLike | None, option(read=new_file, metavar="FILE", help="Write Bencher's metrics.")] = None,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[RunOptions],
) -> CompareDocument:
    """Compare each later one with the first: every configuration, and every kernel that the runtime reports.

    MODEL files are measured: by turns, a fresh process of each and then of each again, until the verdict is certain or
    --budget is over. So are two or more --command, with MODEL as their {model} where they have one, and packages, as
    they are; a MODEL beside a package by the runtime and threads of that. One MODEL is measured beside itself with
    --self-test, and by another Python with --beside-python.

    A RUN is the id of an earlier run (or how it begins; last; last~1: the one before), a file that --json wrote, a
    report in HTML, a package (the run that wrote it), or a results database, of which the newest run counts. Beside a
    MODEL its own model is measured again. Runs of other machines, governors, versions, shapes or inputs are not
    compared, nor are configurations of other threads, precision or options, unless --changed says that this is the
    change.

    Raises GnomonError.
    """
    from gnomon.core.decision import Rule
    from gnomon.jobs.compare.job import compare as compare_job
    from gnomon.jobs.compare.job import is_decided
    from gnomon.models.load import is_model
    from gnomon.models.model import is_package

    refuse_unknown(options, RunOptions)
    names = [str(run) for run in runs]
    asked = {name: value for name, value in options.items() if name in CompareOptions.__annotations__}
    measuring = {name: value for name, value in options.items() if name not in Verdicts.__annotations__}
    undecided, how = compare_settings(cast("CompareOptions", asked))
    alone = self_test is not None or beside_python is not None
    both = self_test is not None and (beside_python is not None or options.get("processes") is not None)
    if both or (alone and len(names) != 1):
        raise UsageError(
            "--self-test measures one model for its time, --beside-python one by two",
            hint="Give one MODEL and one of both, and no --processes with --self-test.",
        )
    if self_test is not None:
        measuring["budget_s"] = self_test
        how["fail_slower"] = how["fail_slower"] or _LIMIT
    rule = Rule(alpha=how["alpha"], relevant=how["relevant"], limit=how["fail_slower"])
    sides: list[str | Side] = [*names]
    packages = bool(names) and all(map(is_package, names))
    if alone or packages or measuring.keys() - {"record"} or any(map(is_model, names)):
        how |= {"sessions": 0.0}

        def enough(samples: Sequence[Mapping[str, SampleColumns]], clock: Clock, share: float) -> bool:
            return self_test is None and is_decided(samples, clock, replace(rule, alpha=rule.alpha * share))

        measure = _Turns(cast("TurnOptions", measuring), enough, on_progress, on_message)
        if len(options.get("commands", ())) > 1 and len(names) < 2 and not alone:
            sides = measure.commands(names)
            how |= {"changed": ("options", "version", *how["changed"])}
        else:
            sides = measure.models(names * 2 if alone else names, beside_python)
            how |= {"changed": ("version", *how["changed"])} if beside_python is not None else {}
    compared = replace(compare_job(sides, **how), undecided=undecided)
    if self_test is not None:
        compared = _self_tested(compared, cast("list[Side]", sides), rule, options.get("budget_s", BUDGET_S))
    files = {"junit": junit, "action_benchmark": action_benchmark, "bencher": bencher}
    compared.write({form: None if path is None else Path(path) for form, path in files.items()})
    return compared


def _self_tested(compared: CompareDocument, sides: Sequence[Side], rule: Rule, budget_s: float) -> CompareDocument:
    """The comparison of a model with itself, with what it shows of comparisons that may take so long."""
    from gnomon.jobs.compare.self_test import self_tests
    from gnomon.store.base import ARGUMENTS

    tests = self_tests(sides, compared.pairs[0], rule, budget_s)
    needed_s = max((math.inf if part.needed_s is None else part.needed_s for part in tests), default=math.inf)
    words, again = ARGUMENTS.get(), ""
    if sides[0].name in words and math.isfinite(needed_s):
        again = _OF_SELF_TEST.sub("", shlex.join(("gnomon", *words, sides[0].name)))
        again += f" --fail-slower {100 * (rule.limit or 0):g}% --budget {10 * math.ceil(needed_s / 10)}"
    return replace(compared, self_test=tests, again=again)


@dataclass(frozen=True, slots=True)
class _Turns:
    """What is measured by turns, for a comparison."""

    options: TurnOptions
    enough: Enough
    watch: Watch | None
    tell: Callable[[str], None] | None

    def models(self, names: Sequence[str], other: PathLike | None = None) -> list[str | Side]:
        """The sides of models, and of runs whose models are measured again; the last by another Python, if any."""
        from gnomon.devices.address import LOCAL
        from gnomon.jobs.compare.sides import Side, model_of
        from gnomon.models.load import is_model
        from gnomon.models.model import PACKAGE, is_package
        from gnomon.runtimes.packaged import MIX, PackageRuntime

        packages = [name for name in names if is_package(name)]
        if len(names) < 2 or not (packages or any(map(is_model, names))):
            raise UsageError(
                "nothing is measured here: that needs two models, or two commands",
                hint='Such as: gnomon compare old.onnx new.onnx; or: gnomon compare --command "A {model}" --command '
                '"B {model}" net.onnx',
            )
        record = record_address(self.options.get("record"))
        options = self.options
        if packages:  # beside which a model is run as the first of them
            package = PackageRuntime(Path(packages[0]))
            alike = (PACKAGE,) if len(packages) == len(names) else options.get("runtimes") or (package.name,)
            if package.label == MIX and len(packages) < len(names):
                hint = "Write a package of the model too, and compare both: gnomon place MODEL --out DIR"
                raise UsageError(f"{packages[0]} is a mix of runtimes, which no model alone is run as", hint=hint)
            options = {**options, "runtimes": alike, "threads": options.get("threads") or package.threads}
        requests = [replace(self, options=options)._request(model_of(name, record)) for name in names]
        pythons: list[str | None] = [None] * len(names)
        if other is not None:
            device = requests[0].device
            if device.address.kind != LOCAL:
                raise UsageError("--beside-python is for this machine alone", hint="Leave out --device.")
            pythons = [device.python or sys.executable, str(Path(other).absolute())]
        sides = zip(names, self._measured(requests, pythons[-1]), pythons, strict=True)
        return [Side(name=name, document=profile, python=python) for name, profile, python in sides]

    def commands(self, models: Sequence[str]) -> list[str | Side]:
        """The sides of commands, each of which is measured as the one configuration of its side."""
        from gnomon.api.options import commands_of
        from gnomon.jobs.compare.document import NO_MODEL
        from gnomon.jobs.compare.sides import Side
        from gnomon.system.process import guarded_folder

        commands = commands_of(self.options, model=bool(models))
        with guarded_folder("gnomon-compare-") as folder:
            nothing = folder / NO_MODEL
            nothing.touch()
            alike = self._request(models[0] if models else nothing, CommandOptions.__annotations__)
            wishes = [replace(alike.wish, commands=(replace(command, name=_COMMAND),)) for command in commands]
            profiles = self._measured([replace(alike, runtimes=(_COMMAND,), wish=wish) for wish in wishes])
        return [
            Side(name=shlex.join(command.run), document=profile)
            for command, profile in zip(commands, profiles, strict=True)
        ]

    def _request(self, model: PathLike, without: Container[str] = ()) -> ModelRequest:
        from gnomon.api.options import model_request

        options = {name: given for name, given in self.options.items() if name not in without}
        return model_request(model, cast("Options", {"budget_s": BUDGET_S, **options}), sweeps=True)

    def _measured(self, requests: Sequence[ModelRequest], python: str | None = None) -> list[ProfileDocument]:
        from gnomon.jobs.place.job import profile_by_turns
        from gnomon.jobs.runs.answers import keep

        enough = None if self.options.get("processes") else self.enough
        profiles = profile_by_turns(requests, enough=enough, python=python, watch=self.watch, tell=self.tell)
        for profile in profiles:
            keep(profile.document(), self.tell)
        return profiles


def compare_settings(options: CompareOptions) -> tuple[Undecided, dict[str, Any]]:
    """What becomes of the undecided, and what else the options mean, with defaults. UsageError for an unknown one."""
    refuse_unknown(options, CompareOptions)
    how: dict[str, Any] = {"relevant": 0.01, "alpha": 0.01, "sessions": 0.02, "fail_slower": None, "changed": ()}
    how |= {"undecided": "fail", **options}
    undecided = how.pop("undecided")
    return undecided, how | {"record": record_address(how.get("record")), "changed": tuple(how["changed"])}
