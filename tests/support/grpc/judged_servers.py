"""A server of ours beside one of another maker, under the same routes and rules."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb
from tests.support import certificates
from tests.support.grpc.control_plane import controlling
from tests.support.grpc.peers import running
from tests.support.grpc.shop_servers import PATIENCE
from tests.support.grpc.xds_resources import http_filter, listener, manager
from tests.support.grpc.xds_routes import routes
from tests.support.ports import free_port

import authplane.grpc
from authplane.devkit.identities.throwaway_certificates import KeyPair


class AnyMethod(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: request)


@contextmanager
def judging(
    argv: list[str], hosts: Sequence[route_components_pb2.VirtualHost], pair: KeyPair | None, folder: Path
) -> Iterator[Mapping[str, int]]:
    """Run a server of ours and one of theirs with the same routes, behind rbac; yields their ports."""
    files = None if pair is None else _files(pair, folder)
    with controlling() as control, ThreadPoolExecutor(4) as pool, ExitStack() as stack:
        ours = authplane.grpc.server(pool, [AnyMethod()], xds=control.bootstrap())
        if pair is None:
            port = ours.add_insecure_port("127.0.0.1:0")
        else:
            root = certificates.authority().certificate
            own = grpc.ssl_server_credentials([(pair.key.reveal(), pair.certificate)], root, require_client_auth=True)
            port = ours.add_secure_port("127.0.0.1:0", own)
        ours.start()
        stack.callback(lambda: ours.stop(0).wait(PATIENCE))
        ports = {"ours": port, "theirs": free_port()}
        made = manager(http_filter("rbac", filter_pb.RBAC()), inline=routes("inline", *hosts))
        control.publish(*(listener(each, made) for each in ports.values()))
        assert ours.wait_until_serving(PATIENCE), control.nacks
        orders = {"serve": {"address": f"127.0.0.1:{ports['theirs']}", "tls": files}}
        stack.enter_context(running(argv, control.bootstrap(), orders))
        yield ports
        assert control.nacks == []


def _files(pair: KeyPair, folder: Path) -> dict[str, str]:
    parts = {"certificate": pair.certificate, "key": pair.key.reveal(), "ca": certificates.authority().certificate}
    for name, content in parts.items():
        (folder / name).write_bytes(content)
    return {name: str(folder / name) for name in parts}
