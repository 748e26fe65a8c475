"""What grpcio's own xDS client makes of resources: it runs as a process of its own against a scripted server.

Nothing of ours takes part: the server is written with the messages only.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, TypeAlias

import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2 as pb
from tests.support.eventually import eventually

Resources: TypeAlias = Mapping[tuple[str, str], bytes]
"""Bytes by type and name."""

ADS: Final = "envoy.service.discovery.v3.AggregatedDiscoveryService"
PREFIX: Final = "type.googleapis.com/"
_CHILD: Final = """
import json, sys
import grpc
orders = json.loads(sys.stdin.readline())
channels = [grpc.insecure_channel(f"xds:///{name}") for name in orders["targets"]]
for channel in channels:
    channel.subscribe(lambda _: None, try_to_connect=True)
if orders["addresses"]:
    from concurrent import futures
    server = grpc.server(futures.ThreadPoolExecutor(1), xds=True)
    for address in orders["addresses"]:
        server.add_insecure_port(address)
    server.start()
sys.stdin.readline()
import os
os._exit(0)
"""


class ScriptedAds:
    """Serves resources and remembers what the client says of each.

    Each goes out alone, so that a refusal is of one; or all that are asked for go out together, as Clusters must if
    there are several: to the client one that is left out is deleted.
    """

    def __init__(self, resources: Resources, *, together: bool = False) -> None:
        self._resources = resources
        self._together = together
        self.verdicts: dict[tuple[str, str], str] = {}
        """Why a resource was refused, or the empty text if it was not."""

    def handlers(self) -> grpc.GenericRpcHandler:
        stream = grpc.stream_stream_rpc_method_handler(
            self._serve,
            request_deserializer=pb.DiscoveryRequest.FromString,
            response_serializer=pb.DiscoveryResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(ADS, {"StreamAggregatedResources": stream})

    async def _serve(self, requests: AsyncIterator[pb.DiscoveryRequest], _: Any) -> AsyncIterator[pb.DiscoveryResponse]:
        streams: dict[str, _TypeStream] = {}
        async for request in requests:
            kind = request.type_url.removeprefix(PREFIX)
            stream = streams.setdefault(kind, _TypeStream())
            for key in stream.answered(request.response_nonce):
                self.verdicts[key] = request.error_detail.message
            asked = [key for name in request.resource_names if (key := (kind, name)) in self._resources]
            batch = stream.next_batch(asked, together=self._together)
            if batch:
                response = pb.DiscoveryResponse(
                    version_info=stream.nonce, nonce=stream.nonce, type_url=request.type_url
                )
                for key in batch:
                    response.resources.add(type_url=request.type_url, value=self._resources[key])
                yield response


class _TypeStream:
    """One type on one stream. A response waits for the answer to the one before: a client may answer two at once."""

    def __init__(self) -> None:
        self.nonce = "0"
        self._waiting: tuple[tuple[str, str], ...] = ()
        self._done: set[tuple[str, str]] = set()

    def answered(self, nonce: str) -> tuple[tuple[str, str], ...]:
        if nonce != self.nonce:
            return ()
        batch, self._waiting = self._waiting, ()
        return batch

    def next_batch(self, asked: list[tuple[str, str]], *, together: bool) -> tuple[tuple[str, str], ...]:
        fresh = [key for key in asked if key not in self._done]
        if self._waiting or not fresh:
            return ()
        self._waiting = tuple(asked) if together else (fresh[0],)
        self._done.update(self._waiting)
        self.nonce = str(int(self.nonce) + 1)
        return self._waiting


async def native_verdicts(
    resources: Resources, wanted: set[tuple[str, str]], *, targets: list[str], addresses: list[str]
) -> Mapping[tuple[str, str], str]:
    """Let channels to the targets and servers at the addresses ask for what they need."""
    ads = ScriptedAds(resources)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((ads.handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    bootstrap = {
        "xds_servers": [{"server_uri": f"127.0.0.1:{port}", "channel_creds": [{"type": "insecure"}]}],
        "node": {"id": "oracle"},
        "server_listener_resource_name_template": "%s",
        "certificate_providers": {
            "own": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "/nowhere/ca.pem"}}
        },
    }
    environment = {
        **os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(bootstrap), "GRPC_VERBOSITY": "NONE"
    }  # fmt: skip
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILD, stdin=asyncio.subprocess.PIPE, env=environment
    )
    assert child.stdin is not None
    try:
        child.stdin.write(json.dumps({"targets": targets, "addresses": addresses}).encode() + b"\n")

        async def all_there() -> bool:
            assert child.returncode is None, f"grpcio ended; it judged {ads.verdicts}"
            return wanted <= ads.verdicts.keys()

        try:
            await eventually(all_there)
        except TimeoutError:
            raise AssertionError(f"no verdict on {sorted(wanted - ads.verdicts.keys())}") from None
    finally:
        child.stdin.close()
        await child.wait()
        await server.stop(None)
    return ads.verdicts
