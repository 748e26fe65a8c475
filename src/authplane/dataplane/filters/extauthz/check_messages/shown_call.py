"""The parts of a call that a check contains."""

from enum import Enum

from authplane.core.values import dataclass
from authplane.matching.string_matchers import StringMatchers, matches_any


class CheckForm(Enum):
    """Which fields of a CheckRequest carry the headers."""

    A92 = "a92"
    """``header_map`` only, and no ``host``."""
    ENVOY = "envoy"
    """Also ``headers`` and ``host``, which services for Envoy read."""


def check_form(said: object) -> CheckForm:
    """Return the form of a member or its value; raises `ValueError`."""
    try:
        return CheckForm(said)
    except ValueError:
        raise ValueError(f"{said!r} is not a form of checks. Set check_request to 'a92' or 'envoy'.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The parts of a call that a check contains."""

    disallowed_headers: StringMatchers = ()
    """Headers that are never sent."""
    allowed_headers: StringMatchers = ()
    """Headers that are sent; without a list, all others are."""
    only_headers: frozenset[str] | None = None
    """If set, only these headers are sent, whatever the lists contain."""
    peer_certificate: bool = False
    peer_address: bool = True
    form: CheckForm = CheckForm.A92

    def __post_init__(self) -> None:
        object.__setattr__(self, "form", check_form(self.form))


def shows_header(shown: Shown, name: str) -> bool:
    """Tell whether a check contains a header; the name is in lower case."""
    if shown.only_headers is not None and name not in shown.only_headers:
        return False
    if matches_any(shown.disallowed_headers, name):
        return False
    return not shown.allowed_headers or matches_any(shown.allowed_headers, name)
