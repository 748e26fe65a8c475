"""Names of resources."""

from typing import NamedTuple

import pytest

from authplane.xds.client.resource_names import ResourceName, parse_name
from authplane.xds.server.served_types import TypeUrl

KIND = "envoy.config.listener.v3.Listener"


class Case(NamedTuple):
    name: str
    want: ResourceName | None


CASES = {
    "a plain name stays as it is": Case("a/b?c=d&a=%41", ResourceName(None, "a/b?c=d&a=%41")),
    "an empty name is a plain one": Case("", ResourceName(None, "")),
    "an authority": Case(f"xdstp://a.example/{KIND}/x", ResourceName("a.example", f"xdstp://a.example/{KIND}/x")),
    "no authority": Case(f"xdstp:///{KIND}/x", ResourceName("", f"xdstp:/{KIND}/x")),
    "no authority, written shorter": Case(f"xdstp:/{KIND}/x", ResourceName("", f"xdstp:/{KIND}/x")),
    "parameters are sorted": Case(f"xdstp://a/{KIND}/x?b=2&a=1", ResourceName("a", f"xdstp://a/{KIND}/x?a=1&b=2")),
    "the last of two counts": Case(f"xdstp://a/{KIND}/x?b=2&b=1", ResourceName("a", f"xdstp://a/{KIND}/x?b=1")),
    "a parameter without value": Case(f"xdstp://a/{KIND}/x?b&", ResourceName("a", f"xdstp://a/{KIND}/x?b=")),
    "encoding that is not needed": Case(f"xdstp://a/{KIND}/%78%2f", ResourceName("a", f"xdstp://a/{KIND}/x/")),
    "encoding that is needed": Case(f"xdstp://a/{KIND}/%20%5b", ResourceName("a", f"xdstp://a/{KIND}/%20%5B")),
    "a plus is no space": Case(f"xdstp://a/{KIND}/x?a=1+1", ResourceName("a", f"xdstp://a/{KIND}/x?a=1%2B1")),
    "an encoded separator stays one": Case(
        f"xdstp://a/{KIND}/x?a=1%26b%3D2", ResourceName("a", f"xdstp://a/{KIND}/x?a=1%26b%3D2")
    ),
    "a path of several parts": Case(f"xdstp://a/{KIND}/x/y:1", ResourceName("a", f"xdstp://a/{KIND}/x/y:1")),
    "a fragment says nothing": Case(f"xdstp://a/{KIND}/x#y", ResourceName("a", f"xdstp://a/{KIND}/x")),
    "an empty id": Case(f"xdstp://a/{KIND}/", ResourceName("a", f"xdstp://a/{KIND}/")),
    "another type": Case("xdstp://a/envoy.config.cluster.v3.Cluster/x", None),
    "no id": Case(f"xdstp://a/{KIND}", None),
    "nothing": Case("xdstp:", None),
    "a line break": Case(f"xdstp://a/{KIND}/x\ny", None),
    "a space": Case(f"xdstp://a/{KIND}/x y", None),
    "half an address": Case(f"xdstp://[a/{KIND}/x", None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_parse_name(case: Case) -> None:
    assert parse_name(case.name, TypeUrl.LISTENER) == case.want


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.want is not None])
def test_the_one_spelling_is_its_own(case: Case) -> None:
    assert case.want is not None
    assert parse_name(case.want.text, TypeUrl.LISTENER) == case.want
