"""`gnomon compare` as a function: comparisons of runs, models and commands."""

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
        help="The assumed standard deviation between runs of the same model, if the results database has fewer than "
        "five earlier runs.  [default: 2%]",
    ),
]
Changed = Annotated[
    Sequence[Literal["machine", "governor", "version", "threads", "shapes", "inputs", "precision", "options"]],
    option(repeat=True, help="A condition changed on purpose, whose effect is to be compared. May be repeated."),
]
_OF_SELF_TEST = re.compile(r" --(self-test|fail-slower|budget)[ =]('[^']*'|\S+)")
"""The options of a self-test that are replaced in the command of the comparison that it suggests."""
_LIMIT = 0.03
"""The slow-down that a self-test checks if --fail-slower is not given."""
_COMMAND = "command"
"""The name of the single configuration of each compared command."""
BUDGET_S = 300.0
"""The most seconds for measuring models and commands in turn."""


class Verdicts(TypedDict, total=False):
    """Options for the verdicts of a comparison: the gate, and the confidence."""

    fail_slower: Annotated[
        float | None,
        option(
            read=percent,
            metavar="3%",
            help="Exit code 0: certainly nothing is slower by this limit; 1: a configuration is certainly slower by "
            "more than half the limit, or is missing; 10: undecided; 7: nothing could be compared.",
        ),
    ]
    undecided: Annotated[
        Literal["fail", "warn"],
        option(default="fail", help="With --fail-slower: warn exits with 0 if undecided.  [default: fail]"),
    ]
    relevant: Annotated[
        float,
        option(read=percent, metavar="1%", default=0.01, help="Smaller differences count as the same.  [default: 1%]"),
    ]
    alpha: Annotated[
        float,
        option(least=1e-6, most=0.5, default=0.01, help="The largest probability that any of the verdicts is wrong."),
    ]
    sessions: Sessions
    changed: Changed


class CompareOptions(Verdicts, total=False):
    """Options for comparing runs."""

    record: Record


class TurnOptions(ModelOptions, total=False):
    """Options for measuring models and commands in turn."""

    processes: Annotated[
        int | None,
        option(
            least=1,
            most=1000,
            metavar="N",
            help="Measure each model in N fresh processes, then decide once.  [default: until it is decided]",
        ),
    ]
    budget_s: Annotated[
        float,
        option(
            "--budget",
            read=seconds,
            default=BUDGET_S,
            help="Stop measuring after this many seconds, even if the verdict is undecided.",
        ),
    ]


class RunOptions(TurnOptions, Verdicts, total=False):
    """All options of a comparison."""


