"""Asks gRPC's own xDS client what it makes of bootstraps: reads them from stdin, writes what it says to stdout."""

import json
import os
import sys

import grpc

REFUSED = "Failed to create XdsClient: "


def judge(text: str) -> str:
    """Return why a bootstrap is refused; nothing if it is accepted."""
    os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = text
    with grpc.insecure_channel("xds:///test") as channel:
        try:
            channel.unary_unary("/test/Call")(b"", timeout=10)  # type: ignore[arg-type]
        except grpc.RpcError as error:
            said = error.details() or ""
            return said.removeprefix(REFUSED) if said.startswith(REFUSED) else ""
    raise AssertionError("a call to nowhere succeeded")


def judge_apart(text: str) -> str:
    """Judge in a process of its own: one that accepted a bootstrap was seen to use it for later channels, at times."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, judge(text).encode()[:4096] + b".")
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:  # noqa: PTH123 (a descriptor)
        said = pipe.read()
    os.waitpid(child, 0)
    if not said.endswith(b"."):
        raise RuntimeError("a judge died")
    return said[:-1].decode()


if __name__ == "__main__":
    json.dump([judge_apart(text) for text in json.load(sys.stdin)], sys.stdout)
