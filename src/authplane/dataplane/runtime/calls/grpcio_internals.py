"""Undocumented parts of grpcio; they have no types."""

from importlib import import_module
from typing import Any, Final

cygrpc: Final[Any] = import_module("grpc._cython.cygrpc")
