"""Profiling search spaces from Python: what `gnomon space` does, as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

if TYPE_CHECKING:
    from gnomon.api.options import MeasureOptions, PathLike
    from gnomon.devices.http import DpuServer
    from gnomon.formats.nets_csv import NetRow
    from gnomon.jobs.space.choosing.believed import Believer
    from gnomon.jobs.space.choosing.front import FoundFront
    from gnomon.jobs.space.choosing.select import Rule, Selected
    from gnomon.jobs.space.choosing.validate import Validated
    from gnomon.jobs.space.job import Profiled
    from gnomon.measure.progress import Watch
    from gnomon.spaces.selection.pareto import ParetoOptions


Toolchains = Sequence[str] | Mapping[str, Mapping[str, str]]
"""Names of toolchains, or their settings by name."""


def _silent(sentence: str) -> None:
    """Nobody is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The server that measures what toolchains make for HTTP, who sees the progress, and who is told sentences."""

    server: DpuServer | None = None
    on_progress: Watch | None = None
    on_message: Callable[[str], None] = _silent


class TrainingOptions(TypedDict, total=False):
    """How networks are trained: all that is left out is as the config or the method says.

    `data` is a source of images; `method` how accuracies are got (None: not at all); `epochs`, `networks` a family and
    `seeds` its budget; `workers` processes (0: as many as processors), or the
    address of a Dask `cluster`; `training_device` is "cpu" or "cuda"; `download` a folder into which torchvision may
    fetch images.
    """

    data: str | None
    method: str | None
    epochs: int | None
    networks: int | None
    seeds: int
    workers: int
    cluster: str | None
    training_device: str
    download: PathLike | None


class SpaceOptions(TypedDict, total=False):
    """Which networks are looked at.

    `families` of the config (none: all), the `numbering` of names, files of own `blocks`, and how many `mixed` networks
    of each family are measured beside its one-change variants.
    """

    families: Sequence[str]
    numbering: str | None
    blocks: Sequence[str]
    mixed: int


def profile_space(
    config: PathLike,
    profile_dir: PathLike,
    *,
    space: SpaceOptions | None = None,
    training: TrainingOptions | None = None,
    toolchains: Toolchains = ("onnxruntime",),
    hooks: Hooks | None = None,
    **options: Unpack[MeasureOptions],
) -> Profiled:
    """Train and measure the networks of a config's search space, into the folder `profile_dir`.

    The same call goes on where it was interrupted; nothing in the folder is deleted. `toolchains` are names, or names
    with their settings; `hooks` has the server for what is measured over HTTP, and who watches. Raises GnomonError.
    """
    from gnomon.api.options import measure_request
    from gnomon.jobs.space.job import ProfileRequest
    from gnomon.jobs.space.job import profile_space as profile_job

    chosen, trained, hooked = dict(space or {}), dict(training or {}), hooks or Hooks()
    download = trained.pop("download", None)
    named = toolchains if isinstance(toolchains, Mapping) else {name: {} for name in toolchains}
    asked = ProfileRequest(
        config=Path(config),
        out=Path(profile_dir),
        request=measure_request(options),
        toolchains=tuple(named),
        settings={name: dict(given) for name, given in named.items()},
        server=hooked.server,
        download=None if download is None else Path(str(download)),
        **{name: tuple(value) if isinstance(value, list) else value for name, value in chosen.items()},  # type: ignore[arg-type]
        **trained,  # type: ignore[arg-type]
    )
    return profile_job(asked, watch=hooked.on_progress, tell=hooked.on_message)


def select_primitives(
    profile_dir: PathLike,
    *,
    rule: Rule = "pareto",
    method: str | None = None,
    toolchain: str | None = None,
    proofs: bool = False,
    options: ParetoOptions | None = None,
    output: PathLike | None = None,
    blocks: Sequence[PathLike] = (),
) -> Selected:
    """Choose the primitives worth searching from what a profile holds; nothing is measured. Raises GnomonError.

    With `proofs` also from what `validate_selection` and `find_front` measured. `blocks` are the files of own
    primitives that it was made with: they are Python, and are run only where given.
    """
    from gnomon.jobs.space.choosing.select import SelectRequest
    from gnomon.jobs.space.choosing.select import select_primitives as select_job
    from gnomon.spaces.selection.pareto import ParetoOptions

    asked = SelectRequest(
        profile=Path(profile_dir),
        rule=rule,
        method=method,
        toolchain=toolchain,
        proofs=proofs,
        options=options or ParetoOptions(),
        output=None if output is None else Path(output),
        blocks=tuple(map(str, blocks)),
    )
    return select_job(asked)


def find_front(
    profile_dir: PathLike,
    *,
    networks: int = 50,
    latency_s: float | None = None,
    measure: bool = True,
    method: str | None = None,
    toolchain: str | None = None,
    proofs: bool = False,
    blocks: Sequence[PathLike] = (),
    training: TrainingOptions | None = None,
    hooks: Hooks | None = None,
    **options: Unpack[MeasureOptions],
) -> FoundFront:
    """Predict the best networks of the full space by accuracy and latency, then train and measure them.

    At most so many `networks`, of a predicted latency of at most `latency_s`; without `measure` they are only told.
    `method` and `toolchain` say whose accuracies and latencies are gone by; with `proofs` what was measured here and by
    `validate_selection` before has a part in it. Of `training` count epochs, seeds, where is trained, and `data` where
    it is a function. `blocks` are as `select_primitives` takes them. Raises GnomonError.
    """
    from gnomon.jobs.space.choosing.front import FrontRequest
    from gnomon.jobs.space.choosing.front import find_front as front_job

    hooked = hooks or Hooks()
    asked = FrontRequest(
        **_proof(profile_dir, blocks, training, options),
        networks=networks,
        latency_s=latency_s,
        measure=measure,
        method=method,
        toolchain=toolchain,
        proofs=proofs,
    )
    return front_job(asked, server=hooked.server, watch=hooked.on_progress, tell=hooked.on_message)


def show_space(
    profile_dir: PathLike,
    *,
    method: str | None = None,
    pictures: PathLike | None = None,
    blocks: Sequence[PathLike] = (),
) -> dict[str, Any]:
    """What a profile says, as JSON values: rankings of a `method` of accuracies (None: the first) with their noise.

    `pictures` is a folder that gets a picture of all there is to see. `blocks` are as `select_primitives` takes them.
    Raises GnomonError.
    """
    from gnomon.jobs.space.profiling.look import look, shown_selection

    document = look(Path(profile_dir), method, tuple(map(str, blocks)))
    if pictures is not None:
        from gnomon.jobs.space.picture import draw_pictures

        document["pictures"] = draw_pictures(document, shown_selection(Path(profile_dir)), Path(pictures))
    return document


def import_networks(
    files: Sequence[PathLike],
    profile_dir: PathLike,
    *,
    config: PathLike | None = None,
    numbering: str | None = None,
    method: str | None = None,
    toolchain: str | None = None,
    blocks: Sequence[PathLike] = (),
) -> Profiled:
    """Bring accuracies and latencies from elsewhere into a profile, which is made where it is not there.

    `files` are tables as ssprofile writes them (accuracy_table.yaml, latency_table.yaml in milliseconds), or csv as
    `export_networks` writes it. A new profile is of the `config`; tables alone do without. Accuracies count as those of
    `method`, latencies as of `toolchain` (None: as a csv says, else "imported"). Raises GnomonError.
    """
    from gnomon.jobs.space.exchange import ImportRequest
    from gnomon.jobs.space.exchange import import_networks as import_job

    asked = ImportRequest(
        files=tuple(map(Path, files)),
        profile=Path(profile_dir),
        config=None if config is None else Path(config),
        numbering=numbering,
        method=method,
        toolchain=toolchain,
        blocks=tuple(map(str, blocks)),
    )
    return import_job(asked)


def export_networks(
    profile_dir: PathLike,
    out: PathLike,
    *,
    method: str | None = None,
    blocks: Sequence[PathLike] = (),
    overwrite: bool = False,
) -> tuple[NetRow, ...]:
    """Write a profile's networks as csv, and return them: a row a network and toolchain, accuracies of one `method`.

    A file that is there is replaced only with `overwrite`. `blocks` are as `select_primitives` takes them. Raises
    GnomonError.
    """
    from gnomon.jobs.space.exchange import export_networks as export_job

    return export_job(Path(profile_dir), Path(out), method=method, blocks=tuple(map(str, blocks)), overwrite=overwrite)


def open_profile(
    profile_dir: PathLike, *, method: str | None = None, toolchain: str | None = None, blocks: Sequence[PathLike] = ()
) -> Believer:
    """What a profile tells of any network of its space, for a search of one's own: accuracy and latency.

    `method` and `toolchain` say whose (None: the first there are); `blocks` are as `select_primitives` takes them.
    Raises GnomonError.
    """
    from gnomon.jobs.space.choosing.believed import open_profile as open_job

    return open_job(Path(profile_dir), method=method, toolchain=toolchain, blocks=tuple(map(str, blocks)))


def space_network(profile_dir: PathLike, network: str, *, blocks: Sequence[PathLike] = ()) -> Any:
    """A network of a profile by its id as a `torch.nn.Module`, with its trained weights, in evaluation mode.

    Those of its best training by validation, which are those that it is measured with; they are also a file of
    safetensors that its `load_state_dict` takes. It takes images as the networks do: (x - mean) / std by channel, of
    the training part. `blocks` are as `select_primitives` takes them. Raises GnomonError.
    """
    from gnomon.jobs.space.network import network_module

    return network_module(Path(profile_dir), network, tuple(map(str, blocks)))


def validate_selection(
    profile_dir: PathLike,
    *,
    networks: int = 12,
    front: int = 10,
    blocks: Sequence[PathLike] = (),
    training: TrainingOptions | None = None,
    hooks: Hooks | None = None,
    **options: Unpack[MeasureOptions],
) -> Validated:
    """Build, train and measure mixed networks of the reduced and of the full space, and hold predictions against them.

    So many `networks` of each, and as many as `front` of the predicted front of each (0: none); of `training` count
    epochs, seeds, where is trained, and `data` where it is a function. `blocks` are as `select_primitives` takes them.
    Raises GnomonError.
    """
    from gnomon.jobs.space.choosing.validate import ValidateRequest
    from gnomon.jobs.space.choosing.validate import validate_selection as validate_job

    hooked = hooks or Hooks()
    asked = ValidateRequest(**_proof(profile_dir, blocks, training, options), networks=networks, front=front)
    return validate_job(asked, server=hooked.server, watch=hooked.on_progress, tell=hooked.on_message)


def _proof(
    profile_dir: PathLike, blocks: Sequence[PathLike], training: TrainingOptions | None, options: MeasureOptions
) -> dict[str, Any]:
    """What all requests say that train and measure networks to hold predictions against."""
    from gnomon.api.options import measure_request

    given = dict(training or {})
    download = given.pop("download", None)
    counting = ("data", "epochs", "seeds", "workers", "cluster", "training_device")
    return {
        "profile": Path(profile_dir),
        "request": measure_request(options),
        "blocks": tuple(map(str, blocks)),
        "download": None if download is None else Path(str(download)),
        **{name: value for name, value in given.items() if name in counting},
    }
