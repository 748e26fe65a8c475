"""What a virtual host agrees with its clients: certificates of both sides, versions, and the fallback certificate."""

from typing import NamedTuple

import pytest
from tests.support.certificates import authority, ca_secret, server, tls_secret
from tests.support.resources.contour_documents import PROXY, World, world
from tests.support.resources.graph_views import elsewhere, fallback, plain_hosts, secure_hosts

from authplane.controlplane.graph.model.host_model import RouteTable, misdirected
from authplane.controlplane.graph.model.port_model import ClientCertificates, Forwarded, TlsChain
from authplane.controlplane.graph.model.programming import Answered
from authplane.controlplane.graph.model.route_authorization import Enforced, Unprotected
from authplane.controlplane.graph.model.route_model import RedirectToHttps
from authplane.controlplane.graph.model.upstreams import TlsLimits
from authplane.controlplane.render.dump import dump
from authplane.core.names import ObjectName
from authplane.xds.server.served_types import TypeUrl

TLS = "tls: {secretName: tls}"
AUTHORIZATION = "    authorization:\n      extensionRef: {name: auth}\n"
OPEN = PROXY.replace(AUTHORIZATION, "")
CA = authority().certificate
INVALID = "Spec.VirtualHost.TLS client validation is invalid: "


def with_tls(fields: str, proxy: str = OPEN) -> str:
    return proxy.replace(TLS, f"tls: {{secretName: tls, {fields}}}")


def crl_secret(namespace: str = "default") -> str:
    return f"""
apiVersion: v1
kind: Secret
metadata: {{name: crl, namespace: {namespace}}}
stringData:
  crl.pem: |
    -----BEGIN X509 CRL-----
    MIHNMHQCAQEwCgYIKoZIzj0EAwIwEDEOMAwGA1UEAwwFdGVzdHMXDTI2MDEwMTAw
    nonsense
    -----END X509 CRL-----
"""


def delegation(secret: str, namespace: str = "secrets", target: str = "default") -> str:
    return f"""
apiVersion: projectcontour.io/v1
kind: TLSCertificateDelegation
metadata: {{name: {secret}, namespace: {namespace}}}
spec:
  delegations:
  - {{secretName: {secret}, targetNamespaces: ["{target}"]}}
"""


def configuration(
    fields: str = "", httpproxy: str = "{fallbackCertificate: {name: fallback, namespace: default}}"
) -> str:
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: here}}
spec:
  contour: {{httpproxy: {httpproxy}, {fields}}}