def compare(
    *runs: Run,
    self_test: Annotated[
        float | None,
        option(
            read=span,
            metavar="5min",
            help="Compare MODEL with itself for this long. Report the slow-downs that comparisons can detect, and the "
            "time needed to detect --fail-slower (3%). Exit with 0 if --budget is enough for it, otherwise with 10.",
        ),
    ] = None,
    beside_python: Annotated[
        PathLike | None,
        option(
            read=file,
            metavar="PATH",
            help="Also measure MODEL with this Python, whose environment has other versions of the runtimes.",
        ),
    ] = None,
    junit: Annotated[
        PathLike | None, option(read=new_file, metavar="FILE", help="Write JUnit XML, a test case per configuration.")
    ] = None,
    action_benchmark: Annotated[
        PathLike | None, option(read=new_file, metavar="FILE", help="Write a file for github-action-benchmark.")
    ] = None,
    bencher: Annotated[PathLike | None, option(read=new_file, metavar="FILE", help="Write a Bencher file.")] = None,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[RunOptions],
) -> CompareDocument:
    """Compare MODELs or RUNs with the first of them: each configuration, and each kernel that the runtime reports.

    MODEL files are measured in turn, a fresh process of each at a time, until the verdict is certain or --budget is
    used up. The same holds for packages and for two or more --command, in which MODEL replaces {model}. Next to a
    package, a MODEL is measured with the runtime and threads of the package. --self-test compares one MODEL with
    itself, and --beside-python compares it in two Pythons.

    A RUN is the id of an earlier run or the beginning of an id, last, last~1 (the run before the last), a file written
    by --json, an HTML report, a package (the run that wrote it), or a results database (its newest run). If a MODEL
    is given beside a RUN, the model of the RUN is measured again. Runs on different machines, or with different
    governors, versions, shapes or inputs, are not compared, nor are configurations with different threads, precision or
    options, unless --changed names the difference.

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
            "--self-test and --beside-python need one MODEL and cannot be combined; --self-test excludes --processes",
            hint="Give one MODEL and one of the two options.",
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
    """The comparison of a model with itself, with the power of comparisons within `budget_s`."""
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
    """Measures the sides of a comparison in turn."""

    options: TurnOptions
    enough: Enough
    watch: Watch | None
    tell: Callable[[str], None] | None

    def models(self, names: Sequence[str], other: PathLike | None = None) -> list[str | Side]:
        """The sides of models, and of runs, whose models are measured again; the `other` Python measures the last."""
        from gnomon.devices.address import LOCAL
        from gnomon.jobs.compare.sides import Side, model_of
        from gnomon.models.load import is_model
        from gnomon.models.model import PACKAGE, is_package
        from gnomon.runtimes.packaged import MIX, PackageRuntime

        packages = [name for name in names if is_package(name)]
        if len(names) < 2 or not (packages or any(map(is_model, names))):
            raise UsageError(
                "measuring by turns needs two models or two commands",
                hint="For example: gnomon compare old.onnx new.onnx; or: "
                'gnomon compare --command "A {model}" --command "B {model}" net.onnx',
            )
        record = record_address(self.options.get("record"))
        options = self.options
        if packages:  # a model next to them runs as the first package does
            package = PackageRuntime(Path(packages[0]))
            alike = (PACKAGE,) if len(packages) == len(names) else options.get("runtimes") or (package.name,)
            if package.label == MIX and len(packages) < len(names):
                hint = "Write a package of the model, and compare the two packages: gnomon place MODEL --out DIR"
                raise UsageError(f"{packages[0]} mixes runtimes, so no single model runs like it", hint=hint)
            options = {**options, "runtimes": alike, "threads": options.get("threads") or package.threads}
        requests = [replace(self, options=options)._request(model_of(name, record)) for name in names]
        pythons: list[str | None] = [None] * len(names)
        if other is not None:
            device = requests[0].device
            if device.address.kind != LOCAL:
                raise UsageError("--beside-python measures only on this machine", hint="Leave out --device.")
            pythons = [device.python or sys.executable, str(Path(other).absolute())]
        sides = zip(names, self._measured(requests, pythons[-1]), pythons, strict=True)
        return [Side(name=name, document=profile, python=python) for name, profile, python in sides]

    def commands(self, models: Sequence[str]) -> list[str | Side]:
        """The sides of commands; each command is the only configuration of its side."""
        from gnomon.api.options import commands_of
        from gnomon.jobs.compare.document import NO_MODEL
        from gnomon.jobs.compare.sides import Side
        from gnomon.system.process import guarded_folder

        commands = commands_of(self.options, model=bool(models))
        with guarded_folder("gnomon-compare-") as folder:
            nothing = folder / NO_MODEL
            nothing.touch()
            alike = self._request(models[0] if models else nothing, CommandOptions.__annotations__)
            runs = [replace(alike.settings, commands=(replace(command, name=_COMMAND),)) for command in commands]
            profiles = self._measured([replace(alike, runtimes=(_COMMAND,), settings=run) for run in runs])
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


_SHARES = ("fail_slower", "relevant", "sessions")
"""Options that also take a text such as "3%"."""


def compare_settings(options: CompareOptions) -> tuple[Undecided, dict[str, Any]]:
    """The handling of undecided verdicts, and the other options with defaults. UsageError for an unknown option."""
    refuse_unknown(options, CompareOptions)
    how: dict[str, Any] = {"relevant": 0.01, "alpha": 0.01, "sessions": 0.02, "fail_slower": None, "changed": ()}
    how |= {"undecided": "fail", **options}
    how |= {name: percent(share) for name, share in how.items() if name in _SHARES and isinstance(share, str)}
    undecided = how.pop("undecided")
    return undecided, how | {"record": record_address(how.get("record")), "changed": tuple(how["changed"])}
