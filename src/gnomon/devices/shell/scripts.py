"""The scripts that run in a device's shell, and the guard that holds its lease and cleans up after gnomon.

They need only a POSIX shell and the small programs in `NEEDED` (dash and coreutils, busybox). setsid, flock and
sha256sum are used if the device has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnomon.devices.base import INHERITED

REMOTE = "sh -c 'IFS= read -r given && eval \"$given\"'"
"""The command of every session. No login shell changes the text between single quotes. The actual program is the first
line of standard input; `read` consumes nothing beyond that line.
"""

NEEDED = ("cat", "chmod", "env", "find", "id", "kill", "ls", "mkdir", "mv", "rm", "sleep", "touch", "uname", "wc")
"""The small programs that a device must have."""

_SYNCED_BYTES = 1 << 20
_LOCALES = ("ALL", "COLLATE", "CTYPE", "MESSAGES", "MONETARY", "NUMERIC", "TIME")


def quoted(text: str) -> str:
    """The text as one shell word."""
    return "'" + text.replace("'", "'\\''") + "'"


def line(script: str) -> bytes:
    """A script as the first line of a session's standard input."""
    inner = quoted(script).replace("\n", "'\"$nl\"'")
    return f"nl=$(printf '\\nx'); nl=${{nl%x}}; eval {inner}\n".encode("utf-8", "surrogateescape")


def marks(token: str) -> tuple[bytes, bytes]:
    """The marks on both streams before and after a session's own output; a status and 0x1e follow the latter."""
    return f"\x1e{token}<\x1e".encode(), f"\x1e{token}>".encode()


def marked(script: str, token: str) -> str:
    """A script between its marks, with its status in the last one. The script may call `exit`."""
    return f"{_begin(token)}( {script}\n); s=$?\n{_END}"


def _begin(token: str) -> str:
    return f"b() {{ printf '\\036%s<\\036' {token}; }}; e() {{ printf '\\036%s>%s\\036' {token} \"$s\"; }}; b; b >&2\n"


_END = "e; e >&2\n"

_RUN = """
exec 3<&0 4>&2 2>/dev/null
go() {
  case $1 in
    */*) [ -x "$1" ] && [ ! -d "$1" ] || return 1;;
    *) ( %(path)s command -v "$1" >/dev/null ) || return 1;;
  esac
}
cd %(work)s || { s=gone; e; e >&4; exit; }
go %(program)s || { s=start; e; e >&4; exit; }
if command -v setsid >/dev/null; then
  setsid %(command)s <&3 2>&4 3<&- 4>&- &
  p=$! g=$!
else
  read -r _ _ _ _ g _ </proc/$$/stat
  trap : TERM
  %(command)s <&3 2>&4 3<&- 4>&- &
  p=$!
fi
echo "$g" >%(note)s || [ -d %(notes)s ] || kill -s KILL -- "$p" "-$g"
exec 3<&-
while :; do wait "$p"; s=$?; kill -0 "$p" || break; done
rm -f %(note)s
if [ "$p" = "$g" ]; then kill -s KILL -- "-$p"; e; e >&4; else e; e >&4; kill -s KILL -- "-$g"; fi
"""


def run_script(*, argv: Sequence[str], env: Mapping[str, str], work: str, note: str, token: str) -> str:
    """A script that runs a command in its own process group, whose number is in the file `note` while it runs.

    Without setsid, the command's group is that of the session, so ending the command kills the session too. If the
    folder of the note is gone because the guard has cleaned up meanwhile, the command is killed immediately. The status
    is "start" for a missing program, "gone" for a missing working folder, and otherwise that of the shell: 128 plus the
    signal if a signal ended the command.
    """
    kept = [f'${{{name}+"{name}=${name}"}}' for name in (*INHERITED, *(f"LC_{name}" for name in _LOCALES))]
    given = [quoted(f"{name}={value}") for name, value in env.items()]
    words = [quoted(word) for word in argv]
    if "=" in argv[0]:  # env would take it for a variable
        words = ["sh", "-c", quoted('exec "$0" "$@"'), *words]
    filled = _RUN % {
        "work": quoted(work),
        "program": quoted(argv[0]),
        "path": f"PATH={quoted(env['PATH'])};" if "PATH" in env else "",
        "command": " ".join(("env", "-i", *kept, *given, *words)),
        "note": quoted(note),
        "notes": quoted(note.rpartition("/")[0]),
    }
    return _begin(token) + filled


