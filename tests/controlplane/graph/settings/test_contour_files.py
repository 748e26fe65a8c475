"""Settings where Contour reads them: its configuration file, in a ConfigMap or by itself, and a ContourDeployment."""

from textwrap import indent
from typing import NamedTuple

import pytest
from tests.support.resources.contour_documents import World, world

from authplane.controlplane.graph.model.route_authorization import Enforced
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.gateway_settings import read_settings
from authplane.sources.document_versions import Library

OPEN = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost: {fqdn: web.example}
  routes: [{services: [{name: echo, port: 80}]}]
"""
GLOBAL = """globalExtAuth:
  extensionService: default/auth
  failOpen: false
  authPolicy: {context: {header1: value1}}
  responseTimeout: 1s
"""


def config_map(file: str, *, name: str = "contour", key: str = "contour.yaml") -> str:
    return f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}, namespace: projectcontour}}
data:
  {key}: |
{indent(file, "    ")}
"""


def deployment(settings: str) -> str:
    return f"""
apiVersion: projectcontour.io/v1alpha1
kind: ContourDeployment
metadata: {{name: contour, namespace: projectcontour}}
spec:
  contour: {{replicas: 2}}
  envoy: {{workloadType: Deployment}}
  runtimeSettings: {settings}
"""


def configuration(settings: str) -> str:
    return f"""
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {{name: contour, namespace: projectcontour}}
spec: {settings}
"""


IN_KIND = (
    "{globalExtAuth: {extensionRef: {namespace: default, name: auth}, authPolicy: {context: {header1: value1}}, "
    "responseTimeout: 1s}}"
)
FORMS = {
    "a ConfigMap": config_map(GLOBAL),
    "a ConfigMap of another name": config_map(GLOBAL, name="edge-7bh2k"),
    "a file by itself": GLOBAL,
    "a ContourDeployment": deployment(IN_KIND),
    "a ContourConfiguration": configuration(IN_KIND),
}


def checks_of(made: World) -> list[object]:
    host = made.plain()
    return [] if host is None else [route.authorization for route in host.routes]


@pytest.mark.requirement("GL-1")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_global_authorization_means_the_same_wherever_contour_reads_it(form: str) -> None:
    want = checks_of(world(proxy=OPEN, global_=FORMS["a ContourConfiguration"]))
    assert [type(each) for each in want] == [Enforced]
    made = world(proxy=OPEN, global_=form)
    assert made.problems("HTTPProxy") == []
    assert checks_of(made) == want


def test_equal_settings_may_be_in_both_forms_and_different_ones_close_every_host() -> None:
    assert checks_of(world(proxy=OPEN, **FORMS)) == checks_of(world(proxy=OPEN, global_=GLOBAL))
    made = world(proxy=OPEN, one=FORMS["a ConfigMap"], other=FORMS["a ContourDeployment"].replace("1s", "2s"))
    assert made.plain() is None
    assert [reason for reason, _ in made.problems("ContourDeployment")] == ["FieldConflict"]


class Unread(NamedTuple):
    document: str
    kind: str
    reason: str


UNREAD = {
    "no service": Unread(config_map("globalExtAuth: {failOpen: false}"), "ConfigMap", "AuthMissingExtensionRef"),
    "no value": Unread(config_map("globalExtAuth:"), "ConfigMap", "FieldInvalid"),
    "a typo": Unread(config_map(GLOBAL.replace("ExtAuth", "ExtAuht")), "ConfigMap", "FieldUnknown"),
    "a typo in a file by itself": Unread(GLOBAL.replace("ExtAuth", "ExtAuht"), "ContourFile", "FieldUnknown"),
    "an unknown key": Unread(config_map(GLOBAL + "no-such-key: 1"), "ConfigMap", "FieldUnknown"),
    "an unknown key in a file by itself": Unread(GLOBAL + "no-such-key: 1", "ContourFile", "FieldUnknown"),
    "no YAML in a ConfigMap of another name": Unread(
        config_map(GLOBAL + "a: [", name="my-contour"), "ConfigMap", "YamlInvalid"
    ),
    "no YAML": Unread(config_map(GLOBAL + "a: ["), "ConfigMap", "YamlInvalid"),
    "a list": Unread(config_map("- globalExtAuth"), "ConfigMap", "TypeMismatch"),
    "a text": Unread(config_map("globalExtAuth"), "ConfigMap", "TypeMismatch"),
    "an unknown field of a ContourDeployment": Unread(deployment("{nothing: 1}"), "ContourDeployment", "FieldUnknown"),
    "a service that is not there": Unread(
        config_map(GLOBAL.replace("default/auth", "gone")), "ConfigMap", "ExtensionServiceNotFound"
    ),
}


@pytest.mark.parametrize("case", UNREAD.values(), ids=UNREAD.keys())
def test_a_form_that_cannot_be_read_closes_every_host(case: Unread) -> None:
    made = world(proxy=OPEN, unread=case.document)
    assert made.plain() is None
    assert {"ConfigurationNotValid", "GlobalAuthorizationNotValid"}.intersection(
        reason for reason, _ in made.problems("HTTPProxy")
    )
    assert case.reason in [reason for reason, _ in made.problems(case.kind)]


CALLED = {
    "a ConfigMap": (config_map("nothing: 1"), "ConfigMap with contour.yaml"),
    "a file by itself": ("globalExtAuth: 1", "configuration file contour.yaml"),
}


@pytest.mark.parametrize(("document", "words"), CALLED.values(), ids=CALLED.keys())
def test_hosts_say_what_cannot_be_used(document: str, words: str) -> None:
    told = world(proxy=OPEN, unread=document).problems("HTTPProxy")
    assert told == [("ConfigurationNotValid", f"The {words} is not valid, so Envoy serves no host. Correct it.")]


