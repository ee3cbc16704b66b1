"""The folder in which tuning keeps networks, records and compiled networks, and readers of any tuner's records."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gnomon.core.overlay.pool import described_layers
from gnomon.core.overlay.records import UNTUNED, TunedDevice, TunedModel, TuningLayer, TuningRecords
from gnomon.core.overlay.trials import by_layer
from gnomon.core.strict_json import Strict, indented
from gnomon.errors import GnomonError, ModelError, ProblemError, RecordError, UsageError, system_errors
from gnomon.formats.tuning.keys import NOTHING, DeviceHints, name_logs
from gnomon.formats.tuning.logs import FOLDER_FILES, read_tuning_log, replay_problem
from gnomon.formats.tuning.texts import Texts
from gnomon.jobs.tune.document import LibraryFile, ModelFile, RecordFile, TunedFilesDocument
from gnomon.jobs.tune.records import MOST_BYTES, best_of, best_trial, pooled_trials
from gnomon.models.model import Limits, add_to_digest
from gnomon.system.files import in_place_of, read_regular, save_text, user_folder

_MANIFEST = Strict(what="a compiled network's description", hint="Compile it again.", most_letters=64 << 20)
_PARTS = (".layers.so", ".untuned.so")
_SAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MARGIN = 0.98
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "xgboost-cpu")


class TuneFolder:
    """The folder of tuning, with subfolders for copies of networks, record files, overlays and compiled networks.

    `models` holds copies of networks, named by digest, so that records can be compiled again. `overlays` holds the
    record files of choices for all devices; `libraries` holds compiled networks and the files that belong to them.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.models, self.records = root, root / "models", root / "records"
        self.overlays, self.libraries = root / "overlay", root / "libraries"

    def record(self, device: TunedDevice, model: TunedModel) -> Path:
        """The record file for a model on a device."""
        return self.records / f"{safe(device.key)}.{safe(model.name)}.{model.dtype}.json"

    def collected(self, device: TunedDevice, host: str, model: TunedModel) -> Path:
        """A device's record file for configurations that another device (`host`) found."""
        return self.records / f"{safe(device.key)}_{safe(host)}.{safe(model.name)}.{model.dtype}.json"

    def overlay(self, device: TunedDevice, model: TunedModel) -> Path:
        """The record file of the choice for all devices, with this device's times."""
        return self.overlays / f"{safe(device.key)}.{safe(model.name)}.{model.dtype}.json"

    def portfolio(self, model: TunedModel) -> Path:
        """The folder with a portfolio's builds, and with the file that names the build for each device."""
        return self.overlays / f"{safe(model.name)}.{model.dtype}.portfolio"

    def module(self, model: TunedModel) -> Path:
        """The file with the network in TVM's JSON format, to which overlays' databases can be applied."""
        return self.overlays / f"{safe(model.name)}.{model.dtype}.relax"

    def library(self, device: TunedDevice, model: TunedModel, *, choice: str = "") -> Path:
        """The file of a compiled network; `choice` names its configurations unless they are the device's own."""
        middle = f"_{safe(choice)}" if choice else ""
        return self.libraries / f"{safe(device.key)}{middle}.{safe(model.name)}.{model.dtype}.so"

    def keep_model(self, path: Path, digest: str) -> None:
        """Copy a network into the folder, with its digest as the name. RecordError if the copy cannot be written.

        A network with weights in separate files gets a folder, and these files keep their relative names there.
        """
        hint = "Free some disk space, or give --out a folder that can be written."
        with system_errors(RecordError, f"{path} cannot be copied to {self.models}", hint=hint):
            weights = external_weights(path)
            suffix = path.suffix.lower()
            place = self.models / (f"{digest}/model{suffix}" if weights else f"{digest}{suffix}")
            if place.is_file() and network_digest(place) == digest:
                return
            for name, file in weights.items():
                _copy(file, place.parent / name)
            _copy(path, place)

    def find_model(self, model: TunedModel) -> Path | None:
        """The unchanged copy of a model; None if there is none."""
        if not model.sha256:
            return None
        for place in sorted([*self.models.glob(f"{model.sha256}.*"), *self.models.glob(f"{model.sha256}/model.*")]):
            with contextlib.suppress(OSError, GnomonError):
                if network_digest(place) == model.sha256:
                    return place
        return None


def tune_folder(out: Path | None) -> TuneFolder:
    """The folder of tuning: the given one, or else the user's own."""
    # The path is absolute, because the compiling process works in its own folder.
    return TuneFolder((user_folder() / "tune" if out is None else out).absolute())


def safe(name: str) -> str:
    """The form of a name that is safe in a file's name. UsageError if no valid character is left."""
    text = _SAFE.sub("-", name).strip("-")[:80]
    if not text:
        raise UsageError(f"{name!r} cannot be used in a file's name", hint="Give a name with letters or digits.")
    return text


