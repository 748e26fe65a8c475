"""What is in force while files change."""

import itertools

import pytest

from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Severity
from authplane.resources.documents import Place, Resources
from authplane.resources.kinds.configuration import AuthplaneConfiguration
from authplane.resources.kinds.core import EndpointSlice, Service, ServicePort, ServiceSpec
from authplane.resources.kinds.meta import Meta
from authplane.sources.document_versions import Library, Loaded


def service(name: str, port: int | str = 80) -> str:
    return f"---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  ports:\n    - port: {port}\n"


def made(name: str, port: int = 80) -> Service:
    return Service(metadata=Meta(name=name), spec=ServiceSpec(ports=(ServicePort(port=port),)))


def services(**ports: int) -> Resources:
    return Resources(services={ObjectName("default", name): made(name, port) for name, port in ports.items()})


def ref(name: str) -> Ref:
    return Ref("Service", "default", name)


def load(*versions: dict[str, str | None], library: Library | None = None) -> Loaded:
    """Tell a library one version of its files after the other."""
    library = library or Library()
    loaded = library.current()
    for version in versions:
        for file, text in version.items():
            if text is None:
                library.removed(file)
            else:
                library.changed(file, text.encode())
        loaded = library.current()
    return loaded


def lines(loaded: Loaded) -> list[str]:
    return [f"{finding.place}: {finding.problem}" for finding in loaded.findings]


KEPT = " The last good version of the file stays in force."
STANDS = " The last good version stays in force."
UNUSED = " authplane uses nothing from the file until you correct it."


def test_every_document_of_every_file_is_there() -> None:
    loaded = load(
        {
            "b.yaml": service("b") + service("c"),
            "a.json": '{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"}}',
        }
    )
    want = {ObjectName("default", "a"): Service(metadata=Meta(name="a"))}
    assert loaded == Loaded(resources=Resources(services={**want, **services(b=80, c=80).services}))
    assert list(loaded.resources.services) == sorted(loaded.resources.services)


def test_a_list_is_its_items() -> None:
    item = "  - apiVersion: v1\n    kind: Service\n    metadata: {name: a}\n"
    text = f"apiVersion: v1\nkind: List\nitems:\n{item}  - kind: 7\n"
    loaded = load({"l.yaml": text})
    assert loaded.resources == Resources(services={ObjectName("default", "a"): Service(metadata=Meta(name="a"))})
    assert lines(loaded) == [
        "l.yaml:7:5: This document is not a resource. Add 'apiVersion' and 'kind' as a string. [NotAResource]"
    ]
    assert loaded.place(ref("a"), ("metadata", "name")) == Place("l.yaml", 6, 16)


def test_other_kinds_are_counted() -> None:
    other = "---\napiVersion: apps/v1\nkind: Deployment\nspec: {a: &a 1, b: *a}\n"
    library = Library()
    loaded = load({"a.yaml": other * 2, "b.yaml": "apiVersion: v1\nkind: Namespace\n"}, library=library)
    assert loaded == Loaded(ignored={"Namespace": 1, "Deployment": 2})
    assert load({"a.yaml": None}, library=library) == Loaded(ignored={"Namespace": 1})


@pytest.mark.parametrize(
    "text", ["", "\n \n", "# only a comment\n", "---\n---\n# x\n...\n", "%YAML 1.2\n---\n", "\ufeff"]
)
def test_a_file_without_documents_is_no_problem(text: str) -> None:
    assert load({"a.yaml": text}) == Loaded()


def test_directives_document_ends_and_a_byte_order_mark_are_read_over() -> None:
    text = "\ufeff%YAML 1.2\n" + service("a") + "...\n# between\n" + service("b").replace("---\n", "")
    assert load({"a.yaml": text}) == Loaded(resources=services(a=80, b=80))


def test_a_syntax_error_costs_one_document_and_has_its_line_in_the_file() -> None:
    loaded = load({"a.yaml": service("a") + "---\nb: c: d\n" + service("b", 99999)})
    assert loaded.resources == Resources(services=services(a=80).services, broken=frozenset({ref("b")}))
    assert lines(loaded) == [
        "a.yaml:10:5: This is not YAML: mapping values are not allowed in this context. Correct the "
        "syntax. [YamlInvalid]",
        "a.yaml:18:7: spec.ports[0].port: Expected a number from 1 to 65535, got 99999. [FieldInvalid]",
    ]
    assert [finding.ref for finding in loaded.findings] == [None, ref("b")]


