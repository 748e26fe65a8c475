"""The id of a decision: it is in the text of a denial, in the decision log and in Envoy's access log."""

import re
from hashlib import blake2b
from typing import Final

from authplane.policy.check.request import Request

_REQUEST_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")
"""A UUID, as Envoy makes them, or what else is used; no token, which has dots or is longer."""


def decision_id(request: Request) -> str:
    """Return the request id that the access log has too; what else Envoy calls a request is in no other log.

    Envoy keeps the id that a client of its own network sends: one that does not look like an id is not shown.
    """
    sent = request.values("x-request-id")
    return sent[0] if sent and _REQUEST_ID.fullmatch(sent[0]) else request.id or _made_of(request)


def _made_of(request: Request) -> str:
    """Make an id for a call of a gRPC server, which sends none (gRFC A92), of its time, its sender and its method.

    Without a time, all calls of a client would have the same id: then there is none.
    """
    if request.time is None:
        return ""
    source = request.source
    known = f"{request.time.timestamp()} {source.address} {source.port} {request.path}"
    return blake2b(known.encode(errors="surrogateescape"), digest_size=8).hexdigest()