"""


# --- Versions and the certificate


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ("", ("1.2", "1.3")),
        ("minimumProtocolVersion: '1.3'", ("1.3", "1.3")),
        ("maximumProtocolVersion: '1.2'", ("1.2", "1.2")),
        ("minimumProtocolVersion: '1.1', maximumProtocolVersion: '1.4'", ("1.2", "1.3")),
    ],
)
def test_versions_of_tls_have_defaults(fields: str, want: tuple[str, str]) -> None:
    secure = world(proxy=with_tls(fields)).secure()
    assert secure is not None
    assert (secure.limits.minimum, secure.limits.maximum) == want


def test_a_version_that_is_none_is_the_default_with_a_warning() -> None:
    made = world(proxy=with_tls("minimumProtocolVersion: '1.1', maximumProtocolVersion: TLSv1.2"))
    assert made.problems("HTTPProxy") == []
    assert made.warnings("HTTPProxy") == [
        ("IgnoredField", '"1.1" is neither 1.2 nor 1.3, so Envoy uses 1.2. Use 1.2 or 1.3.'),
        ("IgnoredField", '"TLSv1.2" is neither 1.2 nor 1.3, so Envoy uses 1.3. Use 1.2 or 1.3.'),
    ]


EVERYWHERE = """
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {{name: contour}}
spec: {{envoy: {{listener: {{tls: {{{0}}}}}}}}}
"""


@pytest.mark.parametrize(
    ("everywhere", "fields", "want"),
    [
        ("minimumProtocolVersion: '1.3'", "", ("1.3", "1.3")),
        ("minimumProtocolVersion: '1.3'", "minimumProtocolVersion: '1.2'", ("1.3", "1.3")),
        ("maximumProtocolVersion: '1.2'", "maximumProtocolVersion: '1.3'", ("1.2", "1.2")),
        ("minimumProtocolVersion: '1.2'", "minimumProtocolVersion: '1.3'", ("1.3", "1.3")),
    ],
)
def test_a_host_can_be_stricter_than_the_installation_and_never_laxer(
    everywhere: str, fields: str, want: tuple[str, str]
) -> None:
    secure = world(proxy=with_tls(fields), settings=EVERYWHERE.format(everywhere)).secure()
    assert secure is not None
    assert (secure.limits.minimum, secure.limits.maximum) == want


def test_a_host_that_contradicts_the_installation_is_withdrawn() -> None:
    made = world(
        proxy=with_tls("maximumProtocolVersion: '1.2'"), settings=EVERYWHERE.format("minimumProtocolVersion: '1.3'")
    )
    message = (
        "Spec.Virtualhost.TLS together with envoy.listener.tls of the configuration: the minimum protocol "
        "version is greater than the maximum protocol version. Change one of them."
    )
    assert made.problems("HTTPProxy") == [("TLSConfigNotValid", message)]
    assert made.secure() is None


def test_versions_and_ciphers_of_the_installation_reach_every_listener() -> None:
    gateway = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {listeners: [{name: a, port: 9443, protocol: HTTPS, tls: {certificateRefs: [{name: tls}]}}]}
"""
    limits = "minimumProtocolVersion: '1.3', cipherSuites: [ECDHE-RSA-AES128-GCM-SHA256]"
    made = world(settings=EVERYWHERE.format(limits), gateway=gateway)
    shown = {
        listener["name"]: chain["transportSocket"]["typedConfig"]["commonTlsContext"]["tlsParams"]
        for listener in dump(made.generation.rendered, show_secrets=False)["listeners"]
        for chain in listener["filterChains"]
        if "transportSocket" in chain
    }
    wanted = {
        "tlsMinimumProtocolVersion": "TLSv1_3",
        "tlsMaximumProtocolVersion": "TLSv1_3",
        "cipherSuites": ["ECDHE-RSA-AES128-GCM-SHA256"],
    }
    assert shown == {"ingress_https": wanted, "gateway/9443": wanted}


@pytest.mark.parametrize("limits", ["minimumProtocolVersion: '1.1'", "cipherSuites: [RC4-SHA]"])
def test_impossible_limits_of_the_installation_are_rejected(limits: str) -> None:
    made = world(settings=EVERYWHERE.format(limits))
    assert [reason for reason, _ in made.problems("ContourConfiguration")] == ["FieldInvalid"]
    assert secure_hosts(made.graph) == ()


def test_a_minimum_above_the_maximum_withdraws_the_host() -> None:
    made = world(proxy=with_tls("minimumProtocolVersion: '1.3', maximumProtocolVersion: '1.2'"))
    assert made.problems("HTTPProxy") == [
        (
            "TLSConfigNotValid",
            "Spec.Virtualhost.TLS the minimum protocol version is greater than the maximum protocol "
            "version. Change one of them.",
        )
    ]
    assert (plain_hosts(made.graph), secure_hosts(made.graph)) == ((), ())


def test_a_delegated_certificate_of_another_namespace_is_used() -> None:
    made = world(
        proxy=OPEN.replace("secretName: tls", "secretName: secrets/shared"),
        shared=tls_secret("shared", server("web.example"), "secrets"),
        delegation=delegation("shared"),
    )
    secure = made.secure()
    assert secure is not None
    assert secure.certificate == ObjectName("secrets", "shared")
    assert [certificate.name for certificate in made.graph.certificates] == [ObjectName("secrets", "shared")]


