"""``policyServer`` of the configuration: where it is, whom Envoy believes there, and what Envoy shows."""

from datetime import timedelta
from typing import NamedTuple

import pytest
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.resources.contour_documents import World

from authplane.controlplane.graph.model.port_model import Certificate
from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    CheckedBody,
    FailClosed,
    OverGrpc,
)
from authplane.controlplane.graph.model.upstreams import (
    Breakers,
    CaFile,
    CertificateFiles,
    ExtensionCluster,
    ExternalName,
    HttpVersion,
    Plaintext,
    SocketFile,
    VerifiedTls,
)
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.upstreams.policy_connection import (
    LOCAL_POLICY_SERVER,
    OverSocket,
    OverTcp,
    PolicyServer,
    Where,
    policy_cluster,
    policy_service,
    read_policy_server,
)
from authplane.controlplane.status.policy_server_status import Trial, Tried, policy_server_condition
from authplane.core.names import ObjectName
from authplane.core.timeouts import After, Timeout

FILES = "caFile: /ca.crt, clientCertFile: /edge.crt, clientKeyFile: /edge.key"
CLIENT = ObjectName("", "policy-client")


def read(written: str) -> tuple[PolicyServer, list[str]]:
    """Return what becomes of ``policyServer``, and the paths of what is wrong with it."""
    documents = f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec: {{policyServer: {{{written}}}}}
