"""Requests that Envoy may decide itself; the policy server decides all others."""

from functools import lru_cache, reduce
from typing import Final

from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.plain_paths import CANONICAL_CHECK
from authplane.cel.envoy.request_checks import (
    PRESENT,
    AtMost,
    Begins,
    Between,
    Check,
    Contains,
    Equals,
    Fits,
    Header,
    Metadata,
    Not,
    equals_one,
    every,
    some,
)
from authplane.cel.envoy.translate import Condition
from authplane.cel.syntax.tree import Node
from authplane.core.envoy_releases import Release
from authplane.policy.mcp.mcp_calls import TOOLS_CALL
from authplane.policy.mcp.mcp_versions import ProtocolVersion
from authplane.policy.mcp.message_limits import DEFAULT_LIMITS
from authplane.policy.mcp.methods import ABOUT_NOTHING, LONGEST_ADDRESS, NAMES, NOTIFICATIONS
from authplane.policy.mcp.mirrored_headers import VERSION_MEMBER

_HEADERS: Final = condition_nodes.name("request.headers")
_UPGRADES: Final = ("http2-settings", "upgrade")
_NEVER: Final = (
    "content-encoding", "last-event-id", "mcp-method", "mcp-name", "x-envoy-auth-partial-body",
    "x-http-method", "x-http-method-override", "x-method-override",
)  # fmt: skip
"""What is never there in plain messages before 2026-07-28, or turns a request into another one.

None has to be looked for in other spellings: Envoy takes no header with an underscore.
"""
_SESSIONS: Final = tuple(each.value for each in ProtocolVersion if each is not ProtocolVersion.V2026_07_28)
_JSON: Final = "application/json"
_JSON_IN_WORDS: Final = r'application/json(?:; ?(?i:charset)=(?i:utf-8|"utf-8"))?'
_NO_SESSION: Final = r"|\C*[^!-~]\C*"
"""Nothing, or something that is not printed."""
_TOLD: Final = frozenset({"name", "uri"})
"""The parameters that the mcp filter tells, of those that say what a call is about."""
_SUBJECT: Final = "[ -~]+"
_LONG: Final = "[ -~]{95,}"
"""The server takes longer names and ids, but Envoy takes no larger patterns."""
_LARGEST_ID: Final = 2.0**53
"""Larger ones Envoy repeats as others."""
_MOST_BYTES: Final = 2 * DEFAULT_LIMITS.members
"""A member has two bytes at least: so many bytes have no more members than the server takes."""
_ANSWERS: Final = ("result", "error")
EXTRACTED: Final = {
    **{method: (f"params.{member}",) * (member in _TOLD) + _ANSWERS for method, member in NAMES.items()},
    **dict.fromkeys(ABOUT_NOTHING, _ANSWERS),
}
"""By method, what the mcp filter has to keep of a message; it always keeps the id and ``params._meta``."""
_PLAIN_ID: Final = r"[ !#-\[\]-~]*"
"""What stands in JSON as it is."""
_SHORT: Final = Between(-99_999, 100_000)
"""Envoy has no whole numbers, and writes others with an exponent where that is shorter, or rounds them."""
BODY_METADATA: Final = "authplane.body"
"""Where a second filter says what it has read in a body."""


# It takes 430 µs, each plan needs it, and it is the same for all targets: it depends on the release and one setting.
@lru_cache(maxsize=16)
def build_front(envoy: Release, most_bytes: int, *, is_mcp: bool, reads_mcp: bool) -> Condition:
    """Return what holds for the requests that Envoy may judge; most of it is a check, and what is not never fails.

    A body may have ``most_bytes`` if it is read.
    """
    if not is_mcp:
        return Condition()
    # A proxy does not wait for the body of an upgrade: nobody could judge it.
    plain = [Not(Header(":method", Equals("CONNECT"))), *(_without(each) for each in _UPGRADES)]
    if not reads_mcp:
        return Condition(check=every(plain))
    tree = _session() if envoy.tells_members_apart else condition_nodes.every((_read_alike(envoy), _session()))
    return Condition(check=every((*_message(envoy, most_bytes), *plain[1:])), tree=tree, reads_mcp=True)


def has_odd_id(envoy: Release) -> Condition:
    """Return what holds for a message whose id Envoy could not repeat in a denial as it was written; it never fails."""
    keys = (envoy.mcp_metadata, "id")
    return Condition(check=every((Metadata(keys, (PRESENT,)), Not(Metadata(keys, (_SHORT, Fits(_PLAIN_ID)))))))


