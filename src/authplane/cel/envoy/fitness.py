"""What Envoy refuses in a condition, or answers otherwise than we do."""

import re
from typing import Final

from authplane.cel.check.regex_patterns import pattern_size
from authplane.cel.envoy.times import fault_in_time
from authplane.cel.syntax.tree import Call, Const, Entries, Ident, Loop, Message, Node, Unsigned, parts
from authplane.cel.syntax.vocabulary import FUNCTIONS, TYPES
from authplane.core.envoy_releases import Release

LARGEST_PATTERN: Final = 100
"""In instructions of RE2: one more, and Envoy refuses everything that comes with the condition."""
LARGEST_INTEGER: Final = 2**53
DEEPEST: Final = 22
"""In nodes. Envoy reads 100 objects and lists within each other from JSON, and a node is up to three of them."""
_LEVELS: Final = 3
_LEVELS_OF_MAP: Final = 4
"""A map is one more: its content is in an entry."""

_NUMERIC: Final = frozenset({
    "add_int64", "add_uint64", "add_double",
    "add_timestamp_duration", "add_duration_timestamp", "add_duration_duration",
})  # fmt: skip
_WRITTEN: Final = frozenset({
    "int64_to_string", "uint64_to_string", "bool_to_string", "string_to_string", "bytes_to_string",
})  # fmt: skip
"""What ``string()`` writes in the same way everywhere. Of a double Envoy 1.39 writes six digits."""
_NAMES: Final = frozenset(each for each in TYPES if "." not in each)
_HEADER: Final = re.compile(r"[a-z0-9!#$%&'*+.^`|~_-]+")
_ARGUMENT: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_DIFFERENT: Final = frozenset({"authorization", "host", "x-envoy-auth-partial-body", "x-forwarded-client-cert"})
"""A filter removes the first, Envoy has the second under another name, the third is for authorization services, and
the last is written for Envoy's own rules only: a check never contains it."""


def fault_in_leaf(node: Const | Ident | Loop | Message) -> str:
    """Say why a literal, the name of a type, a loop or a message is not for Envoy, or nothing."""
    match node:
        case Const(value=Unsigned(value=number) | int(number)):
            return "uses a number that is too large to be exact" if abs(number) > LARGEST_INTEGER else ""
        case Const():
            return ""
        case Ident(name=name):
            return "" if name in _NAMES else f"compares types ({name})"
        case Loop(macro=macro):
            return f"uses {macro}()"
        case Message(name=name):
            return f"constructs a message {name}"


def fault_in_header(name: str) -> str:
    """Say why a header is not looked at by Envoy, or nothing."""
    if name != name.lower():
        # Here no header has that name; Envoy does not look at the case.
        return f"names the header {name}; header names are lower case"
    if name in _DIFFERENT or not _HEADER.fullmatch(name):
        return f"reads the header {name}, which Envoy's filters see differently"
    return ""


def fault_in_argument(name: str) -> str:
    """Say why the reader inside Envoy does not tell a tool argument, or nothing."""
    return "" if _ARGUMENT.fullmatch(name) else f"reads the argument {name!r}, whose name is not plain ASCII"


def fault_in_call(node: Call, overloads: frozenset[str], envoy: Release) -> str:
    """Say why a function is not for Envoy, or nothing; ``overloads`` is what the checker found that it may be."""
    match node:
        case Call(function="matches", args=(*_, Const(value=str(pattern)))):
            large = pattern_size(pattern) > LARGEST_PATTERN
            return "uses a regular expression that is larger than Envoy accepts" if large else ""
        case Call(function="string" | "_+_"):
            return _fault_in_text(node, overloads, envoy) or fault_in_time(node, overloads)
        case Call(function=function, args=args) if function.startswith("get") and args:
            return "uses a time zone"
        case Call(function=function) if function not in FUNCTIONS:
            return f"uses {function}()"
        case _:
            return fault_in_time(node, overloads)


def _fault_in_text(node: Call, overloads: frozenset[str], envoy: Release) -> str:
    """Say why what is written or joined as text is not for Envoy, or nothing."""
    if node.function == "_+_":
        joined = _NUMERIC | {"add_string"} if envoy.converts_strings else _NUMERIC
        return "" if overloads <= joined else "concatenates strings or lists"
    if not envoy.converts_strings:
        return "uses string()"
    fit = overloads <= _WRITTEN
    return "" if fit else "converts a number or a time to a string, which Envoy formats differently"


def is_too_deep(tree: Node) -> bool:
    """Tell whether a tree has more levels than Envoy reads."""
    left = [(tree, 0)]
    while left:
        node, above = left.pop()
        level = above + (_LEVELS_OF_MAP if isinstance(node, Entries) else _LEVELS)
        if level > DEEPEST * _LEVELS:
            return True
        left += [(each, level) for each in parts(node)]
    return False
