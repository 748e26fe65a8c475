"""Where Envoy is known to be stricter than the reference, or to answer by itself: each with its reason."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.differential.model import Answer
from tests.differential.site import Shot


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A kind of requests that Envoy does not let through, whatever the reference says of them."""

    reason: str
    statuses: frozenset[int]
    """With which they are answered."""
    concerns: Callable[[Shot], bool]
    stricter: bool = True
    """The reference may allow them; otherwise it denies them with another status."""

    def covers(self, shot: Shot, wanted: Answer, got: Answer) -> bool:
        """Tell whether this is why the two answers differ."""
        may_be = self.stricter or not wanted.allowed
        return may_be and not got.allowed and got.status in self.statuses and self.concerns(shot)


def _repeated(*names: str) -> Callable[[Shot], bool]:
    return lambda shot: any(sum(name.lower() == each for name, _ in shot.headers) > 1 for each in names)


KNOWN: Final = {
    "underscore": Known(
        reason="a server behind may take an underscore in the name of a header for a hyphen: Envoy refuses all of them",
        statuses=frozenset({400}),
        concerns=lambda shot: any("_" in name for name, _ in shot.headers),
    ),
    "escaped slash": Known(
        reason="servers differ in what an escaped slash in a path is: Envoy refuses it before anybody is asked",
        statuses=frozenset({400}),
        concerns=lambda shot: "%2f" in shot.path,
    ),
    "escaped NUL": Known(
        reason="Envoy's reading of paths ends at an escaped NUL: it refuses the request before anybody is asked",
        statuses=frozenset({400}),
        concerns=lambda shot: "%00" in shot.path,
    ),
    "unknown method": Known(
        reason="Envoy's codec of HTTP/1.1 knows methods in upper case alone",
        statuses=frozenset({400}),
        concerns=lambda shot: shot.method != shot.method.upper(),
    ),
    "final dot": Known(
        reason="no route has a host that ends in a dot",
        statuses=frozenset({404}),
        concerns=lambda shot: shot.host.endswith("."),
    ),
    "upgrade": Known(
        reason="Envoy lets nobody upgrade a connection unless the route says so, and ours do not",
        statuses=frozenset({403}),
        concerns=lambda shot: {("upgrade", "websocket"), ("connection", "upgrade")} <= set(shot.headers),
    ),
    "large body": Known(
        reason="what is larger than maxRequestBody is refused before anybody is asked, whoever sends it",
        statuses=frozenset({413}),
        concerns=lambda shot: len(shot.body) > 4096,
    ),
    "metadata": Known(
        reason="the document that tells where to get tokens is served by Envoy itself, to everybody",
        statuses=frozenset({200, 405}),
        concerns=lambda shot: shot.path.startswith("/.well-known/oauth-protected-resource"),
    ),
    "same header twice": Known(
        reason="Envoy shows a header that is there twice with the same value as 'red,red', which is not 'red'",
        statuses=frozenset({200, 401, 403}),
        concerns=_repeated("x-team"),
    ),
    "joined headers": Known(
        reason="Envoy shows several headers of one name as one, which is wrong for another reason",
        statuses=frozenset({200, 400, 401, 403, 405, 406, 415}),
        concerns=_repeated("content-type", "content-encoding", "mcp-name", "mcp-method"),
        stricter=False,
    ),
}