def kill_script(note: str, signal: str) -> str:
    """A script that sends a signal to the group of a running command; status 1 if none runs."""
    return f'read -r g <{quoted(note)} && kill -s {signal} -- "-$g"'


_LEASE = """
ticket= own= alone= by=%(by)s rs=$(printf '\\036')
ours() {
  case $(ls -ld "$1") in
    d????????[tT]*) [ -r "$1" ] && [ -w "$1" ];;
    d*) [ -O "$1" ];;
    *) false;;
  esac
} 2>/dev/null
choose() {
  said=
  if [ -n "$GNOMON_LEASES" ]; then
    folder=$GNOMON_LEASES
  else
    folder=$tmp/gnomon-leases
    [ -e "$folder" ] || mkdir -m 1777 "$folder" 2>/dev/null
    alone="$folder is not a folder in which every account may write"
    if ! command -v flock >/dev/null; then alone="it has no flock"; elif ours "$folder"; then alone=; return; fi
    folder=$folder-$(id -u)
  fi
  told=$(mkdir -p "$folder" 2>&1) || { said="fail $told"; return 1; }
  ours "$folder" || { said="fail $folder: Permission denied (it is another user's)"; folder=; return 1; }
}
who() {
  o= c= u=; [ ! -f "$1/who" ] || { read -r o; read -r c; } <"$1/who"
  case $c in *"$rs"*) c=;; esac
  o=${o%%%%[!0-9]*}
  [ -O "$1" ] || u=$(ls -ld "$1" | { read -r _ _ u _; echo "$u"; })
  at=$(date -r "$1/who" +%%H:%%M)
  echo "${o:-unknown}${u:+ of $u}${c:+, $c}${at:+, since $at}"
} 2>/dev/null
keeps() {
  c=; read -r o <"$1" && read -r c <"/proc/$o/cmdline"
  case $c in *given*) true;; *) false;; esac
} 2>/dev/null
made() { mkdir "$1" && echo $$ >"$1/pid"; } 2>/dev/null
first() {
  before= most=0
  for x in "$folder"/lease-local.*.ticket; do
    y=${x%%.ticket} y=${y##*.}
    case $y in ''|0*|*[!0-9]*|??????????*) continue;; esac
    [ "$x" != "$ticket" ] && [ -d "$x" ] && [ ! -L "$x" ] && [ -r "$x" ] || continue
    if flock -n -s 6 6<"$x"; then [ ! -O "$x" ] || rm -rf "$x"; continue; fi
    [ "$y" -le "$most" ] || most=$y
    [ -z "$ticket" ] || [ "$y" -lt "$own" ] || continue
    [ -n "$before" ] && [ "$before" -lt "$y" ] || before=$y
  done
} 2>/dev/null
# A shell may keep its descriptors from the programs that it starts (mksh does), unless they are named there.
lease() {
  [ -d "$folder" ] || choose || return
  if command -v flock >/dev/null; then
    exec 7<"$folder"
    flock -n 7 7<&7 || { sleep 1; flock -n 7 7<&7; } || { said="busy unknown, which keeps $folder locked"; return; }
    first
    if [ -z "$ticket" ]; then
      own=$most
      while own=$((own + 1)) x=$folder/lease-local.$own.ticket; ! told=$(umask 022; mkdir "$x" 2>&1); do
        [ -e "$x" ] || [ -L "$x" ] || { said="fail $told"; flock -u 7 7<&7; return; }
      done
      ticket=$x
      exec 8<"$ticket"
      flock 8 8<&8
      ( umask 022; { echo $$; echo "$by"; } >"$ticket/who" ) 2>/dev/null
    fi
    if [ -z "$before" ]; then
      touch -c "$ticket/who"
      said="held $alone"
    else
      said="busy $(who "$folder/lease-local.$before.ticket")"
    fi
    flock -u 7 7<&7  # to close it is not enough where the shell keeps a copy
    exec 7<&-
    return
  fi
  said="busy nobody" lock=$folder/lease-local.lock
  if made "$lock.held"; then held=$lock.held said="held $alone"; return; fi
  if keeps "$lock.held/pid"; then said="busy $o"; return; fi
  sleep 1
  if keeps "$lock.held/pid"; then said="busy $o"; return; fi
  rm -rf "$lock.held"
}
"""


def lease_functions(by: str, leases: str = "") -> str:
    """The shell function `lease`, which takes the device's lease or asks again, and sets `said` to the state.

    The state is "held WARNING", "busy WHO" or "fail WHY". `tmp` is the parent of the folder of leases, and `folder` is
    initially empty. This is the lease of `gnomon.devices.lease`: under a lock on the folder, the owner of the smallest
    ticket has the device; processes that wait see `by`. Without flock, a folder of the user is the lock, and there is
    no queue. `leases` names the folder of leases instead of the device's own GNOMON_LEASES.
    """
    return (f"GNOMON_LEASES={quoted(leases)}" if leases else "") + _LEASE % {"by": quoted(by)}


