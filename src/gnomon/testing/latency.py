"""A pytest plugin that tests latency: `gnomon_latency("model.onnx").is_at_most("2 ms")`.

It is available wherever gnomon is installed (the entry point `pytest11`). A limit is judged by the 95 % interval of the
median over fresh processes. The test passes if the interval lies below the limit, and fails if it lies above. If the
interval contains the limit, the result is undecided: the test fails with advice on how to decide it, or is skipped with
`unknown="skip"`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import pytest

from gnomon.errors import GATE_FAILED
from gnomon.values import latency

_SHARE = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*%\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The latency of a model in its fastest configuration, or in the only requested one."""

    model: str | Path
    options: Mapping[str, Any]
    measured: Callable[[], Any]
    unknown: Literal["fail", "skip"]

    @property
    def profile(self) -> Any:
        """The result of `gnomon.profile`, measured once per session."""
        return self.measured()

    def is_at_most(self, limit: str) -> None:
        """Fail unless the median is certainly at most the limit, such as "2 ms"."""
        __tracebackhide__ = True
        from gnomon.report.units import time

        limit_s = latency(limit)
        fastest = self.profile.chosen
        interval = fastest.summary(self.profile.clock) or fastest.wall
        message = f"{fastest.label} takes {time(interval.median_s)} [{time(interval.low_s)}, {time(interval.high_s)}]"
        message = f"{message} by {self.profile.clock} time, {interval.processes} processes, {interval.n} samples"
        if interval.low_s is not None and interval.low_s > limit_s:
            pytest.fail(f"{message}: more than {limit}")
        if interval.high_s is None or interval.high_s > limit_s:
            self._open(f"{message}: whether that is at most {limit} is undecided; a larger processes= would decide it")

    def is_not_slower_than(self, before: str | Path, *, by: str = "3%", sessions: str = "2%") -> None:
        """Fail if the model is certainly slower than before by more than the share `by`, or lacks an earlier
        configuration.

        If `before` is the file of the earlier model, both models are measured alternately, so that a decision is
        possible. Otherwise `before` is anything that `gnomon compare` accepts: a file written by --json, a report, or a
        run's id; `sessions` is then the assumed difference between runs of the same model if there are fewer than five
        earlier runs. A comparison that is undecided or impossible, such as one with a run of another machine, is
        treated as unknown.
        """
        __tracebackhide__ = True
        import gnomon
        from gnomon.models.load import is_model
        from gnomon.report.units import percent

        most, differ = _share(by), _share(sessions)
        if is_model(str(before)):
            compared = gnomon.compare(before, self.model, fail_slower=most, **self.options)
        else:
            run, record = self.profile.campaign, self.profile.record
            compared = gnomon.compare(before, run, record=record, sessions=differ, fail_slower=most)
        message, code = compared.headline()[1], compared.exit_code
        if sees := [row.sees for pair in compared.pairs for row in pair.configurations if row.sees is not None]:
            size = percent(max(sees)).lstrip("+")
            message = f"{message} A slow-down of {size} would have been detected with 95 % probability."
        if code == GATE_FAILED:
            pytest.fail(message)
        if code:
            self._open(message)

    def _open(self, message: str) -> None:
        __tracebackhide__ = True
        if self.unknown == "skip":
            pytest.skip(message)
        pytest.fail(message)


def _share(text: str) -> float:
    match = _SHARE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a share such as 3%")
    return float(match["number"]) / 100


@pytest.fixture(scope="session")
def gnomon_latency() -> Callable[..., Latency]:
    """The function that measures a model: gnomon_latency(model, runtimes=("onnxruntime",), processes=6, ..).

    Options are those of `gnomon.profile`; `unknown` ("fail" or "skip") is the outcome if a limit is undecided. Equal
    calls are measured only once per session.
    """
    profiles: dict[str, Callable[[], Any]] = {}

    def measure(
        model: str | Path, *, unknown: Literal["fail", "skip"] = "fail", fresh: bool = True, **options: Any
    ) -> Latency:
        import gnomon

        how = {"fresh": fresh, **options}
        measured = profiles.setdefault(
            repr((str(model), sorted(how.items()))), cache(partial(gnomon.profile, model, **how))
        )
        return Latency(model=model, options=how, measured=measured, unknown=unknown)

    return measure
