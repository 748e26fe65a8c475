"""grpcio's own xDS: what tests.support.grpc.peers describes."""

import json
import os
import sys
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc


def say(words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


class AnyMethod(grpc.GenericRpcHandler):
    """Answers every call with the name of the peer."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"grpcio")


def server_credentials(files: dict[str, str] | None) -> Any:
    if files is None:
        return grpc.xds_server_credentials(grpc.insecure_server_credentials())
    certificate, key, ca = (Path(files[name]).read_bytes() for name in ("certificate", "key", "ca"))
    return grpc.xds_server_credentials(
        grpc.ssl_server_credentials([(key, certificate)], root_certificates=ca, require_client_auth=True)
    )


def main() -> None:
    orders = json.loads(sys.stdin.readline())
    if serve := orders.get("serve"):
        server = grpc.server(futures.ThreadPoolExecutor(4), [AnyMethod()], xds=True)
        server.add_secure_port(serve["address"], server_credentials(serve.get("tls")))
        server.start()
    channel = grpc.insecure_channel(orders.get("target", "passthrough:///nobody"))
    say("ready")
    for line in sys.stdin:
        call = json.loads(line)
        multi: Any = channel.unary_unary(call["path"])
        try:
            said = multi(b"", metadata=[tuple(each) for each in call["metadata"]], timeout=call["timeout"]).decode()
            say({"code": 0, "said": said})
        except grpc.RpcError as error:
            failed: Any = error
            say({"code": failed.code().value[0], "said": failed.details()})
    os._exit(0)


main()
