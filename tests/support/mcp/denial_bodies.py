"""JSON-RPC errors of denials: what they say, and the decision that they name."""

import re
from typing import Any, Final

_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""As Envoy makes them."""


def split_body(body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return an error without the id of its decision, and that id."""
    error = dict(body["error"])
    data = dict(error.pop("data"))
    found = data.pop("decisionId")
    assert _ID.fullmatch(found), found
    return {**body, "error": error | ({"data": data} if data else {})}, found
