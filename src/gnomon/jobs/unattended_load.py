"""What a search takes along to a device: gnomon itself, what it requires, the model with its files, the settings."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gnomon
from gnomon.devices.address import LOCAL, parse_address
from gnomon.devices.config import DeviceConfig, add_device
from gnomon.devices.pushed import Digests
from gnomon.devices.settings import CONNECT_TIMEOUT_S
from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.jobs.pareto_records import ParetoRequest
from gnomon.jobs.unattended_command import Places, command_of
from gnomon.models.model import Limits, Model
from gnomon.runtimes.base import Runtime

_EVOLUTIONARY = frozenset({"nsga2", "spea2"})
_CARRIED = "carried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A search, ready to be taken along. `carried` is a folder of links to the model and the files of inputs.

    `command` has paths in the job's folder. Equal `digest`s mean the same search of the same model on equal settings;
    equal `subject`s that what one has run may be of use to the other.
    """

    model: str
    carried: Path
    command: tuple[str, ...]
    devices: str
    digest: str
    subject: str


def load_of(asked: ParetoRequest, model: Model, folder: Path) -> Load:
    """Bring together what is asked in a new folder. UsageError for what an unattended search cannot be asked."""
    request = asked.request
    assert request is not None  # noqa: S101 - command_of has said so
    name = request.model.absolute().name or "model"
    carried = folder / _CARRIED
    (carried / "model").mkdir(parents=True)
    (carried / "feeds").mkdir()
    for place, source in _files(model, request.model.absolute()):
        target = carried / "model" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
    feeds: dict[str, str] = {}
    for number, (tensor, path) in enumerate(request.feeds.items()):
        (carried / "feeds" / f"{number}.npy").symlink_to(path.absolute())
        feeds[tensor] = f"{_CARRIED}/feeds/{number}.npy"
    deploys = asked.pick is not None or bool(asked.under)
    for written in (asked.dumpfile, asked.out if deploys else None):
        if written is not None and (written.name.startswith(".") or written.name.endswith(".part")):
            raise UsageError(f"{written} looks like a file that is half written", hint="Give it another name.")
    places = Places(
        model=f"{_CARRIED}/model/{name}",
        feeds=feeds,
        out=f"out/package/{(asked.out or Path(f'{Path(name).stem}.gnomon')).name}" if deploys else None,
        dumpfile=f"out/dump/{asked.dumpfile.name}" if asked.dumpfile is not None else None,
    )
    command = command_of(asked, places)
    devices = _settings(request.device, folder / "devices.toml")
    files = Digests().manifest(carried).digest
    return Load(
        model=name,
        carried=carried,
        command=command,
        devices=devices,
        digest=_digest(*command, files, devices, gnomon.__version__),
        subject=_digest(Digests().manifest(carried / "model").digest, devices, gnomon.__version__),
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _files(model: Model, path: Path) -> list[tuple[Path, Path]]:
    """Where the files of a model lie beside it, and what they are: it and all that it names."""
    found = [(Path(path.name or "model"), path)]
    if model.kind == "onnx":
        from gnomon.models.onnx_file import read_onnx

        found += read_onnx(path, Limits()).external.items()
    elif model.graph.format == "ncnn":
        from gnomon.models.ncnn import weights_of

        found.append((Path(weights_of(path).name), weights_of(path)))
    return found


def _settings(config: DeviceConfig, path: Path) -> str:
    """The text of a file of devices in which this machine is set as that device is."""
    own = replace(
        config,
        name=LOCAL,
        address=parse_address(LOCAL),
        python=None,
        folder=None,
        keep=True,
        ssh_options=(),
        connect_timeout_s=CONNECT_TIMEOUT_S,
        threads=None,
        runtimes=(),
        fetch=False,
    )
    return add_device(own, path).read_text(encoding="utf-8")


def requirements_of(asked: ParetoRequest, runtimes: Sequence[Runtime]) -> tuple[str, ...]:
    """What gnomon itself needs there for this search, beside runtimes. RuntimeMissingError if it is not installed."""
    extras = [runtime.name for runtime in runtimes]
    extras += ["search"] if any(plan.strategy in _EVOLUTIONARY for plan in asked.plans) else []
    apart = {canonicalize_name(Requirement(text).name) for runtime in runtimes for text in runtime.wheels}
    found: dict[str, None] = {}
    for text in _installed().requires or ():
        wanted = Requirement(text)
        always = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
        if always or any(wanted.marker and wanted.marker.evaluate({"extra": extra}) for extra in extras):
            wanted.marker = None
            if always or canonicalize_name(wanted.name) not in apart:
                found[str(wanted)] = None
    return tuple(found)


def lay_gnomon(folder: Path) -> Path:
    """A folder from which a Python imports the gnomon that runs here, and finds what it registers."""
    made = folder / "gnomon"
    source = Path(gnomon.__file__).parent
    shutil.copytree(source, made / "gnomon", ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    found = _installed()
    about = made / f"gnomon-{gnomon.__version__}.dist-info"
    about.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (about / name).write_text(found.read_text(name) or "", encoding="utf-8")
    return made


def _installed() -> Distribution:
    try:
        return distribution("gnomon")
    except PackageNotFoundError as error:
        raise RuntimeMissingError(
            "gnomon runs here without being installed, so that it does not know what it requires",
            hint="Install it, such as by: pip install -e .",
        ) from error
