"""Virtual hosts, their certificates, routes and endpoints."""

import base64
import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.support.certificates import authority, ca_secret, server, tls_secret
from tests.support.resources.contour_documents import ECHO, PROXY, whole, world
from tests.support.resources.graph_views import plain_hosts, secure_hosts

from authplane.controlplane.graph.model.match_model import Exact, Prefix
from authplane.controlplane.graph.model.port_model import Address
from authplane.controlplane.graph.model.route_authorization import Enforced, Unprotected
from authplane.controlplane.graph.model.route_model import Forward, RedirectToHttps, Respond, Target
from authplane.controlplane.graph.model.upstreams import EndpointGroup, ServiceCluster
from authplane.controlplane.render.dump import dump
from authplane.core.names import ObjectName
from authplane.core.secret import Secret
from authplane.devkit.identities.throwaway_certificates import KeyPair
from authplane.resources.service_endpoints import Endpoint

TLS = "    tls: {secretName: tls}\n"
AUTHORIZATION = "    authorization:\n      extensionRef: {name: auth}\n"
ROUTE = "  - services:\n    - {name: echo, port: 80}\n"
PLAIN = PROXY.replace(TLS, "").replace(AUTHORIZATION, "")


def test_a_host_behind_tls_redirects_on_http() -> None:
    plain = world().plain()
    assert plain is not None
    assert [(route.match.path, route.action, route.authorization) for route in plain.routes] == [
        (Prefix("/"), RedirectToHttps(443, "web.example"), Unprotected())
    ]


def test_a_plain_host_is_served_on_http_only() -> None:
    made = world(proxy=PLAIN)
    plain = made.plain()
    assert plain is not None
    assert plain.routes[0].action == Forward(targets=(Target(cluster="service/default/echo/80", weight=1),))
    assert secure_hosts(made.graph) == ()


@pytest.mark.requirement("RB-2")
def test_a_host_name_in_two_proxies_withdraws_both() -> None:
    made = world(other=PROXY.replace("{name: web}", "{name: other}"))
    message = 'fqdn "web.example" is used in multiple HTTPProxies: default/other, default/web'
    assert made.problems("HTTPProxy", "web") == [("DuplicateVhost", message)]
    assert made.problems("HTTPProxy", "other") == [("DuplicateVhost", message)]


def test_a_host_name_in_many_proxies_names_some_of_them_to_each() -> None:
    many = {f"p{number}": PROXY.replace("{name: web}", f"{{name: p{number}}}") for number in range(10, 40)}
    names = ", ".join(f"default/p{number}" for number in range(10, 30))
    made = world(proxy="", **many)
    message = f'fqdn "web.example" is used in multiple HTTPProxies: {names} and 10 more'
    assert made.problems("HTTPProxy") == [("DuplicateVhost", message)] * 30
    assert secure_hosts(made.graph) == ()
    assert plain_hosts(made.graph) == ()


@pytest.mark.requirement("RB-3")
def test_a_proxy_without_a_host_is_orphaned() -> None:
    made = world(proxy="apiVersion: projectcontour.io/v1\nkind: HTTPProxy\nmetadata: {name: web}\nspec: {}\n")
    assert made.problems("HTTPProxy") == [
        ("Orphaned", "this HTTPProxy is not part of a delegation chain from a root HTTPProxy")
    ]


@pytest.mark.parametrize("fqdn", ["web example", "-web.example", "web..example", "http://web.example", "*"])
def test_a_name_that_is_no_host_name_is_refused(fqdn: str) -> None:
    made = world(proxy=PROXY.replace("fqdn: web.example", f"fqdn: '{fqdn}'"))
    assert made.problems("HTTPProxy") == [
        ("FQDNNotValid", f"{fqdn!r} is not a host name. Use one such as 'www.example.com'.")
    ]
    assert made.status("HTTPProxy", "web").conditions[0].errors[0].type == "VirtualHostError"
    assert secure_hosts(made.graph) == ()


def test_a_name_in_capitals_is_refused_as_the_api_server_does_and_keeps_its_name() -> None:
    made = world(
        proxy=PROXY.replace("fqdn: web.example", "fqdn: Web.Example"), other=PROXY.replace("name: web}", "name: b}")
    )
    assert ("FQDNNotValid", "'Web.Example' is not in lower case. Write 'web.example'.") in made.problems(
        "HTTPProxy", "web"
    )
    assert [reason for reason, _ in made.problems("HTTPProxy", "b")] == ["DuplicateVhost"]
    assert secure_hosts(made.graph) == ()


