"""The scripts for devices behind adb or sdb: those of `gnomon.devices.shell.scripts`, adapted to these programs.

``sdb shell COMMAND`` does not pass on standard input, merges the two outputs on a pseudo-terminal and reports no status
(``create_subproc_thread`` in ``src/services.c`` of Tizen's sdbd). The same holds for ``adb shell`` with a device older
than Android 7 (``adb/SERVICES.TXT`` of AOSP: "shell:" versus "shell,v2:"). Therefore input comes from a pushed file,
standard error goes to a file, and random marks show the beginning and end of the output and the status.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.devices.shell.link import ShellCommand
from gnomon.devices.shell.scripts import CLEAN, lease_functions, line, quoted, run_script
from gnomon.system.process import STDERR_TAIL_BYTES

_MARKS_BYTES = 256

LINGER = "\n{ sleep 0.05 || sleep 0; } 2>/dev/null\n"
"""The end of a script whose output goes through a terminal. When a session's first process ends, Linux hangs up its
terminal and drops output that has not reached the reader (``tty_ldisc_hangup`` flushes the driver's buffer), so the
last marks would sometimes be lost. If the device's sleep does not accept fractions, starting it twice provides the
delay.
"""


def whole(path: str, size_bytes: int) -> str:
    """A script that runs a pushed script if it arrived completely."""
    return f'[ "$(wc -c <{path})" -eq {size_bytes} ] && exec sh {path}; echo "the script did not arrive completely"'


def one_line(script: str) -> str:
    """A script as one line, even if it contains line breaks."""
    return line(script).decode("utf-8", "surrogateescape").removesuffix("\n")


def base_script(token: str, places: Sequence[str]) -> str:
    """A script that makes the private folder in the first writable one of `places` and prints its path on a line."""
    return (
        f"umask 077; for d in {' '.join(places)}; do b=$d/gnomon-{token}; "
        '[ -n "$d" ] && mkdir "$b" && mkdir "$b/work" "$b/run" "$b/in" && break; b=; done 2>/dev/null; '
        'case $b in "") false;; *) cd "$b" && pwd -P;; esac'
    )


_WATCHER = """
umask 077
base=%(base)s held= ticket= said= n=0 last=
echo $$ >"$base/watcher"
%(clean)strap '' HUP
trap 'kill "$s" 2>/dev/null; clean; exit' TERM INT
folder= tmp=/tmp; [ -d /tmp ] || tmp=/data/local/tmp
%(lease)swhile [ "$n" -lt %(silence)s ] && [ -d "$base" ]; do
  t=%(tick)s
  case $said in held*) ;; *)
    lease; t=1
    echo "$said" >"$base/lease.new" && mv "$base/lease.new" "$base/lease";;
  esac
  sleep "$t" 8<&- & s=$!
  wait "$s"
  now=; read -r now <"$base/alive"
  if [ "$now" = "$last" ]; then n=$((n + t)); else n=0; last=$now; fi
