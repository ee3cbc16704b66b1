"""`gnomon table`: what each command prints, its JSON documents, and errors with the next step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.table.table_kit import QUICK, space_file
from tests.spaces.test_latency_table import failed, relu, row, table

import gnomon
from gnomon.cli.main import run
from gnomon.jobs.table import job as table_build
from gnomon.jobs.table.folder import write_table
from gnomon.spaces.latency_table import Row

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "snpe"
SPACE = "mobilenetv2-cifar10"


def call(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = run(["table", *map(str, args)])
    told = capsys.readouterr()
    return code, told.out, told.err


def document(capsys: pytest.CaptureFixture[str], *args: object, code: int = 0) -> dict[str, Any]:
    found, out, _ = call(capsys, *args, "--json")
    assert found == code
    made: dict[str, Any] = json.loads(out)
    return made


def written(path: Path, *rows: Row, **changes: Any) -> Path:
    write_table(table(*rows, **changes), path)
    return path


@pytest.fixture
def space(tmp_path: Path) -> str:
    """A space of two units, as users name it."""
    (tmp_path / "two.py").write_text(
        "from gnomon.spaces import BlockSpace, Choice, skip\n"
        "space = BlockSpace(name='s', inputs=((1, 8, 4, 4),), parts=("
        "Choice('a', {'relu': lambda x: x.relu(), 'skip': skip}), lambda x: x.conv(9, 1).relu()))\n"
    )
    return f"{tmp_path / 'two.py'}:space"


def test_build(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.setattr(table_build.TableRequest.__init__, "__kwdefaults__", _quick(table_build.TableRequest))
    named = f"{space_file(tmp_path)}:space"
    args = ("build", named, "--out", tmp_path / "t", "--runtime", "onnxruntime", "--record", tmp_path / "r")
    code, out, err = call(capsys, *args, "--fuse", "none", "--quiet")
    assert code == 0
    assert "6 units of tiny" in out
    assert "No operators are fused" in out
    assert "units measured in" in out
    assert err == ""
    found = document(capsys, *args)
    assert (found["measured"], found["space"], len(found["units"])) == (0, "tiny", 6)
    assert {"table", "clock", "overhead_s", "anchor", "fused", "evidence", "counts", "doubts"} <= found.keys()
    (tmp_path / "space.py").rename(tmp_path / "away.py")
    assert "which gnomon does not know" not in call(capsys, "check", tmp_path / "t")[1]
    (tmp_path / "away.py").rename(tmp_path / "space.py")
    unlike = document(capsys, *args, "--fuse", "Conv+Relu", code=7)
    assert "fused chains" in unlike["error"]["message"]
    assert "--out" in unlike["error"]["hint"]


def _quick(made: Any) -> dict[str, Any]:
    return {**made.__init__.__kwdefaults__, "effort": QUICK}


@pytest.mark.parametrize(
    ("args", "told", "next_step"),
    [
        (["no-such-space"], "no-such-space", SPACE),
        (["none.py:space"], "none.py", ""),
        ([SPACE, "--fuse", "none", "--fuse", "Conv+Relu"], "cannot be combined with chains", ""),
        ([SPACE, "--fuse", "Conv+Nothing"], "Nothing", "Conv"),
        ([SPACE, "--runtime", "no-such-runtime"], "no-such-runtime", "onnxruntime"),
        ([SPACE, "--device", "no-such-device"], "no-such-device", "local"),
    ],
)
def test_build_refuses_what_cannot_be_meant(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, args: list[str], told: str, next_step: str
) -> None:
    code, out, err = call(capsys, "build", *args, "--out", tmp_path / "t")
    assert code not in (0, 70)
    assert out == ""
    assert told in err
    assert next_step in err
    assert not (tmp_path / "t").exists()


def test_check(capsys: pytest.CaptureFixture[str], tmp_path: Path, space: str) -> None:
    wide = row(8, 2e-4, status="unstable", low_s=1e-4, high_s=3e-4)
    path = written(tmp_path / "t", wide, failed(10), evidence=({"chain": "a", "source": "the user"},))
    code, out, _ = call(capsys, "check", path, "--space", space)
    assert code == 7
    assert "2 units of s: 1 unstable, 1 failed." in out
    assert "1 unit are unstable: Relu @ 1x8x4x4 (+- 50%)" in out
    assert "refused" in out


def test_check_of_a_good_table(capsys: pytest.CaptureFixture[str], tmp_path: Path, space: str) -> None:
    from gnomon.spaces.fuse import UNFUSED
    from gnomon.spaces.loading import load_space

    rows = [
        Row(unit=unit, status="ok", at_s=1.0, call_s=1e-4, low_s=0.99e-4, high_s=1.01e-4)
        for unit in load_space(space).tables(UNFUSED).units
    ]
    path = written(tmp_path / "t", *rows)
    assert document(capsys, "check", path, "--space", space)["complaints"] == []
    # A space that only its file names is not found by the table.
    told = document(capsys, "check", path, code=7)["complaints"]
    assert len(told) == 1
    assert "belongs to the space 's', which gnomon does not know" in told[0]
    other = document(capsys, "check", path, "--space", SPACE, code=2)["error"]
    assert f"belongs to the space 's', not to {SPACE}" in other["message"]
    document(capsys, "check", written(tmp_path / "less", *rows[1:]), "--space", space, code=7)


def test_long_names_are_cut_in_text_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    reason = "\x1b[31mred\n" * 100
    path = written(tmp_path / "t", row(8), Row(unit=relu(9), status="failed", at_s=1.0, reason=reason), space="s" * 300)
    assert document(capsys, "check", path, code=7)["units"][1]["reason"] == reason
    _, out, _ = call(capsys, "check", path)
    assert "\x1b[31m" not in out


def test_diff(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first = written(tmp_path / "a", row(8, 1e-4), row(9, 1e-4), row(10, 1e-4))
    second = written(tmp_path / "b", row(8, 2e-4), row(9, 1.001e-4), row(11, 1e-4), clock="wall")
    code, out, _ = call(capsys, "diff", first, second)
    assert code == 0
    assert "2 common units: " in out
    assert "Different conditions: clock: cpu and wall." in out
    assert "within noise" in out
    _, out, _ = call(capsys, "diff", first, written(tmp_path / "c", row(99)))
    assert "no unit in common" in out


def test_all_runtimes_of_a_file_make_a_table_each_and_one_file_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = tmp_path / "snpe.csv"
    lines = (GOLDEN / "snpe-table.csv").read_text().splitlines()
    every = [line.replace(",GPU,", f",{runtime},") for runtime in ("CPU", "GPU", "DSP") for line in lines]
    source.write_text("".join(f"{line}\r\n" for line in every), newline="")
    code, out, err = call(capsys, "import", source, "--space", SPACE, "--out", tmp_path / "t")
    assert (code, err) == (0, "")
    assert out.startswith("3 tables, one for each runtime.")
    assert out.count("1 unit of mobilenetv2-cifar10: of unknown precision") == 3
    tables = [str(tmp_path / "t" / runtime) for runtime in ("CPU", "GPU", "DSP")]
    assert all(f"  {Path(table).name:<8} {table}" in out for table in tables)
    found = document(capsys, "import", source, "--space", SPACE, "--out", tmp_path / "u")
    assert list(found) == ["format", "version", "tables"]
    assert [one["table"] for one in found["tables"]] == [table.replace("/t/", "/u/") for table in tables]
    assert found["tables"][0]["units"] == document(capsys, "check", tables[0], code=7)["units"]
    document(capsys, "export", *tables, "--out", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() == source.read_bytes()
    one = document(capsys, "import", source, "--space", SPACE, "--runtime", "DSP", "--out", tmp_path / "one")
    assert one["table"] == str(tmp_path / "one")
    assert gnomon.import_tables(source, space=SPACE, out=tmp_path / "v").document()["format"] == "gnomon-tables"
    exported = gnomon.export_table(tmp_path / "v" / "DSP", out=tmp_path / "dsp.csv")
    assert Path(exported.files[0]).read_bytes().count(b",DSP,") == 9
