"""How long a real Chromium takes to open the page of 2,012 operators in four configurations.

The document is that of the tests, with 1,800 samples per configuration. `ready_ms` is the time until the table of
operators can be used, and `drawn_ms` the time until everything in or near the view is drawn, both from the start of the
navigation by the page's own clock. The graph's other nodes are drawn when they come into view; `whole_ms` is the time
that the button for showing the whole graph then takes. Target: 1 s.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.common import parser, publish, spread

_WHOLE = (
    "(() => { const begin = performance.now();"
    "[...document.querySelectorAll('#graph button')].find((one) => one.textContent === 'Whole').click();"
    "document.querySelector('#graph-view').getBoundingClientRect(); return performance.now() - begin; })()"
)


def main() -> None:
    """Open the page this many times, each time except the first in a tab that has shown it before."""
    from tests.jobs.html.browser import CHROMIUM, chromium
    from tests.jobs.test_job_documents import OPERATORS, large

    from gnomon.jobs.html.page import page

    options = parser(__doc__)
    options.add_argument("--openings", type=int, default=15)
    given = options.parse_args()
    if CHROMIUM is None:
        options.error("there is no chromium here (Debian: chromium)")
    text = page([large()], ["large"])
    found: dict[str, list[float]] = {"ready_ms": [], "drawn_ms": [], "whole_ms": []}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder)) as browser:
        path = Path(folder) / "page.html"
        path.write_text(text, encoding="utf-8")
        for _ in range(given.openings):
            browser.open(path)
            for name in ("ready", "drawn"):
                found[f"{name}_ms"].append(float(browser.value(f"document.documentElement.dataset.{name}")))
            found["whole_ms"].append(browser.value(_WHOLE))
    told = {name: spread(values) for name, values in found.items()}
    publish(
        {
            "operators": OPERATORS,
            "bytes": len(text.encode()),
            "load_average_1m": [load, os.getloadavg()[0]],
            **told,
        },
        given,
    )


if __name__ == "__main__":
    main()
