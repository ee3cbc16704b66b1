"""Are the lines that an overlay writes those of the best configurations? No reference data is needed.

Random sets of AutoTVM 0.2 and Ansor logs have 2 to 4 devices, configurations that some devices lack or timed several
times, errors, CRLF, a truncated last line, and equal times. `gnomon overlay analyze --portfolio 2` writes its choice,
which is then read by json alone and compared with an exhaustive choice: the configuration with the least M (the sum
over devices of time divided by least time, minus 1), among equal ones that with the least worst regret, and then that
with the least identity; and for the builds, all ways to divide the devices into two groups. Each line must be in a log
of its device, byte for byte, and be the fastest of its configuration there. Target: all sets agree.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import parser, publish
from gnomon.api.tune import overlay_analyze
from gnomon.errors import GnomonError

Key = tuple[str, str]
"""A layer and a configuration, both as JSON."""
Logs = dict[str, list[bytes]]
WRONG = (4, 5)
ROUNDING = 1e-12


def autotvm(layer: int, number: int, device: str, times_s: Sequence[float], error: int) -> str:
    """A line of AutoTVM."""
    tensors = [["TENSOR", [1, 8, layer + 1], "float32"], ["TENSOR", [4, 8], "float32"]]
    entity = [["tile_x", "sp", [-1, number]], ["unroll kw", "ot", bool(number % 2)]]
    config = {"index": 3 * number, "code_hash": None, "entity": entity}
    said = {"input": [f"llvm -mcpu={device}", "dense.x86", tensors, {}], "config": config}
    return json.dumps({**said, "result": [times_s, error, 1.0, 1.6e9], "version": 0.2, "tvm_version": "0.8.0"})


def ansor(layer: int, number: int, device: str, times_s: Sequence[float], error: int) -> str:
    """A line of Ansor."""
    task = [f'["{layer:032x}", [1, 8], [8, {layer + 1}]]', f"llvm -mcpu={device}", [4, 16, 64], "", 2, []]
    return json.dumps(
        {"i": [task, [[], [["SP", 2, 0, number, [1, 4], 1]]]], "r": [times_s, error, 1.0, 1600], "v": "v0.6"}
    )


def random_logs(rng: random.Random) -> tuple[str, Logs]:
    """The tuner, and the lines of each device's log with their ends."""
    tuner = rng.choice(["atvm", "ansor"])
    line, coarse = autotvm if tuner == "atvm" else ansor, rng.random() < 0.3
    logs: Logs = {}
    for device in ["a53", "a72", "a76", "x1"][: rng.randint(2, 4)]:
        rows = []
        for layer, number in itertools.product(range(1, 4), range(rng.randint(2, 6))):
            for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 3])):
                times = [
                    rng.randint(1, 3) / 1e3 if coarse else rng.uniform(1e-3, 1e-2) for _ in range(rng.randint(1, 3))
                ]
                error = rng.choice([1, 4, 5, 6, 7]) if rng.random() < 0.1 else 0
                rows.append(line(layer, number, device, [1e9] if error else times, error))
        rng.shuffle(rows)
        end = rng.choice(["\n", "\r\n"])
        texts = [f"{row}{end}".encode() for row in rows]
        if texts and rng.random() < 0.3:
            texts[-1] = texts[-1][: rng.randint(1, len(texts[-1]) - 3)]
        logs[device] = texts
    return tuner, logs


