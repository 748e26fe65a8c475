"""Bodies and tokens that Envoy reads in another way than the policy engine: exactly these are let through, and why."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.differential.site import Shot

LOOKALIKES: Final = (b'"Method"', b'"PARAMS"', b'"param\\u017f"', b'"method\\u0000"', b'"Name"')
"""Names of members beside the real ones that some parsers take for those."""
LISTS: Final = (b'"name": ["wipe"], "name"', b'"params": ["wipe"]', b'[{"a": 1, "a": 2}]')
"""Members that stand twice, of which one is a list, or that are in a list."""
LENIENT: Final = (b"{'jsonrpc'", b"{jsonrpc:", b",}")
"""What is no JSON: other quotes, none at all, a comma too many."""


def has(*marks: bytes) -> Callable[[Shot], bool]:
    """Tell bodies by what is in them."""
    return lambda shot: any(mark in shot.body for mark in marks)


def goes_on(shot: Shot) -> bool:
    """Tell whether something stands behind the first object of a body: blanks, or what comes in a later part."""
    try:
        _, end = json.JSONDecoder().raw_decode(shot.body.decode(errors="replace").lstrip())
    except ValueError:
        return False
    return len(shot.body.lstrip()) > end and (shot.chunked or len(shot.body.strip()) == end)


def repeats(shot: Shot) -> bool:
    """Tell whether a member stands twice in a token."""
    return any(len(pairs) > len(dict(pairs)) for pairs in _parts(shot))


def header_of(shot: Shot) -> Mapping[str, Any]:
    """Return what stands before the claims of a token; nothing without one."""
    return dict(next(iter(_parts(shot)), []))


def claims_of(shot: Shot) -> Mapping[str, Any]:
    """Return the claims of a token; nothing without one."""
    return dict(_parts(shot)[1]) if len(_parts(shot)) > 1 else {}


def _parts(shot: Shot) -> list[list[tuple[str, Any]]]:
    credentials = next((value for name, value in shot.headers if name == "authorization"), "")
    segments = credentials.rpartition(" ")[2].split(".")[:2]
    try:
        texts = [base64.urlsafe_b64decode(each + "=" * (-len(each) % 4)) for each in segments]
        return [json.loads(text, object_pairs_hook=lambda pairs: pairs) for text in texts]
    except ValueError:
        return []
