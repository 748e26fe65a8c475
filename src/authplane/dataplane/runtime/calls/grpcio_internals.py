"""What grpcio has and does not document; there are no types for it."""

from importlib import import_module
from typing import Any, Final

cygrpc: Final[Any] = import_module("grpc._cython.cygrpc")
