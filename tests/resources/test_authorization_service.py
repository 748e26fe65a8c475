"""The document of an authorization service: what it may say, and every way in which it is invalid."""

from textwrap import indent

import pytest

from authplane.core.names import ObjectName
from authplane.core.problems import Severity, dotted
from authplane.resources.kinds.authorization_service_kind import (
    AuthorizationService,
    AuthorizationServiceSpec,
    Condition,
    ContextCondition,
    HtpasswdBackend,
    ServedBackend,
    TestServerBackend,
    UserFile,
)
from authplane.resources.kinds.meta import Meta
from authplane.resources.loaded_resources import Loaded
from authplane.sources.document_versions import Library

HEAD = "apiVersion: authplane.dev/v1alpha1\nkind: AuthorizationService\nmetadata: {name: door}\nspec:\n  backends:\n"


def loaded(backends: str) -> Loaded:
    library = Library()
    library.changed("door.yaml", (HEAD + indent(backends, "  ")).encode())
    return library.current()


def problems(backends: str) -> list[str]:
    return [f"{finding.place.line} {finding.problem.message}" for finding in loaded(backends).findings]


WHOLE = """\
- name: staff
  when:
  - context: {key: area, value: staff}
  - host: "*.shop.example"
  - pathPrefix: /admin
  htpasswd:
    files: [{path: staff.htpasswd, realm: staff}, {path: all.htpasswd}]
    folder: secrets
    realm: staff
    selector: team=shop
    namespaces: [shop]
    strict: true
    forwardCredentials: true
- name: rest
  testserver: {mode: path}
"""


def test_a_whole_document_is_read() -> None:
    staff = ServedBackend(
        name="staff",
        when=(
            Condition(context=ContextCondition(key="area", value="staff")),
            Condition(host="*.shop.example"),
            Condition(path_prefix="/admin"),
        ),
        htpasswd=HtpasswdBackend(
            files=(UserFile(path="staff.htpasswd", realm="staff"), UserFile(path="all.htpasswd")),
            folder="secrets",
            realm="staff",
            selector="team=shop",
            namespaces=("shop",),
            strict=True,
            forward_credentials=True,
        ),
    )
    found = loaded(WHOLE)
    assert found.findings == ()
    assert found.resources.authorization_services == {
        ObjectName("default", "door"): AuthorizationService(
            metadata=Meta(name="door"),
            spec=AuthorizationServiceSpec(
                backends=(staff, ServedBackend(name="rest", testserver=TestServerBackend(mode="path")))
            ),
        )
    }


def test_the_former_name_of_the_kind_is_accepted_with_a_warning() -> None:
    library = Library()
    head = HEAD.replace("kind: AuthorizationService", "kind: AuthorizationServer")
    library.changed("door.yaml", (head + indent(WHOLE, "  ")).encode())
    found = library.current()
    (warning,) = found.findings
    assert str(warning.place) == "door.yaml:2:1"
    assert (warning.problem.severity, str(warning.problem)) == (
        Severity.WARNING,
        "kind: Kind AuthorizationServer is deprecated. Write kind: AuthorizationService. [KindRenamed]",
    )
    assert found.resources.authorization_services == loaded(WHOLE).resources.authorization_services


