"""`gnomon new` as a function: packages that extend gnomon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from gnomon.api.options import PathLike
from gnomon.options import option

if TYPE_CHECKING:
    from gnomon.jobs.new.document import NewDocument


def new_package(
    kind: Annotated[Literal["job", "runtime", "device"], option(metavar="KIND")],
    name: Annotated[str, option(metavar="NAME")],
    *,
    out: Annotated[
        PathLike | None, option("--out", "-o", metavar="DIR", help="The folder of the package.  [default: ./NAME]")
    ] = None,
) -> NewDocument:
    """Write a package that adds a job, a runtime or a kind of device to gnomon, with its contract test.

    KIND is job, runtime or device. The package works at once, under the name NAME; change it step by step into your
    own.

    Raises UsageError if NAME is invalid or taken, or if the folder exists.
    """
    from gnomon.jobs.new.job import new_package as write

    return write(kind, name, Path(name) if out is None else Path(out))
