"""Documents to typed resources."""

from textwrap import dedent
from typing import NamedTuple

import pytest

from authplane.core.names import Ref
from authplane.core.secret import Secret as Hidden
from authplane.resources.decode_document import Decoded, Foreign, parse_document
from authplane.resources.kinds.agentic import Backend, BackendSpec, McpBackend
from authplane.resources.kinds.contour import HTTPProxy, HTTPProxySpec, Route, RouteService, VirtualHost
from authplane.resources.kinds.contour_policies import AuthPolicy, MatchCondition
from authplane.resources.kinds.core import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Secret,
    Service,
    ServicePort,
    ServiceSpec,
)
from authplane.resources.kinds.extension_service import (
    ExtensionService,
    ExtensionServiceSpec,
    ExtensionServiceTarget,
)
from authplane.resources.kinds.meta import Meta
from authplane.resources.yaml.nodes import parse_nodes


def decode(text: str) -> Decoded | Foreign:
    parsed = parse_nodes(dedent(text))
    assert parsed.spots == ()
    assert parsed.root is not None
    return parse_document(parsed.root)


def problems(text: str) -> list[str]:
    decoded = decode(text)
    assert isinstance(decoded, Decoded)
    return [f"{each.severity}: {each}" for each in decoded.problems]


PROXY = """\
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: web, namespace: shop}
"""
SECRET = """\
apiVersion: v1
kind: Secret
metadata: {name: keys}
"""
BACKEND = """\
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: tools}
"""


def test_a_proxy_is_read_field_by_field() -> None:
    decoded = decode(
        """\
        apiVersion: projectcontour.io/v1
        kind: HTTPProxy
        metadata:
          name: web
          namespace: shop
          labels: {app: web}
          generation: 7
          uid: 0b1
          resourceVersion: "12"
        spec:
          virtualhost: {fqdn: a.example}
          routes:
            - conditions:
                - prefix: /
              services:
                - name: web
                  port: 80
              authPolicy:
                disabled: true
                context: {level: "1"}
        status: {anything: [at, all]}
        """
    )
    assert decoded == Decoded(
        ref=Ref("HTTPProxy", "shop", "web"),
        resource=HTTPProxy(
            metadata=Meta(name="web", namespace="shop", labels={"app": "web"}, generation=7),
            spec=HTTPProxySpec(
                virtualhost=VirtualHost(fqdn="a.example"),
                routes=(
                    Route(
                        conditions=(MatchCondition(prefix="/"),),
                        services=(RouteService(name="web", port=80),),
                        auth_policy=AuthPolicy(disabled=True, context={"level": "1"}),
                    ),
                ),
            ),
        ),
        problems=(),
    )


def test_null_counts_as_absent() -> None:
    decoded = decode(
        """\
        apiVersion: v1
        kind: Service
        metadata: {name: web, namespace: null, labels: ~, annotations: {a: null, b: c}}
        spec:
          type:
          ports: [{port: 80, name: null, nodePort: 3}]
        status:
        """
    )
    assert decoded == Decoded(
        ref=Ref("Service", "default", "web"),
        resource=Service(
            metadata=Meta(name="web", annotations={"b": "c"}), spec=ServiceSpec(ports=(ServicePort(port=80),))
        ),
        problems=(),
    )


def test_an_endpoint_slice_has_its_fields_at_the_top() -> None:
    decoded = decode(
        """\
        apiVersion: discovery.k8s.io/v1
        kind: EndpointSlice
        metadata: {name: web-1}
        addressType: IPv4
        endpoints: [{addresses: [10.0.0.1]}]
        ports: [{port: 8080}]
        """
    )
    assert decoded == Decoded(
        ref=Ref("EndpointSlice", "default", "web-1"),
        resource=EndpointSlice(
            metadata=Meta(name="web-1"),
            address_type="IPv4",
            endpoints=(Endpoint(addresses=("10.0.0.1",)),),
            ports=(EndpointPort(port=8080),),
        ),
        problems=(),
    )


def test_secret_values_are_bytes_or_text_and_hidden() -> None:
    decoded = decode(SECRET + 'type: kubernetes.io/tls\ndata: {a: "aGVs\\nbG8="}\nstringData: {b: hello}\n')
    assert decoded == Decoded(
        ref=Ref("Secret", "default", "keys"),
        resource=Secret(
            metadata=Meta(name="keys"),
            type="kubernetes.io/tls",
            data={"a": Hidden(b"hello")},
            string_data={"b": Hidden(b"hello")},
        ),
        problems=(),
    )
    assert "hello" not in repr(decoded)


