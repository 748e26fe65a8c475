"""Releases of Envoy, as far as conditions depend on them."""

import re
from typing import Final, Self

from authplane.core.values import dataclass

_WRITTEN: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A release by its numbers: ``Release(1, 39)``."""

    major: int
    minor: int

    def __str__(self) -> str:
        """Write it as people do."""
        return f"{self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read ``1.39`` or ``1.39.3``; None means that the text is neither."""
        found = _WRITTEN.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]))

    @property
    def converts_strings(self) -> bool:
        """Whether ``string()`` and ``+`` of texts can be had; the setting for them came with 1.37."""
        return self >= Release(1, 37)

    @property
    def tries_checks_out(self) -> bool:
        """Whether ext_authz can send checks without enforcing their decisions."""
        return self >= Release(1, 38)

    @property
    def features(self) -> tuple[object, ...]:
        """All that configurations depend on."""
        return (
            self.converts_strings,
            self.tries_checks_out,
        )


OLDEST: Final = Release(1, 36)
"""The first that native decisions are made for: its Lua filter has everything that the reader of messages needs."""
CURRENT: Final = Release(1, 39)
"""What this project is tested with."""
NEWEST: Final = Release(1, 40)
"""The last that is known here; newer ones are taken for it."""


def known_release(release: Release) -> Release | None:
    """Return what a release may be taken for: itself, the newest for newer ones, None for those before the oldest."""
    return None if release < OLDEST else min(release, NEWEST)


def first_alike(release: Release) -> Release:
    """Return the first release that gets the same configuration."""
    before = (Release(1, minor) for minor in range(OLDEST.minor, NEWEST.minor + 1))
    return next((each for each in before if each.features == release.features), release)
