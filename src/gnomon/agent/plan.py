"""Reads the plan of a package, which anybody may have written, and checks it before anything in it runs.

A package is a program: its `gnomon-agent.pyz` may contain anything. This module checks a plan for an agent that the
user trusts: the files that the plan names must lie in its folder and must not have changed since the plan was written.
Unless the user allows it, the plan may not set an environment variable or session option that could make a process run
other code. The path of an operator library never comes from the plan, only from the user.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnomon.wire import Plan, PlanJob

FORMAT, VERSION = "gnomon-plan", 1
_MOST_BYTES = 64 << 20
_RUNTIME = re.compile(r"[A-Za-z_][\w.]*(:[A-Za-z_]\w*)?")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

HARMLESS = frozenset({
    "CUDA_VISIBLE_DEVICES", "GLIBC_TUNABLES", "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT", "KMP_AFFINITY", "KMP_BLOCKTIME",
    "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MKL_NUM_THREADS", "NUM_THREADS", "OMP_DYNAMIC", "OMP_NUM_THREADS",
    "OMP_PLACES", "OMP_PROC_BIND", "OMP_SCHEDULE", "OMP_THREAD_LIMIT", "OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS",
    "ORT_DISABLE_TELEMETRY", "RUY_PATHS", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS",
})  # fmt: skip
"""Variables that any plan may set: none of them names a file that is loaded."""


COMMAND = "command"
"""The runtime that can start any program."""


class PlanRefused(Exception):
    """The plan is not run; the message says in one sentence why, and what to do."""


def checked_plan(path: str, allowed: Collection[str] = (), libraries: Collection[str] = ()) -> Plan:
    """The plan in a file, with absolute paths in its job. PlanRefused if it must not be run.

    `allowed` names environment variables and session options that the plan may set besides the `HARMLESS` ones.
    `libraries` are the user's paths to the operator libraries that the plan was measured with; its segments load no
    others.
    """
    document = _read(path)
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        raise PlanRefused(
            f"{path} has the format {_shown(document.get('format'))}, version {_shown(document.get('version'))}, "
            f"but this agent runs {FORMAT}, version {VERSION}: write the package again, or run it with its own agent"
        )
    if not _is_job(document.get("job")) or not _has_texts(document):
        raise PlanRefused(f"{path} has no job that can be run: it is incomplete or changed; write the package again")
    plan: Plan = document
    job = plan["job"]
    _check_settings(path, job.setdefault("environment", {}), allowed)
    for segment in job["segments"]:
        _check_settings(path, segment["options"].get("session", {}), allowed)
        if segment["runtime"] == COMMAND and COMMAND not in allowed:
            raise PlanRefused(
                f"{path} starts a program, which may do anything: if you trust who wrote it, add --allow {COMMAND}"
            )
    _name_libraries(path, job, libraries)
    if any(not isinstance(feed, dict) or "file" in feed for feed in job["feeds"].values()):
        raise PlanRefused(f"{path} names input files, which are not read: give your own with --input NAME=FILE.npy")
    folder = os.path.dirname(os.path.abspath(path))
    for segment in job["segments"]:
        segment["model"] = _inside(path, folder, segment["model"])
    models = [segment["model"] for segment in job["segments"]]
    # An nnpackage's launcher is in one of its subfolders; if so, everything in the nnpackage counts as inside.
    root = os.path.dirname(folder) if os.path.dirname(folder) in models else folder
    _check_files(path, folder, root, plan.get("files"), models)
    return plan


def digest_of(path: str) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _read(path: str) -> Any:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would block
            raise PlanRefused(f"{path} is not a regular file: give the plan.json of a package")
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise PlanRefused(f"{path} is larger than any plan of gnomon: give the plan.json of a package")
        plan = json.loads(text)
    except OSError as error:
        raise PlanRefused(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise PlanRefused(f"{path} is not JSON ({str(error)[:80]}): it was damaged; copy it again") from error
    if not isinstance(plan, dict):
        raise PlanRefused(f"{path} is not a plan of gnomon: give the plan.json of a package")
    return plan


def _is_job(job: Any) -> bool:
    """Return True if a job has all its parts with the right types; their values are for the runtimes to judge."""
    if not isinstance(job, dict) or not isinstance(job.get("segments"), list) or not job["segments"]:
        return False
    sorts = {"tensors": dict, "feeds": dict, "outputs": list, "seed": int}
    return all(isinstance(job.get(name), sort) for name, sort in sorts.items()) and all(
        isinstance(segment, dict)
        and isinstance(segment.get("runtime"), str)
        and _RUNTIME.fullmatch(segment["runtime"]) is not None
        and isinstance(segment.get("model"), str)
        and isinstance(segment.get("options"), dict)
        for segment in job["segments"]
    )


def _has_texts(plan: Any) -> bool:
    """Return True if a plan's requirements and the versions that it was proved with are strings."""
    proved, needed = plan.setdefault("proved_with", {}), plan.setdefault("requirements", [])
    if not isinstance(proved, dict) or not isinstance(needed, list):
        return False
    packages, runtimes = proved.get("packages", {}), proved.get("runtimes", {})
    if not isinstance(packages, dict) or not isinstance(runtimes, dict):
        return False
    texts = [*needed, *packages.values(), proved.get("python") or "", proved.get("processor") or ""]
    return all(isinstance(text, str) for text in texts)


