"""What the API server says when it refuses a request, in words for the user."""

import json
from http import HTTPStatus
from typing import Final

from authplane.core.problems import printable
from authplane.core.text import shorten
from authplane.runtime.kubernetes.api_client import ApiResponse

_LONGEST: Final = 300


def answer_fault(answer: ApiResponse, verb: str, resource: str) -> str:
    """Return a sentence about an answer that is no success, and what to do."""
    said = shorten(printable(_message(answer.body)), _LONGEST)
    if answer.status == HTTPStatus.FORBIDDEN:
        return f"This program may not {verb} {resource} ({said}). Grant its ServiceAccount or user this permission."
    if answer.status == HTTPStatus.UNAUTHORIZED:
        return (
            "The API server does not accept the credentials of this program. Renew the token or the certificate in the "
            "kubeconfig. In a Pod, check that the ServiceAccount exists."
        )
    return f"The API server answered {answer.status} to {verb} {resource} ({said}). Check the log of the API server."


def _message(body: bytes) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return "no reason"
    return str(found.get("message") or "no reason") if isinstance(found, dict) else "no reason"
