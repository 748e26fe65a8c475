"""Configurations of extensions: messages, and structs that stand for them."""

import json
from typing import Any, Final

import pytest
from google.protobuf import any_pb2, struct_pb2, wrappers_pb2
from udpa.type.v1 import typed_struct_pb2 as udpa_pb
from xds.type.v3 import typed_struct_pb2 as xds_pb

from authplane.core.problems import Problem, Problems
from authplane.dataplane.filters.extensions.wire import (
    add_below,
    parse_extension,
    parse_message,
    parse_struct,
    parse_type_url,
)
from authplane.dataplane.filters.registry import Packed, Structured

PREFIX: Final = "type.googleapis.com/"
KINDS: Final[dict[str, Any]] = {"xds.type.v3.TypedStruct": xds_pb, "udpa.type.v1.TypedStruct": udpa_pb}


def extension(name: str, value: bytes) -> tuple[object, list[str]]:
    problems = Problems()
    found = parse_extension(any_pb2.Any(type_url=f"{PREFIX}{name}", value=value), problems)
    return found, [str(each) for each in problems]


def structured(package: Any, url: str, members: dict[str, Any]) -> bytes:
    made = package.TypedStruct(type_url=url)
    made.value.update(members)
    data: bytes = made.SerializeToString()
    return data


def test_a_message_is_kept_as_it_came() -> None:
    assert extension("a.B", b"\xff") == (Packed("a.B", b"\xff"), [])


@pytest.mark.parametrize(("name", "package"), KINDS.items(), ids=KINDS)
def test_a_struct_of_either_package_replaces_a_message(name: str, package: Any) -> None:
    data = structured(package, f"{PREFIX}a.B", {"b": 1, "a": [True, None, {"c": "d"}]})
    assert extension(name, data) == (Structured("a.B", json.dumps({"a": [True, None, {"c": "d"}], "b": 1.0})), [])


@pytest.mark.parametrize(("name", "package"), KINDS.items(), ids=KINDS)
def test_a_struct_is_refused_with_the_place_of_its_problem(name: str, package: Any) -> None:
    assert extension(name, b"\xff") == (None, [f"value: Cannot decode the bytes. Expected {name}. [Unreadable]"])
    assert extension(name, structured(package, "", {})) == (
        None,
        ["value.type_url: This field is required. Add it. [Missing]"],
    )
    infinite = package.TypedStruct(type_url="a/b")
    infinite.value.fields["x"].list_value.values.add().number_value = float("inf")
    infinite.value.fields["y"].SetInParent()
    assert extension(name, infinite.SerializeToString()) == (
        None,
        [
            "value.value.x: The number is not finite. Use a finite number. [NotJson]",
            "value.value.y: The value is missing. Set it. [NotJson]",
        ],
    )


@pytest.mark.parametrize(
    ("url", "name", "reason"),
    [
        (f"{PREFIX}a.B", "a.B", ""),
        ("/a.B", "a.B", ""),
        ("x/y/a.B", "a.B", ""),
        ("", None, "Missing"),
        ("a.B", None, "TypeUrlInvalid"),
        (PREFIX, None, "TypeUrlInvalid"),
        ("/", None, "TypeUrlInvalid"),
    ],
)
def test_a_type_url_is_a_prefix_a_slash_and_a_name(url: str, name: str | None, reason: str) -> None:
    problems = Problems()
    assert parse_type_url(url, problems) == name
    assert [(each.path, each.reason) for each in problems] == ([(("type_url",), reason)] if reason else [])


VALUES: Final[dict[str, tuple[struct_pb2.Value, object]]] = {
    "a number": (struct_pb2.Value(number_value=1.5), 1.5),
    "a text": (struct_pb2.Value(string_value="a"), "a"),
    "true": (struct_pb2.Value(bool_value=True), True),
    "false": (struct_pb2.Value(bool_value=False), False),
    "null": (struct_pb2.Value(null_value=struct_pb2.NULL_VALUE), None),
    "an object": (
        struct_pb2.Value(struct_value=struct_pb2.Struct(fields={"a": struct_pb2.Value(string_value="b")})),
        {"a": "b"},
    ),
    "a list": (
        struct_pb2.Value(list_value=struct_pb2.ListValue(values=[struct_pb2.Value(number_value=1)])),
        (1.0,),
    ),
}


@pytest.mark.parametrize(("value", "want"), VALUES.values(), ids=VALUES.keys())
def test_every_kind_of_value_is_read(value: struct_pb2.Value, want: object) -> None:
    problems = Problems()
    assert parse_struct(struct_pb2.Struct(fields={"x": value}), problems) == {"x": want}
    assert list(problems) == []


def test_a_message_is_read_or_refused() -> None:
    problems = Problems()
    data = wrappers_pb2.StringValue(value="a").SerializeToString()
    assert parse_message(wrappers_pb2.StringValue, data, problems) == wrappers_pb2.StringValue(value="a")
    assert list(problems) == []
    assert parse_message(wrappers_pb2.StringValue, b"\xff", problems) is None
    assert [str(each) for each in problems] == [
        "Cannot decode the bytes. Expected google.protobuf.StringValue. [Unreadable]"
    ]


def test_problems_of_a_part_are_told_from_where_it_stands() -> None:
    problems = Problems()
    with problems.at("here"):
        add_below((Problem(("a", 0), "Bad", "is bad"), Problem((), "Worse", "is worse")), problems)
    assert [str(each) for each in problems] == ["here.a[0]: is bad [Bad]", "here: is worse [Worse]"]
