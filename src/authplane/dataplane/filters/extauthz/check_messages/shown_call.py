"""What an authorization service is shown of a call."""

from enum import Enum

from authplane.core.values import dataclass
from authplane.matching.string_matchers import StringMatchers, matches_any


class CheckForm(Enum):
    """Which fields of a CheckRequest carry the headers."""

    A92 = "a92"
    """``header_map`` only, and no ``host``."""
    ENVOY = "envoy"
    """Also ``headers`` and ``host``, which is where servers that were made for Envoy look."""


def check_form(said: object) -> CheckForm:
    """Return the form that a program names, by its member or by its value; raises `ValueError`."""
    try:
        return CheckForm(said)
    except ValueError:
        raise ValueError(f"{said!r} is not a form of checks. Set check_request to 'a92' or 'envoy'.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Which parts of a call go into a check."""

    disallowed_headers: StringMatchers = ()
    """Headers that are left out in any case."""
    allowed_headers: StringMatchers = ()
    """Of the others, those that go in; without a list all do."""
    only_headers: frozenset[str] | None = None
    """If there is such a set, nothing else goes in whatever the lists say."""
    peer_certificate: bool = False
    peer_address: bool = True
    form: CheckForm = CheckForm.A92

    def __post_init__(self) -> None:
        object.__setattr__(self, "form", check_form(self.form))


def shows_header(shown: Shown, name: str) -> bool:
    """Tell whether a header goes into a check; its name is in lower case."""
    if shown.only_headers is not None and name not in shown.only_headers:
        return False
    if matches_any(shown.disallowed_headers, name):
        return False
    return not shown.allowed_headers or matches_any(shown.allowed_headers, name)