def parsed(line: bytes) -> tuple[Key, list[float], int] | None:
    """The layer and configuration of a line, its samples and its error; None for a truncated line."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    if "input" in said:
        (_, task, tensors, _), trace, result = said["input"], said["config"]["entity"], said["result"]
        layer = json.dumps([task, tensors], separators=(",", ":"))
    else:
        (task, trace), result = said["i"], said["r"]
        layer = task[0]
    return (layer, json.dumps(trace, separators=(",", ":"))), result[0], result[1]


def identity(key: Key) -> str:
    """The key that decides between equal configurations."""
    return hashlib.sha256(f"[{json.dumps(key[0])},{key[1]}]".encode()).hexdigest()


def medians(logs: Logs) -> dict[str, dict[Key, float]]:
    """The time of each configuration on each device: the median of all samples; none if it was ever wrong there."""
    made: dict[str, dict[Key, float]] = {}
    for device, lines in logs.items():
        samples: dict[Key, list[float]] = {}
        wrong = set()
        for key, times, error in filter(None, map(parsed, lines)):
            if error in WRONG:
                wrong.add(key)
            elif not error:
                samples.setdefault(key, []).extend(times)
        made[device] = {key: statistics.median(times) for key, times in samples.items() if key not in wrong}
    return made


def regrets(times: Mapping[str, Mapping[Key, float]]) -> dict[str, dict[Key, dict[str, float]]]:
    """The regrets, by layer and configuration, on each device that has its time."""
    made: dict[str, dict[Key, dict[str, float]]] = {}
    least: dict[tuple[str, str], float] = {}
    for device, found in times.items():
        for key, time in found.items():
            least[device, key[0]] = min(time, least.get((device, key[0]), math.inf))
    for device, found in times.items():
        for key, time in found.items():
            theta = least[device, key[0]]
            made.setdefault(key[0], {}).setdefault(key, {})[device] = (time - theta) / theta
    return made


def best(table: Mapping[Key, Mapping[str, float]], devices: Sequence[str]) -> Key | None:
    """The configuration of a layer that is chosen for devices; None if no configuration has times on all of them."""
    rows = {key: [row[d] for d in devices] for key, row in table.items() if row.keys() >= set(devices)}
    if not rows:
        return None
    least = min(map(sum, rows.values()))
    rows = {key: row for key, row in rows.items() if sum(row) <= least + ROUNDING * (least + len(devices))}
    worst = min(map(max, rows.values()))
    return min((key for key, row in rows.items() if max(row) <= worst + ROUNDING * (worst + 1)), key=identity)


def lost(groups: Sequence[Sequence[str]], table: Mapping[str, Any], shares: Mapping[str, float]) -> float:
    """The loss of builds for groups of devices."""
    total = 0.0
    for layer, share in shares.items():
        for group in groups:
            total += share * min(
                sum(row[d] for d in group) for row in table[layer].values() if row.keys() >= set(group)
            )
    return total


def divided(devices: Sequence[str]) -> Iterator[list[list[str]]]:
    """All ways to divide the devices into at most two groups."""
    for code in range(2 ** (len(devices) - 1)):
        groups = [[d for k, d in enumerate(devices) if (code >> k) & 1 == side] for side in (0, 1)]
        yield [group for group in groups if group]


def problems(seed: int, folder: Path) -> list[str]:
    """The errors in the output for a random set of logs; empty if there are none."""
    tuner, logs = random_logs(random.Random(seed))
    paths = []
    for device, lines in logs.items():
        paths.append(folder / f"{device}.net.float32.{tuner}.json")
        paths[-1].write_bytes(b"".join(lines))
    times, out = medians(logs), folder / "out"
    table, devices = regrets(times), sorted(logs)
    wanted = {layer: key for layer, rows in table.items() if (key := best(rows, devices)) is not None}
    try:
        overlay_analyze(paths, out=out, portfolio=2, resamples=1)
    except GnomonError as error:
        return [str(error)] if all(any(map(parsed, lines)) for lines in logs.values()) else []
    if not wanted:
        return ["something was written"] if out.exists() else []
    told, every = [], set[bytes]()
    for device in devices:
        lines = (out / f"overlay/{device}.net.float32.{tuner}.json").read_bytes().splitlines(keepends=True)
        every.update(lines)
        found = [one for one in map(parsed, lines) if one is not None]
        if sorted(key for key, _, _ in found) != sorted(wanted.values()):
            told.append(f"{device}: other configurations")
        if any(error for _, _, error in found) or not {*lines} <= {*logs[device]}:
            told.append(f"{device}: lines that are not in the log, or failed")
        timed = [one for one in map(parsed, logs[device]) if one is not None and not one[2]]
        if any(
            min(map(statistics.median, (t for k, t, _ in timed if k == key))) < statistics.median(times_s)
            for key, times_s, _ in found
        ):
            told.append(f"{device}: another line of a configuration is faster")
    whole = (out / f"overlay/all-devices.net.float32.{tuner}.log").read_bytes().splitlines(keepends=True)
    if sorted(whole) != sorted(every):
        told.append("the file of all devices has others")
    theta = {d: {layer: min(t for key, t in times[d].items() if key[0] == layer) for layer in wanted} for d in devices}
    shares = {layer: statistics.mean(theta[d][layer] / sum(theta[d].values()) for d in devices) for layer in wanted}
    select = json.loads((out / "overlay/net.float32.portfolio/select.json").read_bytes())["devices"]
    groups = [[d for d in devices if select[d]["build"] == k] for k in (1, 2)]
    least = min(lost(one, table, shares) for one in divided(devices))
    if lost([group for group in groups if group], table, shares) > least + 1e-9:
        told.append("other builds lose less")
    for device in devices:
        built = map(parsed, (out / "overlay/net.float32.portfolio" / select[device]["tuned"]).read_bytes().splitlines())
        mine = {one[0][0]: table[one[0][0]][one[0]] for one in built if one is not None}
        group = next(group for group in groups if device in group)
        for layer in wanted:
            here = min(sum(row[d] for d in group) for row in table[layer].values() if row.keys() >= set(group))
            if sum(mine[layer][d] for d in group) > here + 1e-9:
                told.append(f"{device}: its build has another configuration")
    return told


def main() -> None:
    """Measure all figures."""
    made = parser(__doc__)
    made.add_argument("--sets", type=int, default=300)
    given = made.parse_args()
    wrong = {}
    for seed in range(given.sets):
        with tempfile.TemporaryDirectory() as folder:
            if told := problems(seed, Path(folder)):
                wrong[seed] = told
    publish({"benchmark": "overlay_lines", "sets": given.sets, "equal": given.sets - len(wrong), "wrong": wrong}, given)


if __name__ == "__main__":
    main()
