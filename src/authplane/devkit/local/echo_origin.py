"""An origin that returns each request as JSON."""

import json
from contextlib import AbstractAsyncContextManager

from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import Address


def echo(request: HttpRequest) -> HttpResponse:
    """Respond with status 200 and the request as JSON."""
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
    """Serve `echo` while the block runs; yields the address with the actual port."""
    return serve_http(address, echo)
