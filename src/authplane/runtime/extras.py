"""Extras of the package, which are installed on request: ``pip install 'authplane[gateway]'``."""

from importlib.util import find_spec
from typing import Final

EXTRAS: Final = {
    "gateway": ("asyncinotify", "bcrypt", "grpc_reflection", "mcp", "pyvoy"),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.json.http"),
}
"""The modules that each extra installs in addition to the plain package."""


class ExtraMissingError(Exception):
    """A part of authplane is not installed; the text says how to install it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs more packages. Run: pip install 'authplane[{extra}]'")


def require_extra(extra: str, what: str) -> None:
    """Raise `ExtraMissingError` unless all modules of an extra are installed."""
    if not all(map(_is_installed, EXTRAS[extra])):
        raise ExtraMissingError(what, extra)


def extra_of(error: ModuleNotFoundError) -> str | None:
    """Return the extra that installs a missing module; None if no extra does."""
    missing = error.name or ""
    for extra, modules in EXTRAS.items():
        if any(f"{module}.".startswith(f"{missing}.") or missing.startswith(f"{module}.") for module in modules):
            return extra
    return None


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package around it is missing
        return False
