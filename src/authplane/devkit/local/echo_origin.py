"""An origin that shows what reached it."""

import json
from contextlib import AbstractAsyncContextManager

from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import Address


def echo(request: HttpRequest) -> HttpResponse:
    """Answer 200 with the request as JSON, for a person to read."""
    seen = {
        "method": request.method,
        "path": request.target,
        "host": request.header("host"),
        "headers": [list(pair) for pair in request.headers],
        "body": request.body.decode(errors="replace"),
    }
    return HttpResponse(
        status=200,
        headers=(("content-type", "application/json"),),
        body=json.dumps(seen, indent=2, ensure_ascii=False).encode() + b"\n",
    )


def serve_echo(address: Address) -> AbstractAsyncContextManager[Address]:
    """Serve `echo` while the block runs; yields the address with the port that was really taken."""
    return serve_http(address, echo)
