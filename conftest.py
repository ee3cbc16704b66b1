"""What the tests that really measure have in common."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest
from tests.shortkit import MOST_BLOCKS, SHORT_VISITS

import zoo
from gnomon.devices.base import inherited
from gnomon.devices.local import LocalDevice
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink
from gnomon.runtimes import registry
from gnomon.runtimes.base import Probe, Runtime, driver_of
from gnomon.session import judges, reference, targets
from gnomon.session.targets import Missing

# A shell starts its background jobs with interrupts ignored, which their children inherit; some tests send them one.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No example is timed, as the machine may have other work. GNOMON_EXAMPLES=1000 looks longer for one that fails.
hypothesis.settings.register_profile("gnomon", deadline=None, max_examples=int(os.environ.get("GNOMON_EXAMPLES", "50")))
hypothesis.settings.load_profile("gnomon")

LONG = ("runtimes", "docs", "tuning", "jobs", "toolchains", "serving", "bad_days", "cli", "devices", "session", "agent")
"""Folders by how long their longest file takes: they are begun first, so that no run ends with one of them alone."""


_KITS = ("tests.devices.", "tests.bad_days.boardkit", "tests.standins.snpekit", "tests.standins.programkit")


def _drives_devices(module: object) -> bool:
    """Whether something in the module comes from a kit of devices, or is one."""
    found = vars(module).values() if module is not None else ()
    return any(str(getattr(v, "__module__", None) or getattr(v, "__name__", "")).startswith(_KITS) for v in found)


# Collecting thousands of tests makes next to no garbage, and looking for it takes a seventh of the time.
gc.disable()


def pytest_collection_finish() -> None:
    """Look no more for garbage among thousands of collected tests and their modules, and for new garbage less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first, and mark what drives devices: what lies in their folder or imports one of their kits."""
    below = Path(__file__).parent / "tests"
    driving = {module for module in {getattr(item, "module", None) for item in items} if _drives_devices(module)}
    paths = {item.path for item in items}
    folders = {path: path.relative_to(below).parts[0] if path.is_relative_to(below) else "" for path in paths}

    def rank(item: pytest.Item) -> int:
        folder = folders[item.path]
        return LONG.index(folder) if folder in LONG else len(LONG)

    items.sort(key=rank)
    for item in items:
        if folders[item.path] == "devices" or getattr(item, "module", None) in driving:
            item.add_marker(pytest.mark.devices)


@pytest.fixture(scope="session", autouse=True)
def own_leases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is started once for several tests waits for no other gnomon of this machine, and has its own record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNOMON_HOME", str(tmp_path_factory.mktemp("home")))
        patch.delenv("GNOMON_RECORD", raising=False)
        patch.setenv("GNOMON_LEASES", str(tmp_path_factory.mktemp("leases")))
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No test leaves a file in the root of the repository; what begins with a dot is the caches of the gates."""
    root = Path(__file__).parent

    def found() -> set[str]:
        return {path.name for path in root.iterdir() if not path.name.startswith((".", "__"))}

    before = found()
    yield
    assert not (left := found() - before), f"tests, or what ran beside them, left {', '.join(sorted(left))} in {root}"


@pytest.fixture(scope="session")
def zoo_model() -> Callable[[str], Path]:
    """A function from the name of a model of the zoo to its path; the test skips where a wheel cannot be had."""

    def build(name: str) -> Path:
        try:
            return zoo.build(name)
        except zoo.ZooError as error:
            pytest.skip(f"zoo: {error}")

    return build


@pytest.fixture(scope="session")
def software_gpu() -> Mapping[str, str]:
    """The environment in which a process finds one Vulkan device, SwiftShader, which is a program on the CPU.

    The test skips where `scripts/swiftshader`, which `make test` runs, has not fetched it.
    """
    folder = Path(os.environ.get("GNOMON_SWIFTSHADER") or Path(__file__).parent / ".venv" / "swiftshader")
    icd = folder.resolve() / "vk_swiftshader_icd.json"
    if not icd.is_file():
        pytest.skip(f"SwiftShader is not in {folder}: scripts/swiftshader fetches it; GNOMON_SWIFTSHADER is its folder")
    before = os.environ.get("LD_LIBRARY_PATH")
    return {
        # A Vulkan loader lies beside it. Loaders before 1.3.207 read the second name, later ones both.
        "LD_LIBRARY_PATH": f"{icd.parent}:{before}" if before else str(icd.parent),
        "VK_DRIVER_FILES": str(icd),
        "VK_ICD_FILENAMES": str(icd),
        "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1",
    }


