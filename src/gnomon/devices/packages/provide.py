"""Collects the packages that a device's Python lacks; their folder is pushed to the device and put on its PYTHONPATH.

If the user allows it, pip fetches wheels from the package index for the Python on another machine.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from gnomon.devices.packages.files import Candidate, Unusable, find_installed, find_wheel
from gnomon.devices.packages.target import Target, target_of
from gnomon.errors import DeviceError, RuntimeMissingError, UsageError, system_errors
from gnomon.system.process import run_process

_TIMEOUT_S = 1800.0
_UNREACHABLE = ("Retrying (", "Could not fetch URL", "Connection", "Network is unreachable", "HTTP error", "ProxyError")


def fetch_wheels(requirements: Sequence[str], target: Target, folder: Path, tell: Callable[[str], None]) -> None:
    """Have pip download a wheel for each requirement into a folder, without the wheels' own requirements.

    The user's configuration of pip (index, proxy, certificates) applies. RuntimeMissingError if there is no wheel for
    the target or the index cannot be reached.
    """
    folder.mkdir(parents=True, exist_ok=True)
    printed: list[str] = []

    def on_line(line: str) -> None:
        printed.append(line)
        if (match := re.match(r"\s*Downloading (?:\S*/)?(\S+\.whl)( \([^)]*\))?", line)) and ".metadata" not in line:
            tell(f"fetches {match[1]}{match[2] or ''} from the package index")

    # pip copies into its folder file by file; an incomplete file must not look like a wheel.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as part:
        command, env = _command(requirements, target, Path(part)), {**os.environ, "PYTHONUNBUFFERED": "1"}
        done = run_process(command, env=env, timeout_s=_TIMEOUT_S, on_line=on_line, cwd=folder)
        if not done.ok:
            raise _failed(requirements, target, "\n".join([*printed, done.stderr]), timed_out=done.timed_out)
        with system_errors(DeviceError, f"{folder} cannot be written", hint="Free up space there, or set GNOMON_HOME."):
            for wheel in sorted(Path(part).glob("*.whl")):
                wheel.replace(folder / wheel.name)


def _command(requirements: Sequence[str], target: Target, folder: Path) -> list[str]:
    minor = f"cp{target.python[0]}{target.python[1]}"
    options = [f"--platform={platform}" for platform in target.platforms]
    options += [f"--abi={abi}" for abi in (minor, "abi3", "none")]
    return [
        *(sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--no-deps", "--no-input"),
        *("--disable-pip-version-check", "--progress-bar=off", "--implementation=cp"),
        *(f"--python-version={target.version}", *options, f"--dest={folder}", "--", *requirements),
    ]


def _failed(requirements: Sequence[str], target: Target, text: str, *, timed_out: bool) -> RuntimeMissingError:
    names = ", ".join(requirements)
    if timed_out:
        return RuntimeMissingError(f"{names} could not be fetched within {_TIMEOUT_S:.0f} s", hint="Try again.")
    if "No module named pip" in text:
        return RuntimeMissingError(f"{names} cannot be fetched without pip", hint=f"Run: {sys.executable} -m ensurepip")
    lacking = re.search(r"satisfies the requirement (\S+) \(from versions: ([^)\n]*)\)", text)
    if any(sign in text for sign in _UNREACHABLE) and (lacking is None or lacking[2] == "none"):
        return RuntimeMissingError(
            f"{names} cannot be fetched: the package index cannot be reached",
            hint="Check the network and pip's configuration (pip config list), or put wheels into GNOMON_HOME/wheels.",
        )
    if lacking is not None:
        versions = [v.strip() for v in lacking[2].split(",") if v.strip() not in ("", "none")]
        others = f"Versions with a wheel: {', '.join(versions[-8:])}." if versions else "No version has a wheel."
        return RuntimeMissingError(
            f"{lacking[1]} is not available for {target}",
            hint=f"{others} Use another Python on the device, or leave the runtime out.",
        )
    last = [line for line in text.strip().splitlines() if line.startswith("ERROR")] or text.strip().splitlines()[-1:]
    reason = last[0][:300] if last else "nothing"
    return RuntimeMissingError(f"{names} cannot be fetched; pip says: {reason}", hint="Try pip download by hand.")


_MOST_ROUNDS = 100
_UNUSED_DAYS = 30
_FORM = "1"  # the version of the folder format, which changes the digests


def provide(
    requirements: Sequence[str],
    fingerprint: Mapping[str, object],
    *,
    home: Path,
    fetch: bool,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """A folder on this machine from which the device's Python can import the distributions and their requirements.

    Each distribution comes from the first source that has it: the distributions on this machine that fit the device,
    the wheels in `home`/wheels, or with `fetch` the package index, whose wheels are kept in `home`/wheels. The result
    is `home`/site/DIGEST; equal content has an equal digest, and a folder that exists is complete and used again.

    `tell` gets a sentence for each fetched file and for a newly made folder. Raises UsageError for an invalid
    requirement, RuntimeMissingError for an unavailable one, and DeviceError if `home` cannot be written.
    """
    say = tell or (lambda sentence: None)
    target = target_of(fingerprint)
    candidates = _Search(target=target, wheels=home / "wheels", fetch=fetch, tell=say).solve(requirements)
    folder, new = _laid(candidates, home / "site")
    if new:
        say(f"installs {_listed(candidates, requirements)} for {target}")
    return folder


def available(requirements: Sequence[str], fingerprint: Mapping[str, object], *, home: Path) -> tuple[str, ...]:
    """The packages that `provide` would install without fetching anything: "onert 0.1.0", ..., sorted by name.

    Raises the same errors as `provide`, and writes nothing.
    """
    search = _Search(target=target_of(fingerprint), wheels=home / "wheels", fetch=False, tell=lambda sentence: None)
    return tuple(f"{candidate.name} {candidate.version}" for candidate in search.solve(requirements))


@dataclass(slots=True, kw_only=True)
class _Want:
    """The requirements on one distribution so far."""

    specifier: SpecifierSet = field(default_factory=SpecifierSet)
    extras: frozenset[str] = frozenset()
    by: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Search:
    """Finds one candidate for each distribution; terminates because wants are only added and never withdrawn."""

    target: Target
    wheels: Path
    fetch: bool
    tell: Callable[[str], None]

    def solve(self, requirements: Iterable[str]) -> list[Candidate]:
        """The candidates, in order of their names."""
        wants: dict[str, _Want] = {}
        picks: dict[str, tuple[Candidate, frozenset[str]]] = {}
        for requirement in map(_parsed, requirements):
            self._want(wants, requirement, frozenset(), "")
        roots = set(wants)
        for _ in range(_MOST_ROUNDS):
            pending = [name for name in wants if not _is_met(wants[name], picks.get(name))]
            if not pending:
                return [picks[name][0] for name in self._reached(roots, picks)]
            for name, candidate in self._find(pending, wants).items():
                picks[name] = (candidate, wants[name].extras)
                for requirement in candidate.requires:
                    self._want(wants, requirement, wants[name].extras, candidate.name)
        raise RuntimeMissingError("the requirements could not be resolved", hint="Report this, naming the packages.")

    def _want(self, wants: dict[str, _Want], requirement: Requirement, extras: frozenset[str], by: str) -> None:
        if not self.target.holds(requirement.marker, extras):
            return
        if requirement.url is not None:
            raise RuntimeMissingError(
                f"{by or 'the request'} requires {requirement.name} from a URL: {requirement.url[:100]!a}",
                hint=f"Put its wheel into {self.wheels} and require it by its name.",
            )
        want = wants.setdefault(canonicalize_name(requirement.name), _Want())
        want.specifier &= requirement.specifier
        want.extras |= {canonicalize_name(extra) for extra in requirement.extras}
        if by and by not in want.by:
            want.by.append(by)

    def _find(self, names: list[str], wants: Mapping[str, _Want]) -> dict[str, Candidate]:
        picks: dict[str, Candidate] = {}
        lacking: dict[str, str] = {}
        for name in names:
            try:
                picks[name] = find_installed(name, wants[name].specifier, self.target)
            except Unusable as reason:
                if (wheel := find_wheel(self.wheels, name, wants[name].specifier, self.target)) is not None:
                    picks[name] = wheel
                else:
                    lacking[name] = str(reason)
        if not lacking:
            return picks
        asked = [f"{name}{wants[name].specifier}" for name in lacking]
        if not self.fetch:
            raise self._not_here(lacking, wants)
        fetch_wheels(asked, self.target, self.wheels, self.tell)
        for name, text in zip(lacking, asked, strict=True):
            wheel = find_wheel(self.wheels, name, wants[name].specifier, self.target)
            if wheel is None:
                raise RuntimeMissingError(
                    f"pip fetched no wheel of {text} that fits {self.target}", hint="Use another Python on the device."
                )
            picks[name] = wheel
        return picks

    def _not_here(self, lacking: Mapping[str, str], wants: Mapping[str, _Want]) -> RuntimeMissingError:
        rows = []
        for name, reason in lacking.items():
            by = f", required by {', '.join(wants[name].by)}" if wants[name].by else ""
            rows.append(f"{name}{wants[name].specifier} ({reason}{by})")
        return RuntimeMissingError(
            f"no packages here fit {self.target}: {'; '.join(rows)}",
            hint=f"Allow downloads with --fetch, or put wheels for that Python into {self.wheels}",
        )

    def _reached(self, roots: set[str], picks: Mapping[str, tuple[Candidate, frozenset[str]]]) -> list[str]:
        """The names that are still required: a distribution that was picked again may have dropped a requirement."""
        waiting, reached = list(roots), set(roots)
        while waiting:
            candidate, extras = picks[waiting.pop()]
            for requirement in candidate.requires:
                name = canonicalize_name(requirement.name)
                if name not in reached and self.target.holds(requirement.marker, extras):
                    reached.add(name)
                    waiting.append(name)
        return sorted(reached)


def _is_met(want: _Want, pick: tuple[Candidate, frozenset[str]] | None) -> bool:
    return pick is not None and want.specifier.contains(pick[0].version, prereleases=True) and want.extras == pick[1]


def _parsed(text: str) -> Requirement:
    try:
        return Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        raise UsageError(f"{text[:80]!a} is not a requirement", hint='Write it as in "onert>=0.1.0".') from error


def _listed(candidates: list[Candidate], requirements: Sequence[str]) -> str:
    roots = {canonicalize_name(_parsed(text).name) for text in requirements}
    named = [f"{c.name} {c.version}" for c in candidates if c.name in roots]
    more = len(candidates) - len(named)
    return ", ".join(named) + (f" and {more} required package{'' if more == 1 else 's'}" if more else "")


def _laid(candidates: list[Candidate], site: Path) -> tuple[Path, bool]:
    """The folder with these candidates' files, and whether it was newly made."""
    lines = [_FORM, *(f"{c.name} {c.version} {c.identity}" for c in candidates)]
    folder = site / hashlib.sha256("\n".join(lines).encode()).hexdigest()
    hint = "Free up space there, or set GNOMON_HOME to another folder."
    with system_errors(DeviceError, f"{site} cannot be written", hint=hint):
        if folder.is_dir():
            os.utime(folder)
            return folder, False
        site.mkdir(mode=0o700, parents=True, exist_ok=True)
        _forget_unused(site)
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=site))
        try:
            for candidate in candidates:
                candidate.lay(part)
            part.chmod(0o755)
            try:
                part.rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another gnomon made the same folder meanwhile
                    raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return folder, True


def _forget_unused(site: Path) -> None:
    """Remove folders that have not been used for a while, and parts that an interrupted gnomon left."""
    before_s = time.time() - _UNUSED_DAYS * 86400
    for folder in site.iterdir():
        with suppress(OSError):
            if folder.lstat().st_mtime < before_s:
                shutil.rmtree(folder)