BAD_TLS = {
    "neither": (
        "tls: {}",
        [
            (
                "TLSConfigNotValid",
                "Spec.VirtualHost.TLS: neither Passthrough nor SecretName were specified. Set secretName.",
            )
        ],
    ),
    "passthrough": (
        "tls: {passthrough: true}",
        [("TLSConfigNotValid", "Spec.VirtualHost.TLS passthrough is not supported. Set secretName instead.")],
    ),
    "everything at once": (
        "tls: {passthrough: true, secretName: tls, enableFallbackCertificate: true, clientValidation: {caSecret: ca}}",
        [
            ("TLSConfigNotValid", "Spec.VirtualHost.TLS passthrough is not supported. Set secretName instead."),
            (
                "TLSIncompatibleFeatures",
                "Spec.VirtualHost.TLS: both Passthrough and enableFallbackCertificate were specified. "
                "Remove one of them.",
            ),
            (
                "TLSIncompatibleFeatures",
                "Spec.VirtualHost.TLS passthrough cannot be combined with tls.clientValidation. Remove one of them.",
            ),
            (
                "TLSIncompatibleFeatures",
                "Spec.Virtualhost.TLS fallback & client validation are incompatible. Remove one of them.",
            ),
            (
                "TLSConfigNotValid",
                "Spec.VirtualHost.TLS: both Passthrough and SecretName were specified. Remove passthrough.",
            ),
            (
                "FallbackNotPresent",
                "Spec.Virtualhost.TLS enabled fallback but the fallback Certificate Secret is not "
                "configured in Contour configuration file. Set tls.fallback-certificate there.",
            ),
        ],
    ),
}


@pytest.mark.parametrize(("tls", "want"), BAD_TLS.values(), ids=BAD_TLS.keys())
def test_tls_that_does_not_fit_together_withdraws_the_host(tls: str, want: list[tuple[str, str]]) -> None:
    made = world(proxy=OPEN.replace(TLS, tls))
    assert sorted(made.problems("HTTPProxy")) == sorted(want)
    assert (plain_hosts(made.graph), secure_hosts(made.graph)) == ((), ())


@pytest.mark.requirement("AZ-7")
def test_authorization_of_connections_that_are_passed_through_is_refused() -> None:
    made = world(proxy=PROXY.replace(TLS, "tls: {passthrough: true}"))
    assert "AuthNotPermitted" in [reason for reason, _ in made.problems("HTTPProxy")]
    assert (plain_hosts(made.graph), secure_hosts(made.graph)) == ((), ())


@pytest.mark.requirement("AZ-7")
def test_authorization_of_connections_that_are_passed_on_is_refused() -> None:
    tcp = "  tcpproxy:\n    services: [{name: echo, port: 80}]\n"
    made = world(proxy=PROXY + tcp)
    assert sorted(made.problems("HTTPProxy")) == [
        (
            "AuthNotPermitted",
            "Spec.VirtualHost.Authorization cannot be enforced on the connections of Spec.TCPProxy. "
            "Remove one of them.",
        ),
        ("TCPProxyNotSupported", "Spec.TCPProxy is not supported. Remove it."),
    ]
    assert (plain_hosts(made.graph), secure_hosts(made.graph)) == ((), ())
    assert world(proxy=OPEN + tcp).problems("HTTPProxy") == [
        ("TCPProxyNotSupported", "Spec.TCPProxy is not supported. Remove it.")
    ]


# --- Certificates of clients


class Clients(NamedTuple):
    fields: str
    want: ClientCertificates
    warning: str = ""


CLIENTS = {
    "demanded": Clients("caSecret: ca", ClientCertificates(ca=CA)),
    "optional": Clients("caSecret: ca, optionalClientCertificate: true", ClientCertificates(ca=CA, required=False)),
    "told": Clients(
        "caSecret: ca, forwardClientCertificate: {subject: true, cert: true, chain: true, dns: true, uri: true}",
        ClientCertificates(ca=CA, forwarded=Forwarded(subject=True, certificate=True, chain=True, dns=True, uri=True)),
    ),
    "told nothing but that there is one": Clients(
        "caSecret: ca, forwardClientCertificate: {}", ClientCertificates(ca=CA, forwarded=Forwarded())
    ),
    "not verified": Clients(
        "caSecret: ca, skipClientCertValidation: true",
        ClientCertificates(ca=CA, verified=False),
        "Envoy does not verify client certificates. Ignore this if intended.",
    ),
    "not verified and not demanded, for lack of a CA": Clients(
        "skipClientCertValidation: true",
        ClientCertificates(ca=None, verified=False, required=False),
        "Envoy does not verify client certificates, and clients can connect without one. Ignore this if intended.",
    ),
    "not verified and told": Clients(
        "caSecret: ca, skipClientCertValidation: true, forwardClientCertificate: {uri: true}",
        ClientCertificates(ca=CA, verified=False, forwarded=Forwarded(uri=True)),
        "Envoy does not verify client certificates. Clients can forge the certificate details that Envoy forwards. "
        "Ignore this if intended.",
    ),
}


