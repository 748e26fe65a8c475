"""A world of resources written as YAML, and what becomes of it."""

from collections.abc import Iterable, Mapping

from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.resources.graph_views import SecureHost, plain_hosts, secure_hosts

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.host_model import Host
from authplane.controlplane.graph.model.programming import NoProxy, Programming
from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.controlplane.status.resource_status import Status
from authplane.core.names import Ref
from authplane.core.problems import Severity
from authplane.sources.document_versions import Library
from authplane.sources.required_targets import RequiredTargets

ECHO = """
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  ports:
  - {name: http, port: 80}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: echo-1, labels: {kubernetes.io/service-name: echo}}
addressType: IPv4
endpoints:
- addresses: [10.0.0.1]
ports:
- {name: http, port: 8080}
"""

AUTH = """
apiVersion: v1
kind: Service
metadata: {name: auth}
spec:
  ports:
  - {name: grpc, port: 9443}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: auth-1, labels: {kubernetes.io/service-name: auth}}
addressType: IPv4
endpoints:
- addresses: [10.0.0.2]
ports:
- {name: grpc, port: 9443}
"""

EXTENSION = """
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {name: auth}
spec:
  services:
  - {name: auth, port: 9443}
  validation: {caSecret: ca, subjectName: auth.example}
"""

PROXY = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost:
    fqdn: web.example
    tls: {secretName: tls}
    authorization:
      extensionRef: {name: auth}
  routes:
  - services:
    - {name: echo, port: 80}
"""


def secrets() -> str:
    """Return the Secrets that `PROXY` and `EXTENSION` name."""
    return "---".join([tls_secret("tls", server("web.example")), ca_secret("ca")])


def whole() -> dict[str, str]:
    """Return a world in which everything is valid; change a part of it."""
    return {"echo": ECHO, "auth": AUTH, "extension": EXTENSION, "proxy": PROXY, "secrets": secrets()}


class World:
    """Documents, the generation that follows from them, and short ways to ask about it."""

    def __init__(self, documents: Iterable[str], keys: Mapping[str, str] | None = None) -> None:
        library = Library(RequiredTargets())
        for index, text in enumerate(documents):
            library.changed(f"{index}.yaml", text.encode())
        self.generation: Generation = build_generation(library.current(), keys=keys)

    @property
    def graph(self) -> Graph:
        return self.generation.built.graph

    def problems(self, kind: str, name: str = "", severity: Severity = Severity.ERROR) -> list[tuple[str, str]]:
        """Return reason and message of the problems of a resource."""
        return [
            (finding.problem.reason, finding.problem.message)
            for finding in self.generation.findings
            if finding.ref is not None
            and finding.ref.kind == kind
            and (not name or finding.ref.name == name)
            and finding.problem.severity is severity
        ]

    def warnings(self, kind: str, name: str = "") -> list[tuple[str, str]]:
        return self.problems(kind, name, Severity.WARNING)

    def status(self, kind: str, name: str, programming: Programming | None = None) -> Status:
        statuses = {each.ref: each for each in self.generation.status(programming or NoProxy())}
        return statuses[Ref(kind, "default", name)]

    def secure(self, fqdn: str = "web.example") -> SecureHost | None:
        return next((each for each in secure_hosts(self.graph) if each.host.name == fqdn), None)

    def plain(self, fqdn: str = "web.example") -> Host | None:
        return next((each for each in plain_hosts(self.graph) if each.name == fqdn), None)


def world(**changed: str) -> World:
    """Build the whole world with some of its parts replaced or added; an empty text leaves a part out."""
    return World(text for text in (whole() | changed).values() if text)
