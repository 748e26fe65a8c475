"""Asks every issuer for its keys, and compares its clock with ours."""

import os
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import httpcore2

from authplane.core.addresses import is_loopback
from authplane.core.values import dataclass
from authplane.devkit.diagnosis.attempts import TOTAL, resolve, try_all, unresolved
from authplane.devkit.diagnosis.examination import Examined, Outcome, Row
from authplane.policy.identity.tokens.issuer import Issuer, IssuerState
from authplane.policy.identity.tokens.issuer_events import FetchFailed, KeysLoaded
from authplane.runtime.clients.private_networks import PrivateAddressError
from authplane.runtime.issuers.issuer_client import FetchError, IssuerClient, causes

_MOST_FETCHES: Final = 4
"""The discovery document is in one of a few places; the key set comes after it."""
_MOST_SKEW: Final = 30.0
"""Seconds. The Date header counts whole seconds, and the answer takes some time."""
_NO_CLOCK: Final = (
    "Compare the output of `date -u` with a clock that you trust, or check the time service of this machine."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """What an issuer answered."""

    keys: int | None = None
    """How many keys were loaded; None if none could be."""
    why: str = ""
    remedy: str = ""
    skew: float | None = None
    """By how many seconds our clock is ahead of the issuer's; None if it did not tell."""


async def probe_issuers(examined: Examined) -> Sequence[Row]:
    """Fetch the keys of every issuer as the policy server does, and compare clocks with those that answer."""
    issuers = [_permitted(each, examined) for each in examined.generation.compiled.policies.issuers]
    answers = await try_all([partial(_ask, each, examined) for each in issuers])
    late = _Answered(why=f"the attempt did not end within {TOTAL:g} s", remedy="Run 'authplane doctor' again.")
    found = {each.url.url: answer or late for each, answer in zip(issuers, answers, strict=True)}
    return [*(_row(url, answer) for url, answer in found.items()), *_clock_rows(found)]


def _permitted(issuer: Issuer, examined: Examined) -> Issuer:
    if not examined.allow_private_issuers:
        return issuer
    return replace(issuer, reach=replace(issuer.reach, allow_private_network=True))


async def _ask(issuer: Issuer, examined: Examined) -> _Answered:
    """Fetch the discovery document, then the keys."""
    host = urlsplit(issuer.url.url).hostname or ""
    if not await resolve(host):
        return _Answered(why=unresolved(host).why, remedy=_UNREACHABLE)
    state, client = IssuerState(issuer), IssuerClient(reach=issuer.reach)
    skew: float | None = None
    for _ in range(_MOST_FETCHES):
        fetch = state.fetch(time.monotonic())
        try:
            answer = await client.fetch(fetch.url)
        except FetchError as error:
            return _Answered(why=_words(error), remedy=_remedy(error, host), skew=skew)
        skew = _skew(answer.date, examined.clock()) if skew is None else skew
        for event in state.answered(fetch, answer, time.monotonic(), 0):
            if isinstance(event, KeysLoaded):
                return _Answered(keys=len(event.keys), skew=skew)
            if isinstance(event, FetchFailed):
                return _Answered(why=f"{event.why} ({event.url})", remedy=_DOCUMENT, skew=skew)
    return _Answered(why="the issuer has no discovery document", remedy=_DOCUMENT, skew=skew)


_UNREACHABLE: Final = (
    "Correct the URL of the issuer, or allow this machine and the policy server to connect to the issuer."
)
_DOCUMENT: Final = "Set issuerUrl to a URL at which the issuer serves a discovery document and a key set."


_PRIVATE: Final = (
    "Set allowPrivateNetwork of the issuer to true in the AuthplaneConfiguration, or pass --allow-private-issuers."
)
_TRUST: Final = (
    "et caFile or caSecret of the issuer in the AuthplaneConfiguration to the CA of the issuer's certificate, or renew"
    " that certificate."
)
_DEV_DOWN: Final = (
    "If this is the development issuer, start 'authplane run' or 'authplane dev issuer' in the directory"
    " where you ran 'authplane init'. Otherwise, start the issuer or correct its address."
)
_DEV_OTHER: Final = (
    "If this is the development issuer, stop the process that listens at its address, and start"
    f" 'authplane run' in the directory where you ran 'authplane init'. Otherwise, s{_TRUST}"
)


def _remedy(error: FetchError, host: str) -> str:
    here = is_loopback(host)
    for each in causes(error):
        if isinstance(each, PrivateAddressError):
            return _PRIVATE
        if isinstance(each, ssl.SSLCertVerificationError):
            return _DEV_OTHER if here else f"S{_TRUST}"
    return _DEV_DOWN if here else _UNREACHABLE


def _words(error: FetchError) -> str:
    """Return what the system says if a connection fails: libraries say only that all attempts failed."""
    if any(isinstance(each, httpcore2.TimeoutException) for each in causes(error)):
        return "the issuer did not answer in time"
    found = (each for each in causes(error) if isinstance(each, OSError) and not isinstance(each, ssl.SSLError))
    return next((os.strerror(each.errno) for each in found if each.errno and each.errno > 0), str(error))


def _row(url: str, answer: _Answered) -> Row:
    if answer.keys is None:
        return Row(
            probe="issuer",
            subject=url,
            outcome=Outcome.FINDING,
            message=f"Cannot fetch keys: {answer.why}.",
            remedy=answer.remedy,
        )
    keys = "1 key" if answer.keys == 1 else f"{answer.keys} keys"
    return Row(probe="issuer", subject=url, outcome=Outcome.OK, message=f"Fetched {keys}.")


# --- Clock


def _skew(date: str, now: datetime) -> float | None:
    try:
        told = parsedate_to_datetime(date)
    except (ValueError, TypeError):
        return None
    if told.tzinfo is None:
        told = told.replace(tzinfo=UTC)
    return (now - told).total_seconds()


def _clock_rows(answers: dict[str, _Answered]) -> Iterator[Row]:
    told = {url: answer.skew for url, answer in answers.items() if answer.skew is not None}
    # Without an issuer there are no tokens, whose times a wrong clock would misread.
    if answers and not told:
        yield Row(
            probe="clock",
            subject="this machine",
            outcome=Outcome.UNKNOWN,
            message="authplane cannot compare the clock, because no issuer answered with a Date header.",
            remedy=_NO_CLOCK,
        )
    for url, skew in told.items():
        if abs(skew) <= _MOST_SKEW:
            message = f"The two clocks agree within {_MOST_SKEW:g} s."
            yield Row(probe="clock", subject=url, outcome=Outcome.OK, message=message)
            continue
        way = "ahead of" if skew > 0 else "behind"
        yield Row(
            probe="clock",
            subject=url,
            outcome=Outcome.FINDING,
            message=(
                f"This machine's clock is {abs(skew):.0f} s {way} the issuer's, so authplane may deny valid tokens."
            ),
            remedy="Synchronize the clock of this machine, for example with chrony or systemd-timesyncd.",
        )
