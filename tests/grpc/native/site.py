"""A real server under generated policies, the policy engine that it asks, and the code of ``authplane check``."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.grpc.native.callers import pair_of
from tests.grpc.native.cases import PolicySet, Sent
from tests.support import certificates
from tests.support.authservers.external_answers import answer
from tests.support.grpc.control_plane import Control, controlling
from tests.support.grpc.shop_servers import Authority, authorizing
from tests.support.grpc.tls_channels import secured
from tests.support.grpc.xds_servers import xds_serving
from tests.support.policies.names import SHOP
from tests.support.ports import free_port
from tests.support.resources.contour_documents import World

from authplane.authserver.backends.access_policies import AccessPolicies
from authplane.authserver.engine.check_engine import Answer, CheckEngine, Failed
from authplane.authserver.engine.wire import with_context
from authplane.devkit.policies.checking import Circumstances, _Keyring, check
from authplane.devkit.policies.request_files import AskedRequest
from authplane.grpc import XdsServerCredentials
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.check.check_context import TARGET, TARGET_METADATA
from authplane.policy.check.decision import Allow, Deny, Unavailable
from authplane.policy.check.request import Peer, Request
from authplane.policy.compile.compile_policies import Compiled
from authplane.policy.decide.decide import MEANS
from authplane.policy.identity.evidence import Identifier
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.placement.grpc_plan import GrpcPlan, place_grpc
from authplane.policy.verdicts.effects import Ask, NoAnswer

PATIENCE: Final = 20.0
_HTTP: Final = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class Ended(NamedTuple):
    """How a call ended, or should have."""

    code: grpc.StatusCode
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    """What the handler is given of what the client has sent."""


class Judge(Authority):
    """A policy server: the engine behind the interface of gRPC."""

    def __init__(self) -> None:
        super().__init__()
        self.decide = self._judge
        self._backend = AccessPolicies(Identifier(TokenInspector(_Keyring((), {}))))

    def publish(self, compiled: Compiled) -> None:
        policies = compiled.policies
        self._backend = AccessPolicies(Identifier(TokenInspector(_Keyring(policies.issuers, {}))))
        self._backend.publish(policies)

    def _judge(self, message: pb.CheckRequest) -> bytes:
        named = dict(self.metadata[-1])[TARGET_METADATA]
        body = with_context(message.SerializeToString(), TARGET, str(named))
        found = CheckEngine(self._backend).check(body, datetime.now(UTC))
        if isinstance(found, Answer):
            return found.reply
        if isinstance(found, Failed):
            raise found.error
        try:
            effect = next(found.flow)
            while True:
                effect = found.flow.send(answer(effect) if isinstance(effect, Ask) else NoAnswer("nobody can"))
        except StopIteration as finished:
            done: Answer = finished.value
            return done.reply


class Anything:
    """Answers every method, and remembers what it was given."""

    def __init__(self) -> None:
        self.given: tuple[tuple[str, str | bytes], ...] = ()

    def forget(self) -> None:
        self.given = ()

    def _note(self, context: Any) -> None:
        self.given = tuple((each.key, each.value) for each in context.invocation_metadata())

    def threads(self) -> grpc.GenericRpcHandler:
        def say(request: bytes, context: Any) -> bytes:
            self._note(context)
            return request

        return _Every(grpc.unary_unary_rpc_method_handler(say))

    def loop(self) -> grpc.GenericRpcHandler:
        async def say(request: bytes, context: Any) -> bytes:
            self._note(context)
            return request

        handler: Any = grpc.unary_unary_rpc_method_handler(say)
        return _Every(handler)


class _Every(grpc.GenericRpcHandler):
    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._handler


class Site:
    """One server, whose policies are changed again and again."""

    def __init__(self, control: Control, judge: Judge, port: int, kind: str) -> None:
        self.port = port
        self.foreign = kind == "foreign"
        """The server takes nothing that only ours understand."""
        self.judge = judge
        self.handler = Anything()
        self._control = control
        self._placement = "CallOut" if kind == "CallOut" else "Auto"
        self._channels: dict[str, grpc.Channel] = {}
        self.compiled: Compiled | None = None

    def publish(self, policies: PolicySet) -> Compiled:
        """Let the server obey a set of policies, and the policy server decide by it."""
        where = f"policyServer: {{address: '{self.judge.target}'}}, placement: {self._placement}"
        generation = World(policies.documents(_backend(self.port), where)).generation
        self.compiled = generation.compiled
        self.judge.publish(self.compiled)
        listeners = generation.rendered.grpc_listeners
        self._control.publish(*(map(_without_override, listeners) if self.foreign else listeners))
        self._control.wait_for_ack(listener_pb2.Listener)
        return self.compiled

    def call(self, sent: Sent) -> tuple[Ended, int]:
        """Make a call; returns how it ended, and how often the policy server was asked."""
        say: Any = self._channels[sent.caller].unary_unary(sent.path)
        before = len(self.judge.checks)
        self.handler.forget()
        try:
            say(b"x", metadata=sent.metadata, timeout=PATIENCE)
            code = grpc.StatusCode.OK
        except grpc.RpcError as error:
            failed: Any = error
            code = failed.code()
        given = tuple((name, value) for name, value in self.handler.given if name != "user-agent")
        return Ended(code, given), len(self.judge.checks) - before

    @property
    def plan(self) -> GrpcPlan:
        """Who decides what."""
        assert self.compiled is not None
        policies = self.compiled.policies
        way = policies.chain(RequestTarget(backend=SHOP))
        assert way is not None
        return place_grpc(way, policies.settings)

    def reference(self, sent: Sent) -> Ended:
        """Say how ``authplane check`` has a call end."""
        assert self.compiled is not None
        path, _, query = sent.path.partition("?")
        headers = tuple((name, value if isinstance(value, str) else _text(value)) for name, value in sent.metadata)
        request = Request(method="POST", path=path, query=query, headers=headers, destination=Peer(port=self.port))
        asked = AskedRequest(
            target=RequestTarget(backend=SHOP), request=request, certificate=pair_of(sent.caller).certificate.decode()
        )
        given = Circumstances(now=datetime.now(UTC), answer=answer, means=MEANS)
        match check(self.compiled.policies, asked, given).verdict.decision:
            case Allow(edits=edits):
                gone = {name.lower() for name in edits.remove}
                return Ended(grpc.StatusCode.OK, tuple(pair for pair in sent.metadata if pair[0] not in gone))
            case Deny(http_status=status):
                return Ended(_HTTP[status])
            case Unavailable():
                return Ended(grpc.StatusCode.UNAVAILABLE)

    def open_channels(self, callers: Iterator[str], stack: ExitStack) -> None:
        for caller in callers:
            self._channels[caller] = stack.enter_context(secured(self.port, pair_of(caller)))


@contextmanager
def serving(stack: str, root: Path, first: PolicySet, callers: tuple[str, ...], kind: str) -> Iterator[Site]:
    """Run a server of one kind."""
    judge = Judge()
    with authorizing(authority=judge), controlling() as control, xds_serving(stack) as make, ExitStack() as channels:
        site = Site(control, judge, free_port(), kind)
        where = f"policyServer: {{address: '{judge.target}'}}"
        control.publish(*World(first.documents(_backend(site.port), where)).generation.rendered.grpc_listeners)
        bootstrap = control.bootstrap(
            server_listener_resource_name_template="grpc/default/shop/%s",
            certificate_providers={"server": {"plugin_name": "file_watcher", "config": _files(root)}},
        )
        handler: Any = site.handler
        server = make(handler, f"127.0.0.1:{site.port}", XdsServerCredentials(None), xds=bootstrap)
        assert server.is_serving(PATIENCE), control.nacks
        site.open_channels(iter(dict.fromkeys(callers)), channels)
        yield site
        assert control.nacks == []


def _backend(port: int) -> str:
    tls = "{certificateProvider: server, clientCaProvider: server}"
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {{name: shop}}
spec: {{type: GRPC, grpc: {{address: 127.0.0.1, port: {port}, tls: {tls}}}}}
"""


def _files(root: Path) -> Mapping[str, str]:
    pair = certificates.server("shop.example")
    made = {
        "certificate_file": pair.certificate,
        "private_key_file": pair.key.reveal(),
        "ca_certificate_file": certificates.authority().certificate,
    }
    for name, data in made.items():
        (root / name).write_bytes(data)
    return {name: str(root / name) for name in made}


def _without_override(listener: listener_pb2.Listener) -> listener_pb2.Listener:
    """Return what is left of a Listener to a server that does not know the override."""
    made = listener_pb2.Listener()
    made.CopyFrom(listener)
    [network] = made.default_filter_chain.filters
    manager = hcm_pb2.HttpConnectionManager.FromString(network.typed_config.value)
    [host] = manager.route_config.virtual_hosts
    for route in host.routes:
        route.ClearField("typed_per_filter_config")
    network.typed_config.Pack(manager)
    return made


def _text(value: bytes) -> str:
    return b64encode(value).rstrip(b"=").decode()
