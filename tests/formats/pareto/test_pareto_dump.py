"""pareto_profiler's dumps: both spellings, the published sample, golden files, hostile ones, and the way back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.formats.pareto.dump import Dump, DumpSolution, read_dump, write_dump

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "pareto"
ALL = ("cpu", "acl_cl", "acl_neon")
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


def golden(name: str) -> Dump:
    return read_dump((GOLDEN / f"pareto-{name}.json").read_bytes())


@st.composite
def dumps(draw: st.DrawFn) -> Dump:
    backends = draw(st.sampled_from([ALL[:2], ALL]) | st.lists(NAMES, min_size=1, max_size=4, unique=True).map(tuple))
    types = tuple(draw(st.lists(NAMES, min_size=1, max_size=6, unique=True)))
    opmap = None
    if by_index := draw(st.booleans()):
        opmap = tuple(draw(st.permutations([*range(len(types)), *draw(st.lists(st.integers(0, len(types) - 1)))])))
    size = len(backends) ** len(types)
    ids = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20, unique=True))
    times = st.floats(0, 1e9)
    spelling = "brute-force" if draw(st.booleans()) else "sampler"
    known = by_index and spelling == "brute-force"
    return Dump(
        mode="index" if by_index else "name",
        slots=tuple(f"{i} {t}" if known else f"group {i}" if by_index else t for i, t in enumerate(types)),
        backends=backends,
        solutions=tuple(DumpSolution(id=i, time_ms=draw(times), memory_kib=draw(st.integers(0, 1 << 40))) for i in ids),
        opmap=opmap,
        oplist=() if by_index and not known else types,
        opname_by_indx=tuple(types[group] for group in opmap) if known and opmap else None,
        sample_count=draw(st.none() | st.integers(0, 10**6)),
        profiling_s=draw(st.none() | st.floats(0, 1e9)),
        spelling="brute-force" if spelling == "brute-force" else "sampler",
    )


@given(dumps())
def test_what_is_written_is_read_back(dump: Dump) -> None:
    text = write_dump(dump)
    found = read_dump(text, dump.backends)
    assert replace(found, configs={}, doubts=()) == dump
    assert set(found.configs) == ({row.id for row in dump.solutions} if dump.spelling == "sampler" else set())
    assert write_dump(found) == text
    assert read_dump(write_dump(found), dump.backends) == found


@given(dumps())
def test_a_sampler_s_dump_tells_every_backend_that_a_config_shows(dump: Dump) -> None:
    text = write_dump(replace(dump, spelling="sampler"))
    found = read_dump(text)
    digits = {digit for row in dump.solutions for digit in dump.space.decode(row.id)}
    assert set(found.backends) == set(dump.backends)
    assert all(found.backends[digit] == dump.backends[digit] for digit in digits)


@pytest.mark.parametrize("name", ["brute-force", "brute-force-index", "sampler", "sampler-index"])
def test_golden_files_are_written_letter_for_letter(name: str) -> None:
    assert write_dump(golden(name)) == (GOLDEN / f"pareto-{name}.json").read_text()


def test_a_brute_force_by_name() -> None:
    found = golden("brute-force")
    assert (found.mode, found.slots, found.backends) == ("name", ("Conv2D", "Pool2D"), ALL[:2])
    assert found.solutions[1] == DumpSolution(id=1, time_ms=12.5, memory_kib=360448)
    assert found.space.names(found.space.decode(2)) == ("cpu", "acl_cl")
    assert not found.doubts


def test_by_index_a_brute_force_goes_through_half_the_codes_and_that_is_told() -> None:
    found = golden("brute-force-index")
    assert (found.mode, found.backends) == ("index", ALL[:2])
    assert found.slots == ("0 Conv2D", "1 Pool2D", "2 Conv2D")
    assert found.space.size == 8
    assert found.doubts == (
        "pareto_profiler tried 4 of 8 codes: its index mode has a bug, so the last group (2 Conv2D) is always on the "
        "first backend",
    )
    rows = [{"time": 1.0, "memory": 5, "id": i} for i in range(81)]
    data = {"oplist": ["A"], "opmap": [0, 1, 2, 3, 4], "opname_by_indx": ["A"] * 5}
    three = read_dump(json.dumps({**data, "solutions": rows}))
    assert three.backends == ALL and "81 of 243 codes" in three.doubts[0]
    two = read_dump(json.dumps({**data, "solutions": rows[:32]}))
    assert two.backends == ALL[:2] and not two.doubts


def test_a_sampler_by_name() -> None:
    found = golden("sampler")
    assert (found.mode, found.slots, found.backends) == ("name", ("Conv2D", "Pool2D", "Reshape"), ALL[:2])
    assert found.solutions[0] == DumpSolution(id=2, time_ms=41.5, memory_kib=52224)
    assert (found.sample_count, found.profiling_s) == (8, 12.5)
    assert found.configs[2].endswith(" ")


def test_by_index_a_sampler_s_oplist_is_the_opmap() -> None:
    found = golden("sampler-index")
    assert (found.mode, found.backends, found.opmap) == ("index", ALL, (0, 1, 2, 0))
    assert found.slots == ("group 0", "group 1", "group 2")
    assert found.space.names(found.space.decode(5)) == ("acl_neon", "acl_cl", "cpu")


@pytest.mark.parametrize("name", ["published-brute-force", "published-sampler"])
def test_the_published_dumps_are_written_as_they_were(name: str) -> None:
    found = golden(name)
    assert found.backends == ALL[:2]
    published = json.loads((GOLDEN / f"pareto-{name}.json").read_text())
    assert json.loads(write_dump(found)) == published
    assert json.loads(write_dump(replace(found, configs={}))) == published  # the same lines, made from the codes


def test_one_spelling_becomes_the_other() -> None:
    found = golden("brute-force")
    other = read_dump(write_dump(replace(found, spelling="sampler")))
    assert other.spelling == "sampler"
    assert replace(other, spelling="brute-force", configs={}) == found
    assert write_dump(replace(other, spelling="brute-force")) == write_dump(found)
    with pytest.raises(ProblemError, match="opname_by_indx"):
        write_dump(replace(golden("sampler-index"), spelling="brute-force"))


def test_the_number_of_backends_without_configs() -> None:
    def of(*ids: int, backends: tuple[str, ...] | None = None) -> Dump:
        rows = [{"time": 1, "memory": 1, "id": i} for i in ids]
        return read_dump(json.dumps({"oplist": ["A", "B"], "solutions": rows}), backends)

    assert of(*range(4)).doubts == ()
    assert of(*range(9)).backends == ALL
    assert of(*range(9)).doubts == ()
    assert of(5).backends == ALL  # no code of two backends
    assert of(5).doubts == ()
    assert of(3).backends == ALL[:2]
    assert "does not state the number of backends" in of(3).doubts[0]
    assert of(3, backends=ALL).doubts == ()
    assert of(15, backends=("cpu", "ruy", "xnnpack", "gpu")).space.decode(15) == (3, 3)
    with pytest.raises(ProblemError, match=r"\$\.solutions: empty.*the file does not show the backends"):
        of()
    assert of(backends=ALL).solutions == ()
    with pytest.raises(ProblemError, match=r"\$\.solutions\[1\]\.id: code 9 is out of range"):
        of(0, 9)
    with pytest.raises(ProblemError, match=r"\$\.solutions\[0\]\.id: code 4 is out of range: with 2 digits"):
        of(4, backends=ALL[:2])
    with pytest.raises(ProblemError, match=r"\$\.solutions\[2\]\.id: code 1 is already in \$\.solutions\[1\]"):
        of(0, 1, 1)


def test_a_backend_that_no_config_shows_is_asked_for() -> None:
    data = {
        "configs": {"0": 'BACKENDS="cpu;ruy;xnnpack" OP_BACKEND_A=cpu '},
        "oplist": ["A"],
        "solutions": [{"exec_time": 1, "max_rss": 1, "id": 0}],
        "mode": "name",
    }
    with pytest.raises(ProblemError, match="no config shows the digits of"):
        read_dump(json.dumps(data))
    assert read_dump(json.dumps(data), ("cpu", "xnnpack", "ruy")).backends == ("cpu", "xnnpack", "ruy")
    with pytest.raises(ProblemError, match="not the given"):
        read_dump(json.dumps(data), ALL)
    with pytest.raises(ProblemError, match="digit 0 means 'cpu' for 'A'"):
        read_dump(json.dumps(data), ("ruy", "cpu", "xnnpack"))


SAMPLER: dict[str, Any] = json.loads((GOLDEN / "pareto-sampler.json").read_text())
GOOD = SAMPLER["solutions"][0]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"oplist": []}, r"\$\.oplist: 1 to 4096 operator types"),
        ({"oplist": [1, 0]}, r"\$\.mode: 'index' expected, because the oplist is by index, 'name' found"),
        ({"mode": "both"}, r"\$\.mode: 'name' or 'index'"),
        ({"solutions": [{"id": 3}]}, r"\$\.solutions\[0\]: the keys 'time' and 'memory'"),
        ({"solutions": [GOOD, {**GOOD, "id": -1}]}, r"\$\.solutions\[1\]\.id: a whole number from 0"),
        ({"solutions": [GOOD, {**GOOD, "id": 8}]}, r"\$\.solutions\[1\]\.id: code 8 is out of range"),
        ({"solutions": [GOOD, {**GOOD, "id": 10**4000}]}, r"\$\.solutions\[1\]\.id: .*out of range"),
        ({"solutions": [{**GOOD, "exec_time": -1}]}, r"\$\.solutions\[0\]\.exec_time: a time from 0"),
        ({"solutions": [{**GOOD, "max_rss": 1 << 60}]}, r"\$\.solutions\[0\]\.max_rss: a memory size in KiB"),
        ({"solutions": [GOOD, {"time": 1, "memory": 1, "id": 3}]}, r"\$\.solutions\[1\]\.exec_time: missing"),
        ({"solutions": [GOOD, GOOD]}, r"\$\.solutions\[1\]\.id: code 2 is already in"),
        ({"profiling time": None, "sample_cnt": -1}, r"\$\.sample_cnt"),
        ({"backends": ["cpu", "cpu"]}, r"\$\.backends: a backend is named twice"),
        ({"configs": {"02": ""}}, r"\$\.configs\.02: a code"),
        ({"configs": {"²": ""}}, r"\$\.configs\..*: a code"),
        ({"configs": {"2": "\ud800"}}, r"\$\.configs\.2: BACKENDS"),
        ({"configs": {"8": SAMPLER["configs"]["7"]}}, r"\$\.configs\.8: out of range"),
        (
            {"configs": {"3": SAMPLER["configs"]["7"], "7": SAMPLER["configs"]["7"]}},
            r"\$\.configs\.3: digits 1 and 0 both mean 'acl_cl'",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_path(change: dict[str, Any], path: str) -> None:
    with pytest.raises(ProblemError, match=path) as told:
        read_dump(json.dumps({**SAMPLER, **change}))
    assert told.value.hint


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("OP_BACKEND_Conv2D=cpu", "BACKENDS, which lists the backends to load, is missing"),
        ("BACKENDS=cpu;cpu", "named twice"),
        ('BACKENDS=""', "1 to 10 names"),
        ("BACKENDS=cpu BACKENDS=cpu", "a setting is given twice"),
        ("BACKENDS=cpu rm -rf", "expected at 'rm -rf'"),
        ("BACKENDS=cpu OP_BACKEND_Conv2D=cpu", "OP_BACKEND_Pool2D is missing"),
        ("BACKENDS=cpu OP_BACKEND_Conv2D=cpu OP_BACKEND_Pool2D=ruy OP_BACKEND_Reshape=cpu", "not in BACKENDS"),
        (SAMPLER["configs"]["2"] + "OP_BACKEND_Add=cpu", "more settings"),
    ],
)
def test_a_config_that_does_not_fit_is_told(text: str, path: str) -> None:
    with pytest.raises(ProblemError, match=r"\$\.configs\.2") as told:
        read_dump(json.dumps({**SAMPLER, "configs": {"2": text}}))
    assert told.match(path)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0=cpu;1=cpu;2=cpu", "4 nodes expected, 3 found"),
        ("0=cpu;1=cpu;3=cpu;2=cpu", "'2=..' expected"),
        ("0=cpu;1=cpu;2=cpu;3=acl_cl", "node 3 is on 'acl_cl'"),
    ],
)
def test_a_map_of_nodes_that_does_not_fit_is_told(text: str, path: str) -> None:
    data = json.loads((GOLDEN / "pareto-sampler-index.json").read_text())
    data["configs"] = {"0": f'BACKENDS="acl_cl;acl_neon;cpu" OP_BACKEND_MAP="{text}"'}
    with pytest.raises(ProblemError, match=path):
        read_dump(json.dumps(data))
