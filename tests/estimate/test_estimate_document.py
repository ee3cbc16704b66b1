"""Estimators as JSON and as a standalone file: exact, and clear about what is wrong."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.test_codec import JSON
from tests.estimate.nets import columns, counts, measured, prices

from gnomon.errors import ProblemError
from gnomon.estimate.columns import Columns, Unknown
from gnomon.estimate.document import estimator_document, read_estimator
from gnomon.estimate.estimator import Estimator
from gnomon.estimate.export import export_estimator
from gnomon.estimate.fit import fit


def plain() -> Estimator:
    x = counts(20)
    table = prices()
    table[4] = np.nan
    return fit(columns(table), x, measured(x))


def scaled() -> Estimator:
    rng = np.random.default_rng(0)
    c = Columns(names=("a", 'quoted """ and \\ é'), kinds=("k", "k"), scale=np.array([1.0, 2.0]))
    x = rng.uniform(0, 3, (80, 2))
    return fit(c, x, (5 + x @ [1, 2] + 3 * np.sin(3 * x[:, 0])) * 1e-3)


@pytest.mark.parametrize("made", [plain, scaled])
def test_a_round_trip_is_exact(made: Any) -> None:
    first = made()
    document = estimator_document(first)
    again = read_estimator(json.loads(json.dumps(document, allow_nan=False)))
    assert estimator_document(again) == document
    x = np.abs(np.random.default_rng(3).standard_normal((50, len(first.columns))))
    one, two = (e.predict(x, unknown=Unknown.WIDEN) for e in (first, again))
    assert np.array_equal(one.mean_s, two.mean_s)
    assert np.array_equal(one.high_s, two.high_s)


@pytest.mark.parametrize("made", [plain, scaled])
def test_the_exported_file_predicts_the_same_without_gnomon(made: Any, tmp_path: Path) -> None:
    estimator = made()
    (tmp_path / "estimator.py").write_text(export_estimator(estimator), encoding="utf-8")
    names = estimator.columns.names
    x = np.abs(np.random.default_rng(3).standard_normal((5, len(names))))
    nets = [dict(zip(names, row.tolist(), strict=True)) for row in x]
    blocked = "import sys; sys.modules['gnomon'] = None; import runpy; "
    blocked += "runpy.run_path('estimator.py', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", blocked], cwd=tmp_path, input=json.dumps(nets), capture_output=True, text=True,
        check=True, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    told = estimator.predict(x)
    assert np.array(json.loads(done.stdout)) == pytest.approx(
        np.stack([told.mean_s, told.low_s, told.high_s], axis=1), rel=1e-9
    )


def test_the_exported_functions_refuse_what_they_do_not_know(tmp_path: Path) -> None:
    x = counts(20)
    x[:, 4] = 0
    estimator = fit(columns(), x, measured(x))
    path = tmp_path / "estimator_of_test.py"
    path.write_text(export_estimator(estimator), encoding="utf-8")
    code = (
        "import estimator_of_test as e\n"
        "print(e.get_estimation({'unit0': 2}), *e.get_interval({'unit0': 2}))\n"
        "for net in ({'nothing': 1}, {'unit4': 1}):\n"
        "    try:\n        e.get_estimation(net)\n"
        "    except KeyError as error:\n        print(error)\n"
        "print(e.get_interval({'unit4': 1}, widen=True)[1] > 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    told = estimator.predict([[2, 0, 0, 0, 0, 0]])
    assert [float(v) for v in lines[0].split()] == pytest.approx([told.mean_s[0], told.low_s[0], told.high_s[0]])
    assert "'nothing'" in lines[1]
    assert "unit4" in lines[2]
    assert lines[3] == "True"


BROKEN: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("format",), "other", r"\$\.format"),
    (("version",), 2, r"\$\.version"),
    (("unit",), "ms", r"\$\.unit"),
    (("columns", "names"), ["unit0"] * 6, r"\$\.columns.*named 'unit0'"),
    (("columns", "names", 2), 7, r"\$\.columns\.names\[2\]"),
    (("columns", "kinds"), [], r"\$\.columns"),
    (("columns", "prior_s", 1), -1, r"\$\.columns\.prior_s\[1\]"),
    (("coefficients_s", 3), 10**400, r"\$\.coefficients_s\[3\]"),
    (("coefficients_s", 3), 1e308, "a number is above 1e"),
    (("bias_s",), -1e308, "a number is above 1e"),
    (("covariance", "own", 0), -1.0, r"\$\.covariance\.own\[0\]"),
    (("noise", "coverage"), 0.9999999999999999, r"\$\.noise\.coverage"),
    (("known", 0), 1, r"\$\.known\[0\]"),
    (("residual",), {"centre": []}, r"\$\.residual"),
    (("level_s",), float("inf"), r"\$\.level_s"),
]


@pytest.mark.parametrize(("path", "value", "message"), BROKEN)
def test_what_is_malformed_is_named_by_its_path(path: tuple[str | int, ...], value: Any, message: str) -> None:
    document: Any = copy.deepcopy(DOCUMENT)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ProblemError, match=message) as caught:
        read_estimator(document)
    assert caught.value.hint


@pytest.mark.parametrize("document", [[], {}])
def test_what_is_not_an_estimator_is_refused(document: Any) -> None:
    with pytest.raises(ProblemError, match="malformed"):
        read_estimator(document)


DOCUMENT = estimator_document(plain())


def test_every_part_is_needed() -> None:
    for name in DOCUMENT:
        with pytest.raises(ProblemError, match=name):
            read_estimator({part: value for part, value in DOCUMENT.items() if part != name})


@given(name=st.sampled_from(sorted(DOCUMENT)), value=JSON)
def test_any_other_value_is_read_or_refused(name: str, value: Any) -> None:
    try:
        found = read_estimator(DOCUMENT | {name: value})
    except ProblemError:
        return
    assert estimator_document(found)