def test_an_error_leaves_the_last_good_version_in_force() -> None:
    loaded = load({"a.yaml": service("a")}, {"a.yaml": "# new\n" + service("a", "x")})
    assert loaded == Loaded(resources=services(a=80), findings=loaded.findings, last_good=frozenset({ref("a")}))
    assert lines(loaded) == [
        f"a.yaml:9:7: spec.ports[0].port: Expected an integer, got the string 'x'.{KEPT} [TypeMismatch]"
    ]
    assert loaded.place(ref("a"), ("spec", "ports", 0, "port")) == Place("a.yaml", 9, 7)


def test_a_repaired_document_replaces_the_last_good_version() -> None:
    assert load({"a": service("a")}, {"a": service("a", "x")}, {"a": service("a", 81)}) == Loaded(
        resources=services(a=81)
    )


def test_a_warning_says_nothing_of_last_good_versions() -> None:
    head = "apiVersion: projectcontour.io/v1\nkind: HTTPProxy\nmetadata: {name: w}\n"
    loaded = load({"a": head + "spec: {virtualhost: {fqdn: a, corsPolicy: {allowOrigin: ['*'], allowMethods: [GET]}}}"})
    assert [(finding.problem.severity, finding.problem.message) for finding in loaded.findings] == [
        (Severity.WARNING, "'corsPolicy' is not supported and has no effect. Remove it, or ignore this warning.")
    ]
    assert loaded.last_good == frozenset()


HALF_WRITTEN = {
    "the end is missing": (
        service("a") + "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: 'b",
        "f:13:11: This is not YAML: while scanning a quoted scalar, found unexpected end of stream. Correct the syntax."
        f"{KEPT} [YamlInvalid]",
    ),
    "the name is missing": (
        service("a") + "---\napiVersion: v1\nkind: Service\nmetadata:\n",
        f"f:12:1: metadata: 'metadata' is required. Add it.{KEPT} [FieldRequired]",
    ),
    "the kind is missing": (
        service("a") + "---\napiVersion: v1\n",
        f"f:10:1: This document is not a resource. Add 'kind' as a string.{KEPT} [NotAResource]",
    ),
    "the name is cut and the rest is broken": (
        service("a") + service("bb").replace("80", "x"),
        f"f:16:7: spec.ports[0].port: Expected an integer, got the string 'x'.{KEPT} [TypeMismatch]",
    ),
    "the name is there twice": (
        service("a") + service("b").replace("name: b", "name: c\n  name: b"),
        "f:14:3: metadata.name: The key 'name' occurs twice in this mapping, on lines 5 and 6. Remove one "
        f"of them.{KEPT} [DuplicateKey]",
    ),
}


@pytest.mark.parametrize(("text", "finding"), HALF_WRITTEN.values(), ids=HALF_WRITTEN.keys())
def test_what_a_broken_part_may_have_been_stays(text: str, finding: str) -> None:
    library = Library()
    loaded = load({"f": service("a") + service("b")}, {"f": text}, library=library)
    assert loaded.resources.services == services(a=80, b=80).services
    assert loaded.last_good == {ref("b")}
    assert lines(loaded) == [finding]
    assert loaded.place(ref("b"), ("spec",)) == Place("f", 0, 0)
    assert load({"f": service("a")}, library=library) == Loaded(resources=services(a=80))


def test_an_unreadable_file_keeps_everything_it_held() -> None:
    library = Library()
    load({"f": service("a") + service("b"), "g": service("c")}, library=library)
    library.unreadable("f", "permission denied")
    loaded = library.current()
    assert loaded.resources == services(a=80, b=80, c=80)
    assert loaded.last_good == {ref("a"), ref("b")}
    assert lines(loaded) == [f"f: permission denied{KEPT} [FileUnreadable]"]
    assert load({"f": None}, library=library) == Loaded(resources=services(c=80))


def test_a_file_that_became_empty_keeps_everything_until_it_is_deleted() -> None:
    library = Library()
    loaded = load({"f": service("a")}, {"f": ""}, library=library)
    assert loaded.resources == services(a=80)
    assert lines(loaded) == [f"f: The file is empty.{KEPT} To remove its resources, delete the file. [FileEmpty]"]
    assert load({"f": None}, library=library) == Loaded()


