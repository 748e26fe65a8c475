"""Who a client is, by its certificate."""

from typing import NamedTuple

import pytest

from authplane.xds.server.node_identity import NodeRules, Role, changed_node

SPIFFE = "spiffe://cluster.local/ns/default/sa/edge"


class Case(NamedTuple):
    node: str
    names: tuple[str, ...]
    want: Role | None
    envoys: tuple[str, ...] = ()


CASES = {
    "a name of the certificate": Case("edge", ("other", "edge"), Role.ENVOY),
    "an instance of it": Case("edge#pod-1", ("edge",), Role.ENVOY),
    "a URI": Case(SPIFFE, (SPIFFE,), Role.ENVOY),
    "an instance of a URI": Case(f"{SPIFFE}#1", (SPIFFE,), Role.ENVOY),
    "another name": Case("edge-2", ("edge",), None),
    "a path below a URI is another workload": Case(f"{SPIFFE}/1", (SPIFFE,), None),
    "the start of a name": Case("ed", ("edge",), None),
    "another spelling": Case("Edge", ("edge",), None),
    "no node id": Case("", ("edge",), None),
    "no node id, and a certificate with an empty name": Case("", ("",), None),
    "an instance of nothing": Case("#edge", ("edge", ""), None),
    "a certificate without names": Case("edge", (), None),
    "one of the Envoys": Case("edge#1", ("edge",), Role.ENVOY, ("edge",)),
    "none of the Envoys": Case("api", ("api",), Role.GRPC, ("edge",)),
    "a gRPC server whose certificate names an Envoy too, as itself": Case("api", ("api", "edge"), Role.GRPC, ("edge",)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_node_is_bound_to_its_certificate(case: Case) -> None:
    found = NodeRules(envoys=frozenset(case.envoys)).admit(case.node, case.names)
    assert (found if isinstance(found, Role) else None) is case.want


def test_a_refusal_says_both_names() -> None:
    assert NodeRules().admit("a\n", ("b",)) == (
        "node id 'a\\n' is not a name in the client's certificate, which has: b"
    )


@pytest.mark.parametrize(
    ("now", "same"), [("edge", True), ("", True), ("edge ", False), ("Edge", False), ("edge#1", False)]
)
def test_a_node_stays_the_same_on_a_stream(now: str, same: bool) -> None:
    assert (changed_node("edge", now) is None) is same