def given_model(path: Path, dtype: str) -> TunedModel:
    """The model as records describe it: its name, digest and data type.

    ModelError if the file cannot be read, UsageError if its name cannot be used in a file's name.
    """
    with system_errors(ModelError, f"{path} cannot be read", hint="Check the file's path and permissions."):
        digest = network_digest(path)
    name = "".join(letter if letter.isprintable() else "-" for letter in path.stem)
    safe(name)
    return TunedModel(name=name, sha256=digest, dtype=dtype)


def network_digest(path: Path) -> str:
    """The SHA-256 of a network's file and of its weight files. Raises OSError or ModelError."""
    digest = hashlib.sha256()
    for file in dict.fromkeys((path, *external_weights(path).values())):
        add_to_digest(digest, file, Limits().max_bytes)
    return digest.hexdigest()


def external_weights(path: Path) -> Mapping[Path, Path]:
    """The files of an ONNX network's external weights, by their names in the model; empty for other kinds of networks.

    Also empty for a file that cannot be read; a later read reports the reason.
    """
    if path.suffix.lower() != ".onnx":
        return {}
    from gnomon.models.onnx.file import parse_onnx

    try:
        return parse_onnx(path, Limits()).external
    except GnomonError:
        return {}


def _copy(path: Path, place: Path) -> None:
    """Copy a file completely or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with in_place_of(place) as part:
        shutil.copyfile(path, part)


def companions(library: Path) -> dict[str, Path]:
    """The files next to a compiled network: its description, inputs, reference outputs, and separate layers."""
    stem = library.with_suffix("")
    return {
        "description": Path(f"{stem}.so.json"),
        "inputs": Path(f"{stem}.in.npz"),
        "outputs": Path(f"{stem}.out.npz"),
        "layers": Path(f"{stem}.layers.so"),
    }


def write_description(library: Path, document: Mapping[str, Any]) -> None:
    """Write the description of a compiled network next to it."""
    save_text(indented(document), companions(library)["description"])


def read_description(library: Path) -> Mapping[str, Any]:
    """The description of a compiled network; empty if it has none. ProblemError if the description is damaged."""
    path = companions(library)["description"]
    if not path.exists():
        return {}
    with system_errors(RecordError, f"{path} cannot be read", hint="Compile the network again."):
        return _MANIFEST.object(_MANIFEST.parse(read_regular(path, _MANIFEST.most_letters)), "$")


def view(out: Path | None = None) -> TunedFilesDocument:
    """The document of `gnomon tune list`; files that cannot be read are listed with their `problem`."""
    folder = tune_folder(out)
    models = [*_files(folder.models, "*"), *_files(folder.models, "*/model.*")]
    return TunedFilesDocument(
        folder=str(folder.root),
        models=tuple(
            ModelFile(name=str(path.relative_to(folder.models)), path=str(path), bytes=_size(path)) for path in models
        ),
        records=tuple(_record(path) for where in (folder.records, folder.overlays) for path in _files(where, "*.json")),
        libraries=tuple(_library(path) for path in _files(folder.libraries, "*.so") if not path.name.endswith(_PARTS)),
    )


def _files(folder: Path, pattern: str) -> list[Path]:
    return [path for path in sorted(folder.glob(pattern)) if path.is_file() and ".part" not in path.suffixes]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # the file was just removed
        return 0


def _record(path: Path) -> RecordFile:
    try:
        (records,) = read_logs([path])
    except (GnomonError, OSError) as error:
        return RecordFile(path=str(path), problem=str(error))
    return RecordFile(
        path=str(path),
        device=records.device.key,
        found_on=records.host,
        model=records.model.name,
        dtype=records.model.dtype,
        layers=len(records.layers),
        trials=len(records.trials),
    )


def _library(path: Path) -> LibraryFile:
    library = LibraryFile(path=str(path), bytes=_size(path))
    try:
        description = read_description(path)
    except GnomonError as error:
        return replace(library, problem=str(error))
    names: dict[str, Any] = {}
    for part, field in (("device", "key"), ("model", "name")):
        inner = description.get(part)
        if isinstance(inner, dict) and isinstance(inner.get(field), str) and inner[field]:
            names[part] = inner[field]
    return replace(library, **names)


def read_logs(paths: Sequence[Path], names: DeviceHints = NOTHING) -> list[TuningRecords]:
    """The record sets in files, or in folders with a MetaSchedule database. Raises GnomonError.

    For another tuner's log, the device is inferred from the names of all files together and from the user's `names`.
    """
    texts = Texts()
    return name_logs([str(path) for path in paths], [_read(path, texts) for path in paths], names)


def best_traces(paths: Sequence[Path]) -> dict[str, list[Any]]:
    """The timed configurations of each layer, by its digest: first the best of each log, then the second best, and so
    on.

    The times may come from any device. Raises GnomonError: ProblemError for logs that today's TVM cannot compile.
    """
    texts = Texts()
    logs = [_read(path, texts) for path in paths]
    replayable(paths, logs)
    ranked: dict[str, list[tuple[int, int, Any]]] = {}
    for number, log in enumerate(logs):
        for layer, trials in by_layer(log.trials).items():
            best = best_of(trials)
            ranked.setdefault(layer, []).extend((rank, number, trial.trace) for rank, trial in enumerate(best))
    return {layer: [trace for *_, trace in sorted(rows, key=lambda row: row[:2])] for layer, rows in ranked.items()}


def replayable(paths: Sequence[Path], records: Sequence[TuningRecords]) -> None:
    """Raise ProblemError, with the reason, for records that today's TVM cannot compile."""
    for path, log in zip(paths, records, strict=True):
        if (problem := replay_problem(log)) is not None:
            raise ProblemError(f"{path} cannot be replayed: {problem}", hint="Give it to gnomon overlay analyze.")


