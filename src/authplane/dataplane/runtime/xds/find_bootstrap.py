"""Finds the bootstrap: in a file, in a variable, or from the program itself."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from authplane.core.feature_flags import FeatureFlags, parse_guards
from authplane.core.problems import Problem
from authplane.xds.bootstrap.xds_bootstrap import MOST_BYTES, Bootstrap, parse_bootstrap

BootstrapSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | None
"""The path of a file, the bootstrap itself as JSON values, or None for what the environment says."""

FILE_VARIABLE: Final = "GRPC_XDS_BOOTSTRAP"
TEXT_VARIABLE: Final = "GRPC_XDS_BOOTSTRAP_CONFIG"


class BootstrapError(ValueError):
    """There is no usable bootstrap. The message has a line for each problem."""

    def __init__(self, message: str, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__("\n".join((message, *map(str, problems))))
        self.problems: Final = problems
        """What is wrong with its content, each with the path of the field; none if it could not be read."""


def load_bootstrap(source: BootstrapSource = None, *, environment: Mapping[str, str] = os.environ) -> Bootstrap:
    """Return the bootstrap of a program; raises `BootstrapError`.

    Without a source, ``GRPC_XDS_BOOTSTRAP`` names a file; only where that is not set, ``GRPC_XDS_BOOTSTRAP_CONFIG``
    has the text. The variables that disable features come from ``environment`` too.
    """
    flags = parse_guards(environment)
    if isinstance(source, Mapping):
        return _parsed(_written(source), flags, "the xDS bootstrap")
    if source is not None:
        return _parsed(_read(os.fspath(source)), flags, f"the xDS bootstrap {os.fspath(source)}")
    path, text = environment.get(FILE_VARIABLE), environment.get(TEXT_VARIABLE)
    if path:
        return _parsed(_read(path), flags, f"the xDS bootstrap {path} ({FILE_VARIABLE})")
    if text:
        return _parsed(os.fsencode(text), flags, f"the xDS bootstrap in {TEXT_VARIABLE}")
    raise BootstrapError(
        f"authplane found no xDS bootstrap. Set {FILE_VARIABLE} to its path, set {TEXT_VARIABLE} to its"
        " text, or pass it as an argument."
    )


def _parsed(text: bytes, flags: FeatureFlags, origin: str) -> Bootstrap:
    made = parse_bootstrap(text, flags)
    if isinstance(made, Bootstrap):
        return made
    raise BootstrapError(f"Cannot use {origin}. Fix these problems.", made)


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            # One byte too many is enough to be refused.
            return file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "not a file path"
        raise BootstrapError(
            f"Cannot read the xDS bootstrap {path}: {why}. Check the path and its permissions."
        ) from None


def _written(source: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(dict(source), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BootstrapError(
            f"The xDS bootstrap has a value that is not JSON: {error}. Use JSON values only."
        ) from None
