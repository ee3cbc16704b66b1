"""The card of this machine, as TVM's runtime for CUDA shows it to a process of its own."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.errors import DeviceError, RuntimeMissingError, UsageError
from gnomon.system.children import Program, child_environment
from gnomon.system.process import guarded_folder, own_guard, run_process
from gnomon.tuning.tvm import passed_on

_PROBE_S = 30.0
_HINT = (
    "A card needs NVIDIA's driver, CUDA 13's libcudart.so.13 where the loader finds it (LD_LIBRARY_PATH), and nvcc on "
    "the PATH; docs/jobs/tune.md says more."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card: its name, and its attributes as a target of TVM."""

    name: str
    target: Mapping[str, Any]


def find_card(environment: Mapping[str, str]) -> Card:
    """The first card that CUDA shows in this environment (CUDA_VISIBLE_DEVICES says which one that is).

    RuntimeMissingError that names what is missing: a driver, CUDA's runtime, a card, or what compiles kernels.
    """
    program = Program(name="tvm.card", settings={}, environment=passed_on(environment))
    made = child_environment(program, Path("/"))
    # Asked once in a process for each environment: each question begins CUDA anew.
    told = _asked(program.argv, tuple(sorted(made.items())))
    if isinstance(lacking := told.get("lacking"), str):
        raise RuntimeMissingError(f"no card can be tuned for here: {lacking}", hint=_HINT)
    return Card(name=str(told["name"]), target=dict(told["target"]))


@functools.cache
def _asked(argv: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    with guarded_folder("gnomon-card-") as home:
        done = run_process(
            argv,
            env={**dict(environment), "HOME": str(home), "TMPDIR": str(home)},
            stdin=b"",
            timeout_s=_PROBE_S,
            on_line=None,
            cwd=home,
            guard=own_guard(),
        )
    if done.timed_out:
        raise DeviceError(
            f"the card does not answer: CUDA says nothing for {_PROBE_S:g} s", hint="See whether nvidia-smi ends."
        )
    try:
        told: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError) as error:
        last = done.stderr.strip().splitlines()[-1:]
        how = f"ended with status {done.returncode}" if done.signal is None else f"died of signal {done.signal}"
        raise DeviceError(
            f"the process that asked for a card {how}{': ' + last[0][:300] if last else ''}", hint=_HINT
        ) from error
    return told


def fitted(target: Mapping[str, Any], card: Card) -> dict[str, Any]:
    """The target with the card's attributes where it has none of its own. UsageError where its code does not run there.

    Machine code of CUDA runs on the versions of its own major number that are not below it; that for one version with
    all of its own (sm_90a) on that one.
    """
    made = {**card.target, **target}
    wanted, there = _version(str(made["arch"])), _version(str(card.target["arch"]))
    if wanted is None or there is None:
        raise UsageError(f"{made['arch']!r} is not a version of a card", hint="Give one such as sm_80, or none.")
    own = str(made["arch"])[-1].isalpha() and wanted != there
    if wanted[0] != there[0] or wanted[1] > there[1] or own:
        raise UsageError(
            f"code for {made['arch']} does not run on the card here: {card.name} is {card.target['arch']}",
            hint="Give --target cuda, which takes the card's own version.",
        )
    return made


def _version(arch: str) -> tuple[int, int] | None:
    """Major and minor number of sm_86 (8, 6), sm_90a (9, 0)."""
    digits = arch.removeprefix("sm_").rstrip("af")
    if not arch.startswith("sm_") or not digits.isdecimal() or len(digits) < 2:
        return None
    return int(digits[:-1]), int(digits[-1])
