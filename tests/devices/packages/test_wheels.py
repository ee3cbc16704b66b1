"""Bringing packages to a device: tags, what is installed here, wheels of any kind, and the index."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import stat
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging import tags
from packaging.utils import parse_wheel_filename

from gnomon.devices.fingerprint import fingerprint
from gnomon.devices.packages import files as wheel_installed
from gnomon.devices.packages.files import Unusable, read_metadata
from gnomon.devices.packages.provide import available, provide
from gnomon.devices.packages.target import Target, target_of
from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.system.process import own_guard

HERE = fingerprint()
ARM: Mapping[str, Any] = {"machine": "aarch64", "python": "3.11.4", "libc": "glibc 2.31", "kernel": "5.10"}


def wheel(
    folder: Path,
    name: str,
    number: str = "1.0",
    *,
    tag: str = "py3-none-any",
    metadata: str = "",
    files: Mapping[str, bytes] | None = None,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{number}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n{metadata}"
        archive.writestr(f"{name}-{number}.dist-info/METADATA", head)
        for place, data in ({f"{name}.py": b"x = 1\n"} if files is None else files).items():
            archive.writestr(place, data)
    return path


def lone_python(code: str, folder: Path) -> str:
    """What a Python prints that has the folder and its standard library alone."""
    look = f"import sys; sys.dont_write_bytecode = True; sys.path.insert(0, {str(folder)!r})\n{code}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", look], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library here is no glibc")
def test_the_tags_of_this_machine_are_those_of_packaging() -> None:
    places = target_of(HERE).tags
    assert sorted(places, key=places.__getitem__) == list(dict.fromkeys(tags.sys_tags()))


@given(st.integers(0, 80), st.sampled_from(["x86_64", "aarch64", "armv7l", "riscv64"]), st.integers(6, 20))
def test_older_libraries_take_no_more(minor: int, machine: str, python: int) -> None:
    def at(minor: int) -> Target:
        return target_of({"machine": machine, "python": f"3.{python}.1", "libc": f"glibc 2.{minor}"})

    assert set(at(minor).tags) <= set(at(minor + 1).tags)
    wheel_tags = parse_wheel_filename(f"x-1-cp3{python}-cp3{python}-manylinux_2_{minor + 1}_{machine}.whl")[3]
    assert not wheel_tags & set(at(minor).tags)
    assert bool(wheel_tags & set(at(minor + 1).tags)) == (minor + 1 >= (5 if machine == "x86_64" else 17))


@pytest.mark.parametrize(
    ("machine", "libc", "name", "fits"),
    [
        ("aarch64", "glibc 2.31", "x-1-cp311-cp311-manylinux2014_aarch64.whl", True),
        ("arm64", "glibc 2.31", "x-1-cp38-abi3-manylinux_2_17_aarch64.whl", True),
        ("armv7l", "glibc 2.31", "x-1-cp311-cp311-manylinux_2_31_armv7l.whl", True),
        ("armv7l", "glibc 2.31", "x-1-cp311-cp311-linux_armv7l.whl", True),
        ("aarch64", "glibc 2.31", "x-1-cp312-abi3-manylinux_2_17_aarch64.whl", False),
        ("aarch64", "musl 1.2", "x-1-cp311-cp311-musllinux_1_1_aarch64.whl", True),
        ("aarch64", "musl 1.2", "x-1-cp311-cp311-manylinux_2_17_aarch64.whl", False),
        ("aarch64", None, "x-1-cp311-cp311-manylinux_2_17_aarch64.whl", False),
        ("aarch64", None, "x-1-py2.py3-none-any.whl", True),
        ("x86_64", "glibc 2.5", "x-1-cp311-cp311-manylinux1_x86_64.whl", True),
        ("x86_64", "glibc 2.36", "x-1-cp311-cp311-win_amd64.whl", False),
    ],
)
def test_wheels_that_fit(machine: str, libc: str | None, name: str, fits: bool) -> None:
    target = target_of({"machine": machine, "python": "3.11.7", "libc": libc})
    assert bool(parse_wheel_filename(name)[3] & set(target.tags)) == fits


def test_what_is_installed_here_is_brought(tmp_path: Path) -> None:
    module = "onnxruntime"
    try:
        installed = version(module)
    except PackageNotFoundError:
        pytest.skip(f"{module} is not installed here")
    told: list[str] = []
    folder = provide([module], HERE, home=tmp_path, fetch=False, tell=told.append)
    printed = lone_python(f"import numpy, {module}; print(numpy.__file__); print({module}.__file__)", folder)
    assert all(Path(line).is_relative_to(folder) for line in printed.splitlines())
    assert f"{module} {installed}" in told[0]
    assert f"{module} {installed}" in available([module], HERE, home=tmp_path)
    again = provide([module], HERE, home=tmp_path, fetch=False, tell=told.append)
    assert (again, len(told)) == (folder, 1)
    assert [p.name for p in (tmp_path / "site").iterdir()] == [folder.name]


def test_what_does_not_fit_is_told_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(RuntimeMissingError, match=r"Python 3\.11 on aarch64 with glibc 2\.31: numpy") as told:
        provide(["numpy"], ARM, home=tmp_path, fetch=False)
    assert "--fetch" in told.value.hint
    assert str(tmp_path / "wheels") in told.value.hint
    assert not tmp_path.joinpath("site").exists()


def test_the_best_wheel_is_taken_and_its_requirements_with_it(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheel(wheels, "gtop", "1.0")
    wheel(wheels, "gtop", "1.5", metadata='Requires-Dist: glow>=1,<3\nRequires-Dist: gwin; sys_platform == "win32"\n')
    wheel(wheels, "gtop", "2.0b1")
    wheel(wheels, "gtop", "3.0", metadata="Requires-Python: >=3.12\n")
    wheel(wheels, "gtop", "4.0", tag="cp311-cp311-manylinux_2_17_x86_64")
    wheel(wheels, "glow", "2.0", metadata='Requires-Dist: gextra; extra == "more"\n')
    wheel(wheels, "glow", "3.0")
    wheel(wheels, "gother", metadata="Requires-Dist: glow[more]\n")
    wheel(wheels, "gextra")
    assert available(["gtop"], ARM, home=tmp_path) == ("glow 2.0", "gtop 1.5")
    assert available(["gtop", "gother"], ARM, home=tmp_path) == ("gextra 1.0", "glow 2.0", "gother 1.0", "gtop 1.5")
    # gother alone takes the newest glow; with gtop it must be taken back, and what only it required with it.
    assert available(["gother"], ARM, home=tmp_path) == ("glow 3.0", "gother 1.0")
    assert available(["gtop==2.0b1"], ARM, home=tmp_path) == ("gtop 2.0b1",)


def test_wants_that_cannot_be_met_together_are_told(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheel(wheels, "ga", metadata="Requires-Dist: gc<2\n")
    wheel(wheels, "gb", metadata="Requires-Dist: gc>=2\n")
    wheel(wheels, "gc", "1.0")
    wheel(wheels, "gc", "2.0")
    with pytest.raises(RuntimeMissingError, match="required by ga, gb"):
        available(["ga", "gb"], ARM, home=tmp_path)


def test_a_circle_of_requirements_ends(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "ga", metadata="Requires-Dist: gb[x]\n")
    wheel(tmp_path / "wheels", "gb", metadata="Requires-Dist: ga\n")
    assert available(["ga"], ARM, home=tmp_path) == ("ga 1.0", "gb 1.0")


def test_a_wheel_is_unpacked_as_site_packages(tmp_path: Path) -> None:
    wheel(
        tmp_path / "wheels",
        "gpure",
        files={
            "gpure/__init__.py": b"",
            "gpure-1.0.data/purelib/more/a.py": b"a",
            "gpure-1.0.data/platlib/b.so": b"b",
            "gpure-1.0.data/scripts/run": b"#!python",
            "gpure-1.0.data/data/share/x": b"x",
        },
    )
    folder = provide(["gpure"], ARM, home=tmp_path, fetch=False)
    assert names(folder) == {"gpure/__init__.py", "more/a.py", "b.so", "gpure-1.0.dist-info/METADATA"}
    assert folder.name == provide(["gpure"], ARM, home=tmp_path, fetch=False).name
    wheel(tmp_path / "wheels", "gpure", files={"gpure/__init__.py": b"new"})
    assert folder.name != provide(["gpure"], ARM, home=tmp_path, fetch=False).name


@pytest.mark.parametrize(
    "place", ["../out", "/out", "a/../../out", "a\\..\\out", "gbad-1.0.data/purelib/../../../out", "c:/out", ".."]
)
def test_a_wheel_that_writes_elsewhere_is_refused(place: str, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "gbad", files={"gbad.py": b"", place: b"x"})
    with pytest.raises(RuntimeMissingError, match="outside") as told:
        provide(["gbad"], ARM, home=tmp_path, fetch=False)
    assert told.value.hint.startswith("Remove it, then start again: rm ")
    assert list((tmp_path / "site").iterdir()) == []
    assert not any(path.name == "out" for path in tmp_path.rglob("*"))


def test_a_link_in_a_wheel_becomes_a_file(tmp_path: Path) -> None:
    path = wheel(tmp_path / "wheels", "glink")
    with zipfile.ZipFile(path, "a") as archive:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    folder = provide(["glink"], ARM, home=tmp_path, fetch=False)
    assert not (folder / "link").is_symlink()
    assert (folder / "link").read_text() == "/etc/passwd"


def test_bombs_and_wrecks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    wheel(wheels, "gbomb", files={"zeros": bytes(1 << 20)})
    monkeypatch.setattr("gnomon.devices.packages.files.MOST_UNPACKED_BYTES", 1 << 19)
    with pytest.raises(RuntimeMissingError, match="1 MiB"):
        provide(["gbomb"], ARM, home=tmp_path, fetch=False)
    (wheels / "gtorn-1.0-py3-none-any.whl").write_bytes(b"PK\3\4 torn")
    with pytest.raises(RuntimeMissingError, match="gtorn"):
        available(["gtorn"], ARM, home=tmp_path)
    wheel(wheels, "gname").rename(wheels / "gfalse-1.0-py3-none-any.whl")
    with pytest.raises(RuntimeMissingError, match="metadata for gfalse"):
        available(["gfalse"], ARM, home=tmp_path)
    wheel(wheels, "gurl", metadata="Requires-Dist: x @ https://example.org/x.whl\n")
    with pytest.raises(RuntimeMissingError, match="from a URL"):
        available(["gurl"], ARM, home=tmp_path)


def test_a_wheel_that_asks_for_more_memory_than_there_is_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(self: object, *given: object, **more: object) -> bytes:
        raise MemoryError

    wheel(tmp_path / "wheels", "gpure")
    monkeypatch.setattr("zipfile.ZipFile.read", read)
    with pytest.raises(RuntimeMissingError, match="cannot be used: MemoryError"):
        available(["gpure"], ARM, home=tmp_path)


def test_versions_of_thousands_of_digits_are_refused() -> None:
    head = "Name: a\nVersion: 1.0\n"
    for line in (f"Requires-Python: >={'9' * 5000}\n", f"Requires-Dist: b>={'9' * 5000}\n"):
        with pytest.raises(Unusable, match="a line of more than"):
            read_metadata(head + line, target_of(ARM))


@pytest.mark.parametrize("text", ["", "-r file", "--index-url=x", "a b", "x" * 5000 + "!"])
def test_what_is_no_requirement_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a requirement"):
        provide([text], ARM, home=tmp_path, fetch=False)


def install(site: Path, name: str, record: list[str], **more: str) -> None:
    """A distribution as an installer would leave it in a folder that is on the path."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (site / f"{name}.py").write_text("x = 1\n")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    for file, text in more.items():
        (info / file.replace("_json", ".json")).write_text(text)
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"x = 1\n").digest()).rstrip(b"=").decode()
    lines = [f"{name}.py,sha256={digest},6", f"{name}-1.0.dist-info/METADATA,,", *record]
    (info / "RECORD").write_text("\n".join(lines) + "\n")


