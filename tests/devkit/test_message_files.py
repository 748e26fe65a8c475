"""Messages that people write: they are what protobuf's own JSON says, and every problem has its path."""

from typing import Any, Final

import pytest
from cel.expr import checked_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb
from google.protobuf import json_format
from google.protobuf.message import Message
from tests.support.matching.trees import PACKAGES, cases

from authplane.cel.calls.wire import checked_expression
from authplane.core.problems import Problem, dotted
from authplane.dataplane.filters.rbac.wire import RBAC
from authplane.devkit.matching.message_files import fill, spelled
from authplane.devkit.strict_files import parse_text
from authplane.resources.typed.shapes import Report


def filled(message: Message, text: str) -> list[Problem]:
    root = parse_text("file", text.encode()).root
    assert root is not None
    report = Report()
    fill(message, root, (), report)
    return report.problems


def samples() -> list[Message]:
    """Return messages of many sorts: maps with numbers as keys, lists of numbers, wrappers, durations."""
    expression = checked_expression("request.path == '/a' && source.port in [1, 2]")
    assert isinstance(expression, checked_pb2.CheckedExpr)
    rules = rbac_pb2.RBAC(action=rbac_pb2.RBAC.DENY)
    rules.policies["p"].permissions.add().destination_port = 80
    rules.policies["p"].principals.add().any = True
    fault = fault_pb2.HTTPFault(upstream_cluster="c")
    fault.delay.fixed_delay.FromMilliseconds(1500)
    fault.max_active_faults.value = 7
    return [expression, filter_pb.RBAC(rules=rules), fault, *(message for message, _ in cases(3, 40, 0))]


@pytest.mark.slow
@pytest.mark.parametrize("preserving", [True, False])
def test_what_protobuf_writes_is_read_back(preserving: bool) -> None:
    assert RBAC.type_urls
    for message in samples():
        text = json_format.MessageToJson(message, preserving_proto_field_name=preserving)
        again = type(message)()
        assert filled(again, text) == []
        assert again.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)


BAD: Final[dict[str, tuple[Any, list[str]]]] = {
    "delay: {fixedDelay: soon}": (fault_pb2.HTTPFault, ["delay.fixedDelay FieldInvalid"]),
    "maxActiveFaults: a": (fault_pb2.HTTPFault, ["maxActiveFaults FieldInvalid"]),
    "maxActiveFaults: -1": (fault_pb2.HTTPFault, ["maxActiveFaults FieldInvalid"]),
    "maxActiveFaults: {}": (fault_pb2.HTTPFault, ["maxActiveFaults FieldInvalid"]),
    "downstreamNodes: [a, 1, {}]": (
        fault_pb2.HTTPFault,
        ["downstreamNodes[1] TypeMismatch", "downstreamNodes[2] TypeMismatch"],
    ),
    "downstreamNodes: a": (fault_pb2.HTTPFault, ["downstreamNodes TypeMismatch"]),
    "rules: {action: NONE}": (filter_pb.RBAC, ["rules.action FieldInvalid"]),
    "rules: {action: true}": (filter_pb.RBAC, ["rules.action TypeMismatch"]),
    "rules: {policies: []}": (filter_pb.RBAC, ["rules.policies TypeMismatch"]),
    "typeMap: {a: {}}": (checked_pb2.CheckedExpr, ["typeMap.a FieldInvalid"]),
    "sourceInfo: {positions: {'1': a, '2': []}}": (
        checked_pb2.CheckedExpr,
        ["sourceInfo.positions.2 TypeMismatch", "sourceInfo.positions FieldInvalid"],
    ),
    "expr: {constExpr: {boolValue: 'true'}}": (checked_pb2.CheckedExpr, ["expr.constExpr.boolValue TypeMismatch"]),
}


@pytest.mark.parametrize(("text", "kind", "want"), [(text, *case) for text, case in BAD.items()], ids=BAD.keys())
def test_what_cannot_be_read_is_a_problem_at_its_path(text: str, kind: Any, want: list[str]) -> None:
    assert [f"{dotted(problem.path)} {problem.reason}" for problem in filled(kind(), text)] == want


def test_null_is_as_if_nothing_stood_there() -> None:
    message = PACKAGES[0].Matcher()
    assert filled(message, "matcherList: ~\nonNoMatch: null\n") == []
    assert message == PACKAGES[0].Matcher()


def test_a_path_is_spelled_as_the_file_has_it() -> None:
    root = parse_text("file", b'{aB: [{c_d: 1}], "@type": x, "k\\n": {e: 1}}').root
    assert spelled(root, ("a_b", 0, "c_d", "more")) == ("aB", 0, "c_d")
    assert spelled(root, ("a_b", 1)) == ("aB",)
    assert spelled(root, ("type_url",)) == ("@type",)
    assert spelled(root, ("k\\n", "e")) == ("k\n", "e")
    assert spelled(None, ("a",)) == ()