done 2>/dev/null
clean
"""


def watcher_script(base: str, *, silence_s: float, by: str, leases: str = "") -> str:
    """A script that holds the device's lease, and cleans up once the file `alive` has not changed for 1.5 times
    `silence_s`.

    It waits for the lease, and writes the state of the lease to the file `lease`.
    """
    tick = max(1, round(silence_s / 6))
    # This is longer than gnomon itself waits; otherwise gnomon would take the kill for the command's own end.
    return _WATCHER % {
        "base": quoted(base),
        "silence": max(tick + 1, round(1.5 * silence_s)),
        "tick": tick,
        "clean": CLEAN,
        "lease": lease_functions(by, leases),
    }


def start_script(base: str, size_bytes: int) -> str:
    """A script that starts the watcher detached from its session and prints the state of the lease that the watcher
    writes.

    Other watchers recognise it by the name of its script.

    Status 3 if its script did not arrive completely or ended immediately.
    """
    given = quoted(f"{base}/given.sh")
    return (
        f'[ "$(wc -c <{given})" -eq {size_bytes} ] || exit 3; '
        "if command -v setsid >/dev/null; then go=setsid; else go=; fi; "
        f"( trap '' HUP; exec $go sh {given} </dev/null >/dev/null 2>&1 ) & "
        f"while [ ! -s {quoted(f'{base}/lease')} ]; do kill -0 $! 2>/dev/null || exit 3; done; "
        f"cat {quoted(f'{base}/lease')}"
    )


def end_script(base: str) -> str:
    """A script that has the watcher clean up and end, and waits for it."""
    # The script waits until the folder, which is removed last, is gone. Waiting for the process would be less reliable,
    # because a process that has not been reaped still exists.
    return (
        f'read -r w <{quoted(f"{base}/watcher")} && kill -TERM "$w" || rm -rf {quoted(base)}; i=0; '
        f'while [ -d {quoted(base)} ] && [ "$i" -lt 99 ]; do i=$((i + 1)); sleep 0.1 || sleep 1; done 2>/dev/null'
    )


# Standard error goes through a pipe and `tail`, so that a verbose command does not fill the disk. If a command's group
# is the session's, whose end also ends `tail`, only a file is used. A process that has left the group and still holds
# the pipe is not waited for.
_COMMAND = """
[ %(bytes)s -eq 0 ] || [ "$(wc -c <%(stdin)s)" -eq %(bytes)s ] || exit
run() {
%(run)s
}
if command -v setsid >/dev/null && mkfifo %(pipe)s 2>/dev/null; then
  tail -c %(most)s <%(pipe)s >%(error)s & t=$!
  ( run ) <%(stdin)s 2>%(pipe)s
  { sleep 2; kill -9 "$t"; } >/dev/null 2>&1 & k=$!
  wait "$t" 2>/dev/null
  kill "$k"
else
  trap : TERM
  ( run ) <%(stdin)s 2>%(error)s
fi
"""


def command_script(command: ShellCommand, *, base: str, tokens: tuple[str, str]) -> str:
    """A script that runs a command with files for its input and its standard error; the end of the latter is printed
    afterwards.

    The first token marks the command's output and status; the second marks the end of its standard error. Without
    setsid on the device, the second part is missing, because the command's group is the session's, which is killed at
    the end.
    """
    place = f"{base}/in/{command.number}"
    note = f"{base}/run/{command.number}"
    run = run_script(argv=command.argv, env=command.env, work=f"{base}/work", note=note, token=tokens[0])
    filled = _COMMAND % {
        "run": run,
        "stdin": quoted(f"{place}.in") if command.stdin else "/dev/null",
        "bytes": len(command.stdin),
        "error": quoted(f"{place}.err"),
        "pipe": quoted(f"{place}.pipe"),
        "most": STDERR_TAIL_BYTES + _MARKS_BYTES,
    }
    return filled + errors_script(base, command.number, tokens[1]) + LINGER


def errors_script(base: str, number: int, token: str) -> str:
    """A script that prints the end of a command's standard error between marks and removes the command's files."""
    place = f"{base}/in/{number}"
    error = quoted(f"{place}.err")
    return (
        f"printf '\\036%s<\\036' {token}; tail -c {STDERR_TAIL_BYTES + _MARKS_BYTES} {error}; "
        f"printf '\\036%s>0\\036' {token}; rm -f {error} "
        + " ".join(quoted(f"{place}.{end}") for end in ("in", "sh", "pipe"))
    )


def arrived_script(pushed: str, path: str, size_bytes: int, digest: str, *, program: bool) -> str:
    """A script that moves a pushed file to its place; status 3 if it differs from the file that was sent."""
    came, to, mode = quoted(pushed), quoted(path), "500" if program else "400"
    return (
        f"bad() {{ echo {to}; exit 3; }}; n=$(wc -c <{came}) && [ $((n)) -eq {size_bytes} ] || bad\n"
        f'if command -v sha256sum >/dev/null; then d=$(sha256sum <{came}); [ "${{d%% *}}" = {digest} ] || bad; fi\n'
        f"mv {came} {to} && chmod {mode} {to} || exit 1\n"
    )


def fetch_script(path: str, copy: str) -> str:
    """A script that copies a file to a plain name and prints its size and, if possible, its SHA-256."""
    to = quoted(copy)
    return (
        f"[ -f {quoted(path)} ] || {{ echo 'there is no such file'; exit 1; }}; cat {quoted(path)} >{to} || exit 1; "
        f"n=$(wc -c <{to}); echo $((n)) $(if command -v sha256sum >/dev/null; then sha256sum <{to}; fi)"
    )
