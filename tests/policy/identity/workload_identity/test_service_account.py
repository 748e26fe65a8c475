from typing import Final

import pytest

from authplane.policy.identity.workload_identity.service_account import (
    ServiceAccount,
    account_of_user,
    parse_account,
    spiffe_id_of,
)

AGENT: Final = ServiceAccount("default", "agent")

WRITTEN: Final = {
    "a name alone is of the policy's namespace": (("agent", "", "shop"), ServiceAccount("shop", "agent")),
    "a namespace can be given": (("agent", "default", "shop"), AGENT),
    "both can be one text": (("default/agent", "", "shop"), AGENT),
    "a namespace given twice": (("default/agent", "default", "shop"), None),
    "two slashes": (("a/b/c", "", "shop"), None),
    "no name": (("", "", "shop"), None),
    "no name after the slash": (("default/", "", "shop"), None),
    "no namespace before the slash": (("/agent", "", "shop"), None),
    "capitals": (("Agent", "", "shop"), None),
    "a star": (("*", "", "shop"), None),
    "dots": (("..", "", "shop"), None),
    "a colon": (("a:b", "", "shop"), None),
    "a name with dots in it": (("a.b-c", "", "shop"), ServiceAccount("shop", "a.b-c")),
    "a namespace with dots in it": (("agent", "a.b", "shop"), None),
    "a long name": (("a" * 64, "", "shop"), None),
    "many parts": ((".".join(["a" * 63] * 4), "", "shop"), None),
    "a line break": (("agent\n", "", "shop"), None),
}


@pytest.mark.parametrize(("parts", "want"), WRITTEN.values(), ids=WRITTEN.keys())
def test_parse_account(parts: tuple[str, str, str], want: ServiceAccount | None) -> None:
    assert parse_account(*parts) == want


def test_a_service_account_has_a_spiffe_id_in_its_trust_domain() -> None:
    spiffe_id = spiffe_id_of(AGENT, "cluster.local")
    assert str(spiffe_id) == "spiffe://cluster.local/ns/default/sa/agent"


USERS: Final = {
    "system:serviceaccount:default:agent": AGENT,
    "system:serviceaccount:default:agent:x": None,
    "system:serviceaccount:default": None,
    "system:serviceaccount::agent": None,
    "system:serviceaccount:default:": None,
    "system:serviceaccounts:default:agent": None,
    "System:serviceaccount:default:agent": None,
    "system:node:a": None,
    "default:agent": None,
    "": None,
}


@pytest.mark.parametrize(("user", "want"), USERS.items())
def test_account_of_user(user: str, want: ServiceAccount | None) -> None:
    assert account_of_user(user) == want


def test_it_is_written_as_people_write_it() -> None:
    assert str(AGENT) == "default/agent"
