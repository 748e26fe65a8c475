"""Finds conditions that a gRPC server cannot check: on the body of a call, and on its host."""

from collections.abc import Iterator
from typing import Final, TypeAlias

from authplane.core.problems import Path
from authplane.policy.rules.external_service import ExternalService
from authplane.policy.rules.rule_model import AllTools, Asked, Entry, Expression, Inline, Tools, reads_mcp
from authplane.resources.kinds.agentic import AccessRule

Unknown: TypeAlias = tuple[Path, str]
"""The path of a condition, and the message about it."""

_BODY: Final = "A gRPC server does not report the body of a call. Remove this condition."
_HOST: Final = "A gRPC server does not report the host of a call. Remove this condition."
_SERVER_HOST: Final = "request.host"


def unknown_in_rule(path: Path, rule: AccessRule, entries: tuple[Entry, ...]) -> Iterator[Unknown]:
    """Return the conditions of a rule that are not known; ``entries`` has no entries with a problem."""
    if rule.tools is not None:
        yield (*path, "tools"), _BODY
        return
    written = rule.authorization or ()
    # If some have a problem there is an error already, and their places do not matter.
    places = range(len(written)) if len(written) == len(entries) else [0] * len(entries)
    for place, entry in zip(places, entries, strict=True):
        for below, why in _unknown_in_entry(entry):
            yield (*path, "authorization", place, *below), why


def unknown_in_service(path: Path, service: ExternalService | None) -> Iterator[Unknown]:
    """Return the parts of a request that an external service should get and a gRPC server does not know."""
    if service is not None and service.most_body:
        yield (*path, "externalAuth", "forwardBody"), _BODY


def _unknown_in_entry(entry: Entry) -> Iterator[Unknown]:
    match entry:
        case Tools() | AllTools():
            yield ("tools",), _BODY
        case Inline(mcp=mcp, hosts=hosts):
            if mcp is not None:
                yield ("mcp",), _BODY
            if hosts:
                yield ("hosts",), _HOST
        case Expression(program=program):
            if reads_mcp(entry):
                yield ("cel", "expression"), _BODY
            if _SERVER_HOST in program.variables:
                yield ("cel", "expression"), _HOST
        case Asked(destination=ExternalService() as service):
            yield from unknown_in_service((), service)
        case _:
            return
