"""Tuning from Python: what `gnomon tune`, `tune list`, `exec` and `overlay` do, as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from gnomon.errors import UsageError

if TYPE_CHECKING:
    from gnomon.api.options import PathLike
    from gnomon.devices.config import DeviceConfig
    from gnomon.jobs.overlay.job import Analysis
    from gnomon.jobs.tune.job import Tuned
    from gnomon.jobs.tune.request import Care, DeviceWish
    from gnomon.measure.progress import Watch


Tell = Callable[[str], None]
_WISH = ("target", "linker", "threads", "wait_s")
_SEARCH = ("strategy", "start", "per_round", "first_round", "plateau", "budget_s", "layers")
_CARE = ("processes", "repeat", "min_repeat_ms", "timeout_s", "build_timeout_s", "seed")


class TuneOptions(TypedDict, total=False):
    """What the functions have in common: which device, how carefully, where files go, who watches.

    `device` is a name of the file of devices or an address: "local" (if not given), "ssh://user@host", or
    "tvm://HOST:PORT/KEY" behind a tracker. `target` and `linker` say what is compiled for it, `threads` what a function
    may use there, `wait_s` how long to wait for it; `fetch` lets pip bring TVM to a device that has none. `processes`,
    `repeat`, `min_repeat_ms`, `timeout_s`, `build_timeout_s` and `seed` are as the command's options. `out` is the
    folder of models, records and libraries (None: the user's own). `on_progress` is called with how far it is,
    `on_message` with a sentence where there is something to report, such as which command is waited for.
    """

    device: str
    target: str | None
    linker: str | None
    threads: int
    wait_s: float
    fetch: bool
    processes: int
    repeat: int
    min_repeat_ms: int
    timeout_s: float
    build_timeout_s: float
    seed: int
    out: PathLike | None
    on_progress: Watch | None
    on_message: Tell


def tune(
    model: PathLike,
    *,
    trials: int = 512,
    search: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dtype: str = "float32",
    fresh: bool = False,
    compare: bool | None = None,
    logs: Sequence[PathLike] = (),
    **options: Unpack[TuneOptions],
) -> Tuned:
    """Tune a network's layers on a device, compile it with the best of each, and prove it there.

    With `compare` other runtimes are measured beside it (None: unless there is a budget). The best configurations that
    `logs` (records, or databases of MetaSchedule) have of the same layers are tried first.

    `search` may hold strategy, start, per_round, first_round, plateau, budget_s and layers. The same call goes on where
    it was interrupted. Raises GnomonError.
    """
    from gnomon.jobs.tune.job import tune as tune_job
    from gnomon.jobs.tune.request import TuneRequest

    _check(options)
    wanted = dict(search or {})
    if unknown := sorted(set(wanted) - set(_SEARCH)):
        raise UsageError(f"a search has no {unknown[0]!r}", hint=f"Give some of {', '.join(_SEARCH)}.")
    wanted["layers"] = _names(wanted.get("layers", ()))
    asked = TuneRequest(
        model=Path(model),
        device=_wish(options),
        care=_care(options),
        out=_out(options),
        trials=trials,
        shapes=dict(shapes or {}),
        dtype=dtype,
        fresh=fresh,
        compare=compare,
        logs=tuple(map(Path, logs)),
        **wanted,
    )
    return tune_job(asked, watch=options.get("on_progress"), tell=_tell(options))


def check_devices(devices: Sequence[str], **options: Unpack[TuneOptions]) -> None:
    """What is wrong with one of several devices, before a first is measured for hours: target, linker, tracker.

    Raises GnomonError.
    """
    from gnomon.jobs.tune.request import check_device

    for device in devices:
        check_device(_wish({**options, "device": device}))


def execute(
    source: PathLike,
    *,
    model: PathLike | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    layers: bool = True,
    **options: Unpack[TuneOptions],
) -> dict[str, Any]:
    """Measure a compiled network (.so), or records compiled for a device (.json), there; the document of `gnomon exec`.

    `shapes` are of inputs that the network of records leaves open. Raises GnomonError.
    """
    from gnomon.jobs.tune.execute import ExecRequest
    from gnomon.jobs.tune.execute import execute as execute_job

    _check(options)
    asked = ExecRequest(
        source=Path(source),
        device=_wish(options),
        model=None if model is None else Path(model),
        shapes=dict(shapes or {}),
        layers=layers,
        care=_care(options),
        out=_out(options),
    )
    return execute_job(asked, watch=options.get("on_progress"), tell=_tell(options))


def tuned_files(out: PathLike | None = None) -> dict[str, Any]:
    """Where models, records and libraries are; the document of `gnomon tune list`."""
    from gnomon.jobs.tune.folder import view as view_job

    return view_job(None if out is None else Path(out))


def overlay_collect(
    logs: Sequence[PathLike],
    *,
    best: int | None = None,
    close: Mapping[str, Sequence[str]] | None = None,
    layers: Sequence[str] = (),
    fresh: bool = False,
    **options: Unpack[TuneOptions],
) -> list[dict[str, Any]]:
    """Measure the best (None: all) configurations of each layer of some logs on a device; a document a log.

    `close` are configurations by layer, as `Analysis.close` tells them of the same logs: only these are measured, in
    four times as many processes as `processes` says. Raises GnomonError.
    """
    from gnomon.jobs.overlay.collect import CollectRequest
    from gnomon.jobs.overlay.collect import collect as collect_job

    _check(options)
    asked = CollectRequest(
        logs=tuple(Path(log) for log in logs),
        device=_wish(options),
        best=best,
        close=close,
        layers=_names(layers),
        care=_care(options),
        out=_out(options),
        fresh=fresh,
    )
    return collect_job(asked, watch=options.get("on_progress"), tell=_tell(options))


def check_collect(
    logs: Sequence[PathLike],
    devices: Sequence[str],
    close: Mapping[str, Sequence[str]] | None = None,
    **options: Unpack[TuneOptions],
) -> None:
    """What is wrong with one of several devices of `overlay_collect`, before the first is measured.

    Raises GnomonError.
    """
    from gnomon.jobs.overlay.collect import CollectRequest
    from gnomon.jobs.overlay.collect import check_collect as check_job

    paths = tuple(Path(log) for log in logs)
    for device in devices:
        wish = _wish({**options, "device": device})
        check_job(CollectRequest(logs=paths, device=wish, close=close, care=_care(options), out=_out(options)))


def overlay_analyze(
    logs: Sequence[PathLike],
    *,
    layers: Sequence[str] = (),
    portfolio: int = 0,
    resamples: int = 1000,
    seed: int = 0,
    devices: Sequence[str] = (),
    on_progress: Watch | None = None,
) -> Analysis:
    """Choose for each layer the configuration of least M from the records of several devices; nothing is measured.

    M is the sum of relative regrets over the devices. `devices` help where logs do not say themselves of which device
    they are, and their names can be read in several ways: keys of devices, and "KEY=FILE" for one of the logs. Raises
    GnomonError.
    """
    from gnomon.jobs.overlay.job import AnalyzeRequest, told_of
    from gnomon.jobs.overlay.job import analyze as analyze_job

    paths = tuple(Path(log) for log in logs)
    asked = AnalyzeRequest(
        logs=paths,
        layers=_names(layers),
        portfolio=portfolio,
        resamples=resamples,
        seed=seed,
        told=told_of(_names(devices), paths),
    )
    return analyze_job(asked, watch=on_progress)


def overlay_deploy(
    analysis: Analysis,
    *,
    prove: bool = False,
    devices: Sequence[str] = (),
    compile: bool = True,
    model: PathLike | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    **options: Unpack[TuneOptions],
) -> dict[str, Any]:
    """Write an analysis' choice as records, compile it for each device, and `prove` it on them.

    The devices are those of the records; where these have only a tracker's name for one, its address is in `devices`,
    of which what is neither an address nor a name of the file of devices is left out. Returns the parts `written`,
    `network`, `doubts` and `notes` of the document. Raises GnomonError.
    """
    from gnomon.devices.opening import is_place
    from gnomon.jobs.overlay.deploy import DeployRequest
    from gnomon.jobs.overlay.deploy import deploy as deploy_job

    _check(options)
    asked = DeployRequest(
        compile=compile,
        prove=prove,
        devices=tuple(_device(name, options) for name in devices if is_place(name)),
        model=None if model is None else Path(model),
        shapes=dict(shapes or {}),
        care=_care(options),
        out=_out(options),
    )
    return deploy_job(analysis, asked, watch=options.get("on_progress"), tell=_tell(options))


def _check(options: TuneOptions) -> None:
    if unknown := sorted(set(options) - set(TuneOptions.__annotations__)):
        raise UsageError(
            f"there is no option {unknown[0]!r}", hint=f"Options: {', '.join(TuneOptions.__annotations__)}."
        )


def _names(layers: Sequence[str]) -> tuple[str, ...]:
    return (layers,) if isinstance(layers, str) else tuple(layers)


def _tell(options: TuneOptions) -> Tell:
    return options.get("on_message") or (lambda sentence: None)


def _wish(options: TuneOptions) -> DeviceWish:
    from gnomon.jobs.tune.request import DeviceWish

    given = {name: options[name] for name in _WISH if name in options}  # type: ignore[literal-required]
    return DeviceWish(config=_device(options.get("device") or "local", options), **given)


def _device(name: str, options: TuneOptions) -> DeviceConfig:
    from gnomon.devices.opening import resolve

    config = resolve(name)
    return replace(config, fetch=True) if options.get("fetch") else config


def _care(options: TuneOptions) -> Care:
    from gnomon.jobs.tune.request import Care

    return Care(**{name: options[name] for name in _CARE if name in options})  # type: ignore[literal-required]


def _out(options: TuneOptions) -> Path | None:
    given = options.get("out")
    return None if given is None else Path(given)
