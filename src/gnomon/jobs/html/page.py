"""The page: the filled template, with the displayed documents embedded so that gnomon can read them again.

Any text in a document may come from a hostile model. Control and formatting characters are made visible, and Jinja
escapes every text. By the page's policy only its own script may run, nothing may be fetched, and no text may become
markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from gnomon.jobs.compare.document import CompareDocument
from gnomon.jobs.compare.sides import embedded
from gnomon.jobs.html.views import Document, comparison, view
from gnomon.report.layers import layered
from gnomon.report.plain import clean
from gnomon.report.svg import inline

if TYPE_CHECKING:
    from jinja2 import Environment


def page(documents: Sequence[Document], names: Sequence[str], compared: CompareDocument | None = None) -> str:
    """The page about one or several runs; `compared` is their comparison.

    The documents are embedded by `embedded` with consecutive numbers.
    """
    from markupsafe import Markup

    data = files("gnomon.jobs.html").joinpath("data")
    style, script = (data.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    views = [view(document) for document in documents]
    shown = {"layouts": [_layout(document) for document in documents], "names": list(names)}
    # The five values in `Markup` are gnomon's own text, SVG with escaped names, or JSON without any "<".
    template = _environment().get_template("page.html")
    return template.render(
        views=views,
        drawing=lambda chart, key: Markup(inline(chart, key)),  # noqa: S704
        names=names,
        compared=None if compared is None else comparison(compared),
        answer="" if compared is None else compared.headline()[1],
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        embedded=[Markup(embedded(document, number)) for number, document in enumerate(documents, 1)],  # noqa: S704
        shown=Markup(json.dumps(shown, separators=(",", ":")).replace("<", "\\u003c")),  # noqa: S704
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        return value if isinstance(value, Markup) or not isinstance(value, str) else clean(value)

    loader = PackageLoader("gnomon.jobs.html", "data")
    return Environment(
        loader=loader, autoescape=True, finalize=shown, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _policy(style: str, script: str) -> str:
    """The policy of the page: only this script and this style are allowed, and no text becomes markup."""
    allowed = {"style-src": style, "script-src": script}
    digests = {name: base64.b64encode(hashlib.sha256(text.encode()).digest()) for name, text in allowed.items()}
    rules = [f"{name} 'sha256-{digest.decode()}'" for name, digest in digests.items()]
    rest = ("base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'")
    return "; ".join(("default-src 'none'", *rules, *rest))


def _layout(document: Document) -> dict[str, object] | None:
    """The positions of a document's operators in the picture of its graph; None without a graph."""
    document = document.get("proof") or document  # the same as in the script
    graph, operators = document.get("graph"), document.get("operators")
    if not graph or not operators:
        return None
    place = {row["index"]: number for number, row in enumerate(operators)}
    edges = graph["edges"]
    pairs = zip(edges["producer"], edges["consumer"], strict=True)
    joined = [(place[a], place[b]) for a, b in pairs if a in place and b in place]
    layout = layered(len(operators), joined)
    return {"x": layout.x, "y": layout.y, "node": layout.node, "size": layout.size}