@pytest.mark.parametrize("case", CLIENTS.values(), ids=CLIENTS.keys())
def test_client_certificates_are_requested(case: Clients) -> None:
    made = world(proxy=with_tls(f"clientValidation: {{{case.fields}}}"))
    secure = made.secure()
    assert secure is not None
    assert secure.clients == case.want
    assert made.warnings("HTTPProxy") == ([("ClientNotVerified", case.warning)] if case.warning else [])
    assert made.status("HTTPProxy", "web").conditions[0].status == "True"


def test_a_delegated_ca_is_used() -> None:
    made = world(
        proxy=with_tls("clientValidation: {caSecret: secrets/clients}"),
        clients=ca_secret("clients", namespace="secrets"),
        delegation=delegation("clients", target="*"),
    )
    secure = made.secure()
    assert secure is not None
    assert secure.clients == ClientCertificates(ca=CA)


def test_leaf_only_without_a_list_is_reported_to_have_no_effect() -> None:
    made = world(proxy=with_tls("clientValidation: {caSecret: ca, crlOnlyVerifyLeafCert: true}"))
    assert made.warnings("HTTPProxy") == [
        ("IgnoredField", "This field has no effect without a CRL. Set crlSecret, or remove this field.")
    ]


BAD_CLIENTS = {
    "no CA": (
        "{optionalClientCertificate: true}",
        "ClientValidationInvalid",
        f"{INVALID}CA Secret must be specified. Set caSecret.",
    ),
    "no such CA": (
        "{caSecret: missing}",
        "ClientValidationInvalid",
        f'{INVALID}invalid CA Secret "default/missing": Secret not found. Add the Secret.',
    ),
    "a CA of others": (
        "{caSecret: other/ca}",
        "DelegationNotPermitted",
        'Spec.VirtualHost.TLS CA Secret "other/ca" is invalid: Certificate delegation not permitted. '
        "Add a TLSCertificateDelegation for this namespace in the Secret's namespace.",
    ),
    "no such list": (
        "{caSecret: ca, crlSecret: missing}",
        "ClientValidationInvalid",
        f'{INVALID}invalid CRL Secret "default/missing": Secret not found. Add the Secret.',
    ),
    "a list of others": (
        "{caSecret: ca, crlSecret: other/crl}",
        "DelegationNotPermitted",
        'Spec.VirtualHost.TLS CRL Secret "other/crl" is invalid: Certificate delegation not '
        "permitted. Add a TLSCertificateDelegation for this namespace in the Secret's namespace.",
    ),
    "a broken list": (
        "{caSecret: ca, crlSecret: crl}",
        "ClientValidationInvalid",
        f'{INVALID}invalid CRL Secret "default/crl": invalid CRL: it has no readable certificate '
        "revocation lists. Correct the Secret.",
    ),
}


@pytest.mark.parametrize(("given", "reason", "message"), BAD_CLIENTS.values(), ids=BAD_CLIENTS.keys())
def test_a_demand_for_certificates_that_cannot_be_made_withdraws_the_host(
    given: str, reason: str, message: str
) -> None:
    made = world(proxy=with_tls(f"clientValidation: {given}"), crl=crl_secret())
    assert made.problems("HTTPProxy") == [(reason, message)]
    assert (plain_hosts(made.graph), secure_hosts(made.graph)) == ((), ())


def test_a_revocation_list_without_effect_withdraws_the_host() -> None:
    made = world(
        proxy=with_tls("clientValidation: {caSecret: ca, crlSecret: crl, skipClientCertValidation: true}"),
        crl=crl_secret(),
    )
    assert (
        "ClientValidationInvalid",
        f"{INVALID}a CRL has no effect if validation is skipped. Remove crlSecret.",
    ) in made.problems("HTTPProxy")
    assert made.secure() is None


def test_a_cut_off_client_validation_is_not_taken_for_none() -> None:
    made = world(proxy=OPEN.replace(TLS, "tls:\n      secretName: tls\n      clientValidation:"))
    assert [reason for reason, _ in made.problems("HTTPProxy")] == ["FieldInvalid"]
    assert (plain_hosts(made.graph), secure_hosts(made.graph)) == ((), ())


# --- The fallback certificate