def test_a_blank_name_is_not_specified() -> None:
    made = world(proxy=PROXY.replace("fqdn: web.example", "fqdn: ' '"))
    assert made.problems("HTTPProxy") == [("FQDNNotSpecified", "Spec.VirtualHost.Fqdn must be specified. Set it.")]


def secret_problem(secret: str) -> str:
    made = world(secrets=whole()["secrets"].split("---")[-1] if "ca.crt" in secret else secret)
    [message] = [message for reason, message in made.problems("HTTPProxy") if reason == "SecretNotValid"]
    return message.removeprefix('Spec.VirtualHost.TLS Secret "default/tls" is invalid: ').removesuffix(
        ". Correct the Secret."
    )


def test_a_certificate_that_cannot_be_used_withdraws_the_host() -> None:
    good = server("web.example")
    other = server("other.example")
    mixed = KeyPair(certificate=good.certificate, key=other.key)
    raw = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    cases = {
        "": "Secret not found. Add the Secret.",
        tls_secret("tls", good).replace("kubernetes.io/tls", "Opaque"): 'Secret type is not "kubernetes.io/tls"',
        tls_secret("tls", good).replace("tls.key", "tls.kay"): 'empty "tls.key" key',
        tls_secret("tls", good).replace("tls.crt", "tls.cert"): 'empty "tls.crt" key',
        tls_secret("tls", mixed): "the TLS private key does not belong to the certificate",
        tls_secret("tls", KeyPair(certificate=good.certificate, key=Secret(b"nonsense"))): "invalid TLS private key",
        tls_secret("tls", KeyPair(certificate=good.certificate, key=Secret(raw))): (
            "the TLS private key does not belong to the certificate"
        ),
    }
    for secret, want in cases.items():
        assert secret_problem(secret) == want


def test_a_certificate_that_is_none_is_named() -> None:
    broken = KeyPair(certificate=b"nonsense", key=server("web.example").key)
    assert secret_problem(tls_secret("tls", broken)).startswith("invalid TLS certificate: ")


def test_a_private_key_among_the_certificates_is_not_passed_on() -> None:
    good = server("web.example")
    both = KeyPair(certificate=good.certificate + good.key.reveal(), key=good.key)
    ca = ca_secret("ca", KeyPair(certificate=authority().certificate + authority().key.reveal(), key=good.key))
    made = world(secrets="---".join([tls_secret("tls", both), ca]))
    assert made.problems("HTTPProxy") == []
    shown = json.dumps(dump(made.generation.rendered, show_secrets=False))
    assert base64.b64encode(b"PRIVATE KEY")[:-4].decode() not in shown
    for each in re.findall(r'"inlineBytes": "([^"]*)"', shown):
        assert b"PRIVATE" not in base64.b64decode(each + "==")


ODD = {
    "a key for encryption only": "usage",
    "one that demands stapling": "staple",
    "a curve that is not known": "curve",
}


@pytest.mark.parametrize("kind", ODD.values(), ids=ODD.keys())
def test_a_certificate_that_envoy_refuses_is_refused_before(kind: str) -> None:
    assert secret_problem(tls_secret("tls", odd_certificate(kind))).startswith("invalid TLS certificate: ")


def odd_certificate(kind: str) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256K1() if kind == "curve" else ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "web.example")])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
    )
    if kind == "staple":
        builder = builder.add_extension(x509.TLSFeature([x509.TLSFeatureType.status_request]), critical=False)
    if kind == "usage":
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=True,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=False,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(certificate=builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM), key=Secret(pem))


def test_a_certificate_of_a_version_that_does_not_exist_is_one_problem() -> None:
    good = server("web.example")
    der = x509.load_pem_x509_certificate(good.certificate).public_bytes(Encoding.DER)
    assert der.count(bytes([0xA0, 3, 2, 1, 2])) == 1
    body = base64.encodebytes(der.replace(bytes([0xA0, 3, 2, 1, 2]), bytes([0xA0, 3, 2, 1, 9]))).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n".encode()
    assert secret_problem(tls_secret("tls", KeyPair(certificate=pem, key=good.key))) == (
        "invalid TLS certificate: it cannot be read"
    )


def test_a_certificate_of_another_namespace_is_not_permitted() -> None:
    made = world(proxy=PROXY.replace("secretName: tls", "secretName: other/tls"))
    assert made.problems("HTTPProxy") == [
        (
            "DelegationNotPermitted",
            'Spec.VirtualHost.TLS Secret "other/tls" certificate delegation not permitted. '
            "Add a TLSCertificateDelegation for this namespace in the Secret's namespace.",
        )
    ]
    assert made.secure() is None


