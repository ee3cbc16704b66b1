"""Packages that add to gnomon: what `gnomon new` does, as a function."""

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
        PathLike | None, option("--out", "-o", metavar="DIR", help="The folder to write.  [default: ./NAME]")
    ] = None,
) -> NewDocument:
    """Write a package that adds a job, a runtime or a kind of device to gnomon, with the test of its contract.

    KIND is job, runtime or device. The package works as it is, under NAME: change it line by line into your own.

    Raises UsageError where NAME is not a name or is taken, and where the folder exists.
    """
    from gnomon.jobs.new.job import new_package as write

    return write(kind, name, Path(name) if out is None else Path(out))
