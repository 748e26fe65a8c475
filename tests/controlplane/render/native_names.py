"""What the filters of the lab are called, and what it sends."""

from typing import Any, Final

Json = dict[str, Any]

TYPES: Final = "type.googleapis.com/envoy.extensions"
FILTERS: Final = f"{TYPES}.filters.http"
JWT: Final = "authplane/tokens"
READER: Final = "authplane/mcp-reader"
SHADOW: Final = "authplane/policy-0"
DECIDE: Final = "authplane/decide"
ASK: Final = "authplane/ask"
ASKED: Final = 418
HEADERS: Final = (("content-type", "application/json"), ("accept", "application/json, text/event-stream"))
