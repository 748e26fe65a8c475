"""Backends of the type GRPC: what their servers are told, and what else does not see them."""

from typing import NamedTuple

import pytest
from tests.support.resources.contour_documents import ECHO, World

from authplane.controlplane.graph.model.grpc_servers import (
    Authorization,
    Closed,
    GrpcServer,
    Judged,
    Open,
    PolicyCheck,
    ServerTls,
)
from authplane.controlplane.graph.model.programming import Answered, NoProxy, NotServed, Programming, ServerAnswers
from authplane.core.names import Ref
from authplane.core.problems import Severity
from authplane.core.timeouts import After, parse_timeout
from authplane.policy.identity.workload_identity.identity_headers import IDENTITY_HEADERS
from authplane.policy.placement.grpc_entries import Grant
from authplane.policy.placement.grpc_plan import Grants
from authplane.policy.placement.grpc_reach import Anybody, Nobody, Reach, Workloads
from authplane.xds.server.served_types import TypeUrl, XdsName

AGENT = "spiffe://example.org/agent"
CART = Ref("Backend", "default", "cart")
LISTENER: XdsName = (TypeUrl.LISTENER, "grpc/default/cart/0.0.0.0:50051")


def backend(grpc: str = "{port: 50051}", name: str = "cart") -> str:
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {{name: {name}}}
spec: {{type: GRPC, grpc: {grpc}}}
"""


def policy(
    rules: str = f"[{{source: {{type: SPIFFE, spiffe: {AGENT}}}, authorization: [{{type: CEL, cel: 'true'}}]}}]",
) -> str:
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {{name: cart}}
spec: {{targetRefs: [{{kind: Backend, name: cart}}], rules: {rules}}}
"""