@pytest.fixture
def on_software_gpu(software_gpu: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The same environment, set for the processes that the test starts."""
    for name, value in software_gpu.items():
        monkeypatch.setenv(name, value)
    return software_gpu


@pytest.fixture(scope="session")
def small() -> Effort:
    """An effort that is enough to see whether something works, not how fast it is."""
    return Effort(
        processes_least=1,
        processes_most=1,
        rounds=2,
        block_s=0.01,
        warm_s=0.005,
        rewarm_s=0.001,
        laggard=1e9,
        timeout_s=60.0,
    )


@pytest.fixture
def short_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Visits are short in this process, where only gnomon's own effort can be asked for, and no time is seen."""
    usual = Effort.__init__.__kwdefaults__
    assert usual is not None
    for name, seconds in SHORT_VISITS.items():
        monkeypatch.setitem(usual, name, seconds)


@pytest.fixture(autouse=True)
def unconfirmed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No second runtime confirms reference outputs, in two more processes, but where a test asks for `confirmed`."""
    if "confirmed" not in request.fixturenames:
        monkeypatch.setattr(judges, "_MOST_TRIED", 0)


_PROBED: dict[tuple[object, ...], dict[str, Probe]] = {}


@pytest.fixture(autouse=True)
def probed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runtimes of this machine are asked once in the same environment what they are: each time takes a process."""
    ask = targets.probe_runtimes

    def remembered(link: AgentLink, runtimes: tuple[Runtime, ...]) -> tuple[dict[str, Probe], list[Missing]]:
        device = link.device
        if type(device) is not LocalDevice or any(hasattr(runtime, "probing") for runtime in runtimes):
            return ask(link, runtimes)  # a command's program is found by what the command says
        environment = {**inherited(os.environ), **device._environment}
        named = ((runtime.name, driver_of(runtime)) for runtime in runtimes)
        asked = (link.info.python, *link.paths, *sorted(environment.items()), *named)
        if asked not in _PROBED:
            probes, missing = ask(link, runtimes)
            if missing:
                return probes, missing
            _PROBED[asked] = probes
        return dict(_PROBED[asked]), []

    for module in (targets, judges, reference):
        monkeypatch.setattr(module, "probe_runtimes", remembered)


@pytest.fixture
def confirmed() -> None:
    """Other runtimes of this machine compute reference outputs too, as they do for users."""


@pytest.fixture
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Placed across runtimes a model is cut in three, which nine chains price; eight parts take two dozen."""
    from gnomon.jobs.place.across import AcrossPlacer

    monkeypatch.setattr(AcrossPlacer.__init__, "__kwdefaults__", {"most_blocks": MOST_BLOCKS})


@pytest.fixture
def few_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices are asked for two runtimes: each of the others takes a process, some of which import PyTorch."""
    good, broken = registry.all_runtimes()
    few = tuple(runtime for runtime in good if runtime.name in ("ncnn", "onnxruntime"))
    monkeypatch.setattr("gnomon.jobs.devices.job.all_runtimes", lambda: (few, broken))


@pytest.fixture(scope="session")
def every_lease(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all tests' leases: among the tests' own folders pytest would list them for each new test."""
    return tmp_path_factory.mktemp("leases-of-tests")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, every_lease: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a record and leases of its own, so that it neither sees nor waits for anybody else's."""
    home = tmp_path / "home"
    monkeypatch.setenv("GNOMON_HOME", str(home))
    monkeypatch.delenv("GNOMON_RECORD", raising=False)
    own = every_lease / tmp_path.name
    own.mkdir()
    monkeypatch.setenv("GNOMON_LEASES", str(own))
    return home
