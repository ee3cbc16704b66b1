"""No reader takes much more than twice as long for twice as much, whatever is repeated."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from gnomon.core.overlay.records import TunedModel
from gnomon.core.space import Slot, Space
from gnomon.devices.laid_out import parse_files
from gnomon.devices.shell.facts import _count, _libc
from gnomon.errors import GnomonError
from gnomon.formats.aw_nas.config import read_aw_nas_config
from gnomon.formats.aw_nas.tables import read_accuracies, read_latencies, read_lookup
from gnomon.formats.block_table import read_block_table
from gnomon.formats.dpu_profile import read_dpu_profile
from gnomon.formats.ncnn_param import parse_ncnn_param
from gnomon.formats.nets_csv import read_nets
from gnomon.formats.onert.manifest import parse_manifest
from gnomon.formats.onert.trace import read_chrome_trace, read_trace
from gnomon.formats.pareto.dump import read_dump
from gnomon.formats.pareto.oplist import read_oplist
from gnomon.formats.problem import read_problem
from gnomon.formats.snpe.bench import read_accumulation, read_bench_result
from gnomon.formats.snpe.meta import read_dlc_inputs, read_snpe_meta
from gnomon.formats.snpe.table import read_nnabla_csv, read_snpe_csv, read_snpe_json
from gnomon.formats.tuning.logs import read_ansor_log, read_autotvm_log, read_target
from gnomon.formats.tuning.records import read_tuning_records
from gnomon.formats.yaml import plain

MODEL = TunedModel(name="m")
SPACE = Space(slots=(Slot(name="a", choices=("x", "y")),))
READERS: dict[str, Callable[[str], Any]] = {
    "accumulation": read_accumulation,
    "accuracies": read_accuracies,
    "ansor log": lambda text: read_ansor_log(text, key="k", model=MODEL),
    "autotvm log": lambda text: read_autotvm_log(text, key="k", model=MODEL),
    "aw_nas config": read_aw_nas_config,
    "bench result": read_bench_result,
    "block table": read_block_table,
    "chrome trace": lambda text: read_chrome_trace(text.encode()),
    "dlc inputs": read_dlc_inputs,
    "dpu profile": read_dpu_profile,
    "dump": read_dump,
    "files of a device": lambda text: parse_files(text.encode()),
    "latencies": read_latencies,
    "libc of a device": lambda text: _libc("/lib/libc.so.6", text),
    "list of cores": _count,
    "lookup": read_lookup,
    "manifest": parse_manifest,
    "ncnn param": parse_ncnn_param,
    "nets": lambda text: read_nets(text.encode(), SPACE),
    "nnabla csv": read_nnabla_csv,
    "oplist": read_oplist,
    "problem": read_problem,
    "snpe csv": read_snpe_csv,
    "snpe json": read_snpe_json,
    "snpe meta": read_snpe_meta,
    "stab trace": read_trace,
    "target": read_target,
    "tuning records": read_tuning_records,
    "yaml scalar": plain,
}
REPEATED = (
    *"01:,-[{(\"'\\ \n\t.x#&*!|",
    *(
        "1:",
        "1.",
        "0,",
        "a,",
        "a{k},",
        "a\n",
        "a{k}\n",
        "a{k}: 1\n",
        "- a\n",
        "? a\n",
        "{",
        "[1,",
        "[],",
        "{},",
        "\\u00",
        "//",
        "(0, ",
    ),
    *(
        "u{k},R{k},1\n",
        "u{k},CPU,1\n",
        "'a{k}': 1, ",
        '"a{k}": 1, ',
        '{"a": {k}}\n',
        "0-1,",
        "\x1e/f{k}\x1f1\n",
        "Input a{k} 0 1 x{k}\n",
    ),
)
BEGINNINGS = ("", '{"a": [', "7767517\n100000 100000\n", "uid,runtime,Avg_Time\n")
LETTERS = 5_000


@cache
def text_of(beginning: str, repeated: str, letters: int) -> str:
    """What is repeated, with a number each where it has a place for one, behind a beginning."""
    if "{k}" not in repeated:
        return beginning + repeated * (letters // len(repeated))
    parts, length = [beginning], len(beginning)
    while length < letters:
        parts.append(repeated.replace("{k}", str(len(parts))))
        length += len(parts[-1])
    return "".join(parts)


def cpu_s(reader: Callable[[str], Any], text: str) -> float:
    began_s = time.process_time()
    with suppress(GnomonError, ValueError):
        reader(text)
    return time.process_time() - began_s


@pytest.mark.parametrize("name", READERS)
def test_four_times_as_much_takes_about_four_times_as_long(name: str) -> None:
    """A reader that takes twice that for the same letters grows faster; the best of several runs counts."""
    reader, slow = READERS[name], []
    for beginning in BEGINNINGS:
        for repeated in REPEATED:
            large_s = cpu_s(reader, text_of(beginning, repeated, 4 * LETTERS))
            if large_s < 0.1:  # so that a megabyte takes some seconds even where it grows with the square
                continue
            small_s = min(cpu_s(reader, text_of(beginning, repeated, LETTERS)) for _ in range(3))
            large_s = min(large_s, *(cpu_s(reader, text_of(beginning, repeated, 4 * LETTERS)) for _ in range(2)))
            if large_s > 8 * small_s + 0.02:
                slow.append((beginning, repeated, small_s, large_s))
    assert not slow
