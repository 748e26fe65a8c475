"""Users in Secrets."""

from collections.abc import Mapping

import pytest
from tests.authserver.backends.test_passwords import BCRYPT, parsed

from authplane.authserver.backends.htpasswd.label_selectors import parse_selector
from authplane.authserver.backends.htpasswd.user_realms import Declared
from authplane.authserver.backends.htpasswd.user_secrets import ALL_SECRETS, SecretFilter, parse_user_secrets
from authplane.core.secret import Secret as Hidden
from authplane.resources.kinds.core import Secret
from authplane.resources.kinds.meta import Meta

HASH = parsed(BCRYPT)
ALICE = f"alice:{BCRYPT}\n"


def secret(
    name: str,
    realm: str | None = None,
    *,
    namespace: str = "default",
    data: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Secret:
    annotations = {"projectcontour.io/auth-type": "basic"}
    if realm is not None:
        annotations["projectcontour.io/auth-realm"] = realm
    return Secret(
        metadata=Meta(name=name, namespace=namespace, annotations=annotations, labels=labels or {}),
        data={key: Hidden(value.encode()) for key, value in ({"auth": ALICE} if data is None else data).items()},
    )


def found(*secrets: Secret, wanted: SecretFilter = ALL_SECRETS) -> list[tuple[str, str | None]]:
    return [(each.origin, each.realm) for each in parse_user_secrets(secrets, wanted)[0]]


def test_the_annotation_is_the_realm_and_none_or_a_star_is_every_realm() -> None:
    secrets = (secret("c", "shop"), secret("b", "*"), secret("a", ""), secret("d"))
    assert parse_user_secrets(secrets, ALL_SECRETS) == (
        tuple(
            Declared(origin=f"Secret/default/{name}", owner="default", realm=realm, users={"alice": HASH})
            for name, realm in (("a", None), ("b", None), ("c", "shop"), ("d", None))
        ),
        (),
    )


@pytest.mark.requirement("H14")
def test_a_secret_with_a_duplicate_user_denies_every_user() -> None:
    declared, problems = parse_user_secrets([secret("a", "shop", data={"auth": ALICE + ALICE})], ALL_SECRETS)
    assert declared == (Declared(origin="Secret/default/a", owner="default", realm="shop", users={}),)
    assert [each.problem.reason for each in problems] == ["UserRepeated"]


def test_other_secrets_are_not_read() -> None:
    digest = Meta(name="a", annotations={"projectcontour.io/auth-type": "digest"})
    data = {"auth": Hidden(ALICE.encode())}
    assert found(Secret(metadata=digest, data=data), Secret(metadata=Meta(name="b"), data=data)) == []


def test_the_selector_and_the_namespaces_choose() -> None:
    selector = parse_selector("app in (web)")
    assert selector is not None
    secrets = (secret("a", labels={"app": "web"}), secret("b"), secret("c", namespace="x", labels={"app": "web"}))
    assert found(*secrets, wanted=SecretFilter(selector=selector)) == [
        ("Secret/default/a", None),
        ("Secret/x/c", None),
    ]
    assert found(*secrets, wanted=SecretFilter(selector=selector, namespaces={"x"})) == [("Secret/x/c", None)]


def test_a_bad_line_keeps_the_good_ones_and_is_named() -> None:
    declared, problems = parse_user_secrets([secret("a", data={"auth": f"# x\nbob:plain\n{ALICE}"})], ALL_SECRETS)
    assert [dict(each.users) for each in declared] == [{"alice": HASH}]
    assert [str(each.ref) + " " + str(each.problem) for each in problems] == [
        "Secret/default/a data.auth: Line 2: 'bob': The hash format is not supported. The server never accepts "
        "plain text or DES. Run 'htpasswd -B' to create a hash. [HashUnknown]"
    ]


def test_a_secret_without_the_key_or_with_an_unfit_realm_is_not_used_and_is_named() -> None:
    declared, problems = parse_user_secrets([secret("a", data={}), secret("b", "x\ny")], ALL_SECRETS)
    assert declared == ()
    assert [(each.ref.name, each.problem.reason) for each in problems] == [("a", "KeyMissing"), ("b", "RealmInvalid")]
