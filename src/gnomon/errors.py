"""The errors that gnomon raises, and what users can do about them.

::

    GnomonError                 every error of gnomon; has a hint, the next step
    |-- UsageError              an argument or an option that is invalid: correct the command
    |-- ModelError              a model file that is broken, hostile or of an unknown kind
    |-- ProblemError            a placement problem that is malformed; names the JSON path
    |   `-- InfeasibleError     a well-formed problem without any allowed assignment; names the slot
    |-- RuntimeMissingError     a runtime is not installed or cannot be loaded: the hint is the install line
    |-- DeviceError             the device, or the connection to it, failed; `transient` says whether to try again
    |-- AgentError              the agent on the device broke its protocol: a defect of gnomon
    |-- MeasurementError        every configuration failed or was refused, so nothing can be decided
    |-- RecordError             the record of runs cannot be read or written
    `-- PackageError            a deployable package cannot be read or written

The failure of a *measured thing* is not an error but data: see `gnomon.core.sample.Failure`.

Exit codes of the command line, besides those of the errors below (2 to 9, and 70)::

    0        done
    1        a gate failed: something is slower than allowed, or a part of the request was not done
    7        nothing could be measured or compared
    10       undecided: there is an answer, but whether it is right remains open
    11       the outputs prove nothing: there is an answer, but no outputs to judge it by
    130, 143 ended by Ctrl-C, by SIGTERM
    141      the reader of standard output went away

With 10 and 11, the answer and the package are still written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

GATE_FAILED = 1
NOTHING_COMPARED = 7
UNDECIDED = 10
PROVES_NOTHING = 11
CLOSED_PIPE = 141

_OF_DOUBTS = {
    "judges-undecided": UNDECIDED,
    "threads-undecided": UNDECIDED,
    "unlike-itself": PROVES_NOTHING,
    "no-finite-output": PROVES_NOTHING,
    "unrepeatable": PROVES_NOTHING,
}


def exit_code_of(kinds: Iterable[str]) -> int:
    """The exit code of an answer, from the kinds of its warnings: 0, `UNDECIDED` or `PROVES_NOTHING`."""
    return max((_OF_DOUBTS.get(kind, 0) for kind in kinds), default=0)


class GnomonError(Exception):
    """The base of all errors of gnomon: a sentence that says what is wrong, and a hint with the next step.

    The command line prints both and exits with `exit_code`. Control and formatting characters in both are escaped,
    because the texts may come from files, devices and runtimes, and are shown in terminals and logs.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        message = legible(message, lines=True)
        super().__init__(message)
        self.message = message
        self.hint = legible(hint, lines=True)
        if hint:
            self.add_note(f"hint: {self.hint}")  # for tracebacks


class UsageError(GnomonError):
    """An argument or option has an invalid value.

    `words` are options that the command lacks. The hint ends with them, and the command line shows the user's whole
    command, with these options added, in their place.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "", words: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.words = tuple(words)


class ModelError(GnomonError):
    """A model file is missing, broken, hostile, or of a kind that gnomon does not read."""

    exit_code = 3


class ProblemError(GnomonError):
    """A placement problem is malformed; the message contains the JSON path of the error."""

    exit_code = 3


class InfeasibleError(ProblemError):
    """A placement problem has no allowed assignment; the message names the slot that shows it."""

    exit_code = 4


class RuntimeMissingError(GnomonError):
    """A runtime is not installed on the device, or cannot be loaded there."""

    exit_code = 5


class DeviceError(GnomonError):
    """The device, or the connection to it, failed; `transient` says whether trying again can help.

    `met` means that the device had answered before, so it vanished during a job, and `begun` that the job's campaign
    had begun; `busy` means that the device works, but another gnomon measures there.
    """

    exit_code = 6

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        transient: bool = False,
        met: bool = False,
        begun: bool = False,
        busy: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.transient = transient
        self.met = met or begun
        self.begun = begun
        self.busy = busy


class AgentError(GnomonError):
    """The agent on the device broke its protocol, which is a defect of gnomon."""

    exit_code = 70


class MeasurementError(GnomonError):
    """Nothing can be decided, because every configuration failed or was refused."""

    exit_code = NOTHING_COMPARED


class RecordError(GnomonError):
    """The record of runs cannot be read or written."""

    exit_code = 8


class PackageError(GnomonError):
    """A deployable package cannot be read or written."""

    exit_code = 9


@contextmanager
def system_errors(kind: type[GnomonError], what: str, *, hint: str = "") -> Iterator[None]:
    """Turn an OSError in the block into an error of this kind, whose message is `what` and the system's reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}", hint=hint) from error


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """ "Did you mean 'board'?" if a known name is similar, ignoring case; otherwise ""."""
    import difflib  # takes longer to load than everything else here

    by_lower = {word.lower(): word for word in names}
    near = difflib.get_close_matches(name[:200].lower(), by_lower, n=1)
    return f"Did you mean {by_lower[near[0]]!r}?" if near else ""


@contextmanager
def problems_of(name: str) -> Iterator[None]:
    """Put a name in front of the message of a ProblemError in the block."""
    try:
        yield
    except ProblemError as error:
        raise ProblemError(f"{name}: {error.message}", hint=error.hint) from error


def many(count: int, name: str, several: str = "") -> str:
    """A count of things: "1 layer", "2 layers"."""
    return f"{count} {name if count == 1 else several or name + 's'}"


def legible(text: str, *, lines: bool = False) -> str:
    """The text with control and formatting characters escaped, such as ``\\x1b``; `lines` keeps line ends."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (lines and c == "\n") else _escaped(c) for c in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
