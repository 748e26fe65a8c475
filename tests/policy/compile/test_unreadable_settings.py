"""Settings that somebody wrote and nobody can read: the defaults, which may be wider, do not take their place."""

from collections.abc import Callable

import pytest
from tests.support.policies.compiled import load
from tests.support.policies.documents import BACKEND, OPEN, settings
from tests.support.policies.judging import judge, word
from tests.support.resources.graph_views import plain_hosts

from authplane.controlplane.graph.build import build_graph
from authplane.policy.compile.compile_policies import compile_policies
from authplane.sources.document_versions import Library

DENY = settings("{unprotectedBackends: Deny}")
GLOBAL = """
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {name: contour}
spec:
  globalExtAuth: {extensionRef: {name: auth, namespace: default}}
"""
SITE = """
apiVersion: v1
kind: Service
metadata: {name: site}
spec: {ports: [{port: 80}]}
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: site}
spec:
  virtualhost: {fqdn: site.example}
  routes: [{services: [{name: site, port: 80}]}]
"""

BREAKS: dict[str, Callable[[str], str]] = {
    "a text that ends too early": lambda text: f"{text.rstrip()}\n  more: [",
    "an unknown version": lambda text: text.replace("/v1alpha1", "/v9"),
    "an unfit name": lambda text: text.replace("metadata: {name: ", "metadata: {name: X_"),
    "no name": lambda text: text.replace("metadata: {name: ", "metadata: {nam: "),
    "a kind that is written short": lambda text: text.replace("Configuration\n", "Config\n"),
    "two kinds": lambda text: text.replace("kind: ", "kind: Thing\nkind: "),
    "no apiVersion": lambda text: text.replace("apiVersion", "apiversion"),
}


@pytest.mark.parametrize("harm", BREAKS.values(), ids=BREAKS.keys())
def test_a_configuration_that_cannot_be_read_allows_nothing(harm: Callable[[str], str]) -> None:
    assert word(judge(compile_policies(load(BACKEND, DENY).resources).policies)) == "403"
    broken = compile_policies(load(BACKEND, harm(DENY)).resources).policies
    assert (word(judge(broken)), broken.closed) == ("unavailable", "the AuthplaneConfiguration is invalid")


@pytest.mark.parametrize("harm", BREAKS.values(), ids=BREAKS.keys())
def test_a_contour_configuration_that_cannot_be_read_serves_nothing(harm: Callable[[str], str]) -> None:
    assert [host.name for host in plain_hosts(build_graph(load(SITE).resources).graph)] == ["site.example"]
    assert plain_hosts(build_graph(load(SITE, harm(GLOBAL)).resources).graph) == ()


@pytest.mark.parametrize("harm", BREAKS.values(), ids=BREAKS.keys())
def test_the_last_good_configuration_stays_in_force(harm: Callable[[str], str]) -> None:
    library = Library()
    library.changed("backend.yaml", BACKEND.encode())
    library.changed("settings.yaml", DENY.encode())
    before = library.current().resources
    library.changed("settings.yaml", harm(DENY).encode())
    after = library.current().resources
    assert (after.configuration, after.broken) == (before.configuration, frozenset())
    library.removed("settings.yaml")
    gone = library.current().resources
    assert (gone.configuration, gone.broken) == (None, frozenset())


def test_another_document_that_cannot_be_read_costs_no_settings() -> None:
    resources = load(OPEN, BACKEND, BACKEND.replace("name: shop", "name: [")).resources
    assert (resources.broken, word(judge(compile_policies(resources).policies))) == (frozenset(), "allow")


def test_a_gateway_that_cannot_be_read_is_not_replaced_by_the_default_one() -> None:
    gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge}\nspec: 7\n"
    for documents, kinds in (((BACKEND,), ["Backend", "Gateway"]), ((BACKEND, gateway), ["Backend"])):
        attachments = compile_policies(load(*documents).resources).policies.attachments
        assert sorted({aim.ref.kind for aim in attachments}) == kinds
