"""The ``config.cfg`` of an nnpackage: ``key=value`` lines that onert reads when it loads the package.

Source: ``loadConfigure`` in ``runtime/onert/api/nnfw/src`` of Samsung ONE: what follows ``#`` is a comment, a
line is split at its first ``=``, blanks and tabs around key and value go, a line with nothing behind ``=``
counts for nothing, and of two lines with one key the later counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gnomon.errors import PackageError

_BLANKS = " \t"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigCfg:
    """The text of a config.cfg, kept as it is; settings are read from it and changed in place."""

    text: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """Key and value of each setting that counts, in the order of the keys' first lines."""
        found = {}
        for line in self.text.split("\n"):
            entry = _setting(line)
            if entry is not None:
                found[entry[0]] = entry[1]
        return found

    def with_settings(self, settings: Mapping[str, str]) -> ConfigCfg:
        """A copy in which these settings hold and everything else, comments and order too, is as before.

        The last line of a key is changed in place, since that is the one that counts; new keys go to the end.
        Raises PackageError for a key or value that the format cannot hold.
        """
        for key, value in settings.items():
            _check(key, value)
        lines = self.text.split("\n")
        last: dict[str, int] = {}
        for index, line in enumerate(lines):
            entry = _setting(line)
            if entry is not None:
                last[entry[0]] = index
        for key, index in last.items():
            if key in settings and _setting(lines[index]) != (key, settings[key]):
                lines[index] = _replaced(lines[index], key, settings[key])
        added = [f"{key}={value}" for key, value in settings.items() if key not in last]
        if added:
            if lines[-1] == "":
                lines.pop()
            lines += [*added, ""]
        return ConfigCfg(text="\n".join(lines))


def _setting(line: str) -> tuple[str, str] | None:
    code = line.partition("#")[0]
    key, _, value = code.partition("=")
    return (key.strip(_BLANKS), value.strip(_BLANKS)) if value else None


def _replaced(line: str, key: str, value: str) -> str:
    """The line with another value; a comment behind the setting stays."""
    code, mark, comment = line.partition("#")
    blanks = code[len(code.rstrip(_BLANKS)) :] if mark else ""
    return f"{key}={value}{blanks}{mark}{comment}"


def _check(key: str, value: str) -> None:
    broken = set("\n\r#\0")
    if not key or key != key.strip(_BLANKS) or broken & set(key) or "=" in key:
        raise PackageError(
            f"config.cfg cannot hold the key {key!r}",
            hint="a key is one word without '=', '#' and line breaks",
        )
    if not value or value != value.strip(_BLANKS) or broken & set(value):
        raise PackageError(
            f"config.cfg cannot hold the value {value!r} of {key}",
            hint="a value is not empty, has no blanks around it, and no '#' or line break in it",
        )
