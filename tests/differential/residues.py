"""Bodies and tokens that Envoy reads in another way than the policy engine: exactly these are let through, and why."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from tests.differential.site import Shot


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
