"""A folder with an aarch64 Python, numpy and onert, run on this machine by qemu's user-mode emulation.

It is made once and kept: Debian's packages by apt-get with a state of its own (this machine's packages and
architectures stay as they are), the wheels by pip. Nothing in it is installed; `GNOMON_ARM_ROOT` names another place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RELEASE, MIRROR = "bookworm", "http://deb.debian.org/debian"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PACKAGES = ("libc6", "libstdc++6", "zlib1g", "python3.11-minimal", "libpython3.11-stdlib")
PYTHON = "3.11"
#: What the wheels may ask of the C library, up to Debian's 2.36.
PLATFORMS = ("manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in (17, 24, 26, 27, 28, 31, 34, 35)))
WHEELS = ("numpy==2.4.2", "onert==0.1.0")
#: The processor to be: the one of a Raspberry Pi 4.
PROCESSOR = "cortex-a72"
QEMU = "qemu-aarch64-static"
_CONFIGURATION = """\
Dir "{here}";
Dir::State::status "{here}/status";
Dir::Etc::sourcelist "{here}/sources.list";
Dir::Etc::sourceparts "-";
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """A root folder of the other architecture: `python` starts its Python, `packages` goes on PYTHONPATH."""

    root: Path

    @property
    def python(self) -> Path:
        return self.root / "usr/bin/emulated-python"

    @property
    def packages(self) -> Path:
        return self.root / "packages"


def missing() -> str:
    """What this machine lacks for the emulation; "" if nothing."""
    tools = [tool for tool in (QEMU, "apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if tools:
        return f"{', '.join(tools)} (Debian: qemu-user-static)"
    return "" if KEYS.exists() else f"{KEYS} (Debian: debian-archive-keyring)"


def emulated() -> Emulated:
    """The root folder, made if there is none yet; CalledProcessError with the tool's words if that fails.

    PermissionError if the folder is another user's, who could have put anything there.
    """
    default = Path(tempfile.gettempdir()) / f"gnomon-arm-root-{os.getuid()}"
    root = Path(os.environ.get("GNOMON_ARM_ROOT") or default).absolute()
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=root.name + ".", dir=root.parent))
        try:
            _unpack_packages(building)
            unpack_wheels(WHEELS, building / "packages")
            _write_wrapper(building, root)
            building.rename(root)
        except OSError:
            if not root.exists():  # else somebody else made it meanwhile
                raise
        finally:
            shutil.rmtree(building, ignore_errors=True)
    if root.stat().st_uid != os.getuid():
        raise PermissionError(f"{root} is somebody else's; set GNOMON_ARM_ROOT to a folder of your own")
    return Emulated(root=root)


def _unpack_packages(root: Path) -> None:
    """Debian's packages with all that they need, unpacked but not set up."""
    with tempfile.TemporaryDirectory(prefix="gnomon-apt-") as folder:
        here = Path(folder)
        for name in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/cache/apt"):
            (here / name).mkdir(parents=True)
        (here / "status").touch()
        (here / "sources.list").write_text(f"deb [arch=arm64 signed-by={KEYS}] {MIRROR} {RELEASE} main\n")
        (here / "apt.conf").write_text(_CONFIGURATION.format(here=here))
        settings = {**os.environ, "APT_CONFIG": str(here / "apt.conf"), "LC_ALL": "C"}
        for command in (["update"], ["install", "--yes", "--download-only", *PACKAGES]):
            subprocess.run(["apt-get", "-q", *command], env=settings, check=True, capture_output=True, timeout=600)
        for archive in sorted(here.glob("var/cache/apt/archives/*.deb")):
            subprocess.run(["dpkg-deb", "-x", archive, root], check=True, capture_output=True, timeout=120)


def unpack_wheels(wheels: Sequence[str], into: Path) -> None:
    """Wheels for the other architecture, unpacked; CalledProcessError with pip's words if one cannot be had."""
    with tempfile.TemporaryDirectory(prefix="gnomon-wheels-") as folder:
        wanted = [part for platform in PLATFORMS for part in ("--platform", platform)]
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--implementation=cp"]
        subprocess.run(
            [*pip, f"--python-version={PYTHON}", *wanted, "-d", folder, *wheels],
            check=True,
            capture_output=True,
            timeout=600,
        )
        for wheel in sorted(Path(folder).glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(into)


def _write_wrapper(building: Path, root: Path) -> None:
    """What starts the Python. It lies beside it, so that Python finds its library and calls itself by this name."""
    wrapper = Emulated(root=root).python
    text = f"#!/bin/sh\nexec {shutil.which(QEMU)} -cpu {PROCESSOR} -0 '{wrapper}' -L '{root}' "
    written = building / wrapper.relative_to(root)
    written.write_text(text + f"'{root}/usr/bin/python{PYTHON}' \"$@\"\n")
    written.chmod(0o755)