def test_every_problem_of_a_proxy_is_reported_at_once() -> None:
    proxy = PROXY.replace("secretName: tls", "secretName: missing").replace("name: auth", "name: missing")
    made = world(proxy=proxy.replace("name: echo", "name: missing"))
    assert sorted(reason for reason, _ in made.problems("HTTPProxy")) == [
        "ExtensionServiceNotFound",
        "SecretNotValid",
        "ServiceUnresolvedReference",
    ]


def test_the_more_specific_route_comes_first() -> None:
    routes = "".join(
        f"  - conditions: [{{{condition}}}]\n    services: [{{name: echo, port: 80}}]\n"
        for condition in ("prefix: /", "prefix: /api", "exact: /api", "prefix: /api/v1")
    )
    made = world(proxy=PROXY.replace(ROUTE, routes))
    secure = made.secure()
    assert secure is not None
    assert [route.match.path for route in secure.host.routes] == [
        Exact("/api"),
        Prefix("/api/v1"),
        Prefix("/api"),
        Prefix("/"),
    ]


BAD_CONDITIONS = {
    "no slash": (
        "[{prefix: api}]",
        "route: prefix conditions must start with /, api was supplied. Add a slash in front.",
    ),
    "two of them": (
        "[{prefix: /a}, {prefix: /b}]",
        "route: more than one prefix, exact or regex is not allowed in a condition block. Remove all but one.",
    ),
}


@pytest.mark.parametrize(("conditions", "message"), BAD_CONDITIONS.values(), ids=BAD_CONDITIONS.keys())
def test_path_conditions_that_make_no_sense_withdraw_the_host(conditions: str, message: str) -> None:
    made = world(proxy=PROXY.replace("  - services:", f"  - conditions: {conditions}\n    services:"))
    assert made.problems("HTTPProxy") == [("PathMatchConditionsNotValid", message)]
    assert made.secure() is None


def test_of_two_routes_with_one_match_the_later_one_is_served() -> None:
    answer = "  - directResponsePolicy: {statusCode: 204}\n"
    made = world(proxy=PROXY.replace(ROUTE, ROUTE + answer))
    assert made.problems("HTTPProxy") == []
    message = "This route gets no requests: routes[1] has the same conditions (/) and comes later, and the last "
    message += "route wins. Remove one of the routes."
    assert made.warnings("HTTPProxy") == [("DuplicateMatchConditions", message)]
    [found] = [each for each in made.generation.findings if each.problem.reason == "DuplicateMatchConditions"]
    assert found.problem.path == ("spec", "routes", 0)
    secure = made.secure()
    assert secure is not None
    assert [type(each.action) for each in secure.host.routes] == [Respond]


def test_a_missing_service_costs_its_route_which_stays_behind_authorization() -> None:
    made = world(echo="")
    assert made.problems("HTTPProxy") == [
        (
            "ServiceUnresolvedReference",
            'Spec.Routes unresolved service reference: service "default/echo" not found',
        )
    ]
    secure = made.secure()
    assert secure is not None
    assert secure.host.routes[0].action == Respond(status=503)
    assert isinstance(secure.host.routes[0].authorization, Enforced)


def test_weights_share_a_route() -> None:
    other = ECHO.replace("echo", "other")
    services = "  - services:\n    - {name: echo, port: 80, weight: 9}\n    - {name: other, port: 80, weight: 1}\n"
    secure = world(proxy=PROXY.replace(ROUTE, services), other=other).secure()
    assert secure is not None
    assert secure.host.routes[0].action == Forward(
        targets=(
            Target(cluster="service/default/echo/80", weight=9),
            Target(cluster="service/default/other/80", weight=1),
        )
    )


def test_weights_that_envoy_cannot_add_up_withdraw_the_host() -> None:
    services = (
        "  - services:\n    - {name: echo, port: 80, weight: 4294967295}\n    - {name: auth, port: 9443, weight: 1}\n"
    )
    made = world(proxy=PROXY.replace(ROUTE, services))
    assert [reason for reason, _ in made.problems("HTTPProxy")] == ["WeightsNotValid"]
    assert made.secure() is None


def test_a_port_with_two_protocols_is_used_over_tcp() -> None:
    made = world(
        echo=ECHO.replace(
            "- {name: http, port: 80}", "- {name: dns, port: 80, protocol: UDP}\n  - {name: http, port: 80}"
        )
    )
    assert made.problems("HTTPProxy") == []