FALLBACK = with_tls("enableFallbackCertificate: true")
NO_CERTIFICATE = {
    "none is configured": (
        configuration(httpproxy="{}"),
        "FallbackNotPresent",
        "Spec.Virtualhost.TLS enabled fallback but the fallback Certificate Secret is not configured "
        "in Contour configuration file. Set tls.fallback-certificate there.",
    ),
    "it is missing": (
        configuration(),
        "FallbackNotValid",
        'Spec.Virtualhost.TLS Secret "default/fallback" fallback certificate is invalid: Secret not '
        "found. Add the Secret.",
    ),
    "it is not delegated": (
        configuration(httpproxy="{fallbackCertificate: {name: fallback, namespace: secrets}}"),
        "FallbackNotDelegated",
        'Spec.VirtualHost.TLS Secret "secrets/fallback" is not configured for certificate delegation. '
        "Add a TLSCertificateDelegation for this namespace in the Secret's namespace.",
    ),
}


@pytest.mark.parametrize(("settings", "reason", "message"), NO_CERTIFICATE.values(), ids=NO_CERTIFICATE.keys())
def test_without_a_fallback_certificate_the_host_is_withdrawn(settings: str, reason: str, message: str) -> None:
    made = world(proxy=FALLBACK, settings=settings)
    assert made.problems("HTTPProxy") == [(reason, message)]
    assert (plain_hosts(made.graph), secure_hosts(made.graph), fallback(made.graph)) == ((), (), None)


def fallback_world(**changed: str) -> World:
    certificate = tls_secret("fallback", server("nobody.example"))
    return world(**({"proxy": FALLBACK, "settings": configuration(), "certificate": certificate} | changed))


def test_hosts_with_the_fallback_certificate_share_a_chain() -> None:
    other = FALLBACK.replace("{name: web}", "{name: other}").replace("web.example", "other.example")
    strict = other.replace("secretName: tls,", "secretName: tls, minimumProtocolVersion: '1.3',")
    made = fallback_world(strict=strict, third=OPEN.replace("{name: web}", "{name: x}").replace("web.", "third."))
    hosts = {secure.host.name: secure.host for secure in secure_hosts(made.graph)}
    assert sorted(hosts) == ["other.example", "third.example", "web.example"]
    assert fallback(made.graph) == TlsChain(
        name="fallback-certificate",
        hostname="*",
        certificates=(ObjectName("default", "fallback"),),
        limits=TlsLimits(minimum="1.3"),
        table=RouteTable(
            name="ingress_fallbackcert",
            entries=(misdirected(["*"]), hosts["other.example"], hosts["web.example"]),
        ),
    )
    assert [str(certificate.name) for certificate in made.graph.certificates] == ["default/fallback", "default/tls"]


def test_a_fallback_certificate_of_another_namespace_has_to_be_delegated() -> None:
    made = world(
        proxy=FALLBACK,
        settings=configuration(httpproxy="{fallbackCertificate: {name: fallback, namespace: secrets}}"),
        certificate=tls_secret("fallback", server("nobody.example"), "secrets"),
        delegation=delegation("fallback"),
    )
    chain = fallback(made.graph)
    assert chain is not None
    assert chain.certificates == (ObjectName("secrets", "fallback"),)


def test_a_wildcard_on_the_fallback_chain_does_not_answer_for_others() -> None:
    wild = FALLBACK.replace("{name: web}", "{name: wild}").replace("web.example", "'*.example'")
    made = fallback_world(proxy=PROXY, wild=wild)
    chain = fallback(made.graph)
    assert chain is not None
    assert elsewhere(chain) == ("web.example",)


def test_client_certificates_and_the_fallback_certificate_exclude_each_other() -> None:
    made = fallback_world(proxy=with_tls("enableFallbackCertificate: true, clientValidation: {caSecret: ca}"))
    assert made.problems("HTTPProxy") == [
        (
            "TLSIncompatibleFeatures",
            "Spec.Virtualhost.TLS fallback & client validation are incompatible. Remove one of them.",
        )
    ]
    assert (secure_hosts(made.graph), fallback(made.graph)) == ((), None)


@pytest.mark.requirement("AZ-20")
def test_authorization_and_the_fallback_certificate_exclude_each_other() -> None:
    made = fallback_world(proxy=with_tls("enableFallbackCertificate: true", PROXY))
    assert made.problems("HTTPProxy") == [
        ("TLSIncompatibleFeatures", "Spec.Virtualhost.TLS fallback & client authorization are incompatible")
    ]
    assert (secure_hosts(made.graph), fallback(made.graph)) == ((), None)