def _message(envoy: Release, most_bytes: int) -> list[Check]:
    """Return what holds for a message whose method and subject the mcp filter finds."""
    return [
        Header(":method", Equals("POST")),
        _about(envoy),
        _identified(envoy),
        *(Not(Metadata((envoy.mcp_metadata, each), (PRESENT,))) for each in _ANSWERS),
        # Who says it has to say it in a header, too, and then Envoy does not judge it.
        Not(Metadata((envoy.mcp_metadata, "params", "_meta", _version_member(envoy)), (PRESENT,))),
        # The filter does not look at what comes after the message.
        Header("content-length", AtMost(min(most_bytes, _MOST_BYTES))),
        Not(Header("content-length", Begins("0"))),
        some((Header("content-type", Equals(_JSON)), Header("content-type", Fits(_JSON_IN_WORDS)))),
        CANONICAL_CHECK,
        Not(Header("authorization", Contains(","))),
        *(_without(each) for each in _NEVER),
        Not(Header("mcp-session-id", Fits(_NO_SESSION))),
    ]


def _about(envoy: Release) -> Check:
    """Return what holds for a known method, and for what it is about, where there must be something: tools first."""
    method = (envoy.mcp_metadata, "method")
    found: dict[str, list[str]] = {}
    for name, member in sorted(NAMES.items(), key=lambda each: (each[0] != TOOLS_CALL, each)):
        found.setdefault(member, []).append(name)
    about = (
        every((equals_one(method, names), _fits((envoy.mcp_metadata, "params", member), is_name=member == "name")))
        for member, names in found.items()
        if member in _TOLD
    )
    return some((*about, equals_one(method, ABOUT_NOTHING)))


def _fits(keys: tuple[str, ...], *, is_name: bool) -> Check:
    """Return what holds for a text that the server takes for a name or an id, or for an address."""
    short = Not(Metadata(keys, (Fits(_LONG),))) if is_name else Header("content-length", AtMost(LONGEST_ADDRESS))
    return every((Metadata(keys, (Fits(_SUBJECT),)), short))


def _identified(envoy: Release) -> Check:
    """Return what holds for a message with an id that the server takes, and for a notification without any.

    The filter does not tell an id that is a list: so no other message may lack one.
    """
    id_ = (envoy.mcp_metadata, "id")
    number = Metadata(id_, (Between(-_LARGEST_ID, _LARGEST_ID),))
    notice = every((Not(Metadata(id_, (PRESENT,))), Metadata((envoy.mcp_metadata, "method"), (Begins(NOTIFICATIONS),))))
    return some((number, _fits(id_, is_name=True), notice))


def _version_member(envoy: Release) -> str:
    """Return where the filter keeps the version that ``_meta`` names: it took dots apart."""
    return VERSION_MEMBER if envoy.tells_members_apart else VERSION_MEMBER.rpartition(".")[2]


def _session() -> Node:
    """Return what holds if a request says of its session what it may, and says it once: Envoy puts commas between.

    What is usual comes first. To read a header that is missing fails, which the last part of each makes up for.
    """
    session, version = (condition_nodes.member(_HEADERS, each) for each in ("mcp-session-id", "mcp-protocol-version"))
    single = condition_nodes.negated(condition_nodes.contains(session, ","))
    known = reduce(_or, (condition_nodes.equal(version, each) for each in sorted(_SESSIONS, reverse=True)))
    return condition_nodes.every((_or(single, _lacks("mcp-session-id")),
                        _or(known, _lacks("mcp-protocol-version"))))  # fmt: skip


def _read_alike(envoy: Release) -> Node:
    """Return what holds if two filters read the same method, subject and id in a body.

    It fails where the second has read nothing; whoever asks for this condition takes that for false.
    """
    found, again = (
        condition_nodes.member(condition_nodes.METADATA, each) for each in (envoy.mcp_metadata, BODY_METADATA)
    )
    same = condition_nodes.call(
        "_==_", condition_nodes.member(found, "method"), condition_nodes.member(again, "method")
    )
    params = condition_nodes.member(found, "params")
    about = condition_nodes.every(
        _or(condition_nodes.negated(condition_nodes.call("@in", condition_nodes.literal(each), params)),
            condition_nodes.call("_==_", condition_nodes.member(params, each), condition_nodes.member(again, each)))
        for each in sorted(_TOLD)
    )  # fmt: skip
    said = condition_nodes.every(
        _or(condition_nodes.negated(condition_nodes.call("@in", condition_nodes.literal(each), found)), alike)
        for each, alike in (
            ("params", about),
            (
                "id",
                condition_nodes.call("_==_", condition_nodes.member(found, "id"), condition_nodes.member(again, "id")),
            ),
        )
    )
    return condition_nodes.every((same, said))


def _or(one: Node, other: Node) -> Node:
    return condition_nodes.call("_||_", one, other)


def _lacks(name: str) -> Node:
    return condition_nodes.negated(condition_nodes.call("@in", condition_nodes.literal(name), _HEADERS))


def _without(name: str) -> Check:
    return Not(Header(name, PRESENT))
