"""The htpasswd backend: HTTP Basic against lists of users."""

from collections.abc import Generator
from dataclasses import field
from datetime import datetime
from functools import lru_cache
from math import ceil
from typing import ClassVar, Final, NamedTuple, assert_never

from authplane.authserver.backends.htpasswd.passwords import PasswordHash, padding, verify
from authplane.authserver.backends.htpasswd.user_realms import Realms
from authplane.authserver.backends.htpasswd.users import UserList
from authplane.authserver.backends.htpasswd.verified_credentials import LIFETIME, CacheCounts, Verified
from authplane.core.header_edits import HeaderEdits
from authplane.core.secret import Secret
from authplane.core.values import dataclass
from authplane.policy.check.auth_headers import context_headers, spoofed_headers
from authplane.policy.check.basic import Absent, Credentials, Unfit, challenge, header_form, parse_credentials
from authplane.policy.check.client_address import client_address
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Request
from authplane.policy.check.throttle import PER_SOURCE, PER_USER, Rate, Throttle, source_of
from authplane.policy.verdicts.effects import Busy, Effect, Flow, Outcome, Work

REALM_KEY: Final = "realm"
"""The entry of a route's context that chooses the realm."""
NAME: Final = "htpasswd"


@dataclass(frozen=True, slots=True, kw_only=True)
class HtpasswdSettings:
    """How the backend treats requests."""

    default_realm: str = "default"
    """For routes whose context names none."""
    forward_credentials: bool = False
    """Leave the Authorization header in the request to the origin."""
    trusted_hops: int = 0
    """Number of trusted proxies before the one that sends the check; they report the addresses of clients."""
    lifetime: float = LIFETIME
    """Seconds for which verified credentials are accepted without hashing again."""
    per_user: Rate = PER_USER
    per_source: Rate = PER_SOURCE

    def __post_init__(self) -> None:
        challenge(self.default_realm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Checks one password; takes as long for a user that does not exist as for one that does.

    Two attempts with the same mark are equal, so the caller may run one for both.
    """

    mark: bytes
    stored: PasswordHash | None = field(compare=False, repr=False)
    """None if there is no such user."""
    costliest: PasswordHash = field(compare=False, repr=False)
    password: bytes = field(compare=False, repr=False)

    def __call__(self) -> bool:
        """Tell whether the password is right."""
        if self.stored is not None and verify(self.stored, self.password):
            return True
        for more in self.rest:
            verify(more, self.password)
        return False

    @property
    def rest(self) -> tuple[PasswordHash, ...]:
        """The hashes that a failed attempt verifies besides that of the user, to take the same time."""
        return (self.costliest,) if self.stored is None else padding(self.stored, self.costliest)


class Htpasswd:
    """Allows requests with the password of a user in the realm; it is unavailable before the first `publish`.

    It caches its usual answers, which takes a check with known credentials from 20 to 11 µs. Users return, and the
    context comes from the configuration. Names of headers come from clients, which could always send new ones: answers
    about them are not cached.
    """

    name: ClassVar = NAME

    def __init__(self, secret: Secret[bytes], settings: HtpasswdSettings | None = None) -> None:
        self._settings = settings or HtpasswdSettings()
        self._verified = Verified(secret, lifetime=self._settings.lifetime)
        self._throttle = Throttle(per_user=self._settings.per_user, per_source=self._settings.per_source)
        self._attempts: set[bytes] = set()
        self._realms: Realms | None = None
        self._challenges: dict[str, _Challenges] = {}
        self._usual_allow = lru_cache(maxsize=4096)(_allow)

    @property
    def cache(self) -> CacheCounts:
        """How often verified credentials were known."""
        return self._verified.counts

    def publish(self, realms: Realms) -> None:
        """Bring these users into force for every check that begins from now on."""
        self._challenges = {
            realm: _Challenges(*(_challenge(realm, reason) for reason in _REASONS)) for realm in realms.lists
        }
        self._realms = realms

    def decide(self, request: Request, now: datetime) -> Decision | Flow:
        """Judge the Basic credentials of a request; only those that are not known by now take work."""
        realms = self._realms
        realm = request.context.get(REALM_KEY) or self._settings.default_realm
        if realms is None or realm in realms.pending:
            return Unavailable(cause="no users are loaded yet")
        users = realms.lists.get(realm)
        if users is None:
            return _NO_REALM
        presented = parse_credentials(request)
        match presented:
            case Credentials():
                stored = users.users.get(presented.user)
                mark = self._verified.mark(presented, b"" if stored is None else stored.stored)
                if stored is not None and self._verified.holds(mark, now.timestamp()):
                    return self._allow(request, realm, presented.user)
                attempt = _Begun(request=request, realm=realm, credentials=presented, mark=mark, now=now.timestamp())
                return self._try(attempt, users)
            case Absent():
                return self._challenges[realm].absent
            case Unfit():
                return self._challenges[realm].unfit
            case _:
                assert_never(presented)

    def _try(self, begun: "_Begun", users: UserList) -> Generator[Effect, Outcome, Decision]:
        """Verify the password; equal concurrent attempts count as one."""
        user, source = f"{begun.realm}:{begun.credentials.user}", self._source(begun.request)
        first = begun.mark not in self._attempts
        if first:
            wait = self._throttle.take(user, source, begun.now)
            if wait:
                return _too_many(wait)
        if users.costliest is None:
            return self._refusal(begun.realm)
        self._attempts.add(begun.mark)
        try:
            outcome = yield Work(
                Attempt(
                    mark=begun.mark,
                    stored=users.users.get(begun.credentials.user),
                    costliest=users.costliest,
                    password=begun.credentials.password,
                ),
                key=begun.mark,
            )
        finally:
            if first:
                self._attempts.discard(begun.mark)
        if first and outcome is not False:
            self._throttle.put_back(user, source, begun.now)
        if isinstance(outcome, Busy):
            return Unavailable(cause="too many password checks are pending")
        if outcome is not True:
            return self._refusal(begun.realm)
        self._verified.add(begun.mark, begun.now)
        return self._allow(begun.request, begun.realm, begun.credentials.user)

    def _source(self, request: Request) -> str:
        return source_of(client_address(request, self._settings.trusted_hops))

    def _refusal(self, realm: str) -> Decision:
        """Return the challenge of a realm, which may have gone since the attempt began."""
        known = self._challenges.get(realm)
        return _NO_REALM if known is None else known.wrong

    def _allow(self, request: Request, realm: str, user: str) -> Allow:
        context, forward = tuple(request.context.items()), self._settings.forward_credentials
        names = request.auth_names
        if names:
            return _allow(user, realm, context, forward, names)
        return self._usual_allow(user, realm, context, forward)


def _allow(
    user: str, realm: str, context: tuple[tuple[str, str], ...], forward: bool, auth_names: tuple[str, ...] = ()
) -> Allow:
    told = (
        ("Auth-Handler", NAME),
        ("Auth-Username", header_form(user)),
        ("Auth-Realm", realm),
        *context_headers(context),
    )
    removed = spoofed_headers(auth_names, told)
    if not forward:
        removed = ("authorization", *removed)
    return Allow(edits=HeaderEdits(set=told, remove=removed), identity=user)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """An attempt that needs work."""

    request: Request
    realm: str
    credentials: Credentials
    mark: bytes
    now: float


class _Challenges(NamedTuple):
    """The denials of a realm, which differ in what the log says and not in what the client gets."""

    absent: Deny
    unfit: Deny
    wrong: Deny


_REASONS: Final = ("no_credentials", "bad_credentials", "wrong_credentials")
_NO_REALM: Final = Deny(
    http_status=403,
    body="Unknown realm.\n",
    headers=(("Auth-Handler", NAME),),
    rule=f"{NAME} realm",
    reason="unknown_realm",
)


def _challenge(realm: str, reason: str) -> Deny:
    return Deny(
        http_status=401,
        body="Sign in with a user name and a password.\n",
        headers=(("Auth-Handler", NAME), ("WWW-Authenticate", challenge(realm))),
        rule=f"{NAME} credentials",
        reason=reason,
    )


def _too_many(wait: float) -> Deny:
    return Deny(
        http_status=429,
        body="Too many attempts to sign in. Retry later.\n",
        headers=(("Auth-Handler", NAME), ("Retry-After", str(ceil(wait)))),
        rule=f"{NAME} throttle",
        reason="too_many_failures",
    )