def configuration(spec: str) -> str:
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec: {spec}
"""


def servers(*documents: str) -> tuple[GrpcServer, ...]:
    return World(documents).graph.grpc_servers


def check(target: str = "ipv4:127.0.0.1:9443", ca: str = "", seconds: str = "5s") -> PolicyCheck:
    timeout = parse_timeout(seconds)
    assert isinstance(timeout, After)
    return PolicyCheck(target=target, ca=ca, timeout=timeout)


ALL = Workloads(frozenset({AGENT}))


def granted(ids: frozenset[str] | None) -> Grants:
    """Return what lets somebody do everything, and nobody else anything."""
    return Grants(groups=((Grant(ids=ids),),), absent=IDENTITY_HEADERS, single=(), asked=Reach(others=Nobody()))


TO_AGENT = granted(frozenset({AGENT}))
CALL_OUT = backend().replace("{name: cart}", "{name: cart, annotations: {authplane.dev/placement: CallOut}}")


class Case(NamedTuple):
    documents: tuple[str, ...]
    wanted: Authorization


AUTHORIZATIONS = {
    "no policy": Case((), Judged(reach=Reach(others=Nobody()), check=check())),
    "no policy, and that is allowed": Case((configuration("{unprotectedBackends: Allow}"),), Open()),
    "no policy, and that is denied": Case(
        (configuration("{unprotectedBackends: Deny}"),), Judged(reach=Reach(others=Nobody()), check=check())
    ),
    "a policy": Case((policy(),), Judged(reach=Reach(others=ALL), check=check(), grants=TO_AGENT)),
    "a policy, and the policy server is to decide": Case(
        (policy(), configuration("{placement: CallOut}")), Judged(reach=Reach(others=ALL), check=check())
    ),
    "a policy for everybody": Case(
        (policy("[{authorization: [{type: CEL, cel: 'true'}]}]"),),
        Judged(reach=Reach(others=Anybody()), check=check(), grants=granted(None)),
    ),
    "a policy with a mistake": Case(
        (policy("[{authorization: [{type: CEL, cel: '!'}]}]"),), Judged(reach=Reach(others=Nobody()), check=check())
    ),
    "a policy that needs a body": Case(
        (policy("[{authorization: [{type: InlineTools, tools: [a]}]}]"),),
        Judged(reach=Reach(others=Nobody()), check=check()),
    ),
    "a policy that cannot be read": Case(
        (policy("[{authorization: 1}]"),), Judged(reach=Reach(others=Nobody()), check=check())
    ),
    "a file that may hold a policy": Case(
        (policy(), "kind: [AccessPolicy"), Judged(reach=Reach(others=Anybody()), check=check())
    ),
    "settings that only the policy server may be able to use": Case(
        (
            policy(),
            configuration("{issuers: [{url: 'https://c.example', serviceAccounts: {audiences: [a]}}]}"),
        ),
        Judged(reach=Reach(others=Anybody()), check=check()),
    ),
    "a policy server elsewhere": Case(
        (policy(), configuration("{policyServer: {address: 'unix:/run/policy.sock', timeout: 2s}}")),
        Judged(reach=Reach(others=ALL), check=check("unix:/run/policy.sock", seconds="2s"), grants=TO_AGENT),
    ),
    "a policy server at an address of IPv6": Case(
        (policy(), configuration("{policyServer: {address: '[::1]:9443'}}")),
        Judged(reach=Reach(others=ALL), check=check("ipv6:[::1]:9443"), grants=TO_AGENT),
    ),
}


@pytest.mark.parametrize("case", AUTHORIZATIONS.values(), ids=AUTHORIZATIONS.keys())
def test_policies_say_who_judges_calls(case: Case) -> None:
    [made] = servers(backend(), *case.documents)
    assert made == GrpcServer(ref=CART, address="0.0.0.0", port=50051, tls=None, authorization=case.wanted)
    assert made.listener == LISTENER[1]


def test_a_backend_may_leave_all_decisions_to_the_policy_server() -> None:
    [made] = servers(CALL_OUT, policy())
    assert made.authorization == Judged(reach=Reach(others=ALL), check=check())


def test_tls_is_by_the_providers_of_the_bootstrap() -> None:
    written = "{address: '::', port: 1, tls: {certificateProvider: a, clientCaProvider: b}, policyServerCaProvider: c}"
    remote = configuration("{policyServer: {address: 'policy.example:9443', caFile: /ca.pem}}")
    [made] = servers(backend(written), policy(), remote)
    assert made.tls == ServerTls(certificate="a", clients="b")
    assert made.listener == "grpc/default/cart/[::]:1"
    assert made.authorization == Judged(
        reach=Reach(others=ALL), check=check("dns:///policy.example:9443", ca="c"), grants=TO_AGENT
    )
    [half] = servers(backend("{port: 1, tls: {certificateProvider: a}}"))
    assert half.tls == ServerTls(certificate="a")


REMOTE = "address: 'policy.example:9443', caFile: /ca.pem"
UNASKABLE = {
    "TLS without a provider": ("{port: 1}", f"{{{REMOTE}}}", "Set this field to the certificate provider that has"),
    "a provider without TLS": ("{port: 1, policyServerCaProvider: c}", "{}", "does not use TLS"),
    "another name than that of the address": (
        "{port: 1, policyServerCaProvider: c}",
        f"{{{REMOTE}, serverName: other.example}}",
        "has the host of the address, not 'other.example'",
    ),
    "no certificate for a server that wants one": (
        "{port: 1, policyServerCaProvider: c}",
        f"{{{REMOTE}, clientCertFile: /e.crt, clientKeyFile: /e.key}}",
        "has a client certificate",
    ),
    "TLS over a socket": (
        "{port: 1, policyServerCaProvider: c}",
        "{address: 'unix:/s', caFile: /ca.pem, serverName: s}",
        "has the host of the address, not 's'",
    ),
}


@pytest.mark.parametrize(("grpc", "server", "words"), UNASKABLE.values(), ids=UNASKABLE.keys())
def test_who_cannot_ask_the_policy_server_serves_nobody(grpc: str, server: str, words: str) -> None:
    written = configuration(f"{{policyServer: {server}}}")
    world = World([backend(grpc), policy(), written])
    for made in (world.graph.grpc_servers, servers(backend(grpc), written)):
        assert [each.authorization for each in made] == [Closed()]
    [(reason, message)] = world.problems("Backend")
    assert reason == "PolicyServerNotValid"
    assert words in message
    conditions = conditions_of(world, NoProxy())
    assert [conditions[each] for each in ("ResolvedRefs", "Programmed")] == [
        ("False", "PolicyServerNotValid"),
        ("False", "NotValid"),
    ]


def test_certificates_that_nobody_can_show_are_worth_a_warning() -> None:
    for grpc, wanted in (
        ("{port: 1}", ["SourceNeverMatches"]),
        ("{port: 1, tls: {certificateProvider: a}}", ["SourceNeverMatches"]),
        ("{port: 1, tls: {certificateProvider: a, clientCaProvider: a}}", []),
    ):
        world = World([backend(grpc), policy()])
        assert [reason for reason, _ in world.problems("Backend", severity=Severity.WARNING)] == wanted


def test_no_gateway_leads_to_a_server() -> None:
    assert World([backend()]).graph.gateways == ()
    gateway = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {listeners: [{name: web, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{group: agentic.networking.x-k8s.io, kind: Backend, name: cart}]}]
"""
    world = World([backend(), gateway, ECHO])
    assert world.problems("HTTPRoute") == [
        (
            "BackendNotFound",
            'Backend "default/cart" is a gRPC server, but a Gateway serves only MCP servers. Use a '
            "Backend of type MCP.",
        )
    ]