def test_installed_files_are_taken_without_scripts_and_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "prefix" / "lib" / "site"
    script = "../../bin/gpure,,"
    install(site, "gpure", [script, "__pycache__/gpure.cpython-311.pyc,,", "gpure-1.0.dist-info/RECORD,,"])
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    folder = provide(["gpure"], ARM, home=tmp_path, fetch=False)
    assert names(folder) == {"gpure.py", "gpure-1.0.dist-info/METADATA"}
    later = (site / "gpure.py").stat().st_mtime + 10
    os.utime(site / "gpure.py", (later, later))
    assert provide(["gpure"], ARM, home=tmp_path, fetch=False) != folder


@pytest.mark.parametrize(
    ("record", "more", "reason"),
    [
        (["../../../../etc/passwd,,"], {}, "outside of its folder"),
        (["/etc/passwd,,"], {}, "outside of its folder"),
        (["gone.py,,"], {}, "file missing"),
        (["x" * (1 << 18)], {}, "broken record"),
        ([], {"direct_url_json": '{"url": "file:///x", "dir_info": {"editable": true}}'}, "editable"),
        ([], {"direct_url_json": "{"}, "editable"),
        ([], {"WHEEL": "Tag: cp311-cp311-win_amd64\n"}, "for cp311-cp311-win_amd64"),
        ([], {"WHEEL": ""}, "not installed from a wheel"),
        ([], {"METADATA": "Name: gpure\nVersion: 1.0\nRequires-Python: >=4\n"}, "it requires Python >=4"),
        ([], {"METADATA": "Name: gpure\nVersion: 0.5\n"}, "in version 0.5"),
    ],
)
def test_installations_that_cannot_be_brought(
    record: list[str], more: dict[str, str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "prefix" / "lib" / "site"
    install(site, "gpure", record, **more)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    # Newer metadata readers leave out files that are missing, and replace Python's own once a program imports them.
    monkeypatch.setattr(Distribution, "files", property(lambda found: []))
    with pytest.raises(RuntimeMissingError, match=reason):
        provide(["gpure>=1"], ARM, home=tmp_path, fetch=False)


def test_what_was_built_here_needs_a_library_no_older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site-here", "gbuilt", [], WHEEL="Tag: py3-none-linux_aarch64\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site-here"))
    monkeypatch.setattr(wheel_installed, "host_target", lambda: target_of({**ARM, "libc": "glibc 2.31"}))
    assert available(["gbuilt"], ARM, home=tmp_path) == ("gbuilt 1.0",)
    with pytest.raises(RuntimeMissingError, match="newer or a different C library"):
        available(["gbuilt"], {**ARM, "libc": "glibc 2.30"}, home=tmp_path)


def test_unused_folders_go(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "ga")
    wheel(tmp_path / "wheels", "gb")
    first = provide(["ga"], ARM, home=tmp_path, fetch=False)
    os.utime(first, (0, 0))
    assert provide(["ga"], ARM, home=tmp_path, fetch=False) == first  # used again
    assert first.stat().st_mtime > 0
    os.utime(first, (0, 0))
    second = provide(["gb"], ARM, home=tmp_path, fetch=False)
    assert list((tmp_path / "site").iterdir()) == [second]


def test_pip_is_asked_for_the_device_and_its_failures_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python"
    own_guard()  # its Python is the real one
    monkeypatch.setattr(sys, "executable", str(fake))

    def says(text: str) -> RuntimeMissingError:
        fake.write_text(f"#!/bin/sh\necho \"$@\" > '{tmp_path}/asked'\ncat >&2 <<'END'\n{text}\nEND\nexit 1\n")
        fake.chmod(0o755)
        with pytest.raises(RuntimeMissingError) as told:
            provide(["gx>=1"], ARM, home=tmp_path, fetch=True)
        return told.value

    lacking = "ERROR: Could not find a version that satisfies the requirement gx>=1 (from versions: {})"
    assert "Versions with a wheel: 0.1, 0.2." in says(lacking.format("0.1, 0.2")).hint
    assert "No version has a wheel." in says(lacking.format("none")).hint
    assert "cannot be reached" in says("WARNING: Retrying (Retry(total=4\n" + lacking.format("none")).message
    assert "without pip" in says("python: No module named pip").message
    assert "pip says: ERROR: odd" in says("ERROR: odd").message
    asked = (tmp_path / "asked").read_text()
    for option in ("--no-deps", "--only-binary=:all:", "--python-version=3.11.4", "--platform=manylinux2014_aarch64"):
        assert option in asked
    assert asked.rstrip().endswith("-- gx>=1")
    assert list((tmp_path / "wheels").iterdir()) == []


def test_wheels_for_another_processor_come_from_the_index(tmp_path: Path) -> None:
    told: list[str] = []
    try:
        folder = provide(["onert>=0.1.0"], ARM, home=tmp_path, fetch=True, tell=told.append)
    except RuntimeMissingError as error:
        if "cannot be reached" in error.message or "not available" in error.message:
            pytest.skip(f"the package index: {error.message}")
        raise
    libraries = [p for p in folder.rglob("*.so*") if p.is_file()]
    assert libraries
    for library in libraries:
        head = library.read_bytes()[:20]
        if head.startswith(b"\x7fELF"):
            assert int.from_bytes(head[18:20], "little") == 183, f"{library.name} is not for aarch64"
    assert any(sentence.startswith("fetches onert-") for sentence in told)
    assert provide(["onert>=0.1.0"], ARM, home=tmp_path, fetch=False) == folder
