"""Requests that nobody should send: malformed, huge and hostile ones, drawn at random. None starts a measurement."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable

from tests.serving.servekit import BOUNDARY, PATH, form, request

NAMES = (
    "../../../../etc/passwd",
    "/etc/shadow",
    "..\\..\\x",
    "a\x00b",
    "%2e%2e%2f",
    "\x1b[2J",
    "x" * 5000,
    "ä☃",
    "$(id)",
)
BOMB = gzip.compress(b"\0" * (8 << 20))


def junk(rng: random.Random) -> bytes:
    """Bytes of no protocol."""
    return rng.randbytes(rng.randrange(1, 3000))


def request_line(rng: random.Random) -> bytes:
    """A line that is nearly one of HTTP."""
    method = rng.choice(["GET", "POST", "get", "PO ST", "", "\x00", "A" * 10_000, "CONNECT", "TRACE", "PRI"])
    path = rng.choice([PATH, "/../../etc/passwd", "//", "*", "http://other/x", "/%00", "/" + "a" * 20_000, "", "/\x7f"])
    version = rng.choice(["HTTP/1.1", "HTTP/0.9", "HTTP/3.0", "HTP", "", "HTTP/1.1\x00", "HTTP/2.0\r\n\r\nSM"])
    return f"{method} {path} {version}\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode("latin-1")


def headers(rng: random.Random) -> bytes:
    """Too many headers, too long ones, or ones that are none."""
    what = rng.randrange(5)
    if what == 0:
        return request(b"", {f"X-{k}": "y" for k in range(rng.randrange(100, 3000))})
    if what == 1:
        return request(b"", {"X": "y" * rng.randrange(8000, 200_000)})
    if what == 2:
        return request(b"", {"X\x00Y": "z", "A B": "c", "": "d"})
    if what == 3:
        return request(b"", {"Content-Length": rng.choice(["-1", "1e3", "0x10", "9" * 40, "+5", "5, 6", " "])})
    return request(b"", {"Host": "a\r\nHost: b", "Authorization": "Bearer " + "x" * rng.randrange(7000)})


def multipart(rng: random.Random) -> bytes:
    """A form that lacks its file, then cut or with bytes changed."""
    body = bytearray(form(None, rng.choice(NAMES).replace("\x00", ""), more=_part(rng)))
    if rng.random() < 0.5:
        del body[rng.randrange(len(body)) :]
    for _ in range(rng.choice([0, 1, 5, 50])):
        if body:
            body[rng.randrange(len(body))] = rng.randrange(256)
    return request(bytes(body))


def _part(rng: random.Random) -> bytes:
    name, file = rng.choice(NAMES), rng.choice(NAMES)
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="fi1e{name}"; filename="{file}"\r\n\r\n'
    return head.encode() + rng.randbytes(rng.randrange(2000)) + b"\r\n"


def longer(rng: random.Random) -> bytes:
    """Says that it is longer than it is, or is longer than it says."""
    body = form(None, "n", more=_part(rng))
    return request(body, {"Content-Length": str(rng.choice([len(body) * 2, len(body) // 2, 10**9, 10**15]))})


def chunked(rng: random.Random) -> bytes:
    """Chunks with sizes that are wrong."""
    chunks = b"".join(
        rng.choice([b"%x" % rng.randrange(100), b"zz", b"-5", b"ffffffffffffffff", b"", b"5;a=" + b"b" * 9000])
        + rng.choice([b"\r\n", b"\n", b"\r", b""])
        + rng.randbytes(rng.randrange(100))
        + b"\r\n"
        for _ in range(rng.randrange(1, 20))
    )
    raw = request(b"", {"Transfer-Encoding": rng.choice(["chunked", "chunked, chunked", "gzip, chunked", "xchunked"])})
    if rng.random() < 0.7:
        raw = raw.replace(b"Content-Length: 0\r\n", b"")
    return raw + chunks + rng.choice([b"0\r\n\r\n", b""])


def compressed(rng: random.Random) -> bytes:
    """A small body that would be a large one."""
    body = rng.choice([BOMB, zlib.compress(b"a" * (1 << 20)), rng.randbytes(100)])
    return request(body, {"Content-Encoding": rng.choice(["gzip", "deflate", "br", "zstd", "gzip, gzip", "x"])})


def boundaries(rng: random.Random) -> bytes:
    """A content type that names no boundary, or another."""
    kind = rng.choice(
        [
            "",
            "text/plain",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=" + "x" * 5000,
            'multipart/form-data; boundary="',
            "multipart/mixed; boundary=" + BOUNDARY,
            "multipart/form-data; boundary=other",
            "application/x-www-form-urlencoded",
        ]
    )
    return request(form(b"model", "n"), {"Content-Type": kind})


def parts(rng: random.Random) -> bytes:
    """Many parts, long heads, other encodings."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="kernel_name"\r\n'
    more = rng.choice(
        ["", "Content-Transfer-Encoding: base64\r\n", "X: " + "y" * 9000 + "\r\n", "Content-Length: 5\r\n"]
    )
    body = (head + more + "\r\n" + "v" * rng.randrange(600) + "\r\n") * rng.randrange(1, 40) + f"--{BOUNDARY}--"
    return request(body.encode())


def large(rng: random.Random) -> bytes:
    """A preamble without end."""
    return request(rng.randbytes(1 << 12) * rng.randrange(2, 200))


def other(rng: random.Random) -> bytes:
    """Upgrades, several requests at once, other methods."""
    what = rng.randrange(4)
    if what == 0:
        return request(
            b"", {"Upgrade": rng.choice(["websocket", "h2c"]), "Connection": "Upgrade", "HTTP2-Settings": "A"}
        )
    if what == 1:
        return request(b"", method="PUT") * rng.randrange(2, 50)
    if what == 2:
        return request(
            b"", {"Expect": rng.choice(["100-continue", "x"])}, method=rng.choice(["OPTIONS", "HEAD", "DELETE"])
        )
    return request(
        b"", path=rng.choice(["/", "/test_latency", "/healthy", "/health/../x", "/.git/config"]), method="GET"
    )


KINDS: tuple[Callable[[random.Random], bytes], ...] = (
    junk,
    request_line,
    headers,
    multipart,
    longer,
    chunked,
    compressed,
    boundaries,
    parts,
    large,
    other,
)


def hostile(number: int) -> tuple[str, bytes]:
    """The kind and the bytes of a request; the same for the same number."""
    rng = random.Random(number)
    made = KINDS[number % len(KINDS)]
    return made.__name__, made(rng)