def test_a_configuration_that_cannot_be_used_closes_every_server() -> None:
    world = World([backend(), configuration("{policyServer: {address: nowhere}}")])
    assert [each.authorization for each in world.graph.grpc_servers] == [Closed()]
    assert conditions_of(world, NoProxy())["Programmed"] == ("False", "ConfigurationNotValid")


def test_a_server_shows_its_certificate_to_a_policy_server_that_wants_one() -> None:
    written = "{port: 50051, policyServerCaProvider: c, policyServerCertificateProvider: d}"
    remote = configuration(f"{{policyServer: {{{REMOTE}, clientCertFile: /e.crt, clientKeyFile: /e.key}}}}")
    [made] = servers(backend(written), policy(), remote)
    assert isinstance(made.authorization, Judged)
    assert (made.authorization.check.ca, made.authorization.check.own) == ("c", "d")


def test_of_several_policy_servers_the_first_is_used_with_a_warning() -> None:
    two = configuration("{policyServer: {addresses: ['127.0.0.1:1', '127.0.0.1:2']}}")
    world = World([backend(), policy(), two])
    [made] = world.graph.grpc_servers
    assert isinstance(made.authorization, Judged)
    assert made.authorization.check.target == "ipv4:127.0.0.1:1"
    assert "PolicyServerFirstAddress" in dict(world.problems("Backend", severity=Severity.WARNING))


# --- Status


def conditions_of(world: World, programming: Programming) -> dict[str, tuple[str, str]]:
    [found] = [each for each in world.generation.status(programming) if each.ref == CART]
    return {each.type: (each.status, each.reason) for each in found.conditions}


ACCEPTED = ServerAnswers(asked=frozenset({LISTENER}))
ANSWERS: dict[str, tuple[Programming, tuple[str, str]]] = {
    "no control plane": (NotServed(), ("Unknown", "NotServed")),
    "nobody is there": (NoProxy(), ("Unknown", "NoServerConnected")),
    "only a proxy is there": (Answered(), ("Unknown", "NoServerConnected")),
    "another server is there": (
        NoProxy(ServerAnswers(asked=frozenset({(TypeUrl.LISTENER, "grpc/default/other/0.0.0.0:1")}))),
        ("Unknown", "NoServerConnected"),
    ),
    "it has not answered": (
        NoProxy(ServerAnswers(asked=frozenset({LISTENER}), pending=frozenset({LISTENER}))),
        ("Unknown", "Pending"),
    ),
    "it refuses": (
        Answered(servers=ServerAnswers(asked=frozenset({LISTENER}), refused={LISTENER: "no"})),
        ("False", "Rejected"),
    ),
    "it accepts": (NoProxy(ACCEPTED), ("True", "Programmed")),
    "what proxies say does not count": (
        Answered(pending=frozenset({LISTENER}), refused={LISTENER: "no"}, servers=ACCEPTED),
        ("True", "Programmed"),
    ),
}


@pytest.mark.parametrize(("programming", "wanted"), ANSWERS.values(), ids=ANSWERS.keys())
def test_a_backend_is_programmed_when_its_servers_say_so(programming: Programming, wanted: tuple[str, str]) -> None:
    world = World([backend(), policy()])
    conditions = conditions_of(world, programming)
    assert conditions == {
        "ResolvedRefs": ("True", "ResolvedRefs"),
        "Protected": ("True", "Protected"),
        "Programmed": wanted,
    }
