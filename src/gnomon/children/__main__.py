"""Runs a child program of this folder; its name is the only argument."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

_PACKAGE = "gnomon_children"


def main(name: str) -> None:
    """Imports this folder as a package, whatever else is installed, and serves the `setup` of one of its modules."""
    folder = Path(__file__).resolve().parent
    # Python puts a folder that it runs at the front of the path, where the folder's modules would hide packages of the
    # same names.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != folder]
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} is not a package")
    package = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = package
    spec.loader.exec_module(package)
    program = importlib.import_module(f"{_PACKAGE}.{name}")
    importlib.import_module(f"{_PACKAGE}.frame").serve(program.setup, getattr(program, "NEEDED", ()))


if __name__ == "__main__":
    main(sys.argv[1])
