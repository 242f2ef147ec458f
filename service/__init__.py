"""Breakeven's service: REST, advice and the client side of the queue. Imports neither torch, vLLM nor `workers`."""

from importlib.metadata import version

__version__ = version("breakeven")
