"""Lets the API server of a cluster review tokens of ServiceAccounts."""

import asyncio
import json
from http import HTTPStatus
from typing import Any, Final

from authplane.policy.identity.workload_identity.reviewing import Reviewed, ReviewFailed, ReviewOutcome, ReviewToken
from authplane.runtime.kubernetes.api_client import ApiClient, ApiUnreachableError

_PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_LIMIT: Final = 3.0
"""Seconds that a review may take: a client waits for it."""


class ApiTokenReviewer:
    """Sends TokenReviews. No outcome quotes a token, and the API server's words about one are not passed on."""

    def __init__(self, client: ApiClient, *, limit: float = _LIMIT) -> None:
        self._client = client
        self._limit = limit

    async def review(self, effect: ReviewToken) -> ReviewOutcome:
        """Ask the cluster, for a few seconds at most; raises nothing that the cluster can cause."""
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": effect.token.reveal(), "audiences": list(effect.audiences)},
        }
        try:
            async with asyncio.timeout(self._limit):
                answer = await self._client.request("POST", _PATH, body=json.dumps(asked).encode())
        except TimeoutError:
            return ReviewFailed("the API server did not review the token in time")
        except ApiUnreachableError:
            return ReviewFailed("the API server does not answer")
        if answer.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            return ReviewFailed(f"the API server answered {answer.status} to a token review")
        return _outcome(answer.body)


def _outcome(body: bytes) -> ReviewOutcome:
    try:
        status = json.loads(body)["status"]
        user, audiences = status.get("user") or {}, status.get("audiences") or ()
        return Reviewed(
            authenticated=status.get("authenticated") is True,
            user=_text(user.get("username", "")),
            audiences=tuple(_text(each) for each in audiences),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return ReviewFailed("the API server sent no token review")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