def one_model(records: Sequence[TuningRecords]) -> TunedModel:
    """The model of all record sets. UsageError if they belong to several models."""
    models = {(log.model.sha256 or log.model.name, log.model.dtype): log.model for log in records}
    if len(models) != 1:
        names = ", ".join(f"{model.name} ({model.dtype})" for model in models.values())
        raise UsageError(f"the records belong to several models: {names}", hint="Give the records of one model.")
    return next(iter(models.values()))


def chosen_layers(layers: Sequence[TuningLayer], names: Sequence[str]) -> tuple[TuningLayer, ...]:
    """The layers that the user names, by part of the name or by number (from 0); all layers if `names` is empty.

    UsageError for a name that matches no layer.
    """
    chosen: dict[str, TuningLayer] = {}
    for name in names:
        if name.isdecimal():
            matches = [layer for number, layer in enumerate(layers) if number == int(name)]
        else:
            matches = [layer for layer in layers if name and name in layer.name]
        if not matches:
            text = ", ".join(f"{i} {layer.name}" for i, layer in enumerate(layers[:20]))
            raise UsageError(f"there is no layer {name!r}", hint=f"Layers: {text}.")
        chosen |= {layer.layer: layer for layer in matches}
    return tuple(chosen.values()) if names else tuple(layers)


def only_layers(records: Sequence[TuningRecords], names: Sequence[str]) -> list[TuningRecords]:
    """The record sets with only the layers that `chosen_layers` picks; numbers run through all sets together."""
    wanted = {layer.layer for layer in chosen_layers(list(described_layers(records).values()), names)}
    return [replace(log, layers=tuple(layer for layer in log.layers if layer.layer in wanted)) for log in records]


def model_file(folder: TuneFolder, model: TunedModel, given: Path | None) -> Path:
    """The network's own file: the given one, or else the copy that tuning kept.

    UsageError if there is neither, or if the given file is another network.
    """
    path = given or folder.find_model(model)
    if given is not None and model.sha256 and given.is_file() and network_digest(given) != model.sha256:
        raise UsageError(
            f"{given} is not the network of these records",
            hint=f"Give the file whose SHA-256 begins with {model.sha256[:16]}.",
        )
    if path is None:
        raise UsageError(
            f"the network {model.name} is not in {folder.models}, and records contain only its layers",
            hint="Give --model FILE, or give --out the folder that gnomon tune wrote to.",
        )
    return path


def best_choice(records: TuningRecords) -> list[tuple[TuningLayer, Any]]:
    """The layers with a configuration that is faster than the untuned layer, each with the trace of the best one.

    The best one must be at least 2 % faster, because the least of many noisy times is nearly always below a single
    noisy time.
    """
    choice, trials = [], by_layer(records.trials)
    for layer in records.layers:
        pooled = pooled_trials(trials.get(layer.layer, ()))
        best, untuned = best_trial(pooled.values()), pooled.get(UNTUNED)
        slow = None if untuned is None else untuned.time_s
        if best is not None and best.time_s is not None and (slow is None or best.time_s < _MARGIN * slow):
            choice.append((layer, best.trace))
    return choice


def tuner_versions() -> dict[str, str]:
    """The versions of the tuner's packages, as records name them; those that are not installed are left out."""
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _read(path: Path, texts: Texts) -> TuningRecords:
    try:
        if path.is_dir():
            files = {
                name: read_regular(file, MOST_BYTES)
                for name in FOLDER_FILES
                for file in (path / f"{name}.gz", path / name)
                if file.is_file()
            }
            return read_tuning_log(str(path), files, texts)
        return read_tuning_log(str(path), read_regular(path, MOST_BYTES), texts)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}", hint="To list record files: gnomon tune list"
        ) from error
    except ProblemError as error:
        if path.name in error.message:
            raise
        raise ProblemError(f"{path}: {error.message}", hint=error.hint) from error
