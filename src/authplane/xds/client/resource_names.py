"""Names of resources: plain ones, and ``xdstp:`` ones, which name their authority."""

from typing import Final
from urllib.parse import quote, unquote_to_bytes, urlsplit

from authplane.core.values import dataclass

_SCHEME: Final = "xdstp:"
_PATH: Final = "/:@!$&'()*+,;="
_PARAMETER: Final = "/:@!$'()*,;?"
"""Characters that stay unencoded, beside letters, digits and ``-._~``; all others are percent-encoded."""


@dataclass(frozen=True, slots=True)
class ResourceName:
    """The canonical spelling of a name, for subscriptions and comparisons."""

    authority: str | None
    """None for a plain name."""
    text: str


def parse_name(name: str, type_url: str) -> ResourceName | None:
    """Read the name of a resource of a type; None if it is malformed or names another type.

    Names that mean the same become equal: context parameters are sorted, of those with one key the last counts, and
    percent-encoding is the same everywhere.
    """
    if not name.startswith(_SCHEME):
        return ResourceName(None, name)
    if not name.isprintable() or " " in name:
        return None
    try:
        parts = urlsplit(name)
    except ValueError:
        return None
    kind, slash, identifier = parts.path.removeprefix("/").partition("/")
    if not slash or kind != type_url.rpartition("/")[2]:
        return None
    authority = unquote_to_bytes(parts.netloc).decode("utf-8", "replace")
    where = f"//{_same(parts.netloc, _PATH)}" if authority else ""
    return ResourceName(authority, f"{_SCHEME}{where}/{kind}/{_same(identifier, _PATH)}{_parameters(parts.query)}")


def _parameters(query: str) -> str:
    pairs = {}
    for each in filter(None, query.split("&")):
        key, _, value = each.partition("=")
        pairs[_same(key, _PARAMETER)] = _same(value, _PARAMETER)
    return f"?{'&'.join(f'{key}={pairs[key]}' for key in sorted(pairs))}" if pairs else ""


def _same(text: str, safe: str) -> str:
    return quote(unquote_to_bytes(text), safe=safe)
