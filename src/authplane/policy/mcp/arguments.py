"""Arguments that a lenient reader could take for others.

A server that ignores the case of members, such as one in Go, takes ``{"to": "alice", "TO": "mallory"}`` for mallory. So
if a rule reads ``to``, a call with ``TO`` is ambiguous. Members that no rule reads are not checked.
"""

import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from authplane.cel.syntax.read_members import NOTHING, Members, join_members
from authplane.policy.mcp.mcp_calls import McpCall, MethodCall, Notification, ToolCall
from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal, refuse

_IGNORED: Final = (
    (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x3164, 0x3164), (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""Characters that Unicode has as default-ignorable and that are no controls or formats."""


def unambiguous(call: McpCall | McpRefusal, read: Members) -> McpCall | McpRefusal:
    """Return a call, or its refusal if rules that read this of its arguments could be misled."""
    match call:
        case ToolCall(id=id_, arguments=given) | MethodCall(id=id_, params=given):
            return refuse(Fault.LOOKALIKE, id_) if are_ambiguous(given, read) else call
        case Notification(params=given):
            return refuse(Fault.LOOKALIKE) if are_ambiguous(given, read) else call
        case _:
            return call


def are_ambiguous(value: Any, read: Members) -> bool:
    """Tell whether a member has a name that could be taken for one that a rule reads."""
    if isinstance(value, list):
        return any(are_ambiguous(each, read) for each in value)
    if not isinstance(value, Mapping):
        return False
    if _misleads(value, read):
        return True
    inside = NOTHING if read.whole is None else Members(whole=read.whole)
    for name, each in value.items():
        below = join_members((inside, read.named[name])) if name in read.named else inside
        if below and are_ambiguous(each, below):
            return True
    return False


def _misleads(members: Mapping[str, Any], read: Members) -> bool:
    """Tell whether a name of an object is the same to some reader as another one that is read."""
    alike: dict[str, set[str]] = {}
    for name in (*read.named, *(read.whole or ()), *(() if read.whole is None else members)):
        alike.setdefault(fold_name(name), set()).add(name)
    return any(alike.get(fold_name(name), set()) - {name} for name in members)


def fold_name(name: str) -> str:
    """Return what is left of a name if case, widths, blanks around it and invisible characters do not count."""
    if name.isascii() and name.isprintable():
        return name.strip().lower()
    seen = "".join(each for each in unicodedata.normalize("NFKC", name) if not _is_ignored(each)).strip()
    # Upper case first: some letters, such as the long s and the dotless i, meet their twins only there.
    return unicodedata.normalize("NFKC", seen.upper().casefold())


def _is_ignored(character: str) -> bool:
    code = ord(character)
    blank = character.isspace()
    hidden = unicodedata.category(character) in {"Cc", "Cf"} and not blank
    return hidden or any(first <= code <= last for first, last in _IGNORED)
