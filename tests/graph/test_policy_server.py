"""``policyServer`` of the configuration: where it is, whom Envoy believes there, and what Envoy shows."""

from typing import NamedTuple

import pytest
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.world import World

from authplane.base.names import ObjectName
from authplane.graph.model import Certificate
from authplane.graph.policy_server import OverSocket, OverTcp, PolicyServer, Where, policy_cluster, read_policy_server
from authplane.graph.policy_server_status import Trial, Tried, policy_server_condition
from authplane.graph.reports import Reports
from authplane.graph.upstreams import CaFile, CertificateFiles, ExternalName, Plaintext, SocketFile, VerifiedTls

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