"""
    world = World([documents, ca_secret("ca"), tls_secret("edge", server("edge"))])
    reports = Reports()
    found = read_policy_server(world.generation.loaded.resources, reports)
    problems = [each for problems in reports.found().values() for each in problems]
    assert {each.reason for each in problems} <= {"PolicyServerNotValid"}
    return found, [".".join(map(str, each.path)).removeprefix("spec.policyServer") for each in problems]


class Case(NamedTuple):
    written: str
    addresses: tuple[Where, ...]
    names: tuple[str, ...] = ()
    client: ObjectName | None = None


CASES = {
    "one address": Case("address: '127.0.0.1:1'", (OverTcp("127.0.0.1", 1),)),
    "no address": Case("timeout: 1s", (OverTcp("127.0.0.1", 9443),)),
    "two sockets": Case("addresses: ['unix:/a', 'unix:/b']", (OverSocket("/a"), OverSocket("/b"))),
    "files": Case(f"address: 'p.example:1', {FILES}", (OverTcp("p.example", 1),), ("p.example",), CLIENT),
    "a Secret": Case(
        "address: 'p.example:1', caFile: /ca.crt, clientSecret: {name: edge, namespace: default}",
        (OverTcp("p.example", 1),),
        ("p.example",),
        ObjectName("default", "edge"),
    ),
    "two ports of a host share its name": Case(
        f"addresses: ['p.example:1', 'p.example:2'], {FILES}",
        (OverTcp("p.example", 1), OverTcp("p.example", 2)),
        ("p.example",),
        CLIENT,
    ),
    "two hosts with one name": Case(
        f"addresses: ['10.0.0.1:1', '10.0.0.2:1'], serverName: p.example, {FILES}",
        (OverTcp("10.0.0.1", 1), OverTcp("10.0.0.2", 1)),
        ("p.example",),
        CLIENT,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_written_is_how_envoy_connects(case: Case) -> None:
    found, problems = read(case.written)
    assert (problems, found.addresses) == ([], case.addresses)
    match found.tls:
        case VerifiedTls(subject_names=names, server_name=name, client_certificate=client):
            assert (names, (name,), client) == (case.names, case.names, case.client)
            assert found.client is None or found.client.name == client
        case Plaintext():
            assert (case.names, case.client, found.client) == ((), None, None)


MISTAKES = {
    "an address and addresses": ("address: 'unix:/a', addresses: ['unix:/b']", [".addresses"]),
    "an address twice": ("addresses: ['unix:/a', 'unix:/a']", [".addresses"]),
    "a socket and a host": ("addresses: ['unix:/a', '127.0.0.1:1']", [".addresses"]),
    "no address": ("addresses: ['127.0.0.1:1', nowhere]", [".addresses.1"]),
    "one of two is elsewhere, without a CA": ("addresses: ['127.0.0.1:1', '10.0.0.1:1']", [""]),
    "two hosts without a name": ("addresses: ['10.0.0.1:1', '10.0.0.2:1'], caFile: /ca.crt", [".serverName"]),
    "a certificate without a key": ("caFile: /ca.crt, clientCertFile: /edge.crt", [".clientKeyFile"]),
    "a key without a certificate": ("caFile: /ca.crt, clientKeyFile: /edge.key", [".clientCertFile"]),
    "files and a Secret": (f"{FILES}, clientSecret: {{name: edge, namespace: default}}", [".clientSecret"]),
    "a Secret that is missing": ("caFile: /c, clientSecret: {name: no, namespace: default}", [".clientSecret"]),
    "a Secret without a key": ("caFile: /c, clientSecret: {name: ca, namespace: default}", [".clientSecret"]),
    "a certificate without TLS": ("clientCertFile: /edge.crt, clientKeyFile: /edge.key", [".clientCertFile"]),
    "a Secret without TLS": ("clientSecret: {name: edge, namespace: default}", [".clientSecret"]),
}


@pytest.mark.parametrize(("written", "paths"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named_by_its_field(written: str, paths: list[str]) -> None:
    assert read(written)[1] == paths


LONGEST = f"/{'a' * 106}"
ADDRESSES: dict[str, Where] = {
    "127.0.0.1:1": OverTcp("127.0.0.1", 1),
    "127.0.0.1:65535": OverTcp("127.0.0.1", 65535),
    "localhost:9": OverTcp("localhost", 9),
    "[::1]:9": OverTcp("::1", 9),
    f"unix:{LONGEST}": OverSocket(LONGEST),
}


@pytest.mark.parametrize(("address", "where"), ADDRESSES.items(), ids=str)
def test_an_address_is_a_host_and_a_port_or_a_socket(address: str, where: Where) -> None:
    found, problems = read(f"address: '{address}'")
    assert (found.addresses, problems) == ((where,), [])


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1", "127.0.0.1:", ":9", "127.0.0.1:x", "127.0.0.1:-1", "a b:9",
        "::1:9", "[localhost]:9", "http://localhost:9", "unix:", "unix:a", f"unix:{LONGEST}a",
    ],
)  # fmt: skip
def test_what_is_no_address_is_said(address: str) -> None:
    # Port 1 of this machine stands for it, where nobody is: no other host is asked.
    found, problems = read(f"address: '{address}'")
    assert problems == [".address"]
    assert found.addresses == (
        OverSocket(address.removeprefix("unix:")) if address.startswith("unix:") else OverTcp("127.0.0.1", 1),
    )


TIMEOUTS: dict[str, tuple[Timeout, list[str]]] = {
    "": (After(timedelta(seconds=5)), []),
    "timeout: 2s": (After(timedelta(seconds=2)), []),
    "timeout: ''": (After(timedelta(seconds=5)), []),
    "timeout: infinity": (After(timedelta(seconds=5)), [".timeout"]),
    "timeout: soon": (After(timedelta(seconds=5)), [".timeout"]),
}


@pytest.mark.parametrize(("written", "wanted"), TIMEOUTS.items(), ids=str)
def test_a_decision_never_takes_for_ever(written: str, wanted: tuple[Timeout, list[str]]) -> None:
    found, problems = read(written)
    assert (found.timeout, problems) == wanted


def test_a_policy_server_is_asked_with_the_whole_body_and_silence_closes() -> None:
    assert policy_service(LOCAL_POLICY_SERVER, 7) == AuthorizationService(
        cluster="authplane/policy",
        protocol=OverGrpc(authority="authplane.policy", retried=True),
        timeout=After(timedelta(seconds=5)),
        on_failure=FailClosed(status=503),
        body=CheckedBody(most_bytes=7, partial=False, as_bytes=True),
        by_policies=True,
    )


def test_the_cluster_of_a_policy_server() -> None:
    ours = ObjectName("", "policy")
    assert policy_cluster(LOCAL_POLICY_SERVER) == ExtensionCluster(
        name="authplane/policy",
        object_name=ours,
        version=HttpVersion.HTTP2,
        tls=Plaintext(),
        destinations=(
            ExternalName(service=ours, weight=1, host="127.0.0.1", port=9443, ipv4_first=True, searched=True),
        ),
        authority="authplane.policy",
        response_timeout=After(timedelta(seconds=5)),
        breakers=Breakers(retries=1024),
        keepalive=True,
    )
    socket, _ = read("address: 'unix:/a'")
    assert policy_cluster(socket).destinations == (SocketFile(service=ours, weight=1, path="/a"),)


def test_only_several_servers_are_asked_for_their_health() -> None:
    one, _ = read("address: 'unix:/a'")
    two, _ = read("addresses: ['127.0.0.1:1', '127.0.0.1:2']")
    assert [policy_cluster(each).health_checks for each in (one, two)] == [False, True]
    assert [type(each) for each in policy_cluster(one).destinations] == [SocketFile]
    assert [type(each) for each in policy_cluster(two).destinations] == [ExternalName] * 2


def test_what_is_in_a_secret_goes_to_envoy_and_what_is_in_files_does_not() -> None:
    by_secret, _ = read("caSecret: {name: ca, namespace: default}, clientSecret: {name: edge, namespace: default}")
    assert isinstance(by_secret.client, Certificate)
    by_files, _ = read(FILES)
    assert by_files.client == CertificateFiles(name=CLIENT, chain="/edge.crt", key="/edge.key")
    assert isinstance(by_files.tls, VerifiedTls)
    assert by_files.tls.ca == CaFile("/ca.crt")


def tried(*trials: Trial) -> list[Tried]:
    return [Tried(address=f"p{number}:1", trial=trial, why=trial.value) for number, trial in enumerate(trials)]


CONDITIONS = {
    "all is well": ((Trial.ACCEPTED, Trial.ACCEPTED), "True", "AcceptsConnections"),
    "a refused certificate counts most": ((Trial.UNREACHABLE, Trial.HANDSHAKE), "False", "HandshakeFailed"),
    "one of two": ((Trial.ACCEPTED, Trial.UNREACHABLE), "False", "Unreachable"),
    "nothing known": ((Trial.NOT_TRIED,), "Unknown", "NotTried"),
    "a failure counts more than not knowing": ((Trial.NOT_TRIED, Trial.UNREACHABLE), "False", "Unreachable"),
}


@pytest.mark.parametrize(("trials", "status", "reason"), CONDITIONS.values(), ids=CONDITIONS.keys())
def test_status_says_what_was_tried(trials: tuple[Trial, ...], status: str, reason: str) -> None:
    condition = policy_server_condition(tried(*trials))
    assert (condition.type, condition.status, condition.reason) == ("PolicyServerReady", status, reason)
    assert all(f"p{number}:1" in condition.message for number in range(len(trials)))
