"""Checks over HTTP: the request's own method and path below a prefix; the status 200 allows."""

from collections.abc import Iterable
from typing import Final

from authplane.core.header_edits import HeaderEdits
from authplane.core.values import dataclass
from authplane.policy.check.answer_headers import fit_name
from authplane.policy.external_authorization.check_hops import HOPS_HEADER, hops_of
from authplane.policy.external_authorization.forwarded_headers import told_headers
from authplane.policy.external_authorization.service_replies import build_declined, is_for_proxies
from authplane.policy.mcp.header_front import canonical_path
from authplane.policy.rules.external_service import OverHttp
from authplane.policy.verdicts.effects import Ask, Declined, Granted, NoAnswer

_ALWAYS: Final = frozenset({"authorization"})
_FRAMING: Final = frozenset(
    {
        "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_REMOVE: Final = "x-envoy-auth-headers-to-remove"
"""How a service tells Envoy which headers must not go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpQuestion:
    """A whole HTTP request."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""


def build_question(ask: Ask, protocol: OverHttp) -> HttpQuestion | NoAnswer:
    """Build the HTTP check for a service; a path that could leave the prefix gets no check."""
    request = ask.request
    if not canonical_path(request.path) or not fit_name(request.method) or request.method == "CONNECT":
        return NoAnswer("the request cannot be forwarded to the service")
    body = request.body if ask.service.most_body else b""
    wanted = (_ALWAYS | protocol.request_headers) - _FRAMING
    headers = (
        ("host", request.host),
        *((name, value) for name, value in told_headers(request) if name in wanted),
        ("content-length", str(len(body))),
        (HOPS_HEADER, str(hops_of(request) + 1)),
    )
    query = f"?{request.query}" if request.query else ""
    target = f"{protocol.path}{request.path}{query}"
    return HttpQuestion(method=request.method, target=target, headers=headers, body=body)


def read_answer(
    protocol: OverHttp, status: int, headers: Iterable[tuple[str, str]], body: bytes | None
) -> Granted | Declined:
    """Say what an answer means; ``headers`` have names in lower case, and None is a body that is too long."""
    if status != 200:
        return build_declined(status, headers, body)
    named: dict[str, str] = {}
    for name, value in headers:
        named[name] = f"{named[name]}, {value}" if name in named else value
    removed = tuple(name.strip().lower() for name in named.pop(_REMOVE, "").split(",") if name.strip())
    wanted = protocol.response_headers
    kept = {
        name: value
        for name, value in named.items()
        if name not in _FRAMING and not is_for_proxies(name) and (not wanted or name in wanted)
    }
    gone = tuple(sorted({name for name in removed if fit_name(name) and name not in kept}))
    return Granted(HeaderEdits(set=tuple(sorted(kept.items())), remove=gone))
