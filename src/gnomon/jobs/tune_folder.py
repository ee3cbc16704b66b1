"""Where the files of tuning are: records, compiled networks, and the networks that they are of."""

from __future__ import annotations

import hashlib
import json
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
        return self.root / "overlay" / f"{safe(device.key)}.{safe(model.name)}.{model.dtype}.json"

    def library(self, device: TunedDevice, model: TunedModel, *, choice: str = "") -> Path:
        """A compiled network; `choice` says of whose configurations, where they are not the device's own."""
        middle = f"_{safe(choice)}" if choice else ""
        return self.libraries / f"{safe(device.key)}{middle}.{safe(model.name)}.{model.dtype}.so"

    def keep_model(self, path: Path) -> str:
        """Copy a network into the folder; returns the digest that it is found by. ModelError if it cannot be read."""
        try:
            digest = file_digest(path)
            place = self.models / f"{digest}{path.suffix.lower()}"
            if not place.exists():
                self.models.mkdir(parents=True, exist_ok=True)
                part = place.with_suffix(".part")
                shutil.copyfile(path, part)
                part.replace(place)
        except OSError as error:
            raise ModelError(f"{path}: {error.strerror or error}", hint="Give a file that can be read.") from error
        return digest

    def find_model(self, model: TunedModel) -> Path | None:
        """The copy of a model, if there is one that is still what it was."""
        for place in sorted(self.models.glob(f"{model.sha256}.*")) if model.sha256 else []:
            if place.suffix != ".part" and file_digest(place) == model.sha256:
                return place
        return None


def tune_folder(out: Path | None) -> TuneFolder:
    """The folder that is meant: the user's own unless one is given."""
    return TuneFolder(root=user_folder() / "tune" if out is None else out)


def safe(name: str) -> str:
    """A name as a part of a file's name. UsageError where nothing is left of it."""
    made = _SAFE.sub("-", name).strip("-")[:80]
    if not made:
        raise UsageError(f"{name!r} cannot be a part of a file's name", hint="Give letters or digits.")
    return made


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
    """What there is: a document of `gnomon view`. Files that cannot be read are listed with the reason."""
    folder = tune_folder(out)
    records: list[dict[str, Any]] = []
    for path in sorted(folder.records.glob("*.json")):
        try:
            found = read_tuning_records(path.read_bytes())
        except (GnomonError, OSError) as error:
            records.append({"path": str(path), "problem": str(error)})
            continue
        records.append(
            {
                "path": str(path),
                "device": found.device.key,
                "found_on": found.host,
                "model": found.model.name,
                "dtype": found.model.dtype,
                "layers": len(found.layers),
                "trials": len(found.trials),
            }
        )
    return {
        "folder": str(folder.root),
        "models": [
            {"name": path.name, "path": str(path), "bytes": path.stat().st_size} for path in _files(folder.models, "*")
        ],
        "records": records,
        "libraries": [_library(path) for path in _files(folder.libraries, "*.so") if not path.name.endswith(_PARTS)],
    }


def _files(folder: Path, pattern: str) -> list[Path]:
    return [path for path in sorted(folder.glob(pattern)) if path.is_file() and ".part" not in path.suffixes]


def _library(path: Path) -> dict[str, Any]:
    try:
        told = read_description(path)
    except GnomonError:
        told = {}
    device, model = told.get("device") or {}, told.get("model") or {}
    return {
        "path": str(path),
        "bytes": path.stat().st_size,
        "device": str(device.get("key") or "unknown"),
        "model": str(model.get("name") or "unknown"),
    }
