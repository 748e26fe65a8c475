"""Whatever happened before: what is in force follows from the documents alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.resources.contour_documents import AUTH, ECHO, EXTENSION, PROXY
from tests.support.resources.graph_views import plain_hosts, secure_hosts

from authplane.controlplane.graph.model.programming import NoProxy
from authplane.controlplane.render.rendered import render_graph
from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.sources.document_versions import Library
from authplane.xds.server.served_types import TypeUrl

INCLUDING = PROXY.replace("  routes:", "  includes:\n  - {name: app, conditions: [{prefix: /app}]}\n  routes:")
APP = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: app}
spec:
  routes:
  - services: [{name: echo, port: 80}]
    authPolicy: {disabled: true}
"""
PLAIN = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: plain}
spec:
  virtualhost: {fqdn: plain.example}
  routes:
  - services: [{name: echo, port: 80}]
"""
GLOBAL = """
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {name: contour}
spec:
  globalExtAuth:
    extensionRef: {name: auth, namespace: default}
"""
TEAM = PROXY.replace("{name: web}", "{name: team, namespace: team}").replace("web.example", "team.example")
DELEGATION = """
apiVersion: projectcontour.io/v1
kind: TLSCertificateDelegation
metadata: {name: d}
spec:
  delegations: [{secretName: tls, targetNamespaces: [team]}]
"""
TLS = tls_secret("tls", server("web.example"))

VARIANTS: dict[str, tuple[str, ...]] = {
    "echo": (ECHO, ECHO.replace("10.0.0.1", "10.0.0.9"), ECHO.replace("port: 80}", "port: 81}")),
    "auth": (AUTH, AUTH.replace("10.0.0.2", "10.0.0.8")),
    "extension": (
        EXTENSION,
        EXTENSION + "  timeoutPolicy: {response: 1s}\n",
        EXTENSION.replace("name: auth}\nspec", "name: other}\nspec"),
    ),
    "web": (
        PROXY,
        INCLUDING,
        PROXY.replace("web.example", '"*.example"'),
        PROXY.replace("web.example", "plain.example"),
        PROXY.replace("name: auth}", "name: auth}\n      failOpen: true"),
    ),
    "app": (APP, APP.replace("name: echo", "name: nothing"), APP.replace("disabled: true", "context: {a: b}")),
    "plain": (PLAIN, PLAIN.replace("plain.example", "web.example")),
    "team": (TEAM.replace("secretName: tls", "secretName: default/tls"),),
    "delegation": (DELEGATION, DELEGATION.replace("[team]", '["*"]')),
    "tls": (TLS,),
    "ca": (ca_secret("ca"),),
    "contour": (GLOBAL, GLOBAL + "  envoy: {cluster: {circuitBreakers: {maxConnections: 5}}}\n"),
}
"""What each file may hold; it may also be away."""

STEPS = st.lists(
    st.sampled_from(sorted(VARIANTS)).flatmap(
        lambda name: st.tuples(st.just(name), st.none() | st.sampled_from(VARIANTS[name]))
    ),
    min_size=1,
    max_size=12,
)


def apply(library: Library, file: str, text: str | None) -> None:
    if text is None:
        library.removed(f"{file}.yaml")
    else:
        library.changed(f"{file}.yaml", text.encode())


def fresh(files: dict[str, str | None]) -> Generation:
    library = Library()
    for file, text in files.items():
        apply(library, file, text)
    return build_generation(library.current())


@pytest.mark.slow
@given(steps=STEPS, begun=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_history_leads_where_its_last_state_leads_by_itself(steps: list[tuple[str, str | None]], begun: bool) -> None:
    library = Library()
    files: dict[str, str | None] = {}
    generation: Generation | None = None
    beginning = [(name, variants[0]) for name, variants in VARIANTS.items()] if begun else []
    for number, (file, text) in enumerate([*beginning, *steps]):
        apply(library, file, text)
        files[file] = text
        if number < len(beginning) - 1:
            continue
        generation = build_generation(library.current(), generation)
        alone = fresh(files)
        assert generation.built == alone.built
        assert generation.snapshot == alone.snapshot
        assert generation.status(NoProxy()) == alone.status(NoProxy())
    assert generation is not None


@pytest.mark.slow
@given(files=st.permutations(sorted(VARIANTS)))
@settings(max_examples=20, deadline=None)
def test_the_order_of_files_does_not_matter(files: list[str]) -> None:
    one = fresh({file: VARIANTS[file][0] for file in files})
    other = fresh({file: VARIANTS[file][0] for file in sorted(VARIANTS)})
    assert one.built == other.built
    assert one.snapshot == other.snapshot


def test_what_did_not_change_is_the_same_object() -> None:
    library = Library()
    for file, variants in VARIANTS.items():
        apply(library, file, variants[0])
    before = build_generation(library.current())
    apply(library, "plain", VARIANTS["plain"][0].replace("port: 80}", "port: 80, weight: 1}"))
    after = build_generation(library.current(), before)
    assert secure_hosts(after.built.graph)[0].chain is secure_hosts(before.built.graph)[0].chain
    assert after.snapshot.collection(TypeUrl.CLUSTER) is before.snapshot.collection(TypeUrl.CLUSTER)


def test_endpoints_change_no_host() -> None:
    library = Library()
    for file, variants in VARIANTS.items():
        apply(library, file, variants[0])
    before = build_generation(library.current())
    apply(library, "echo", VARIANTS["echo"][1])
    apply(library, "auth", VARIANTS["auth"][1])
    after = build_generation(library.current(), before)
    graphs = [each.built.graph for each in (before, after)]
    hosts = [(*plain_hosts(each), *(secure.chain for secure in secure_hosts(each))) for each in graphs]
    assert all(one is other for one, other in zip(*hosts, strict=True))
    changed = [url for url in TypeUrl if after.snapshot.collection(url) != before.snapshot.collection(url)]
    assert changed == [TypeUrl.ENDPOINT]


@pytest.mark.requirement("RB-1")
def test_an_update_without_a_change_changes_nothing() -> None:
    library = Library()
    for file, variants in VARIANTS.items():
        apply(library, file, variants[0])
    before = build_generation(library.current())
    for file, variants in VARIANTS.items():
        apply(library, file, f"# written again\n{variants[0]}")
    after = build_generation(library.current(), before)
    assert all(after.snapshot.collection(url) is before.snapshot.collection(url) for url in TypeUrl)


def test_bytes_made_of_parts_are_those_of_the_messages() -> None:
    generation = fresh({file: variants[0] for file, variants in VARIANTS.items()})
    rendered = render_graph(generation.built.graph)
    for url, messages in (
        (TypeUrl.LISTENER, rendered.listeners),
        (TypeUrl.ROUTE, rendered.routes),
        (TypeUrl.SECRET, rendered.secrets),
    ):
        bodies = generation.snapshot.resources(url)
        assert [type(message).FromString(bodies[message.name].body) for message in messages] == list(messages)
