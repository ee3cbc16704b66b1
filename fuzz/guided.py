"""python -m fuzz.guided TARGET SECONDS FOLDER: attacks a target with atheris, which mutates inputs that reach new code.

Inputs are damaged by `fuzz.mutate`. Findings are printed and kept in the folder, and the attack continues. An input
that hangs or kills the process ends the attack; libFuzzer keeps it in the same folder.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import warnings
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["gnomon"]):
    from fuzz.mutate import MOST_BYTES, damaged
    from fuzz.run import LIMIT_S, read_one
    from fuzz.targets import TARGETS


def main(name: str, seconds: str, folder: str) -> None:
    """Attack until the time is over."""
    warnings.simplefilter("ignore")
    target, found = TARGETS[name], set[str]()
    seeds = target.made()

    def one(data: bytes) -> None:
        wrong = read_one(target, data)
        if wrong and wrong not in found:
            found.add(wrong)
            path = Path(folder) / f"{name.replace(' ', '-')}-{hashlib.sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            print(f"{name}: {wrong}\n    python -m fuzz --target '{name}' --input {path}", flush=True)

    def damage(data: bytes, most: int, seed: int) -> bytes:
        return damaged(Random(seed), data, seeds)[:most]

    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(seeds):
            (Path(corpus) / str(number)).write_bytes(data)
        limits = [f"-max_total_time={seconds}", f"-timeout={LIMIT_S}", "-rss_limit_mb=1536", f"-max_len={MOST_BYTES}"]
        argv = [sys.argv[0], *limits, f"-artifact_prefix={folder}/", "-print_final_stats=1", "-verbosity=0", corpus]
        atheris.Setup(argv, one, custom_mutator=damage)
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
