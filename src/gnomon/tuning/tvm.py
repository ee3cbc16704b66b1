"""Workers that run TVM: child programs that take one job at a time and are started again when they are lost.

gnomon itself never loads TVM. Incompatible versions, a crash of LLVM or of tuned code, or a build that does not end
therefore affect only a child, and only the child's job fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from gnomon.core.sample import Failure
from gnomon.errors import RuntimeMissingError
from gnomon.installing import install_line
from gnomon.system.children import ChildProcess, Program
from gnomon.system.process import guarded

CHILD = "tvm.child"
_VERSIONS = install_line("apache-tvm", "apache-tvm-ffi")
_LINE_BYTES = 256 << 20
_START_S = 120.0


class TvmPool:
    """A context manager with a temporary folder, and a guard that ends the pool's processes even if gnomon is killed.

    The pool's workers are closed with it.
    """

    def __init__(self) -> None:
        self._workers: list[TvmWorker] = []

    def __enter__(self) -> Self:
        self.guard, self.folder = guarded("gnomon-tvm-")
        return self

    def __exit__(self, *raised: object) -> None:
        for worker in self._workers:
            worker.close()
        self.guard.close()

    def worker(
        self,
        *,
        job_timeout_s: float = 60.0,
        threads: int = 0,
        environment: Mapping[str, str] | None = None,
        pin: Sequence[int] = (),
        renew: Callable[[TvmWorker], Failure | None] | None = None,
    ) -> TvmWorker:
        """A worker with its own child.

        A job may take `job_timeout_s`. The child uses this number of `threads` (0: TVM's default) and the cores `pin`
        (none: all). `renew` is called after each start of the child, to restore its state.
        """
        # With an older PyTorch, importing TVM would compile an extension for it, which gnomon does not need.
        variables = {"TVM_FFI_DISABLE_TORCH_C_DLPACK": "1", **(environment or {})}
        if threads:
            variables["TVM_NUM_THREADS"] = str(threads)
        if pin:
            variables["TVM_BIND_THREADS"] = "0"  # TVM's own binding ignores the requested cores
        program = Program(
            name=CHILD,
            settings={"pin": list(pin)},
            environment=variables,
            job_timeout_s=job_timeout_s,
            start_timeout_s=_START_S,
            line_bytes=_LINE_BYTES,
        )
        opened = TvmWorker(self, program, renew)
        self._workers.append(opened)
        return opened


class TvmWorker:
    """A child that starts with the first job. It belongs to one thread."""

    def __init__(self, pool: TvmPool, program: Program, renew: Callable[[TvmWorker], Failure | None] | None) -> None:
        self._pool, self._program, self._renew = pool, program, renew
        self._child: ChildProcess | None = None
        self.versions: Mapping[str, str] = {}
        self.starts = 0

    @property
    def alive(self) -> bool:
        """Whether the child is running and therefore still has its state."""
        return self._child is not None and self._child.alive

    def ask(self, stage: str, job: Mapping[str, Any], *, timeout_s: float | None = None) -> Mapping[str, Any] | Failure:
        """The facts that a job returns, or its failure in this stage. RuntimeMissingError if TVM cannot be used."""
        fresh = not self.alive
        child = self.start()
        if fresh and self._renew is not None and (failure := self._renew(self)) is not None:
            self.close()
            return failure
        seconds = timeout_s or self._program.job_timeout_s
        said: Mapping[str, Any] | Failure = child.ask(job, stage=stage, timeout_s=seconds, log=None)
        return said

    def close(self) -> None:
        """End the child; the next job starts another."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def start(self) -> ChildProcess:
        """The child, which is started if it is not running. RuntimeMissingError as for `ask`."""
        if self._child is not None and self._child.alive:
            return self._child
        self.close()
        child = ChildProcess(self._program, self._pool.folder, self._pool.guard)
        said = child.ready(self._program.start_timeout_s)
        if isinstance(said, Failure):
            child.kill()
            raise _unusable(said)
        self.versions = said
        self._child = child
        self.starts += 1
        return child


def _unusable(failure: Failure) -> RuntimeMissingError:
    """The error for an installation of TVM that cannot be used."""
    if failure.message.endswith(("No module named 'tvm'", "No module named 'tvm_ffi'")):
        return RuntimeMissingError("Apache TVM is not installed here", hint=install_line("tvm"))
    if failure.kind == "crash":
        return RuntimeMissingError(
            f"the installed Apache TVM crashes when it creates a tuning context ({failure.message}): its two packages "
            "are incompatible",
            hint=_VERSIONS,
        )
    return RuntimeMissingError(f"Apache TVM cannot be used: {failure.message}", hint=_VERSIONS)