def _check_settings(path: str, settings: Any, allowed: Collection[str]) -> None:
    if not isinstance(settings, dict) or not all(
        isinstance(value, str) and _NAME.fullmatch(name) is not None and "\0" not in value
        for name, value in settings.items()
    ):
        raise PlanRefused(f"{path} has variables that cannot be set: it was changed; write the package again")
    asked = [name for name in settings if name not in HARMLESS and name not in allowed]
    if asked:
        changes = " and ".join(f"{_shown(name)} to {_shown(settings[name])}" for name in asked[:3])
        allow = " ".join(f"--allow {name}" for name in asked)
        raise PlanRefused(
            f"{path} sets {changes}, which may make this process run other code: if you trust who wrote it, add {allow}"
        )


def _name_libraries(path: str, job: PlanJob, given: Collection[str]) -> None:
    """Replace the libraries that segments name with the files that the user gives; no other library is loaded."""
    files = {digest_of(file): os.path.abspath(file) for file in given if os.path.isfile(file)}
    for segment in job["segments"]:
        wanted = segment["options"].get("libraries", {})
        if not isinstance(wanted, dict) or not all(isinstance(digest, str) for digest in wanted.values()):
            raise PlanRefused(f"{path} does not identify its libraries of operators: write the package again")
        for name, digest in wanted.items():
            if digest not in files:
                raise PlanRefused(
                    f"{path} needs the library of operators {_shown(name)} (SHA-256 {_shown(digest)}), which is code "
                    "and is loaded only if you name its file: if you trust who made it, add --library FILE"
                )
        segment["options"] = {**segment["options"], "libraries": {files[d]: d for d in wanted.values()}}


def _inside(path: str, folder: str, model: str) -> str:
    """The absolute path of a model, which must lie in the folder or be the nnpackage that contains the folder."""
    resolved = os.path.normpath(os.path.join(folder, model))
    if model == "..":
        if os.path.isdir(os.path.join(resolved, "metadata")):
            return resolved
    elif model and not os.path.isabs(model) and _is_within(resolved, folder):
        return resolved
    raise PlanRefused(f"{path} names the model {_shown(model)}, which is outside its folder and is not read")


def _is_within(path: str, folder: str) -> bool:
    """Return True if a path leads into a folder once all links are resolved."""
    try:
        real, root = os.path.realpath(path), os.path.realpath(folder)
        return os.path.commonpath([real, root]) == root
    except ValueError:  # an impossible path
        return False


def _check_files(path: str, folder: str, root: str, files: Any, models: list[str]) -> None:
    """Check that all files of the package exist, lie inside it, and have not changed since the plan was written."""
    if not isinstance(files, dict) or not all(isinstance(digest, str) for digest in files.values()):
        raise PlanRefused(f"{path} does not list its files: write the package again")
    digests = {os.path.normpath(os.path.join(folder, name)): digest for name, digest in files.items()}
    for model in models:
        if not any(file == model or file.startswith(model + os.sep) for file in digests):
            name = os.path.relpath(model, folder)
            raise PlanRefused(f"{path} needs {_shown(name)}, which is not among its files: write the package again")
    for file, digest in digests.items():
        name = os.path.relpath(file, folder)
        if not _is_within(file, root):
            raise PlanRefused(f"{path} names the file {_shown(name)}, which is outside its folder and is not read")
        if not os.path.isfile(file):
            raise PlanRefused(f"{path} needs {_shown(name)}, which is missing: copy the whole package again")
        try:
            same = digest_of(file) == digest
        except OSError as error:
            raise PlanRefused(f"{_shown(name)} cannot be read: {error.strerror or error}") from error
        if not same:
            raise PlanRefused(
                f"{_shown(name)} is not the file that {path} was written for: copy the whole package again"
            )


def plain(text: str) -> str:
    """Text from a plan or a runtime, made safe to print: control characters are escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _shown(value: Any) -> str:
    """A plan's value as a message shows it: short, and without control characters."""
    return ascii(value)[:80]