LOST = {
    "a file by itself that is no YAML": ("contour.yaml", GLOBAL + "a: ["),
    "under another name": ("settings.yaml", GLOBAL + "a: ["),
    "in a document without a name": ("x.yaml", config_map(GLOBAL).replace("name: contour,", "name: [],")),
    "a file called contour.yaml that is something else": ("contour.yaml", "nothing: known\n"),
    "a file called contour.yaml that is not UTF-8": ("contour.yaml", "\udcff"),
}


@pytest.mark.parametrize(("file", "text"), LOST.values(), ids=LOST.keys())
def test_a_text_that_may_be_contours_file_and_cannot_be_read_closes_every_host(file: str, text: str) -> None:
    library = Library()
    library.changed("proxy.yaml", OPEN.encode())
    library.changed(file, text.encode(errors="surrogateescape"))
    resources = library.current().resources
    assert read_settings(resources, Reports()) is None


def test_what_is_called_otherwise_is_left_alone() -> None:
    document = config_map(GLOBAL, key="other.yaml")
    assert read_settings(World([document]).generation.loaded.resources, Reports()) is not None


def test_a_good_file_stays_in_force_while_its_successor_cannot_be_read() -> None:
    library = Library()
    library.changed("a.yaml", config_map(GLOBAL).encode())
    before = library.current().resources
    library.changed("a.yaml", config_map(GLOBAL + "a: [").encode())
    after = library.current()
    assert after.resources.contour_files == before.contour_files
    assert len(after.last_good) == 1
    library.changed("a.yaml", config_map("").replace("contour.yaml", "other").encode())
    assert not library.current().resources.contour_files


SETTINGS = """
disablePermitInsecure: true
enableExternalNameService: true
tls:
  minimum-protocol-version: "1.3"
  maximum-protocol-version: "1.3"
  cipher-suites: [AES128-SHA]
  ecdh-curves: [P-256]
  fallback-certificate: {name: fallback, namespace: default}
  envoy-client-certificate: {name: client, namespace: default}
timeouts: {request-timeout: 1s, connection-idle-timeout: 2s, stream-idle-timeout: 3s, max-connection-duration: 4s,
  delayed-close-timeout: 5s, connection-shutdown-grace-period: 6s, connect-timeout: 7s}
cluster:
  circuit-breakers: {max-connections: 1, max-pending-requests: 2, max-requests: 3, max-retries: 4,
    per-host-max-connections: 5}
  upstream-tls: {minimum-protocol-version: "1.3", maximum-protocol-version: "1.3", cipher-suites: [AES256-SHA],
    ecdh-curves: [X25519]}
"""
IN_CONFIGURATION = """{
  enableExternalNameService: true,
  httpproxy: {disablePermitInsecure: true, fallbackCertificate: {name: fallback, namespace: default}},
  envoy: {clientCertificate: {name: client, namespace: default},
    timeouts: {requestTimeout: 1s, connectionIdleTimeout: 2s, streamIdleTimeout: 3s, maxConnectionDuration: 4s,
      delayedCloseTimeout: 5s, connectionShutdownGracePeriod: 6s, connectTimeout: 7s},
    listener: {tls: {minimumProtocolVersion: "1.3", maximumProtocolVersion: "1.3", cipherSuites: [AES128-SHA],
      ecdhCurves: [P-256]}},
    cluster: {
      circuitBreakers: {maxConnections: 1, maxPendingRequests: 2, maxRequests: 3, maxRetries: 4,
        perHostMaxConnections: 5},
      upstreamTLS: {minimumProtocolVersion: "1.3", maximumProtocolVersion: "1.3", cipherSuites: [AES256-SHA],
        ecdhCurves: [X25519]}}}}"""


def test_every_setting_of_the_file_means_what_it_means_in_a_contour_configuration() -> None:
    found = [
        read_settings(World([document]).generation.loaded.resources, Reports())
        for document in (config_map(SETTINGS), configuration(IN_CONFIGURATION), deployment(IN_CONFIGURATION))
    ]
    assert found[0] is not None
    assert found[0] == found[1] == found[2]
    assert found[0] != read_settings(World([]).generation.loaded.resources, Reports())


def test_problems_of_the_file_have_its_own_names_and_places() -> None:
    file = """timeouts:
  connect-timeout: soon
cluster:
  upstream-tls:
    minimum-protocol-version: "1.3"
    maximum-protocol-version: "1.2"
"""
    findings = [each for each in World([file]).generation.findings if each.ref is not None]
    assert [(str(each.place), each.problem.path, each.problem.reason) for each in findings] == [
        ("0.yaml:2:3", ("timeouts", "connect-timeout"), "TimeoutPolicyNotValid"),
        ("0.yaml:4:3", ("cluster", "upstream-tls"), "TLSConfigNotValid"),
    ]


def test_a_missing_service_has_the_name_of_its_field_in_the_file() -> None:
    made = world(proxy=OPEN, settings=config_map(GLOBAL.replace("default/auth", "default/aut")))
    [problem] = next(found for ref, found in made.generation.built.problems.items() if ref.kind == "ConfigMap")
    assert problem.path == ("data", "contour.yaml", "globalExtAuth", "extensionService")
    assert problem.message.endswith("\"default/aut\" not found. Did you mean 'auth'? Create it, or correct the name.")


def test_a_field_of_the_file_has_its_line_in_the_config_map() -> None:
    library = Library()
    text = config_map(f"accesslog-format: json\n{GLOBAL}unknown: 1\n")
    library.changed("contour.yaml", text.encode())
    lines = text.splitlines()
    told = {lines[each.place.line - 1].strip() for each in library.current().findings}
    assert told == {"accesslog-format: json", "unknown: 1"}