def test_a_file_with_only_a_comment_removes_what_it_held() -> None:
    assert load({"f": service("a")}, {"f": "# gone\n"}) == Loaded()


@pytest.mark.requirement("F08")
def test_text_that_is_not_utf8_keeps_everything_and_has_its_place() -> None:
    library = Library()
    load({"f": service("a")}, library=library)
    library.changed("f", "# \u00e9\n# \u00e9\u00e9".encode() + b"\xff\n" + service("a").encode())
    loaded = library.current()
    assert loaded.resources == services(a=80)
    assert lines(loaded) == [f"f:2:5: Byte 0xFF is not UTF-8. Save the file as UTF-8.{KEPT} [EncodingInvalid]"]


def test_a_new_broken_document_is_broken() -> None:
    assert load({"f": service("a", 0)}).resources == Resources(broken=frozenset({ref("a")}))


@pytest.mark.parametrize("order", list(itertools.permutations(("a", "b", "c"))))
def test_a_duplicate_name_is_an_error_everywhere_in_any_order(order: tuple[str, ...]) -> None:
    texts = {"a": service("x"), "b": "# first\n" + service("x", 81), "c": service("y")}
    loaded = load({file: texts[file] for file in order})
    assert loaded.resources == Resources(services=services(y=80).services, broken=frozenset({ref("x")}))
    assert lines(loaded) == [
        "a:5:3: metadata.name: Service/default/x is also defined at b:6:3. authplane uses neither of them. Remove "
        "one of them. [DuplicateName]",
        "b:6:3: metadata.name: Service/default/x is also defined at a:5:3. authplane uses neither of them. Remove "
        "one of them. [DuplicateName]",
    ]


def test_the_same_text_twice_in_a_file_has_two_places() -> None:
    assert lines(load({"a": service("x") * 2})) == [
        "a:5:3: metadata.name: Service/default/x is also defined at a:13:3. authplane uses neither of them. Remove "
        "one of them. [DuplicateName]",
        "a:13:3: metadata.name: Service/default/x is also defined at a:5:3. authplane uses neither of them. Remove "
        "one of them. [DuplicateName]",
    ]


def test_a_second_document_of_a_name_leaves_the_first_in_force() -> None:
    library = Library()
    loaded = load({"a": service("x")}, {"b": service("x", 81)}, library=library)
    assert loaded.resources == services(x=80)
    assert loaded.last_good == {ref("x")}
    assert lines(loaded) == [
        f"a:5:3: metadata.name: Service/default/x is also defined at b:5:3.{STANDS} Remove one of "
        "them. [DuplicateName]",
        f"b:5:3: metadata.name: Service/default/x is also defined at a:5:3.{STANDS} Remove one of "
        "them. [DuplicateName]",
    ]
    moved = load({"b": "#\n" + service("x", 81)}, library=library)
    assert (
        lines(moved)[0] == f"a:5:3: metadata.name: Service/default/x is also defined at b:6:3.{STANDS} Remove one of "
        "them. [DuplicateName]"
    )
    assert load({"a": None}, library=library) == Loaded(resources=services(x=81))


def configuration(name: str) -> str:
    return f"---\napiVersion: authplane.dev/v1alpha1\nkind: AuthplaneConfiguration\nmetadata: {{name: {name}}}\n"


def test_there_is_at_most_one_configuration_whatever_its_name() -> None:
    library = Library()
    loaded = load({"a": configuration("a")}, {"b": configuration("b")}, library=library)
    assert loaded.resources == Resources(configuration=AuthplaneConfiguration(metadata=Meta(name="a")))
    one = "Only one AuthplaneConfiguration is allowed, but there is another at"
    assert lines(loaded) == [
        f"a:4:12: metadata.name: {one} b:4:12.{STANDS} Remove one of them. [AtMostOne]",
        f"b:4:12: metadata.name: {one} a:4:12.{STANDS} Remove one of them. [AtMostOne]",
    ]
    assert load({"a": None}, library=library) == Loaded(
        resources=Resources(configuration=AuthplaneConfiguration(metadata=Meta(name="b")))
    )
    assert load({"b": None}, library=library) == Loaded()


