"""The errors that gnomon raises, and what their reader can do.

::

    GnomonError                 every error of gnomon; has a hint, the next step
    |-- UsageError              an argument or an option that is invalid: correct the command
    |-- ModelError              a model file that is broken, hostile or of an unknown kind
    |-- ProblemError            a placement problem that is malformed; names the JSON path
    |   `-- InfeasibleError     a well-formed problem without any allowed assignment; names the slot
    |-- RuntimeMissingError     a runtime is not installed or cannot load: the hint is the install line
    |-- DeviceError             the device, or the way to it, failed; `transient` says whether to try again
    |-- AgentError              the agent on the device broke its protocol: a defect of gnomon
    |-- MeasurementError        every configuration failed or was refused, so there is nothing to decide on
    |-- RecordError             the record of runs cannot be read or written
    `-- PackageError            a deployable package cannot be read or written

The failure of a *measured thing* is not an error but data: see `gnomon.core.sample.Failure`.
"""

from __future__ import annotations


class GnomonError(Exception):
    """Base of all errors of gnomon: one sentence of what is wrong, and a hint that is the next step.

    The command line prints both and exits with `exit_code`. Control and formatting letters in them are escaped:
    they come from files, devices and runtimes, and `str(error)` ends in terminals and logs.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        message = legible(message, lines=True)
        super().__init__(message)
        self.message = message
        self.hint = legible(hint, lines=True)


class UsageError(GnomonError):
    """An argument or option has an invalid value."""

    exit_code = 2


class ModelError(GnomonError):
    """A model file is missing, broken, hostile, or of a kind that gnomon does not read."""

    exit_code = 3


class ProblemError(GnomonError):
    """A placement problem is malformed; the message holds the JSON path of what is wrong."""

    exit_code = 3


class InfeasibleError(ProblemError):
    """A placement problem has no allowed assignment; the message names the slot that shows it."""

    exit_code = 4


class RuntimeMissingError(GnomonError):
    """A runtime is not installed on the device, or cannot be loaded there."""

    exit_code = 5


class DeviceError(GnomonError):
    """The device, or the way to it, failed; `transient` says whether trying again can help.

    `met` says that the device had answered before, so that it vanished in the middle of a job, and `begun` that the
    job's campaign had begun; `busy` that it is in order, and another gnomon measures there.
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
    """Nothing is left to decide on: every configuration failed or was refused."""

    exit_code = 7


class RecordError(GnomonError):
    """The record of runs cannot be read or written."""

    exit_code = 8


class PackageError(GnomonError):
    """A deployable package cannot be read or written."""

    exit_code = 9


def legible(text: str, *, lines: bool = False) -> str:
    """The text with control and formatting letters escaped, such as ``\\x1b``; `lines` keeps line ends."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (lines and c == "\n") else _escaped(c) for c in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