CLEAN = """clean() {
  mv "$base/run" "$base/ended"
  for f in "$base"/ended/* "$base"/run/*; do [ -s "$f" ] && read -r g <"$f" && kill -s KILL -- "-$g"; done
  [ -s "$base/stage" ] && read -r d <"$base/stage" && rm -rf "$d"
  [ -z "$held" ] || rm -rf "$held"
  [ -z "$ticket" ] || rm -rf "$ticket"
  rm -rf "$base"
} 2>/dev/null
"""
"""The shell function `clean`, which ends running commands, releases the lease and, last, removes the private folder."""

_GUARD = """
umask 077
say() { printf '\\036%%s\\036\\n' "$*"; }
lacking=
for n in %(needed)s; do command -v "$n" >/dev/null || lacking="$lacking $n"; done
[ -z "$lacking" ] || { say "lacks$lacking"; exit 1; }
base=${TMPDIR:-/tmp}/gnomon-%(token)s held= ticket=
# A folder may be made on a full disk, and nothing written into it.
told=$({ mkdir "$base" "$base/work" "$base/run" && echo | cat >"$base/room"; } 2>&1) ||
  { say "fail ${base%%/*}: $told"; rm -rf "$base"; exit 1; }
%(clean)strap '' USR1 TERM  # until the watcher, which they would end, has its own
( n=0 s=; trap 'n=-1' USR1; trap 'kill "$s"; exit' TERM
  while kill -0 $$ && [ "$n" -lt 6 ]; do n=$((n + 1)); sleep %(tick)s & s=$!; wait "$s"; kill "$s"; done
  clean; kill -9 $$ ) </dev/null >/dev/null 2>&1 &
w=$!
leave() { clean; kill "$w"; } 2>/dev/null
trap 'leave; exit 1' HUP TERM INT
tmp=/tmp folder=
%(lease)ssay "base $base"
while IFS= read -r what; do
  kill -USR1 "$w" 2>/dev/null
  case $what in
    lease) lease; say "$said";;
    ping) say pong;;
    alive) say alive;;
    end) break;;
  esac
done
leave
say bye
"""


def guard_script(*, token: str, silence_s: float, by: str, leases: str = "") -> str:
    """The script of the connection's own session, which makes the private folder, takes the lease, and removes both.

    It ends after a line `end`, at the end of its input, or after silence. A watcher process expects a line every few
    seconds, and cleans up even if the guard itself was killed.
    """
    return _GUARD % {
        "needed": " ".join(NEEDED),
        "token": token,
        "tick": max(1, round(silence_s / 6)),
        "clean": CLEAN,
        "lease": lease_functions(by, leases),
    }


_FIND_PYTHON = """
for name; do
  path=$(command -v "$name") || continue
  case $path in /*) ;; */*) path=$PWD/$path;; esac
  version=$("$path" -E -S -c "import sys; print(sys.version.split()[0]); sys.exit(sys.version_info < (3, 10))" \\
    </dev/null 2>/dev/null) && { echo "found $path"; exit; }
  printf '%s=%s\\n' "$path" "$version"
done
true
"""
_PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.10", "python3")


def python_script(given: str | None) -> str:
    """A script that prints "found PATH" for the first Python 3.10 or newer, after PATH=VERSION for unsuitable ones.

    `given` is a path, which may begin with ~/, or a name; None for the usual names of Python.
    """
    if given is None:
        words = " ".join(_PYTHONS)
    elif given.startswith("~/"):
        words = f'"$HOME"/{quoted(given[2:])}'
    else:
        words = quoted(given)
    return f"set -- {words}{_FIND_PYTHON}"


def has_script(place: str, digest: str, name: str, *, files: int, size_bytes: int | None) -> str:
    """A script with status 0 if the contents were pushed before and are unchanged; they then count as used now.

    Contents that were pushed under another name then have both names. `files` is the expected number of files, not
    counting those in a folder `__pycache__`, where Python writes; `size_bytes` is the size of a single file.
    """
    size = "true" if size_bytes is None else f'[ $(($(wc -c <"$f"))) -eq {size_bytes} ]'
    find = 'find "$f" -name __pycache__ -prune -o -type f'
    to = quoted(name)
    return (
        f'cd {quoted(f"{place}/{digest}")} 2>/dev/null && IFS= read -r f <{SEAL} && f=./$f && [ -e "$f" ] || exit 1\n'
        f"{size} && [ $(($({find} -print | wc -l))) -eq {files} ] || exit 1\n"
        f'[ -z "$({find} -newer {SEAL} -print 2>&1)" ] || exit 1\n'
        f'[ -e ./{to} ] || ln -s "$f" ./{to} || exit 1; touch -c .'
    )