BAD = {
    "no backends": ("  []", ["5 Expected at least 1 item, got 0."]),
    "no kind of backend": (
        "- name: a\n",
        ["6 None of 'testserver' and 'htpasswd' is set. Set exactly one of 'testserver' and 'htpasswd'."],
    ),
    "two kinds of backend": (
        "- {name: a, testserver: {}, htpasswd: {folder: x}}\n",
        ["6 'testserver' and 'htpasswd' are set. Set exactly one of 'testserver' and 'htpasswd'."],
    ),
    "a name twice": (
        "- {name: a, when: [{host: x}], testserver: {}}\n- {name: a, testserver: {}}\n",
        ["7 spec.backends[0] also has the name 'a'. Use another name."],
    ),
    "a name that no label can be": (
        "- {name: A b, testserver: {}}\n",
        ["6 Expected a name such as 'shop', got 'A b'."],
    ),
    "no users": (
        "- {name: a, htpasswd: {}}\n",
        ["6 The backend has no users. Set 'files', or 'folder' with a folder of Secrets."],
    ),
    "a condition cut off": (
        "- name: a\n  testserver: {}\n  when:\n",
        ["8 'when' has no value. Set a value, or remove the line."],
    ),
    "no condition": ("- {name: a, when: [], testserver: {}}\n", ["6 Expected at least 1 item, got 0."]),
    "a condition of nothing": (
        "- {name: a, when: [{}], testserver: {}}\n",
        ["6 None of 'context', 'host' and 'pathPrefix' is set. Set exactly one of 'context', 'host' and 'pathPrefix'."],
    ),
    "a condition of two things": (
        "- {name: a, when: [{host: x, pathPrefix: /}], testserver: {}}\n",
        ["6 'host' and 'pathPrefix' are set. Set exactly one of 'context', 'host' and 'pathPrefix'."],
    ),
    "two hosts at once": (
        "- name: a\n  testserver: {}\n  when:\n  - host: x\n  - host: y\n",
        ["10 A request must match all conditions, but it has only one host. Add another backend instead."],
    ),
    "a host with a port": (
        "- {name: a, when: [{host: 'x:80'}], testserver: {}}\n",
        ["6 Expected a name such as 'shop.example or *.shop.example', got 'x:80'."],
    ),
    "a prefix without a slash": (
        "- {name: a, when: [{pathPrefix: a}], testserver: {}}\n",
        ["6 Expected a name such as '/admin', got 'a'."],
    ),
    "a prefix with dots": (
        "- {name: a, when: [{pathPrefix: /a/../b}], testserver: {}}\n",
        ["6 Expected a name such as '/admin', got '/a/../b'."],
    ),
    "several problems at once": (
        "- name: a\n  testserver: {mode: some}\n- name: b\n  htpaswd: {}\n",
        [
            "7 Expected one of 'all', 'path', got 'some'.",
            "9 Unknown field 'htpaswd'. Did you mean 'htpasswd'?",
        ],
    ),
}


@pytest.mark.parametrize(("text", "want"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_meant_is_named_with_its_line(text: str, want: list[str]) -> None:
    assert problems(text) == want
    assert loaded(text).resources.authorization_services == {}


UNREACHABLE = {
    "after everything": ("", "{host: a.example}", True),
    "the same again": ("{host: a.example}", "{host: A.example}", True),
    "a host below": ("{host: '*.example'}", "{host: a.example}", True),
    "a host above": ("{host: a.example}", "{host: '*.example'}", False),
    "a path below": ("{pathPrefix: /a}", "{pathPrefix: /a/b}", True),
    "a path beside": ("{pathPrefix: /a}", "{pathPrefix: /ab}", False),
    "a narrower one": ("{host: x}", "{host: x}, {pathPrefix: /a}", True),
    "a wider one": ("{host: x}, {pathPrefix: /a}", "{host: x}", False),
    "the same context": ("{context: {key: a, value: b}}", "{context: {key: a, value: b}}", True),
    "another context": ("{context: {key: a, value: b}}", "{context: {key: a, value: c}}", False),
    "something else": ("{host: x}", "{pathPrefix: /}", False),
}


@pytest.mark.parametrize(("first", "second", "hidden"), UNREACHABLE.values(), ids=UNREACHABLE.keys())
def test_a_backend_that_is_never_reached_is_an_error(first: str, second: str, hidden: bool) -> None:
    when = f", when: [{first}]" if first else ""
    found = loaded(f"- {{name: a, testserver: {{}}{when}}}\n- {{name: b, testserver: {{}}, when: [{second}]}}\n")
    said = [(dotted(finding.problem.path), finding.problem.message) for finding in found.findings]
    sentence = (
        "spec.backends[0] comes first and matches every request that this backend matches. "
        "Move this backend before it, or remove this backend."
    )
    assert said == ([("spec.backends[1]", sentence)] if hidden else [])
