"""Tables of the replaced tool in and out: letter for letter, and what of hostile or incomplete files is left out."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.formats.scans import read_snpe_csv
from tests.spaces.test_latency_table import CONTEXT, failed, relu

from gnomon.errors import ProblemError, UsageError
from gnomon.formats.nets_csv import NetRow, write_nets
from gnomon.formats.snpe.table import (
    write_snpe_csv,
    write_snpe_json,
)
from gnomon.jobs.table.exchange import export_sums, export_table, import_tables
from gnomon.jobs.table.folder import read_table, write_table
from gnomon.spaces.catalogue.mobilenetv2_cifar10 import module_uids
from gnomon.spaces.fuse import UNFUSED, rules
from gnomon.spaces.latency_table import Manifest, Row, Table
from gnomon.spaces.loading import load_space
from gnomon.spaces.uid import unit_of_uid

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "snpe"
SPACE = "mobilenetv2-cifar10"
RELU = "ReLU6[][[1,32,16,16]]"
TIMES = {"Layers Time": {"Min_Time": 30, "Avg_Time": 37, "Max_Time": 41}}


def file_of(folder: Path, entries: dict[str, dict[str, dict[str, dict[str, int]]]], name: str = "t.csv") -> Path:
    (folder / name).write_text(
        write_snpe_json(entries) if name.endswith("json") else write_snpe_csv(entries), encoding="utf-8", newline=""
    )
    return folder / name


def import_table(file: Path, out: Path, **options: str) -> tuple[Table, tuple[str, ...]]:
    """The table of one runtime."""
    tables, left_out = import_tables(file, out, **{"space": SPACE, **options})
    assert list(tables) == [out]
    return tables[out], left_out


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_the_published_sample_goes_in_and_out_letter_for_letter(tmp_path: Path, ending: str) -> None:
    source = tmp_path / f"in.{ending}"
    published = (GOLDEN / "snpe-table.csv").read_bytes()
    if ending == "csv":
        source.write_bytes(published)
    else:
        source.write_text(write_snpe_json(read_snpe_csv(published)), encoding="utf-8")
    source.with_suffix(".meta").write_bytes((GOLDEN / "snpe-table.meta").read_bytes())
    table, left_out = import_table(source, tmp_path / "t")
    assert left_out == ()
    (row,) = table.rows
    assert row.call_s == pytest.approx(37e-6)  # what its layers took: not the 700 us of the isolated call
    assert table.manifest.overhead_s == 0
    assert table.manifest.context["runtime"] == "GPU"
    files, lost = export_table([tmp_path / "t"], tmp_path / f"out.{ending}")
    assert lost == ()
    assert files[0].read_bytes().replace(b"\r\n", b"\n") == source.read_bytes().replace(b"\r\n", b"\n")
    told = files[1].read_bytes().replace(b"\r\n", b"\n").replace(b'"', b"")
    assert told == (GOLDEN / "snpe-table.meta").read_bytes().replace(b"\r\n", b"\n").replace(b'"', b"")


def test_all_modules_keep_their_names_and_sums_are_those_that_the_tool_accumulates(tmp_path: Path) -> None:
    space = load_space(SPACE)
    names = module_uids(space.tables(UNFUSED).units)
    slow = {"Layers Time": {statistic: 2 * value for statistic, value in TIMES["Layers Time"].items()}}
    source = file_of(tmp_path, {name: {"GPU": TIMES, "DSP": slow} for name in names})
    tables, _ = import_tables(source, tmp_path / "t", space=SPACE)
    chosen = [tuple(k % len(slot.choices) for slot in space.space.slots) for k in range(2)]
    nets = tmp_path / "nets.csv"
    nets.write_text(write_nets([NetRow(assignment=one) for one in chosen], space.space, measured=False))
    files = export_sums(list(tables), nets, tmp_path / "sums")
    assert [file.name for file in files] == ["000.json", "001.json"]
    for file, one in zip(files, chosen, strict=True):
        count = len(space.net(one).nodes)
        assert json.loads(file.read_bytes()) == {"GPU": 37.0 * count, "DSP": 74.0 * count}
    export_table(list(tables), tmp_path / "out.csv")
    assert len(names) == 126 and (tmp_path / "out.csv").read_bytes() == source.read_bytes()
    few = file_of(tmp_path, {name: {"GPU": TIMES} for name in list(names)[:3]}, "few.csv")
    import_table(few, tmp_path / "few")
    with pytest.raises(UsageError, match=r"net 1 .* units without a time"):
        export_sums([tmp_path / "few"], nets, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_unit_that_lacks_the_runtime_is_failed_and_never_zero(tmp_path: Path) -> None:
    other = "ReLU6[][[1,64,16,16]]"
    source = file_of(tmp_path, {RELU: {"CPU": TIMES, "DSP": TIMES}, other: {"CPU": TIMES}})
    with pytest.raises(UsageError, match="no runtime 'GPU'") as refused:
        import_table(source, tmp_path / "t", runtime="GPU")
    assert "CPU, DSP" in refused.value.hint
    none = file_of(tmp_path, {RELU: {}}, "none.json")
    with pytest.raises(UsageError, match="has no unit with times"):
        import_table(none, tmp_path / "t")
    table, left_out = import_table(source, tmp_path / "t", runtime="DSP")
    assert [(row.unit, row.reason) for row in table.failed] == [
        (unit_of_uid(other), "the file has no DSP for this unit")
    ]
    assert set(table.times_s) == {unit_of_uid(RELU)}
    assert len(left_out) == 2
    assert " lacks " in left_out[1]
    files, lost = export_table([tmp_path / "t"], tmp_path / "out.csv")
    assert len(lost) == 1
    assert "no DSP" in lost[0]
    assert files[0].read_text().count("DSP") == 3


RUNTIMES = ("CPU", "GPU", "GPU_FP16", "DSP")


def all_runtimes(folder: Path, ending: str) -> Path:
    """The published sample as the tool writes it for all of its runtimes, with its meta."""
    (uid, times), *_ = read_snpe_csv((GOLDEN / "snpe-table.csv").read_bytes()).items()
    entries = {
        unit: {
            runtime: {
                key: {statistic: value + 10 * number for statistic, value in statistics.items()}
                for key, statistics in times["GPU"].items()
            }
            for number, runtime in enumerate(RUNTIMES)
        }
        for unit in (uid, RELU)
    }
    source = folder / f"in.{ending}"
    text = write_snpe_csv(entries) if ending == "csv" else json.dumps(entries)
    source.write_text(text, encoding="utf-8", newline="")
    meta = (GOLDEN / "snpe-table.meta").read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    source.with_suffix(".meta").write_bytes(meta)
    return source


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_all_runtimes_of_a_file_go_in_and_out_letter_for_letter(tmp_path: Path, ending: str) -> None:
    source = all_runtimes(tmp_path, ending)
    tables, left_out = import_tables(source, tmp_path / "t", space=SPACE)
    assert left_out == ()
    assert list(tables) == [tmp_path / "t" / runtime for runtime in RUNTIMES]
    assert [table.manifest.context["runtime"] for table in tables.values()] == list(RUNTIMES)
    assert [table.rows[0].call_s for table in tables.values()] == pytest.approx([37e-6, 47e-6, 57e-6, 67e-6])
    assert [read_table(path) for path in tables] == list(tables.values())
    (file, meta), lost = export_table(list(tables), tmp_path / f"out.{ending}")
    assert lost == ()
    assert file.read_bytes() == source.read_bytes()
    assert meta.read_bytes() == source.with_suffix(".meta").read_bytes()
    export_table([tmp_path / "t" / "DSP", tmp_path / "t" / "CPU"], tmp_path / "two.json")
    assert [list(times) for times in json.loads((tmp_path / "two.json").read_text()).values()] == [["DSP", "CPU"]] * 2


def test_a_runtimes_name_makes_a_folder_of_its_own_below(tmp_path: Path) -> None:
    names = ("cpu:float", "cpu-float", "CPU:float", "a..", "A.")
    (tmp_path / "t.csv").write_text("".join(f'"{RELU}",{name},1.5\n' for name in names))
    tables, _ = import_tables(tmp_path / "t.csv", tmp_path / "t", space=SPACE)
    assert [path.name for path in tables] == ["cpu-float", "cpu-float-2", "CPU-float-3", "a..", "A."]
    assert {path.parent for path in tables} == {tmp_path / "t"}
    export_table(list(tables), tmp_path / "out.json")
    (found,) = json.loads((tmp_path / "out.json").read_text()).values()
    assert tuple(found) == names


@pytest.mark.parametrize("name", ["..", "/up", "a\\b", "", "a\0b"])
def test_a_runtime_whose_name_is_a_path_is_refused(tmp_path: Path, name: str) -> None:
    source = file_of(tmp_path, {RELU: {name: TIMES, "CPU": TIMES, "GPU": TIMES}}, "t.json")
    tables, left_out = import_tables(source, tmp_path / "t", space=SPACE)
    assert [path.name for path in tables] == ["CPU", "GPU"]
    assert "a runtime such as CPU" in left_out[0]


def test_what_lacks_a_runtime_keeps_its_place_and_the_others(tmp_path: Path) -> None:
    first, second, third = list(module_uids(load_space(SPACE).tables(UNFUSED).units))[:3]
    entries = {first: {"GPU": TIMES}, second: {"CPU": TIMES, "GPU": TIMES}, third: {"CPU": TIMES}}
    tables, left_out = import_tables(file_of(tmp_path, entries), tmp_path / "t", space=SPACE)
    assert [len(table.failed) for table in tables.values()] == [1, 1]
    assert sum("although other units have them" in told for told in left_out) == 2
    (file, _), lost = export_table(sorted(tables), tmp_path / "out.json")
    assert json.loads(file.read_text()) == entries
    assert [told.partition(": ")[2] for told in lost] == [
        "the file has no CPU for this unit",
        "the file has no GPU for this unit",
    ]
    assert [told.split("(")[-1].partition(")")[0] for told in lost] == ["CPU", "GPU"]


def test_tables_that_cannot_stand_in_one_file(tmp_path: Path) -> None:
    tables, _ = import_tables(all_runtimes(tmp_path, "csv"), tmp_path / "t", space=SPACE)
    cpu, *_ = tables
    with pytest.raises(UsageError, match="both have times of the runtime CPU") as refused:
        export_table([cpu, *tables], tmp_path / "out.csv")
    assert "table merge" in refused.value.hint
    other = Manifest(space="fbnet", context=CONTEXT | {"runtime": "x"}, clock="cpu", overhead_s=0.0)
    write_table(Table(manifest=other, rows=(failed(8),)), tmp_path / "other")
    with pytest.raises(UsageError, match=f"belongs to the space 'fbnet', and .* to '{SPACE}'"):
        export_table([cpu, tmp_path / "other"], tmp_path / "out.csv")
    with pytest.raises(UsageError, match="no table is given"):
        export_table([], tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_the_meta_of_tables_that_were_measured_apart_says_all_of_them(tmp_path: Path) -> None:
    for name in ("a", "b"):
        context = CONTEXT | {"runtime": name, "configuration": f"{name}-configuration"}
        manifest = Manifest(space=SPACE, context=context, clock="cpu", overhead_s=0.0)
        write_table(Table(manifest=manifest, rows=(measured(8),)), tmp_path / name)
    (_, meta), _ = export_table([tmp_path / "a", tmp_path / "b"], tmp_path / "out.csv")
    assert "Devices:a-configuration, b-configuration" in meta.read_text()
    assert meta.read_text().count("ro.product.model:a") == 1


def test_another_time_of_the_file_may_be_asked_for(tmp_path: Path) -> None:
    whole = {"Total Inference Time": {"Min_Time": 600, "Avg_Time": 700, "Max_Time": 800}, **TIMES}
    source = file_of(tmp_path, {RELU: {"CPU": whole}, "ReLU6[][[1,64,16,16]]": {"CPU": TIMES}})
    table, _ = import_table(source, tmp_path / "t", key="Total Inference Time")
    assert table.times_s == {unit_of_uid(RELU): pytest.approx(700e-6)}
    assert "no Total Inference Time" in table.failed[0].reason
    with pytest.raises(UsageError) as refused:
        import_table(source, tmp_path / "u", key="Time")
    assert "Layers Time" in refused.value.hint


def test_what_names_no_unit_is_left_out_and_told(tmp_path: Path) -> None:
    names = ["/home/someone/ReLU6[][[1,32,16,16]]", "Mystery[][[1,32,16,16]]", "x" * 300, "ReLU6[][[1,0,16,16]]"]
    source = file_of(tmp_path, {name: {"CPU": TIMES} for name in (RELU, *names)}, "t.json")
    table, left_out = import_table(source, tmp_path / "t")
    assert [row.unit for row in table.rows] == [unit_of_uid(RELU)]
    assert len(left_out) == 4
    assert any("slash" in told for told in left_out)
    assert any("'Mystery' of a UID is not known" in told for told in left_out)
    assert all(len(told) < 400 for told in left_out)


def test_files_of_which_nothing_can_be_used_are_refused(tmp_path: Path) -> None:
    for name, text in (("a.csv", ""), ("b.csv", "nonsense\n"), ("c.json", "{}"), ("d.json", "[")):
        (tmp_path / name).write_text(text)
        with pytest.raises((ProblemError, UsageError)) as refused:
            import_table(tmp_path / name, tmp_path / "t")
        assert refused.value.hint
        assert not (tmp_path / "t").exists()
    with pytest.raises(UsageError, match=f"the space {SPACE} has none of the 1 units in .*, such as Batch") as foreign:
        import_table(file_of(tmp_path, {BATCH_NORM: {"CPU": TIMES}}), tmp_path / "t")
    assert "--space" in foreign.value.hint and not (tmp_path / "t").exists()
    strange = file_of(tmp_path, {"Mystery[][[1]]": {"CPU": TIMES}})
    with pytest.raises(ProblemError, match="Mystery"):
        import_table(strange, tmp_path / "t")
    with pytest.raises(UsageError, match="cannot be read"):
        import_table(tmp_path / "none.csv", tmp_path / "t")
    with pytest.raises(UsageError, match="already exists"):
        import_table(file_of(tmp_path, {RELU: {"CPU": TIMES}}), tmp_path)
    with pytest.raises(UsageError, match="already exists"):
        import_tables(all_runtimes(tmp_path, "csv"), tmp_path, space=SPACE)


BATCH_NORM = "BatchNormalization[n_features=4,fix_parameters=False][[1,4,2,2]]"


@pytest.mark.parametrize("units", [[RELU], [RELU, BATCH_NORM]])
def test_the_csv_of_the_nnabla_variant_is_read(tmp_path: Path, units: list[str]) -> None:
    (tmp_path / "t.csv").write_text("".join(f'"{unit}",cpu:float,1.5\n' for unit in units))
    table, left_out = import_table(tmp_path / "t.csv", tmp_path / "t")
    assert list(table.times_s.values()) == [pytest.approx(1.5e-3)] * len(units)
    foreign = [f"1 of 2 units: the space {SPACE} lacks {unit_of_uid(BATCH_NORM).label}"]
    assert list(left_out) == foreign[: len(units) - 1]


def own(folder: Path, *rows: Row) -> Path:
    manifest = Manifest(space=SPACE, context=CONTEXT | {"runtime": "onnxruntime"}, clock="cpu", overhead_s=1e-6)
    write_table(Table(manifest=manifest, rows=rows), folder / "own")
    return folder / "own"


def measured(width: int) -> Row:
    samples = {"0/0": (10e-6, 12e-6), "1/0": (11e-6,)}
    return Row(unit=relu(width), status="ok", at_s=1.0, call_s=11e-6, low_s=10e-6, high_s=12e-6, samples=samples)


def test_what_was_measured_here_is_written_in_microseconds_without_the_overhead(tmp_path: Path) -> None:
    path = own(tmp_path, measured(8), failed(9))
    (file, meta), lost = export_table([path], tmp_path / "out.json")
    (found,) = json.loads(file.read_text()).values()
    assert found["onnxruntime"]["Layers Time"] == {"Min_Time": 9.0, "Avg_Time": 10.0, "Max_Time": 11.0}
    assert found["onnxruntime"]["Total Inference Time"] == {"Min_Time": 10.0, "Avg_Time": 11.0, "Max_Time": 12.0}
    assert "ro.product.model:a" in meta.read_text()
    assert len(lost) == 1
    told = json.loads(file.read_text())
    told[RELU] = next(iter(told.values()))
    file.write_text(json.dumps(told))
    again, _ = import_table(file, tmp_path / "back")
    assert again.times_s[relu(8)] == pytest.approx(10e-6)
    assert read_table(tmp_path / "back") == again


def test_fused_units_are_a_csv_of_our_own(tmp_path: Path) -> None:
    units = load_space(SPACE).tables(rules(["Conv+BatchNormalization"])).units
    fused = next(unit for unit in units if len(unit.layers) > 1)
    path = own(tmp_path, replace(measured(8), unit=fused), failed(9))
    assert export_table([path], tmp_path / "out.csv") == ((tmp_path / "out.csv",), ())
    first, second = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert (first["id"], first["label"], first["status"]) == (fused.id, fused.label, "ok")
    figures = [float(first[f"{name}_us"]) for name in ("time", "call", "low", "high")]
    assert figures == pytest.approx([10.0, 11.0, 10.0, 12.0])
    assert (second["status"], second["time_us"], second["high_us"]) == ("failed", "", "")


def test_what_has_no_name_there_is_not_exported(tmp_path: Path) -> None:
    units = load_space(SPACE).tables(rules(["Conv+BatchNormalization"])).units
    fused = next(unit for unit in units if len(unit.layers) > 1)
    path = own(tmp_path, replace(measured(8), unit=fused))
    with pytest.raises(UsageError, match=r"Conv\+BatchNormalization.*no UID") as refused:
        export_table([path], tmp_path / "out.json")
    assert "--fuse none" in refused.value.hint and "--out FILE.csv" in refused.value.hint
    with pytest.raises(UsageError, match=r"neither \.csv nor \.json"):
        export_table([path], tmp_path / "out.txt")
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    with pytest.raises(UsageError, match="no unit of"):
        export_table([own(nothing, failed(8))], tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
