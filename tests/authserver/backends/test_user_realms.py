"""How lists of users become realms."""

import pytest
from tests.authserver.backends.test_passwords import BCRYPT, KINDS, parsed

from authplane.authserver.backends.htpasswd.passwords import PasswordHash
from authplane.authserver.backends.htpasswd.user_realms import Conflict, Declared, Realms, build_realms
from authplane.core.problems import Severity

ONE, OTHER = parsed(BCRYPT), parsed(KINDS["apr1"][0])


def declared(origin: str, realm: str | None = None, owner: str = "", **users: PasswordHash) -> Declared:
    return Declared(origin=origin, owner=owner, realm=realm, users=users)


def users(*lists: Declared) -> dict[str, dict[str, PasswordHash]]:
    realms, _ = build_realms(lists, default="default")
    return {realm: dict(found.users) for realm, found in realms.lists.items()}


def conflicts(*lists: Declared) -> list[tuple[str, Severity]]:
    _, found = build_realms(lists, default="default")
    return [(origin, problem.severity) for origin, problem in found]


def test_users_belong_to_their_realm_or_to_every_realm() -> None:
    lists = (declared("a", "shop", alice=ONE), declared("b", bob=ONE), declared("c", "bank", carol=ONE))
    assert users(*lists) == {
        "default": {"bob": ONE},
        "shop": {"alice": ONE, "bob": ONE},
        "bank": {"bob": ONE, "carol": ONE},
    }


def test_of_two_entries_by_one_owner_the_later_is_used() -> None:
    lists = (declared("a", owner="ns", alice=ONE), declared("b", owner="ns", alice=OTHER))
    assert users(*lists) == {"default": {"alice": OTHER}}
    assert conflicts(*lists) == [("b", Severity.WARNING)]


def test_the_operators_entry_beats_others_in_any_order() -> None:
    lists = (declared("a", owner="ns", alice=ONE), declared("file", alice=OTHER))
    assert users(*lists) == users(*reversed(lists)) == {"default": {"alice": OTHER}}
    assert conflicts(*lists) == [("a", Severity.WARNING)]


def test_a_user_that_two_namespaces_declare_is_not_accepted() -> None:
    lists = (declared("a", owner="x", alice=ONE, bob=ONE), declared("b", owner="y", alice=OTHER))
    assert users(*lists) == {"default": {"bob": ONE}}
    assert conflicts(*lists) == [("a", Severity.ERROR), ("b", Severity.ERROR)]


def test_the_same_entry_twice_is_no_conflict() -> None:
    lists = (declared("a", owner="x", alice=ONE), declared("b", owner="y", alice=ONE))
    assert (users(*lists), conflicts(*lists)) == ({"default": {"alice": ONE}}, [])


def test_a_realm_is_pending_until_one_of_its_lists_is_read() -> None:
    realms, _ = build_realms([declared("a", "shop", alice=ONE)], default="default", pending=frozenset({"default"}))
    assert (set(realms.lists), realms.pending) == ({"shop"}, frozenset({"default"}))
    realms, _ = build_realms([declared("a", None, alice=ONE)], default="default", pending=frozenset({"default"}))
    assert (set(realms.lists), realms.pending) == ({"default"}, frozenset())


@pytest.mark.requirement("H17")
def test_an_unfit_realm_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="is not a realm"):
        Realms(lists={}, pending=frozenset({"a\r\nb"}))


def test_messages_name_the_user_and_the_other_place() -> None:
    _, found = build_realms([declared("a", alice=ONE), declared("b", alice=OTHER)], default="default")
    assert [str(each.problem) for each in found] == [
        "'alice' is also in a; the server uses this entry. Remove one of the entries. [UserConflict]"
    ]
    assert isinstance(found[0], Conflict)
