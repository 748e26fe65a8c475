"""One request that is being decided: each fact about it is computed once, when the first rule needs it."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from authplane.cel.check.admissible_data import Admitted, admit
from authplane.cel.check.expression_outcome import Code, Failed
from authplane.cel.check.expression_outcome import Outcome as CelOutcome
from authplane.cel.check.program import Program
from authplane.cel.evaluate.facts import ABSENT, Fact, Lookup, build_fact
from authplane.core.values import dataclass
from authplane.policy.attached.attachments import PolicyChain
from authplane.policy.check.request import Request
from authplane.policy.explain.tracing import Tracer
from authplane.policy.identity.evidence import Evidence
from authplane.policy.identity.tokens.token_outcome import Verified
from authplane.policy.mcp.arguments import unambiguous
from authplane.policy.mcp.expression_context import Unfit, mcp_context
from authplane.policy.mcp.header_front import WATCHED, canonical_path
from authplane.policy.mcp.mcp_calls import McpCall, ToolCall, method_of
from authplane.policy.mcp.mcp_refusal import McpRefusal
from authplane.policy.mcp.read_request import read_mcp
from authplane.policy.rules.access_settings import Settings

Evaluate: TypeAlias = Callable[[Program, Lookup], CelOutcome]
"""Evaluates an expression; the caller may count, time and stop slow ones."""


class Identity(NamedTuple):
    """The identity of the sender for one rule; another rule may see another identity."""

    name: str
    """For logs; empty for a rule without a source."""
    members: Mapping[str, str] | Verified
    """What expressions see: a token's claims, or these members."""


NOBODY: Final = Identity("", {})

_UNFIT: Final = {Unfit.NUL: Failed(Code.NUL_IN_INPUT), Unfit.INTEGER: Failed(Code.NUMBER_OUT_OF_RANGE)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a decision needs besides the policies."""

    evaluate: Evaluate
    explain: bool = False


class Case:
    """A request, its target, and what is known about it so far."""

    __slots__ = (
        "_call",
        "_facts",
        "_read",
        "chain",
        "deadline",
        "evaluate",
        "evidence",
        "failures",
        "now",
        "request",
        "settings",
        "strict",
        "tracer",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 (every request makes one)
        self, settings: Settings, chain: PolicyChain, request: Request, evidence: Evidence, now: datetime, means: Means
    ) -> None:
        self.settings = settings
        self.chain = chain
        self.request = request
        self.evidence = evidence
        self.now = now
        self.deadline = 0.0
        self.strict = chain.reads_mcp
        """Some rule reads MCP messages: then an ambiguous message is denied, for every sender."""
        self.evaluate = means.evaluate
        self.tracer = Tracer() if means.explain else None
        self.failures: list[str] = []
        """Expressions that failed, with the error code."""
        self._call: McpCall | McpRefusal | None = None
        self._read = False
        self._facts: dict[str, Fact] = {}

    def turn_to(self, chain: PolicyChain, evidence: Evidence) -> None:
        """Decide the same request by other policies; what was read of it is kept."""
        self.chain = chain
        self.strict = chain.reads_mcp
        self.evidence = evidence
        self.deadline = 0.0
        self.failures = []
        self.tracer = None if self.tracer is None else Tracer()

    def call(self) -> McpCall | McpRefusal | None:
        """Return the MCP call in the request; None if the target is not an MCP server."""
        if not self._read:
            self._read = True
            if self.chain.is_mcp:
                request = self.request
                call = read_mcp(
                    request.method,
                    request.headers_for(WATCHED),
                    request.path,
                    request.body,
                    complete=True,
                    limits=self.settings.limits,
                )
                self._call = unambiguous(call, self.chain.arguments) if self.chain.arguments else call
        return self._call

    def seen_call(self) -> McpCall | McpRefusal | None:
        """Return the MCP call if it was read already."""
        return self._call

    def complete(self) -> bool:
        """Tell whether the whole body is here: a proxy may send a part of it, whatever its configuration."""
        request = self.request
        if any(value.lower() != "false" for value in request.values("x-envoy-auth-partial-body")):
            return False
        length = str(len(request.body))
        return all(value == length for value in request.values("content-length"))

    def ask_until(self) -> float:
        """Return the deadline for all external services together."""
        if not self.deadline:
            self.deadline = self.now.timestamp() + self.settings.ask_seconds
        return self.deadline

    def lookup(self, identity: Identity) -> Lookup:
        """Return the variables that an expression of a rule sees."""
        own = _admitted(identity)
        # Not kept: with the case it would be a reference cycle, which only the garbage collector frees.
        return lambda name: own if name == "identity" else self._fact(name)

    def _fact(self, name: str) -> Fact:
        try:
            return self._facts[name]
        except KeyError:
            fact = self._facts[name] = build_fact(self._find(name))
            return fact

    def _find(self, name: str) -> object:
        request = self.request
        match name:
            case "request.method":
                return request.method
            case "request.path" | "request.url_path":
                # Servers read a path that is not canonical in different ways, so no expression may read it.
                return request.path if canonical_path(request.path) else ABSENT
            case "request.query" | "request.host":
                return request.query if name == "request.query" else request.host
            case "request.headers":
                return joined_headers(request)
            case "request.time":
                return ABSENT if request.time is None else request.time
            case _:
                return self._mcp_fact(name)

    def _mcp_fact(self, name: str) -> object:
        call = self.call()
        if call is None or isinstance(call, McpRefusal):
            return ABSENT
        if name == "request.mcp.method":
            return method_of(call) or ABSENT
        if name == "request.mcp.tool_name":
            return call.name if isinstance(call, ToolCall) else ABSENT
        context = mcp_context(call)
        return _UNFIT[context] if isinstance(context, Unfit) else context.get(name.rpartition(".")[2], ABSENT)


def joined_headers(request: Request) -> dict[str, str]:
    """Return the headers by name; several values of one are joined by a comma."""
    found: dict[str, str] = {}
    for name, value in request.headers:
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _admitted(identity: Identity) -> Admitted | Failed:
    members: Any = identity.members
    return members.admitted_claims() if isinstance(members, Verified) else admit(members)
