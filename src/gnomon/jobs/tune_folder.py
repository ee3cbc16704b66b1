"""Where the files of tuning are: records, compiled networks, and the networks that they are of."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.core.strict_json import Strict
from gnomon.core.tuning_record import TunedDevice, TunedModel
from gnomon.devices.config import user_folder
from gnomon.errors import GnomonError, ModelError, RecordError, UsageError
from gnomon.formats.tuning_records import read_tuning_records
from gnomon.jobs.saving import save_text

_MANIFEST = Strict(what="a compiled network's description", hint="Compile it again.", most_letters=64 << 20)
_PARTS = (".layers.so", ".untuned.so")
_SAFE = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneFolder:
    """The folder: `models`, `records` and `libraries` are in it."""

    root: Path

    @property
    def models(self) -> Path:
        """Copies of networks, by digest, so that records can be compiled again."""
        return self.root / "models"

    @property
    def records(self) -> Path:
        """Record files."""
        return self.root / "records"

    @property
    def overlays(self) -> Path:
        """Record files of what was chosen for all devices."""
        return self.root / "overlay"

    @property
    def libraries(self) -> Path:
        """Compiled networks, with what belongs to each."""
        return self.root / "libraries"

    def record(self, device: TunedDevice, model: TunedModel) -> Path:
        """The record file of a device and a model."""
        return self.records / f"{safe(device.key)}.{safe(model.name)}.{model.dtype}.json"

    def collected(self, device: TunedDevice, host: str, model: TunedModel) -> Path:
        """The record file of what was found on another device."""
        return self.records / f"{safe(device.key)}_{safe(host)}.{safe(model.name)}.{model.dtype}.json"

    def overlay(self, device: TunedDevice, model: TunedModel) -> Path:
        """The record file of what was chosen for all devices, with the times of one."""
        return self.overlays / f"{safe(device.key)}.{safe(model.name)}.{model.dtype}.json"

    def library(self, device: TunedDevice, model: TunedModel, *, choice: str = "") -> Path:
        """A compiled network; `choice` says of whose configurations, where they are not the device's own."""
        middle = f"_{safe(choice)}" if choice else ""
        return self.libraries / f"{safe(device.key)}{middle}.{safe(model.name)}.{model.dtype}.so"

    def keep_model(self, path: Path, digest: str) -> None:
        """Copy a network into the folder, where it is found by its digest. RecordError if it cannot be written."""
        place = self.models / f"{digest}{path.suffix.lower()}"
        part = place.with_name(f".{place.name}.{os.getpid()}.part")
        try:
            if place.is_file() and file_digest(place) == digest:
                return
            self.models.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(path, part)
                part.replace(place)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            raise RecordError(
                f"{path} cannot be copied to {self.models}: {error.strerror or error}",
                hint="Make room, or give --out a folder that can be written.",
            ) from error

    def find_model(self, model: TunedModel) -> Path | None:
        """The copy of a model, if there is one that is still what it was."""
        for place in sorted(self.models.glob(f"{model.sha256}.*")) if model.sha256 else []:
            with contextlib.suppress(OSError):
                if file_digest(place) == model.sha256:
                    return place
        return None


def tune_folder(out: Path | None) -> TuneFolder:
    """The folder that is meant: the user's own unless one is given."""
    # Absolute, because what compiles has a folder of its own.
    return TuneFolder(root=(user_folder() / "tune" if out is None else out).absolute())


def safe(name: str) -> str:
    """A name as a part of a file's name. UsageError where nothing is left of it."""
    made = _SAFE.sub("-", name).strip("-")[:80]
    if not made:
        raise UsageError(f"{name!r} cannot be a part of a file's name", hint="Give letters or digits.")
    return made


def given_model(path: Path, dtype: str) -> TunedModel:
    """What a network's file is called in records, and its digest.

    ModelError if it cannot be read, UsageError if its name cannot be a part of a file's name.
    """
    try:
        digest = file_digest(path)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}", hint="Give a file that can be read.") from error
    name = "".join(letter if letter.isprintable() else "-" for letter in path.stem)
    safe(name)
    return TunedModel(name=name, sha256=digest, dtype=dtype)


def file_digest(path: Path) -> str:
    """The SHA-256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def companions(library: Path) -> dict[str, Path]:
    """What belongs to a compiled network: its description, its inputs, reference outputs, its layers apart."""
    stem = library.with_suffix("")
    return {
        "description": Path(f"{stem}.so.json"),
        "inputs": Path(f"{stem}.in.npz"),
        "outputs": Path(f"{stem}.out.npz"),
        "layers": Path(f"{stem}.layers.so"),
    }


def write_description(library: Path, document: Mapping[str, Any]) -> None:
    """Say beside a compiled network what it is."""
    save_text(json.dumps(document, indent=1, allow_nan=False) + "\n", companions(library)["description"])


def read_description(library: Path) -> Mapping[str, Any]:
    """What a compiled network is; empty where nothing says so. ProblemError for a damaged description."""
    path = companions(library)["description"]
    if not path.exists():
        return {}
    try:
        return _MANIFEST.object(_MANIFEST.parse(path.read_bytes()), "$")
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}", hint="Compile it again.") from error


def view(out: Path | None = None) -> dict[str, Any]:
    """What there is: a document of `gnomon view`. Files that cannot be read are in it with the `problem`."""
    folder = tune_folder(out)
    return {
        "folder": str(folder.root),
        "models": [{"name": path.name, "path": str(path), "bytes": _size(path)} for path in _files(folder.models, "*")],
        "records": [_record(path) for place in (folder.records, folder.overlays) for path in _files(place, "*.json")],
        "libraries": [_library(path) for path in _files(folder.libraries, "*.so") if not path.name.endswith(_PARTS)],
    }


def _files(folder: Path, pattern: str) -> list[Path]:
    return [path for path in sorted(folder.glob(pattern)) if path.is_file() and ".part" not in path.suffixes]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it went away at this moment
        return 0


def _record(path: Path) -> dict[str, Any]:
    try:
        found = read_tuning_records(path.read_bytes())
    except (GnomonError, OSError) as error:
        nothing = dict.fromkeys(("device", "found_on", "model", "dtype"), "unknown")
        return {"path": str(path), **nothing, "layers": 0, "trials": 0, "problem": str(error)}
    return {
        "path": str(path),
        "device": found.device.key,
        "found_on": found.host,
        "model": found.model.name,
        "dtype": found.model.dtype,
        "layers": len(found.layers),
        "trials": len(found.trials),
    }


def _library(path: Path) -> dict[str, Any]:
    made = {"path": str(path), "bytes": _size(path), "device": "unknown", "model": "unknown"}
    try:
        told = read_description(path)
    except GnomonError as error:
        return {**made, "problem": str(error)}
    for part, field in (("device", "key"), ("model", "name")):
        inner = told.get(part)
        if isinstance(inner, dict) and isinstance(inner.get(field), str) and inner[field]:
            made[part] = inner[field]
    return made
