"""A distribution that could be brought to a device, wherever it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gnomon.devices.wheel_target import Target

MOST_METADATA_BYTES = 8 << 20
_MOST_REQUIREMENTS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A version of a distribution that a device's Python can import.

    `requires` are its own requirements, not yet asked whether they hold there. `identity` is equal for equal content.
    `lay` writes its files into a folder, as they would lie in site-packages; RuntimeMissingError if it is broken.
    """

    name: str
    version: Version
    requires: tuple[Requirement, ...]
    identity: str
    origin: str
    lay: Callable[[Path], None]


class Unusable(Exception):
    """Why a distribution cannot be brought."""


class WantsOtherPython(Unusable):
    """It is well, and for another Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What the core metadata of a distribution (PEP 566) say that matters here."""

    name: str
    version: Version
    requires: tuple[Requirement, ...]


def read_metadata(text: str, target: Target) -> Metadata:
    """Read a METADATA file. Unusable if it is malformed or wants another Python."""
    head = HeaderParser().parsestr(text.partition("\n\n")[0])
    lines = head.get_all("Requires-Dist") or []
    try:
        if len(lines) > _MOST_REQUIREMENTS:
            raise Unusable(f"it has more than {_MOST_REQUIREMENTS} requirements")
        wanted = SpecifierSet(head.get("Requires-Python") or "")
        found = Metadata(
            name=canonicalize_name(head.get("Name") or ""),
            version=Version(head.get("Version") or ""),
            requires=tuple(Requirement(line) for line in lines),
        )
    except (InvalidRequirement, InvalidSpecifier, InvalidVersion, RecursionError) as error:
        raise Unusable(f"its metadata cannot be meant: {str(error)[:200]}") from error
    if not wanted.contains(target.version, prereleases=True):
        raise WantsOtherPython(f"it wants Python {wanted}")
    return found