def room_script(place: str, size_bytes: int) -> str:
    """A script that removes incomplete pushes; status 3 if `df` reports no room for `size_bytes` more."""
    return (
        f"cd {quoted(place)} || exit 1; rm -rf .new-*\n"
        "command -v df >/dev/null || exit 0\n"
        "df -Pk . 2>/dev/null | { read -r _; read -r _ _ _ k _; "
        f"case $k in ''|*[!0-9]*) exit 0;; esac; [ \"$k\" -ge {(size_bytes + 1023) // 1024} ] || exit 3; }}"
    )


def stage_script(base: str, stage: str, folders: Sequence[str]) -> str:
    """A script that makes an empty folder for a push, with subfolders; it is removed with the private folder `base`."""
    paths = " ".join(quoted(folder) for folder in (stage, *folders))
    return f"umask 077; echo {quoted(stage)} >{quoted(base)}/stage; rm -rf {quoted(stage)}; mkdir -p {paths}"


def file_script(path: str, size_bytes: int, digest: str, *, program: bool) -> str:
    """A script that reads a file from standard input; status 3 if it differs from the file that was sent."""
    to, mode = quoted(path), "500" if program else "400"
    # Large files are flushed to disk now, not during a measurement.
    synced = f"{{ sync {to} || sync; }} 2>/dev/null\n" if size_bytes >= _SYNCED_BYTES else ""
    return (
        f"umask 077; cat >{to} && chmod {mode} {to} || exit 1\n"
        f"{synced}"
        f"n=$(wc -c <{to}); [ $((n)) -eq {size_bytes} ] || exit 3\n"
        f'if command -v sha256sum >/dev/null; then d=$(sha256sum <{to}); [ "${{d%% *}}" = {digest} ] || exit 3; fi'
    )


def commit_script(stage: str, place: str, digest: str, name: str) -> str:
    """A script that seals a push and gives it its final name, which only complete pushes have."""
    to, seal = quoted(f"{place}/{digest}"), quoted(f"{stage}/{SEAL}")
    return f"printf '%s\\n' {quoted(name)} >{seal} && rm -rf {to} && mv {quoted(stage)} {to}"


SEAL = ".gnomon-pushed"
"""The file next to the pushed contents that holds their name. It is newer than the contents unless they change."""

UPLOADED = "[0-9a-f]" * 64
"""The shell pattern of the names that pushed files have in the cache: their digests."""

OWN_FOLDER = '[ -n "$(find . -prune -user "$(id -u)" 2>/dev/null)" ]'
"""A shell test that succeeds if the working folder belongs to the user of the shell."""

# The mode and the owner's number come from `ls`, which works everywhere; not every device has stat.
ONLY_OWN = (
    'set -- "$PWD" $(ls -ldn .); '
    'case $2,$4 in ?????w*|????????w*) ;; *,"$(id -u)") [ ! -L "$1" ] && exec pwd -P;; esac; '
    'echo "$PWD: Operation not permitted (it belongs to another user, or others may write to it)"; exit 1'
)
"""Prints the working folder's path; status 1 if it is a link, belongs to another user, or is writable by others."""


def tidy_script(place: str, *, days: int, most_kib: int) -> str:
    """A script that removes incomplete pushes, pushes unused for `days`, and the oldest pushes beyond `most_kib`.

    Apart from incomplete pushes, it removes only names that match `UPLOADED`; and it removes nothing unless the folder
    is the user's own and not a link, because nothing else is gnomon's.
    """
    return (
        f"[ ! -L {quoted(place)} ] && cd {quoted(place)} || exit 0; {OWN_FOLDER} || exit 0; "
        f"sum=0; rm -rf .new-*; for d in $(ls -1td {UPLOADED} 2>/dev/null); do "
        f'if [ -n "$(find "$d" -prune -mtime +{days})" ]; then rm -rf "$d"; continue; fi; '
        f'k=$(du -sk "$d"); sum=$((sum + ${{k%%[!0-9]*}})); [ "$sum" -le {most_kib} ] || rm -rf "$d"; done'
    )
