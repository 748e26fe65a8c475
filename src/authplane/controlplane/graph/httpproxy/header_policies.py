"""Header policies of routes and services."""

import re
from collections.abc import Container
from dataclasses import replace
from typing import Final

from authplane.controlplane.graph.model.header_names import canonical_header, is_header_name
from authplane.core.header_edits import NO_EDITS, HeaderEdits
from authplane.core.problems import Problems
from authplane.core.values import dataclass
from authplane.resources.kinds.contour_policies import HeadersPolicy

_HOST: Final = "host"
_KEPT: Final = frozenset({"connection", "content-length", "te", "transfer-encoding", "upgrade"})
"""How a message is cut out of its connection: to change these would make it mean something else."""
_DYNAMIC: Final = re.compile(r"%[A-Z][A-Z0-9_]*(?:\([^)]*\))?(?::[0-9]+)?%")
_LONGEST: Final = 16_384
"""Bytes of a name or a value that Envoy takes; a longer one would cost every route of the table."""
_MOST: Final = 1000
"""Headers that Envoy sets for one route or service."""
_LONGEST_HOST: Final = 253
_HOST_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Which headers a policy changes, its field, and Contour's reason for an error in it."""

    field: str
    reason: str
    spoken: str
    may_set_host: bool = False


ROUTE_REQUEST: Final = Side(
    field="requestHeadersPolicy",
    reason="RequestHeadersPolicyInvalid",
    spoken="on request headers",
    may_set_host=True,
)
ROUTE_RESPONSE: Final = Side(
    field="responseHeadersPolicy", reason="ResponseHeaderPolicyInvalid", spoken="on response headers"
)
SERVICE_REQUEST: Final = ROUTE_REQUEST
SERVICE_RESPONSE: Final = replace(ROUTE_RESPONSE, reason="ResponseHeadersPolicyInvalid")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderPolicy:
    """The changes of a policy; ``host`` is the host that the origin gets instead of the client's."""

    edits: HeaderEdits = NO_EDITS
    host: str = ""


NO_POLICY: Final = HeaderPolicy()


def read_headers(policy: HeadersPolicy | None, side: Side, problems: Problems) -> HeaderPolicy:
    """Read a header policy; values are literal, names in lower case and sorted."""
    if policy is None:
        return NO_POLICY
    with problems.at(side.field):
        return _read(policy, side, problems)


def _read(policy: HeadersPolicy, side: Side, problems: Problems) -> HeaderPolicy:
    values: dict[str, str] = {}
    for index, entry in enumerate(policy.set):
        with problems.at("set", index):
            name = _name(entry.name, "set", side, problems, known=values)
            if name:
                _require_value(entry.name, entry.value, side, problems)
                values[name] = entry.value
    removed: set[str] = set()
    for index, written in enumerate(policy.remove):
        with problems.at("remove", index):
            removed.add(_name(written, "remove", side, problems, known=removed))
    if len(values) > _MOST:
        with problems.at("set"):
            problems.add(side.reason, f"too many headers {side.spoken}: at most {_MOST} can be set. Remove some.")
    host = values.pop(_HOST, "")
    # What is set replaces what was there, so to remove it as well changes nothing.
    edits = HeaderEdits(set=tuple(sorted(values.items())), remove=tuple(sorted(removed - {"", *values})))
    return HeaderPolicy(edits=edits, host=host)


def _name(written: str, verb: str, side: Side, problems: Problems, *, known: Container[str]) -> str:
    """Return a name in lower case, or nothing if the policy may not touch it."""
    name, shown = written.lower(), canonical_header(written)
    if name in known:
        again = "addition" if verb == "set" else "removal"
        problems.add(side.reason, f'duplicate header {again}: "{shown}" {side.spoken}. Remove one of them.')
    elif name == _HOST and not (side.may_set_host and verb == "set"):
        problems.add(side.reason, f'rewriting "{shown}" header is not supported {side.spoken}. Remove it.')
    elif not is_header_name(written) or len(written) > _LONGEST or name in _KEPT:
        problems.add(side.reason, f'invalid {verb} header "{shown}" {side.spoken}. Correct or remove it.')
    else:
        return name
    return ""


def _require_value(name: str, value: str, side: Side, problems: Problems) -> None:
    if not value.isprintable() or not value.isascii():
        problems.add(
            side.reason, f'invalid value of header "{canonical_header(name)}" {side.spoken}. Use printable ASCII.'
        )
    elif name.lower() == _HOST and not _DYNAMIC.search(value):
        if not _HOST_VALUE.fullmatch(value) or len(value.partition(":")[0]) > _LONGEST_HOST:
            problems.add(
                side.reason,
                f'invalid value of header "Host" {side.spoken}: it is not a host name. Use one such as '
                '"shop.example:8080".',
            )
    elif len(value) + value.count("%") > _LONGEST:  # Envoy wants a percent sign twice
        problems.add(
            side.reason,
            f'invalid value of header "{canonical_header(name)}" {side.spoken}: it is too long. Shorten it.',
        )
    elif _DYNAMIC.search(value):
        problems.warn(
            "IgnoredField",
            f'The value of header "{canonical_header(name)}" looks like an Envoy variable. Variables are not '
            "supported: Envoy sends the text as it is. Ignore this if intended.",
        )
