"""Breakeven's service: REST, advice and the client side of the queue. Imports neither torch, vLLM nor `workers`."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("breakeven")
except PackageNotFoundError:
    # Nothing ends here: whoever misses more than a version says so in one line, see `service.__main__`.
    __version__ = "not installed"