def test_two_configurations_from_the_start_are_both_broken() -> None:
    loaded = load({"a": configuration("a"), "b": configuration("b")})
    assert loaded.resources == Resources(
        broken=frozenset({Ref("AuthplaneConfiguration", "default", name) for name in ("a", "b")})
    )


@pytest.mark.parametrize("removed_first", [True, False])
def test_a_renamed_file_changes_nothing(removed_first: bool) -> None:
    library = Library()
    before = load({"a": service("x")}, library=library)
    batch: dict[str, str | None] = {"a": None, "b": service("x")} if removed_first else {"b": service("x"), "a": None}
    after = load(batch, library=library)
    assert after == before
    assert after.resources.services[ObjectName("default", "x")] is before.resources.services[ObjectName("default", "x")]
    assert after.place(ref("x")) == Place("b", 2, 1)


def test_a_broken_resource_that_moves_takes_its_last_good_version_along() -> None:
    library = Library()
    loaded = load({"a": service("x")}, {"a": None, "b": service("x", 0)}, {"b": service("x", 0)[:-20]}, library=library)
    assert loaded.resources == services(x=80)
    assert load({"b": None}, library=library) == Loaded()


def test_a_resource_kept_for_a_broken_file_turns_up_elsewhere_when_that_is_repaired() -> None:
    library = Library()
    loaded = load({"a": service("x")}, {"a": "{"}, {"b": service("x", 81)}, library=library)
    assert loaded.resources == services(x=80)
    assert lines(loaded) == [
        f"a: metadata.name: Service/default/x is also defined at b:5:3.{STANDS} Remove one of them. [DuplicateName]",
        "a:1:2: This is not YAML: while parsing a flow node, did not find expected node content. "
        f"Correct the syntax.{KEPT} [YamlInvalid]",
        f"b:5:3: metadata.name: Service/default/x is also defined at a.{STANDS} Remove one of them. [DuplicateName]",
    ]
    assert load({"a": "# moved to b"}, library=library) == Loaded(resources=services(x=81))


def test_an_unchanged_resource_is_the_same_object() -> None:
    library = Library()
    before = load({"a": service("x") + service("y")}, library=library).resources.services
    after = load(
        {"a": "# moved\n\n" + service("y") + "# comment\n" + service("x", 81)}, library=library
    ).resources.services
    assert after[ObjectName("default", "y")] is before[ObjectName("default", "y")]
    assert after[ObjectName("default", "x")] == made("x", 81)


def test_a_generation_does_not_change_afterwards() -> None:
    library = Library()
    first = load({"a": service("x") + service("y", 0)}, library=library)
    load({"a": service("z")}, library=library)
    assert first.resources == Resources(services=services(x=80).services, broken=frozenset({ref("y")}))
    assert first.place(ref("x"), ("spec",)) == Place("a", 6, 1)


def test_without_news_the_generation_is_the_same() -> None:
    library = Library()
    assert load({"a": service("x")}, library=library) is library.current()


def test_endpoint_slices_are_grouped_by_service_in_the_order_of_names() -> None:
    def text(name: str, of: str) -> str:
        label = f"labels: {{kubernetes.io/service-name: {of}}}" if of else "labels: {}"
        head = "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n"
        return f"{head}metadata: {{name: {name}, {label}}}\n"

    def one(name: str, of: str) -> EndpointSlice:
        return EndpointSlice(metadata=Meta(name=name, labels={"kubernetes.io/service-name": of}), address_type="IPv4")

    library = Library()
    first = load({"a": text("b", "web") + text("a", "web") + text("c", "")}, library=library)
    assert first.resources == Resources(
        endpoint_slices={ObjectName("default", "web"): (one("a", "web"), one("b", "web"))}
    )
    second = load({"a": text("b", "api") + text("c", "")}, library=library)
    assert second.resources == Resources(endpoint_slices={ObjectName("default", "api"): (one("b", "api"),)})


def test_every_order_of_changes_in_a_batch_gives_the_same() -> None:
    texts = {
        "a": service("x") + service("y"),
        "b": service("y", 0),
        "c": service("z") + "---\n{",
        "d": configuration("q"),
    }
    loaded = [load({file: texts[file] for file in order}) for order in itertools.permutations(texts)]
    assert all(each == loaded[0] for each in loaded)
    assert {tuple(each.resources.services) for each in loaded} == {
        (ObjectName("default", "x"), ObjectName("default", "z"))
    }
