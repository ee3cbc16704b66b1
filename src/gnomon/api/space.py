"""`gnomon space` as functions: search spaces on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, TypeVar, Unpack, cast

from gnomon.api.options import MeasureOptions, Overwrite, PathLike, measure_request
from gnomon.errors import UsageError
from gnomon.options import option
from gnomon.values import latency, new_file, toolchain_setting

if TYPE_CHECKING:
    from gnomon.jobs.space import document
    from gnomon.jobs.space.choosing.believed import Believer
    from gnomon.jobs.space.profiling.training import TrainRequest
    from gnomon.measure.progress import Watch

A = TypeVar("A")

Profile = Annotated[PathLike, option(metavar="PROFILE")]
Blocks = Annotated[
    Sequence[PathLike],
    option(
        repeat=True,
        metavar="FILE.py",
        help="A file of your own primitives, or one primitive: FILE.py:FUNCTION or PACKAGE.MODULE:CLASS. May be "
        "repeated.",
    ),
]
OwnBlocks = Annotated[
    Sequence[PathLike],
    option(
        repeat=True,
        metavar="FILE.py",
        help="A file of your own primitives in PROFILE, or one primitive. Its code is run. May be repeated.",
    ),
]
Trust = Annotated[
    bool,
    option("--trust-config", help="Run the Python code in the config (blocks, stem, head, data).  [default: refuse]"),
]
Numbering = Annotated[
    Literal["ssprofile", "aw_nas"] | None,
    option(help="The numbering of primitives.  [default: the config's, else ssprofile]"),
]
Known = Literal["balanced", "fair", "published", "imported"]
Method = Annotated[Known | None, option("--accuracy", help="Use accuracies by this method.  [default: the first one]")]
Toolchain = Annotated[str | None, option(metavar="NAME", help="Use latencies by this toolchain.  [default: the first]")]
Proofs = Annotated[bool, option("--use-proofs", help="Also use the measurements of gnomon space front.")]
OwnData = Annotated[
    str | None,
    option(metavar="SOURCE", help="The source of the profile's images, if it is a function. Its code is run."),
]
OwnEpochs = Annotated[int | None, option(least=1, metavar="N", help="Epochs.  [default: the profile's own]")]


class TrainingOptions(TypedDict, total=False):
    """Options for training."""

    seeds: Annotated[int, option(least=1, default=1, help="Train each network this many times.")]
    workers: Annotated[
        int,
        option(
            least=0,
            most=1024,
            metavar="N",
            default=0,
            help="Processes that train at the same time.  [default: one per processor]",
        ),
    ]
    cluster: Annotated[
        str | None, option(metavar="ADDRESS", help="Train on the Dask cluster of this scheduler, tcp://HOST:PORT.")
    ]
    training_device: Annotated[
        Literal["cpu", "cuda"], option("--train-on", default="cpu", help="The device that trains.")
    ]
    download: Annotated[PathLike | None, option(metavar="DIR", help="Let torchvision fetch images into this folder.")]


class BenchOptions(TrainingOptions, MeasureOptions, total=False):
    """Options for training and measuring."""


class ProfileOptions(BenchOptions, total=False):
    """Options for training and measuring a profile; with an empty tuple of `toolchains`, nothing is measured."""

    toolchains: Annotated[
        Sequence[str],
        option(
            "--toolchain",
            repeat=True,
            metavar="NAME",
            help="Convert and run networks with this toolchain (see gnomon space toolchains). May be repeated.  "
            "[default: the toolchain of --runtime, else onnxruntime]",
        ),
    ]
    latency: Annotated[bool, option("--no-latency", off=True, default=True, help="Measure no latencies.")]
    settings: Annotated[
        Mapping[str, str],
        option(
            "--set",
            repeat=True,
            read=toolchain_setting,
            metavar="TOOLCHAIN.KEY=VALUE",
            help="A setting of a toolchain, such as openvino-int8.images=128. May be repeated.",
        ),
    ]


def picture_file(text: str) -> Path:
    """The path of a picture to draw. ValueError, before anything is measured, if no picture can be drawn there."""
    from gnomon.report.render import SUFFIXES

    path = new_file(text)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{text!r} is not a picture: give a file that ends in .svg, .png or .pdf")
    return path


Picture = Annotated[
    PathLike | None, option(read=picture_file, metavar="FILE", help="Draw the result, as .svg, .png or .pdf.")
]


def _silent(sentence: str) -> None:
    """Ignore a message."""


def profile_space(
    config: Annotated[Any, option(metavar="SPACE", complete="space")],
    profile_dir: Annotated[PathLike, option("--profile-dir", metavar="DIR", help="The folder of the profile.")],
    *,
    families: Annotated[
        Sequence[str],
        option("--family", repeat=True, metavar="NAME", help="Only this family. May be repeated."),
    ] = (),
    numbering: Numbering = None,
    blocks: Blocks = (),
    trust_config: Trust = False,
    data: Annotated[
        str | None,
        option(
            metavar="SOURCE",
            help="Images to train on: digits, mnist-5k, npz:FILE, folder:DIR, torchvision:NAME or "
            "dataset:FILE.py:FUNCTION.  [default: gnomon_cfg.data of the config]",
        ),
    ] = None,
    method: Annotated[
        Literal["balanced", "fair", "published", "none"] | None,
        option("--accuracy", help="How accuracies are obtained; none: train nothing."),
    ] = "balanced",
    epochs: Annotated[int | None, option(least=1, metavar="N", help="Epochs.  [default: the config's]")] = None,
    networks: Annotated[
        int | None,
        option(
            least=1,
            metavar="N",
            help="How many networks of each family 'balanced' trains.  [default: the number of one-change variants]",
        ),
    ] = None,
    mixed: Annotated[int, option(least=0, help="Measure this many mixed networks of each family.")] = 12,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] = _silent,
    **options: Unpack[ProfileOptions],
) -> document.SpaceDocument:
    """Train and measure the networks of SPACE: a config in the layout of aw_nas, or FILE.py:NAME.

    Each result is written at once: after an interruption, the same command resumes.

    Raises GnomonError. From Python, a space may also be a `BlockSpace`. Nothing is trained if `method` is None, and
    nothing is measured if `toolchains` is empty.
    """
    from gnomon.jobs.space import job

    measured, bench = _toolchains(**options)
    return job.profile_space(
        config,
        Path(profile_dir),
        _asked(blocks=_names(blocks), trust_config=trust_config, data=data, epochs=epochs, **bench),
        families=families,
        numbering=numbering,
        method=None if method == "none" else method,
        networks=networks,
        toolchains=measured,
        mixed=mixed,
        watch=on_progress,
        tell=on_message,
    )


def select_primitives(
    profile_dir: Profile,
    *,
    rule: Annotated[
        Literal["pareto", "published"],
        option(
            help="pareto: keep primitives on the front of mixed networks. published: the published rule to the letter, "
            "which depends on the unit of latency."
        ),
    ] = "pareto",
    method: Method = None,
    toolchain: Toolchain = None,
    proofs: Proofs = False,
    most_share: Annotated[
        float,
        option(
            "--max-fraction",
            "--most-share",
            most=1,
            metavar="SHARE",
            help="pareto: keep at most this share of the networks (1: drop only primitives on no front). If too "
            "little is left to search, the error names a sufficient share.",
        ),
    ] = 0.1,
    output: Annotated[
        PathLike | None,
        option(
            "--output-yaml",
            "-o",
            metavar="FILE",
            help="Write the config with the choice to this file.  [default: PROFILE/output.yaml]",
        ),
    ] = None,
    blocks: OwnBlocks = (),
    trust_config: Trust = False,
    picture: Picture = None,
) -> document.SelectionDocument:
    """Choose the primitives of PROFILE that are worth searching. Nothing is measured.

    Raises GnomonError.
    """
    from gnomon.jobs.space.choosing import select
    from gnomon.spaces.selection.pareto import ParetoOptions

    selection = select.select_primitives(
        Path(profile_dir),
        rule,
        method=method,
        toolchain=toolchain,
        proofs=proofs,
        options=ParetoOptions(most_share=most_share),
        output=None if output is None else Path(output),
        blocks=_own(profile_dir, blocks, trust_config),
    )
    return _drawn("choice_charts", selection, picture)


def find_front(
    profile_dir: Profile,
    *,
    latency_s: Annotated[
        float | None,
        option("--latency", read=latency, metavar="2ms", help="Only networks with at most this predicted latency."),
    ] = None,
    networks: Annotated[int, option(least=1, most=1000, help="The maximum number of networks.")] = 50,
    kept: Annotated[
        PathLike | None, option(metavar="FILE", help="Only networks of the config that gnomon space select wrote.")
    ] = None,
    measure: Annotated[
        bool, option("--measure/--no-measure", help="Train and measure the networks.  [default: measure]")
    ] = True,
    method: Method = None,
    toolchain: Toolchain = None,
    proofs: Proofs = False,
    data: OwnData = None,
    epochs: OwnEpochs = None,
    blocks: OwnBlocks = (),
    trust_config: Trust = False,
    picture: Picture = None,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] = _silent,
    **options: Unpack[BenchOptions],
) -> document.SpaceFrontDocument:
    """Find the best networks of PROFILE's full space by predicted accuracy and latency, then train and measure them.

    With --kept, this proves the choice of gnomon space select. After an interruption, the same command resumes and
    measures nothing twice.

    Raises GnomonError.
    """
    from gnomon.jobs.space.choosing import front

    result = front.find_front(
        Path(profile_dir),
        _asked(
            blocks=_own(profile_dir, blocks, trust_config),
            trust_config=trust_config,
            data=data,
            epochs=epochs,
            **options,
        ),
        networks=networks,
        latency_s=latency_s,
        kept=None if kept is None else Path(kept),
        measure=measure,
        method=method,
        toolchain=toolchain,
        proofs=proofs,
        watch=on_progress,
        tell=on_message,
    )
    return _drawn("space_front_charts", result, picture)


def show_space(
    profile_dir: Profile,
    *,
    method: Method = None,
    pictures: Annotated[
        PathLike | None, option(metavar="DIR", help="Draw the pictures of the profile into this folder.")
    ] = None,
    blocks: OwnBlocks = (),
    trust_config: Trust = False,
) -> document.SpaceDocument:
    """Show the contents of PROFILE: rankings with their noise, latencies, and the reliability of both.

    Raises GnomonError.
    """
    from gnomon.jobs.space.picture import draw_pictures
    from gnomon.jobs.space.profiling.folder import OUTPUT
    from gnomon.jobs.space.profiling.look import look, read_selection

    profile = Path(profile_dir)
    space = look(profile, method, _own(profile, blocks, trust_config))
    if pictures is None:
        return space
    return replace(space, pictures=draw_pictures(space, read_selection(profile / OUTPUT), Path(pictures)))


def import_networks(
    files: Annotated[Sequence[PathLike], option(metavar="FILE")],
    profile_dir: Annotated[
        PathLike, option("--profile-dir", metavar="DIR", help="The folder of the profile, new or existing.")
    ],
    *,
    config: Annotated[
        PathLike | None,
        option(
            metavar="SPACE",
            help="The space of a new profile: a config, FILE.py:NAME, or a known name such as nasbench201.  [default: "
            "derived from the ids in the tables]",
        ),
    ] = None,
    numbering: Numbering = None,
    method: Annotated[
        Known | None, option("--accuracy", help="The method of the accuracies.  [default: the csv's, else imported]")
    ] = None,
    toolchain: Annotated[
        str | None, option(metavar="NAME", help="The toolchain of the latencies.  [default: the csv's, else imported]")
    ] = None,
    blocks: OwnBlocks = (),
    trust_config: Trust = False,
) -> document.SpaceDocument:
    """Import networks into a profile: from tables of ssprofile (accuracy_table.yaml, latency_table.yaml), or from csv.

    Latencies in tables are in milliseconds. The csv files are those of gnomon space export.

    Raises GnomonError.
    """
    from gnomon.jobs.space import exchange

    return exchange.import_networks(
        tuple(map(Path, files)),
        Path(profile_dir),
        config=None if config is None else Path(config),
        numbering=numbering,
        blocks=_names(blocks),
        trust_config=trust_config,
        method=method,
        toolchain=toolchain,
    )


def export_networks(
    profile_dir: Profile,
    out: Annotated[PathLike, option("--out", "-o", metavar="CSV", help="Write the networks to this file.")],
    *,
    overwrite: Overwrite = False,
    method: Method = None,
    blocks: OwnBlocks = (),
    trust_config: Trust = False,
) -> document.SpaceExportDocument:
    """Write the networks of PROFILE as csv: a column per cell group, accuracy, latency, and the uncertainty of both.

    Raises GnomonError.
    """
    from gnomon.jobs.space import exchange

    own = _own(profile_dir, blocks, trust_config)
    return exchange.export_networks(Path(profile_dir), Path(out), method=method, blocks=own, overwrite=overwrite)


def list_primitives(
    *,
    numbering: Annotated[Literal["ssprofile", "aw_nas"], option(help="The numbering of primitives.")] = "ssprofile",
    blocks: Blocks = (),
) -> document.PrimitivesDocument:
    """List primitives by name. A number means different blocks in different numberings; a digest means only one block.

    Raises GnomonError.
    """
    from gnomon.jobs.space.document import KnownPrimitive, PrimitivesDocument
    from gnomon.training.modules import known_blocks

    primitives = tuple(
        KnownPrimitive(name=primitive.name, family=primitive.family, meaning=primitive.meaning, digest=primitive.digest)
        for primitive in known_blocks(numbering, _names(blocks)).values()
    )
    return PrimitivesDocument(numbering=numbering, primitives=primitives)


def list_toolchains() -> document.ToolchainsDocument:
    """List the toolchains that convert networks, the runtimes that then measure them, and missing packages."""
    from gnomon.jobs.space.document import KnownToolchain, ToolchainsDocument
    from gnomon.toolchains.base import chosen_toolchain, toolchain_names

    rows = tuple(
        KnownToolchain(name=name, measured_by=toolchain.runtime, missing=tuple(toolchain.check()))
        for name, toolchain in ((name, chosen_toolchain(name)) for name in toolchain_names())
    )
    return ToolchainsDocument(toolchains=rows)


def open_profile(
    profile_dir: PathLike,
    *,
    method: str | None = None,
    toolchain: str | None = None,
    blocks: Sequence[PathLike] = (),
    trust_config: bool = False,
) -> Believer:
    """The accuracy and latency of any network of a profile's space, for your own search.

    The accuracies are those of `method`, the latencies those of `toolchain` (None: the first one). `blocks` and
    `trust_config` are as in `select_primitives`. Raises GnomonError.
    """
    from gnomon.jobs.space.choosing import believed

    own = _own(profile_dir, blocks, trust_config)
    return believed.open_profile(Path(profile_dir), method=method, toolchain=toolchain, blocks=own)


def space_network(
    profile_dir: PathLike, network: str, *, blocks: Sequence[PathLike] = (), trust_config: bool = False
) -> Any:
    """A network of a profile by its id as a `torch.nn.Module`, with its trained weights, in evaluation mode.

    The weights are those of the training that was best in validation; they are also used in measurements, and the
    profile has them as a safetensors file for `load_state_dict`. Inputs are images, normalised by channel with the mean
    and standard deviation of the training part. `blocks` and `trust_config` are as in `select_primitives`. Raises
    GnomonError.
    """
    from gnomon.jobs.space.choosing import believed

    return believed.network_module(Path(profile_dir), network, _own(profile_dir, blocks, trust_config))


def _drawn(charts: str, answer: A, picture: PathLike | None) -> A:
    """The answer, drawn to `picture` if it is given; `charts` is the function that makes the charts."""
    if picture is not None:
        from gnomon.report.answer import function_at
        from gnomon.report.render import write_picture

        write_picture(function_at(f"gnomon.jobs.space.picture:{charts}")(answer), Path(picture))
    return answer


def _toolchains(
    *,
    toolchains: Sequence[str] | None = None,
    latency: bool = True,
    settings: Mapping[str, str] | None = None,
    **options: Any,
) -> tuple[dict[str, dict[str, str]], dict[str, Any]]:
    """The settings of each toolchain to measure (by default those of the runtimes), and the remaining options."""
    if not latency and (toolchains or options.get("commands")):
        named = "--toolchain" if toolchains else "--command"
        raise UsageError(f"--no-latency and {named} contradict each other", hint="Leave out one of them.")
    if toolchains is None:
        toolchains = options.get("runtimes") or ("onnxruntime",)
    by_toolchain: dict[str, dict[str, str]] = {name: {} for name in (toolchains if latency else ())}
    for place, value in (settings or {}).items():
        name, _, key = place.partition(".")
        if name not in by_toolchain:
            raise UsageError(f"--set {place} needs --toolchain {name}", hint=f"Give --toolchain {name} too.")
        by_toolchain[name][key] = value
    return by_toolchain, options


def _names(blocks: Sequence[PathLike]) -> tuple[str, ...]:
    return tuple(map(str, blocks))


def _own(profile_dir: PathLike, blocks: Sequence[PathLike], trust: bool) -> tuple[str, ...]:
    """The code of a profile that may be run: the given blocks or, with `trust`, all that the profile names."""
    from gnomon.jobs.space.profiling.look import named_blocks

    return _names(blocks) or (named_blocks(Path(profile_dir)) if trust else ())


def _asked(
    *,
    blocks: tuple[str, ...],
    trust_config: bool,
    data: str | None,
    epochs: int | None,
    download: PathLike | None = None,
    **options: Any,
) -> TrainRequest:
    """The request for training and measuring."""
    from gnomon.jobs.space.profiling.training import TrainRequest

    training = {name: options.pop(name) for name in TrainingOptions.__annotations__ if name in options}
    return TrainRequest(
        request=measure_request(cast("MeasureOptions", options)),
        data=data,
        blocks=blocks,
        trust_config=trust_config,
        epochs=epochs,
        download=None if download is None else Path(download),
        **training,
    )
