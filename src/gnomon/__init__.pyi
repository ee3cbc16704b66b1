from gnomon.api import place as place
from gnomon.api import profile as profile
from gnomon.api import runs as runs
from gnomon.api import solve as solve

__version__: str
__all__ = ["__version__", "place", "profile", "runs", "solve"]