def test_an_extension_service_and_a_backend_are_read() -> None:
    service = decode(
        """\
        apiVersion: projectcontour.io/v1alpha1
        kind: ExtensionService
        metadata: {name: authz}
        spec: {protocol: h2c, services: [{name: authz, port: 9443}]}
        """
    )
    assert service == Decoded(
        ref=Ref("ExtensionService", "default", "authz"),
        resource=ExtensionService(
            metadata=Meta(name="authz"),
            spec=ExtensionServiceSpec(protocol="h2c", services=(ExtensionServiceTarget(name="authz", port=9443),)),
        ),
        problems=(),
    )
    assert decode(BACKEND + "spec: {mcp: {hostname: mcp.example, port: 443}}") == Decoded(
        ref=Ref("Backend", "default", "tools"),
        resource=Backend(
            metadata=Meta(name="tools"), spec=BackendSpec(mcp=McpBackend(hostname="mcp.example", port=443))
        ),
        problems=(),
    )


class Case(NamedTuple):
    text: str
    want: list[str]


BAD = {
    "an unknown field": Case(
        PROXY + "spec: {routes: [{servces: []}]}",
        ["error: spec.routes[0].servces: Unknown field 'servces'. Did you mean 'services'? [FieldUnknown]"],
    ),
    "a field one level too high": Case(
        PROXY + "spec: {fqdn: a.example, virtualhost: {fqdn: a.example, authPolicy: {disabled: true}}}",
        [
            "error: spec.fqdn: Unknown field 'fqdn'. Did you mean 'virtualhost.fqdn'? [FieldUnknown]",
            "error: spec.virtualhost.authPolicy: Unknown field 'authPolicy'. Did you mean "
            "'authorization.authPolicy'? [FieldUnknown]",
        ],
    ),
    "an unknown field that is like nothing": Case(
        PROXY + "spec: {}\nzzz: 1", ["error: zzz: Unknown field 'zzz'. Supported: metadata, spec. [FieldUnknown]"]
    ),
    "a field name that could garble a terminal": Case(
        PROXY + 'spec: {"\\e[31m": 1}',
        ["error: spec: Unknown field '\\x1b[31m'. Supported: includes, "
                       "ingressClassName, routes, tcpproxy, virtualhost. [FieldUnknown]"]
    ),
    "missing fields": Case(
        PROXY + "spec: {virtualhost: {}, routes: [{services: [{weight: 1}]}]}",
        [
            "error: spec.virtualhost.fqdn: 'fqdn' is required. Add it. [FieldRequired]",
            "error: spec.routes[0].services[0].name: 'name' is required. Add it. [FieldRequired]",
            "error: spec.routes[0].services[0].port: 'port' is required. Add it. [FieldRequired]",
        ],
    ),
    "no spec": Case(PROXY, ["error: spec: 'spec' is required. Add it. [FieldRequired]"]),
    "a number for a text": Case(
        PROXY + "spec: {virtualhost: {fqdn: 80}}",
        ["error: spec.virtualhost.fqdn: Expected a string, got the number 80. Put it in quotes. [TypeMismatch]"],
    ),
    "a truth value for a text": Case(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, labels: {a: true}}\n",
        ["error: metadata.labels.a: Expected a string, got the boolean true. Put it in quotes. [TypeMismatch]"],
    ),
    "texts for other things": Case(
        PROXY + "spec: {routes: [{services: [{name: a, port: '80'}], permitInsecure: yes, conditions: x}, null]}",
        [
            "error: spec.routes[0].services[0].port: Expected an integer, got the string '80'. [TypeMismatch]",
            "error: spec.routes[0].permitInsecure: Expected true or false, got the string 'yes'. [TypeMismatch]",
            "error: spec.routes[0].conditions: Expected a list, got the string 'x'. [TypeMismatch]",
            "error: spec.routes[1]: Expected a mapping, got nothing. [TypeMismatch]",
        ],
    ),
    "lists and mappings for other things": Case(
        PROXY + "spec: {virtualhost: [], routes: {}, ingressClassName: {}}",
        [
            "error: spec.virtualhost: Expected a mapping, got a list. [TypeMismatch]",
            "error: spec.routes: Expected a list, got a mapping. [TypeMismatch]",
            "error: spec.ingressClassName: Expected a string, got a mapping. [TypeMismatch]",
        ],
    ),
    "a leading zero makes a text": Case(
        PROXY + "spec: {routes: [{services: [{name: a, port: 0755}]}]}",
        ["error: spec.routes[0].services[0].port: Expected an integer, got the string '0755'. [TypeMismatch]"],
    ),
    "limits": Case(
        "apiVersion: projectcontour.io/v1alpha1\nkind: ExtensionService\nmetadata: {name: A_b, namespace: ''}\n"
        "spec: {services: [], protocol: h3}",
        [
            "error: metadata.name: Expected a name such as 'web-1', got 'A_b'. [FieldInvalid]",
            "error: metadata.namespace: Expected 1 to 63 characters, got ''. [FieldInvalid]",
            "error: spec.services: Expected at least 1 item, got 0. [FieldInvalid]",
            "error: spec.protocol: Expected one of '', 'h2', 'h2c', 'http/1.1', got 'h3'. [FieldInvalid]",
        ],
    ),
    "a number out of range": Case(
        BACKEND + "spec: {mcp: {hostname: a, port: 65536}}",
        ["error: spec.mcp.port: Expected a number from 1 to 65535, got 65536. [FieldInvalid]"],
    ),
    "a number beyond all bounds": Case(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, generation: 9223372036854775808}\n",
        ["error: metadata.generation: Expected a 64-bit integer, got 9223372036854775808. [FieldInvalid]"],
    ),
    "both of two": Case(
        BACKEND + "spec: {mcp: {hostname: a, serviceName: b, port: 1}}",
        [
            "error: spec.mcp: A Backend needs exactly one of serviceName, hostname and url. "
            "serviceName and hostname are set. Set one of the three. [FieldInvalid]"
        ],
    ),
    "neither of two": Case(
        BACKEND + "spec: {mcp: {port: 1}}",
        [
            "error: spec.mcp: A Backend needs exactly one of serviceName, hostname and url. "
            "None of them is set. Set one of the three. [FieldInvalid]"
        ],
    ),
    "upstream fields": Case(
        PROXY + "spec: {virtualhost: {fqdn: a, corsPolicy: {allowOrigin: ['*'], allowMethods: [GET]}, "
        "ipAllowPolicy: [], rateLimitPolicy: ~}}",
        [
            "warning: spec.virtualhost.corsPolicy: 'corsPolicy' is not supported and has no effect. "
            "Remove it, or ignore this warning. [FieldNotSupported]",
            "error: spec.virtualhost.ipAllowPolicy: 'ipAllowPolicy' restricts access, but authplane "
            "does not enforce it. "
            "Remove it to use this resource. [FieldNotEnforced]",
        ],
    ),
    "an unknown kind of ours": Case(
        "apiVersion: projectcontour.io/v1\nkind: HTTPProxi",
        [
            "error: kind: 'projectcontour.io/v1' has no kind 'HTTPProxi'. "
            "Did you mean 'HTTPProxy of projectcontour.io/v1'? [KindUnknown]"
        ],
    ),
    "an unknown version of ours": Case(
        "apiVersion: projectcontour.io/v1\nkind: ExtensionService",
        [
            "error: kind: 'projectcontour.io/v1' has no kind 'ExtensionService'. "
            "Did you mean 'ExtensionService of projectcontour.io/v1alpha1'? [KindUnknown]"
        ],
    ),
    "our group without a version": Case(
        "apiVersion: authplane.dev\nkind: Zzz",
        ["error: kind: 'authplane.dev' has no kind 'Zzz'. Supported: "
         "AuthorizationService of authplane.dev/v1alpha1, AuthplaneConfiguration of authplane.dev/v1alpha1. "
         "[KindUnknown]"],
    ),
    "no kind": Case(
        "apiVersion: v1", ["error: This document is not a resource. Add 'kind' as a string. [NotAResource]"]
    ),
    "a number as version": Case(
        "apiVersion: 1\nkind: {}",
        ["error: This document is not a resource. Add 'apiVersion' and 'kind' as a string. [NotAResource]"],
    ),
    "a list": Case("- a", ["error: A document must be a mapping. Add 'apiVersion' and 'kind'. [NotAResource]"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_every_problem_is_reported_at_its_path(case: Case) -> None:
    assert problems(case.text) == case.want


def test_a_document_with_only_warnings_is_used() -> None:
    decoded = decode(PROXY + "spec: {routes: [{healthCheckPolicy: {}}]}")
    assert isinstance(decoded, Decoded)
    assert decoded.resource == HTTPProxy(
        metadata=Meta(name="web", namespace="shop"), spec=HTTPProxySpec(routes=(Route(),))
    )


def test_a_document_with_an_error_still_has_its_name() -> None:
    decoded = decode(PROXY + "spec: 1")
    assert isinstance(decoded, Decoded)
    assert (decoded.ref, decoded.resource) == (Ref("HTTPProxy", "shop", "web"), None)


@pytest.mark.parametrize("api", ["apps/v1", "x.example/v1"])
def test_other_groups_are_not_ours_to_judge(api: str) -> None:
    assert decode(f"apiVersion: {api}\nkind: Deployment\nspec: 7") == Foreign("Deployment", api)


def test_values_of_a_secret_are_never_repeated() -> None:
    for rest in (
        "stringData: hunter2",
        "data: {a: hunter2}",
        "data: [hunter2]",
        "data: {a: [hunter2]}",
        "type: [hunter2]",
        "type: 0\ndata: hunter2",
        "stringData: {a: 0x4242}",
        "metadata: {name: A_hunter2}",
        "immutable: hunter2\ndata: {a: 'hunter2!'}",
    ):
        text = SECRET.replace("metadata: {name: keys}\n", "") if rest.startswith("metadata") else SECRET
        found = problems(text + rest)
        assert found
        assert "hunter2" not in str(found)
        assert "4242" not in str(found)
