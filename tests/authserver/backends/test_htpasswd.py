"""The htpasswd backend."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.authserver.backends.test_passwords import BCRYPT, KINDS, parsed

from authplane.authserver.backends.htpasswd.htpasswd import Attempt, Htpasswd, HtpasswdSettings
from authplane.authserver.backends.htpasswd.passwords import PasswordHash, effort
from authplane.authserver.backends.htpasswd.user_realms import Declared, build_realms
from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.records.decision_record import build_entry
from authplane.core.header_edits import HeaderEdits
from authplane.core.secret import Secret
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Peer, Request
from authplane.policy.check.throttle import Rate
from authplane.policy.verdicts.effects import Busy, Outcome, Work

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
USERS: Final[Mapping[str, PasswordHash]] = {"alice": parsed(BCRYPT), "é": parsed(BCRYPT)}
CHALLENGE: Final = Deny(
    http_status=401,
    body="Sign in with a user name and a password.\n",
    headers=(("Auth-Handler", "htpasswd"), ("WWW-Authenticate", 'Basic realm="default", charset="UTF-8"')),
    rule="htpasswd credentials",
)
BUSY: Final = Busy()
GENEROUS: Final = Rate(burst=1e9, per_second=1)


def basic(credentials: str | bytes) -> str:
    content = credentials if isinstance(credentials, bytes) else credentials.encode()
    return "Basic " + b64encode(content).decode()


def request(
    credentials: str | bytes | None, *, context: Mapping[str, str] | None = None, source: str = "10.0.0.1", **more: str
) -> Request:
    given = () if credentials is None else (("authorization", basic(credentials)),)
    return Request(
        method="GET",
        path="/",
        headers=(*given, *((name.replace("__", "-"), value) for name, value in more.items())),
        context=context or {},
        source=Peer(address=source),
    )


@dataclass(slots=True)
class Judge:
    """Drives a backend and counts the work it asks for."""

    backend: Htpasswd
    works: list[Attempt] = field(default_factory=list)
    now: datetime = NOW

    def __call__(self, asked: Request, outcome: Outcome | None = None) -> Decision:
        judged = self.backend.decide(asked, self.now)
        if isinstance(judged, Allow | Deny | Unavailable):
            return judged
        try:
            effect = next(judged)
            assert isinstance(effect, Work)
            assert isinstance(effect.run, Attempt)
            self.works.append(effect.run)
            judged.send(effect.run() if outcome is None else outcome)
        except StopIteration as finished:
            decision: Decision = finished.value
            return decision
        raise AssertionError("one work is enough")


def judge(users: Mapping[str, PasswordHash] = USERS, settings: HtpasswdSettings | None = None) -> Judge:
    backend = Htpasswd(Secret(b"secret"), settings)
    publish(backend, users)
    return Judge(backend)


def publish(backend: Htpasswd, users: Mapping[str, PasswordHash], realm: str | None = None) -> None:
    backend.publish(build_realms([Declared(origin="file", realm=realm, users=users)], default="default")[0])


def allow(user: str, *context: tuple[str, str], name: str | None = None, remove: tuple[str, ...] = ()) -> Allow:
    told = (("Auth-Handler", "htpasswd"), ("Auth-Username", name or user), ("Auth-Realm", "default"), *context)
    unseen = ("authorization", *sorted(("auth_handler", "auth_realm", "auth_username", *remove)))
    return Allow(edits=HeaderEdits(set=told, remove=unseen), identity=user)


def test_the_right_password_allows_and_tells_the_origin_who_it_is() -> None:
    asked = request("alice:wonder", context={"tenant": "blue"})
    assert judge()(asked) == allow("alice", ("Auth-Context-Tenant", "blue"))


@pytest.mark.requirement("E01")
def test_headers_in_our_name_are_removed() -> None:
    asked = request("alice:wonder", auth__username="root", auth__context__x="1", auth_context_x="1", x__other="1")
    assert judge()(asked) == allow("alice", remove=("auth-context-x", "auth_context_x"))


def test_credentials_are_forwarded_only_when_asked() -> None:
    decision = judge(settings=HtpasswdSettings(forward_credentials=True))(request("alice:wonder"))
    assert isinstance(decision, Allow)
    assert "authorization" not in decision.edits.remove


@pytest.mark.parametrize("credentials", ["alice:wrong", "alice:", "bob:wonder", "Alice:wonder", "alice:wonder ", None])
def test_anything_else_is_challenged(credentials: str | None) -> None:
    assert judge()(request(credentials)) == CHALLENGE


REASONS = {
    "nothing": (request(None), "no_credentials"),
    "no user and password": (request("alice"), "bad_credentials"),
    "a wrong password": (request("alice:wrong"), "wrong_credentials"),
    "a user that does not exist": (request("bob:wonder"), "wrong_credentials"),
    "a realm that does not exist": (request("alice:wonder", context={"realm": "none"}), "unknown_realm"),
}


@pytest.mark.parametrize(("asked", "reason"), REASONS.values(), ids=REASONS.keys())
def test_the_log_says_why_a_request_is_denied(asked: Request, reason: str) -> None:
    decision = judge()(asked)
    assert isinstance(decision, Deny)
    assert decision.reason == reason
    made = Answer(backend="htpasswd", decision=decision, request=asked, reply=b"")
    assert build_entry(made, backend="htpasswd", now=0, seconds=0).reason == reason


def test_two_headers_are_challenged_without_work() -> None:
    asking = judge()
    asked = Request(method="GET", path="/", headers=(("authorization", basic("alice:wonder")),) * 2)
    assert (asking(asked), asking.works) == (CHALLENGE, [])


@pytest.mark.requirement("H04")
def test_a_password_over_72_bytes_is_401_at_the_usual_cost() -> None:
    asking = judge()
    assert asking(request("alice:" + "x" * 73)) == CHALLENGE
    assert [(work.stored, len(work.password)) for work in asking.works] == [(parsed(BCRYPT), 73)]


@pytest.mark.requirement("H05")
def test_a_password_with_nul_is_401_before_hashing() -> None:
    asking = judge()
    assert (asking(request("alice:wonder\0")), asking.works) == (CHALLENGE, [])


@pytest.mark.requirement("H07")
@pytest.mark.parametrize("tried", ["alice", "bob", "carol", "nobody"])
def test_every_failure_takes_the_work_of_the_costliest_hash(tried: str) -> None:
    costliest = parsed(BCRYPT.replace("$04$", "$09$"))
    asking = judge({"alice": parsed(BCRYPT), "bob": costliest, "carol": parsed(KINDS["{SHA}"][0])})
    assert asking(request(f"{tried}:wrong")) == CHALLENGE
    (attempt,) = asking.works
    work = sum(effort(stored) for stored in (attempt.stored, *attempt.rest) if stored is not None)
    assert effort(costliest) <= work <= effort(costliest) * 1.05


@pytest.mark.requirement("H09")
def test_the_user_ends_at_the_first_colon_and_is_compared_byte_for_byte() -> None:
    asking = judge()
    assert asking(request("alice:x:wonder")) == CHALLENGE
    assert asking(request("é:wonder")) == allow("é", name="%C3%A9")
    assert asking(request("e\u0301:wonder")) == CHALLENGE
    assert asking(request("alice\r\nx:wonder")) == CHALLENGE


@pytest.mark.requirement("H10")
def test_a_user_name_cannot_inject_a_header_even_if_a_list_had_it() -> None:
    asking = judge({"a\r\nx: y": parsed(BCRYPT), " a": parsed(BCRYPT)})
    assert asking(request("a\r\nx: y:wonder")) == CHALLENGE
    assert asking(request(" a:wonder")) == allow(" a", name="%20a")


def test_verified_credentials_take_no_work_until_they_expire() -> None:
    asking = judge(settings=HtpasswdSettings(lifetime=300.0))
    for seconds, works in ((0, 1), (299, 1), (301, 2), (600, 2)):
        asking.now = NOW + timedelta(seconds=seconds)
        assert asking(request("alice:wonder")) == allow("alice")
        assert len(asking.works) == works


@pytest.mark.requirement("E24")
def test_ever_new_names_of_a_client_take_no_memory() -> None:
    judging = judge()
    judging(request("alice:wonder"))
    for index in range(50):
        asked = request("alice:wonder")
        named = replace(asked, headers=(*asked.headers, (f"auth-context-{index}", "x")))
        assert judging(named) == allow("alice", remove=(f"auth-context-{index}",))
    assert judging.backend._usual_allow.cache_info().currsize == 1


def test_a_failure_is_not_remembered() -> None:
    asking = judge()
    assert [asking(request("alice:wrong")) for _ in range(2)] == [CHALLENGE] * 2
    assert len(asking.works) == 2


@pytest.mark.requirement("H13")
def test_a_changed_or_removed_user_ends_the_memory_of_the_old_password() -> None:
    asking = judge()
    assert asking(request("alice:wonder")) == allow("alice")
    publish(asking.backend, {"alice": parsed(KINDS["apr1"][0].replace("pjqt", "pjqu"))})
    assert asking(request("alice:wonder")) == CHALLENGE
    publish(asking.backend, {"bob": parsed(BCRYPT)})
    assert asking(request("alice:wonder")) == CHALLENGE


@pytest.mark.requirement("H11")
def test_a_flood_for_one_user_is_429_without_work_and_others_go_on() -> None:
    asking = judge(settings=HtpasswdSettings(per_user=Rate(burst=3, per_second=0.25), per_source=GENEROUS))
    assert asking(request("é:wonder")) == allow("é", name="%C3%A9")
    decisions = [asking(request("alice:wrong")) for _ in range(1000)]
    too_many = Deny(
        http_status=429,
        body="Too many attempts to sign in. Retry later.\n",
        headers=(("Auth-Handler", "htpasswd"), ("Retry-After", "4")),
        rule="htpasswd throttle",
    )
    assert decisions == [CHALLENGE] * 3 + [too_many] * 997
    assert len(asking.works) == 4
    assert asking(request("é:wonder")) == allow("é", name="%C3%A9")
    asking.now = NOW + timedelta(seconds=4)
    assert asking(request("alice:wonder")) == allow("alice")


@pytest.mark.requirement("H11")
def test_a_flood_from_one_source_is_429_for_any_user_but_not_elsewhere() -> None:
    asking = judge(settings=HtpasswdSettings(per_source=Rate(burst=3, per_second=0.25)))
    decisions = [asking(request(f"user{number}:wrong")) for number in range(5)]
    assert [decision.http_status for decision in decisions if isinstance(decision, Deny)] == [401, 401, 401, 429, 429]
    assert asking(request("alice:wonder", source="10.0.0.2")) == allow("alice")


def test_one_attempt_many_times_at_once_counts_as_one() -> None:
    asking = judge(settings=HtpasswdSettings(per_user=Rate(burst=1, per_second=1)))
    flows = [asking.backend.decide(request("alice:wonder"), NOW) for _ in range(10)]
    works = [next(flow) for flow in flows if not isinstance(flow, Allow | Deny | Unavailable)]
    assert len(works) == 10
    assert len(set(works)) == 1


@pytest.mark.requirement("H11")
def test_one_success_many_times_at_once_puts_back_one_attempt() -> None:
    asking = judge(settings=HtpasswdSettings(per_user=Rate(burst=3, per_second=0.25)))
    asking(request("alice:wrong"))
    asking(request("alice:wrong too"))
    flows = [asking.backend.decide(request("alice:wonder"), NOW) for _ in range(10)]
    begun = [flow for flow in flows if not isinstance(flow, Allow | Deny | Unavailable)]
    for flow in begun:
        next(flow)
    for flow in begun:
        with pytest.raises(StopIteration):
            flow.send(True)
    decisions = [asking(request(f"alice:{number}")) for number in range(2)]
    assert [decision.http_status for decision in decisions if isinstance(decision, Deny)] == [401, 429]


def test_the_outcome_of_an_attempt_may_be_kept_by_its_mark_which_has_no_password_in_it() -> None:
    flow = judge().backend.decide(request("alice:wonder"), NOW)
    assert not isinstance(flow, Allow | Deny | Unavailable)
    work = next(flow)
    assert isinstance(work, Work)
    assert isinstance(work.run, Attempt)
    assert (work.key, len(work.key)) == (work.run.mark, 32)
    assert b"wonder" not in work.key


def test_an_attempt_that_is_given_up_counts() -> None:
    asking = judge(settings=HtpasswdSettings(per_user=Rate(burst=1, per_second=1)))
    flow = asking.backend.decide(request("alice:wrong"), NOW)
    assert not isinstance(flow, Allow | Deny | Unavailable)
    next(flow)
    flow.close()
    decision = asking(request("alice:wrong"))
    assert isinstance(decision, Deny)
    assert decision.http_status == 429


def test_without_room_for_the_work_there_is_no_decision_and_no_count() -> None:
    asking = judge(settings=HtpasswdSettings(per_user=Rate(burst=1, per_second=1)))
    for _ in range(3):
        assert asking(request("alice:wonder"), BUSY) == Unavailable(cause="too many password checks are pending")
    assert asking(request("alice:wonder")) == allow("alice")


def test_before_users_are_loaded_there_is_no_decision() -> None:
    backend = Htpasswd(Secret(b"secret"))
    missing = Unavailable(cause="no users are loaded yet")
    assert Judge(backend)(request("alice:wonder")) == missing
    backend.publish(build_realms([], default="default", pending=frozenset({"default"}))[0])
    assert Judge(backend)(request("alice:wonder")) == missing


def test_an_empty_list_denies_every_user() -> None:
    assert judge({})(request("alice:wonder")) == CHALLENGE


def test_the_context_chooses_the_realm_and_an_unknown_one_denies() -> None:
    asking = judge()
    publish(asking.backend, USERS, realm="shop")
    assert asking(request("alice:wonder")) == CHALLENGE
    decision = asking(request("alice:wonder", context={"realm": "shop"}))
    assert isinstance(decision, Allow)
    assert decision.edits.set[2:] == (("Auth-Realm", "shop"), ("Auth-Context-Realm", "shop"))
    decision = asking(request("alice:wonder", context={"realm": "x\r\ny"}))
    assert isinstance(decision, Deny)
    assert (decision.http_status, decision.rule) == (403, "htpasswd realm")


@pytest.mark.requirement("H17")
def test_an_unfit_default_realm_cannot_be_configured() -> None:
    with pytest.raises(ValueError, match="a realm has"):
        HtpasswdSettings(default_realm='x", charset="UTF-7"\r\n')


def test_no_password_is_in_what_could_be_logged() -> None:
    asking = judge()
    decision = asking(request("alice:wonder"))
    assert "wonder" not in f"{decision} {asking.works}"


@given(st.binary(max_size=40) | st.sampled_from([b"alice:wonder", b"alice:", b"alice:wonder:", b":wonder"]))
def test_only_the_password_of_a_user_ever_allows(credentials: bytes) -> None:
    asking = judge({"alice": parsed(KINDS["{SHA}"][0])})
    for _ in range(2):
        assert isinstance(asking(request(credentials)), Allow) == (credentials == b"alice:wonder")


@given(st.lists(st.tuples(st.sampled_from(["authorization", "auth-username", "x"]), st.text(max_size=40)), max_size=4))
def test_no_headers_raise_or_allow(headers: list[tuple[str, str]]) -> None:
    assert judge()(Request(method="GET", path="/", headers=tuple(headers))) == CHALLENGE