def fallback_filters(made: World) -> list[str]:
    rendered = dump(made.generation.rendered, show_secrets=False)
    [https] = [each for each in rendered["listeners"] if each["name"] == "ingress_https"]
    [chain] = [each for each in https["filterChains"] if each["name"] == "fallback-certificate"]
    assert chain["filterChainMatch"] == {"transportProtocol": "tls"}
    manager = chain["filters"][0]["typedConfig"]
    assert manager["statPrefix"] == "ingress_https"
    assert manager["rds"]["routeConfigName"].partition("#")[0] == "ingress_fallbackcert"
    return [each["name"] for each in manager["httpFilters"]]


@pytest.mark.requirement("AZ-20")
@pytest.mark.requirement("EN-1")
@pytest.mark.requirement("GL-7")
@pytest.mark.parametrize(
    ("proxy", "fields"),
    [
        (FALLBACK, "globalExtAuth: {extensionRef: {name: auth, namespace: default}}"),
        (with_tls("enableFallbackCertificate: true", PROXY), "allowInsecureAuthorization: true"),
    ],
    ids=["global authorization", "the operator allows it"],
)
def test_authorization_applies_on_the_fallback_chain(proxy: str, fields: str) -> None:
    made = fallback_world(proxy=proxy, settings=configuration(fields))
    assert made.problems("HTTPProxy") == []
    chain = fallback(made.graph)
    assert chain is not None
    assert all(isinstance(route.authorization, Enforced) for host in chain.table.hosts for route in host.routes)
    assert fallback_filters(made) == [
        "envoy.filters.http.header_mutation",
        "envoy.filters.http.ext_authz",
        "envoy.filters.http.router",
    ]


@pytest.mark.requirement("EN-1")
def test_the_fallback_chain_has_no_authorization_unless_configured() -> None:
    assert fallback_filters(fallback_world()) == ["envoy.filters.http.router"]


@pytest.mark.parametrize("refused", [(TypeUrl.ROUTE, "ingress_fallbackcert"), (TypeUrl.SECRET, "default/fallback")])
def test_what_proxies_say_of_the_fallback_chain_counts(refused: tuple[TypeUrl, str]) -> None:
    made = fallback_world()
    for answered, want in ((Answered(), "True"), (Answered(refused={refused: "no"}), "False")):
        conditions = {each.type: each.status for each in made.status("HTTPProxy", "web", answered).conditions}
        assert conditions == {"Valid": "True", "Programmed": want}


# --- The plain listener


def test_permit_insecure_can_be_switched_off() -> None:
    proxy = OPEN.replace("  - services:", "  - permitInsecure: true\n    services:")
    served, redirected = (
        world(proxy=proxy).plain(),
        world(proxy=proxy, settings=configuration(httpproxy="{disablePermitInsecure: true}")).plain(),
    )
    assert served is not None
    assert redirected is not None
    assert [route.action for route in redirected.routes] == [RedirectToHttps(443, "web.example")]
    secure = world(proxy=proxy).secure()
    assert secure is not None
    assert served == secure.host


@pytest.mark.requirement("EN-9")
def test_the_redirect_to_https_is_not_checked_by_a_shared_filter() -> None:
    open_host = OPEN.replace("{name: web}", "{name: plain}").replace("web.example", "plain.example")
    made = world(
        proxy=OPEN,
        plain=open_host.replace("    tls: {secretName: tls}\n", ""),
        settings=configuration("globalExtAuth: {extensionRef: {name: auth, namespace: default}}"),
    )
    plain = made.plain()
    assert plain is not None
    assert [(route.action, route.authorization) for route in plain.routes] == [
        (RedirectToHttps(443, "web.example"), Unprotected())
    ]
    rendered = dump(made.generation.rendered, show_secrets=False)
    [routes] = [each for each in rendered["routes"] if each["name"].startswith("ingress_http#")]
    own = {
        host["name"]: [route.get("typedPerFilterConfig") for route in host["routes"]] for host in routes["virtualHosts"]
    }
    disabled = {"@type": "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute"}
    assert own == {
        "plain.example": [None],
        "web.example": [{"envoy.filters.http.ext_authz": disabled | {"disabled": True}}],
    }
