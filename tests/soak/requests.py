"""What clients send, and what the right answer is."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final

from tests.soak.documents import BANK, OPEN, SHOP
from tests.soak.running_site import World
from tests.support.issuers.minting import claims

WEB: Final = "web"


class Right(Enum):
    """How a request is answered if everything works."""

    ALLOW = auto()
    DENY = auto()
    CHALLENGE = auto()
    """Refused, with a hint at tokens."""
    BY_EDIT = auto()
    """Allowed or denied, as the policy is at that time."""


class Shown(Enum):
    """How a caller says who it is."""

    NOTHING = auto()
    TOKEN = auto()
    EXPIRED = auto()
    OTHER_AUDIENCE = auto()
    FORGED = auto()
    CERTIFICATE = auto()


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests that are alike."""

    target: str
    right: Right
    shown: Shown = Shown.NOTHING
    tool: str = ""
    """The tool that an MCP request calls; none means a GET."""
    below: str = ""
    """What the path has before the number of the request."""
    weight: int = 1

    @property
    def name(self) -> str:
        words = [self.target, self.tool or self.below.strip("/"), self.shown.name.lower().replace("_", " ")]
        return " ".join(word for word in words if word and word != "nothing")

    @property
    def is_checked(self) -> bool:
        """Whether the policy server is asked: about one target always, about the other if a signature is wrong."""
        return self.target == BANK or self.shown is Shown.FORGED


def _mcp(target: str) -> tuple[Kind, ...]:
    return (
        Kind(target, Right.ALLOW, Shown.TOKEN, "add", weight=4),
        Kind(target, Right.ALLOW, Shown.CERTIFICATE, "add"),
        Kind(target, Right.BY_EDIT, Shown.TOKEN, "sell", weight=2),
        Kind(target, Right.DENY, Shown.TOKEN, "steal"),
        Kind(target, Right.CHALLENGE, Shown.NOTHING, "add"),
        Kind(target, Right.CHALLENGE, Shown.EXPIRED, "add"),
        Kind(target, Right.CHALLENGE, Shown.OTHER_AUDIENCE, "add"),
        Kind(target, Right.CHALLENGE, Shown.FORGED, "add"),
    )


KINDS: Final = (
    *_mcp(SHOP),
    *_mcp(BANK),
    Kind(OPEN, Right.ALLOW, weight=2),
    Kind(WEB, Right.ALLOW, below="/allow"),
    Kind(WEB, Right.CHALLENGE, below="/private"),
    Kind(WEB, Right.ALLOW, below="/public"),
)
SELLING: Final = {kind.target: kind for kind in KINDS if kind.right is Right.BY_EDIT}


def path_of(kind: Kind, number: int) -> str:
    base = "" if kind.target == WEB else f"/{kind.target}"
    return f"{base}{kind.below}/{number}"


def body_of(kind: Kind, number: int) -> bytes:
    message = {"jsonrpc": "2.0", "id": number % 1000, "method": "tools/call", "params": {"name": kind.tool}}
    return json.dumps(message).encode()


class Tokens:
    """Tokens of the issuer, each used for a while as clients do."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made: dict[tuple[Shown, str], tuple[int, str]] = {}

    def headers(self, shown: Shown) -> Mapping[str, str]:
        if shown in {Shown.NOTHING, Shown.CERTIFICATE}:
            return {}
        now, signer = int(datetime.now(UTC).timestamp()), self._world.signer
        until, token = self._made.get((shown, signer.kid), (0, ""))
        if until < now:
            until, token = now + 60, self._make(shown, now)
            self._made[shown, signer.kid] = until, token
        return {"authorization": f"Bearer {token}"}

    def _make(self, shown: Shown, now: int) -> str:
        ends = now - 600 if shown is Shown.EXPIRED else now + 600
        audience = "other" if shown is Shown.OTHER_AUDIENCE else "soak"
        token = self._world.signer.token(
            claims(iss=self._world.issuer.url, aud=audience, iat=now - 1200, nbf=now - 1200, exp=ends)
        )
        if shown is not Shown.FORGED:
            return token
        head, payload, signature = token.split(".")
        return f"{head}.{payload}.{signature[::-1]}"