@pytest.mark.parametrize("field", ["authorization", "tls"])
def test_a_protection_that_is_cut_off_is_not_taken_for_none(field: str) -> None:
    cut = {
        "authorization": PROXY.replace("authorization:\n      extensionRef: {name: auth}", "authorization:"),
        "tls": PROXY.replace("tls: {secretName: tls}", "tls:"),
    }[field]
    made = world(proxy=cut)
    assert made.problems("HTTPProxy") == [("FieldInvalid", f"{field!r} has no value. Set a value, or remove the line.")]
    assert (plain_hosts(made.graph), secure_hosts(made.graph)) == ((), ())


def test_an_extension_and_a_service_cannot_share_a_cluster() -> None:
    service = ECHO.replace("{name: echo}", "{name: foo, namespace: extension}").replace(
        "{name: echo-1, labels: {kubernetes.io/service-name: echo}}",
        "{name: foo-1, namespace: extension, labels: {kubernetes.io/service-name: foo}}",
    )
    proxy = PLAIN.replace("{name: web}", "{name: web, namespace: extension}").replace(
        "name: echo, port", "name: foo, port"
    )
    extension = """
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {name: "80", namespace: foo}
spec: {protocol: h2c, services: [{name: foo, port: 80}]}
"""
    other = service.replace("namespace: extension", "namespace: foo")
    made = world(proxy=proxy, service=service, extension=extension, other=other)
    names = [cluster.name for cluster in made.graph.clusters]
    assert names == ["extension/foo/80", "service/extension/foo/80"]


@pytest.mark.requirement("EN-7")
def test_only_ready_endpoints_of_the_right_port_are_used_each_once() -> None:
    slices = """
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: echo-2, labels: {kubernetes.io/service-name: echo}}
addressType: IPv4
endpoints:
- addresses: [10.0.0.1, 10.0.0.9]
- addresses: [10.0.0.3]
  conditions: {ready: false}
- addresses: [10.0.0.4]
  conditions: {ready: true}
- addresses: [not-an-ip, 0.0.0.0]
ports:
- {name: http, port: 8080}
- {name: admin, port: 9}
- {name: http, port: 7, protocol: UDP}
"""
    made = world(more=slices)
    [cluster] = [each for each in made.graph.clusters if isinstance(each, ServiceCluster)]
    [group] = cluster.destinations
    assert isinstance(group, EndpointGroup)
    assert group.service == ObjectName("default", "echo")
    assert group.endpoints == (
        Endpoint("10.0.0.1", 8080),
        Endpoint("10.0.0.4", 8080),
        Endpoint("10.0.0.9", 8080),
    )
    assert [reason for reason, _ in made.warnings("EndpointSlice")] == ["AddressInvalid", "AddressInvalid"]


def test_what_only_a_withdrawn_host_asked_for_is_left_out() -> None:
    made = world(proxy=PROXY.replace("secretName: tls", "secretName: missing"))
    assert [cluster.name for cluster in made.graph.clusters] == ["extension/default/auth"]
    assert made.graph.certificates == ()


def test_the_listeners_are_where_the_configuration_says() -> None:
    configuration = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: here}
spec:
  listeners:
    http: {address: 127.0.0.1, port: 81}
    https: {port: 444}
"""
    made = world(configuration=configuration)
    assert (made.graph.http, made.graph.https) == (Address("127.0.0.1", 81), Address("0.0.0.0", 444))


CONFIGURATION = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: here}
spec:
  listeners:
    https: {address: 127.0.0.1, port: 8443}
"""

BAD_CONFIGURATIONS = {
    "a typo": ("address: 127", "addres: 127", "FieldUnknown"),
    "a host name": ("127.0.0.1", "localhost", "FieldInvalid"),
    "one port for both": ("port: 8443", "port: 8080", "FieldConflict"),
}


@pytest.mark.parametrize(("old", "new", "reason"), BAD_CONFIGURATIONS.values(), ids=BAD_CONFIGURATIONS.keys())
def test_a_configuration_that_cannot_be_used_serves_nothing_instead_of_the_defaults(
    old: str, new: str, reason: str
) -> None:
    made = world(configuration=CONFIGURATION.replace(old, new))
    assert [found for found, _ in made.problems("AuthplaneConfiguration")] == [reason]
    assert made.problems("HTTPProxy") == [
        ("ConfigurationNotValid", "The AuthplaneConfiguration is not valid, so Envoy serves no host. Correct it.")
    ]
    assert (plain_hosts(made.graph), secure_hosts(made.graph)) == ((), ())
