"""The rbac filter: its configuration, and how it decides a call."""

from dataclasses import field
from enum import Enum
from typing import Final

from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Call, Code, Flow, Proceed, Running, Stop
from authplane.dataplane.filters.rbac.rbac_rules import Need, Rule, is_known, keeps, needs_of
from authplane.dataplane.filters.registry import State

_DENIED: Final = Stop(code=Code.PERMISSION_DENIED, message="an RBAC policy denies the call")


class Action(Enum):
    """What becomes of the calls that match a policy."""

    ALLOW = "allow"
    """They go on, and no others."""
    DENY = "deny"
    """They end, and no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Grants or denies calls by permission and principal."""

    name: str
    permission: Rule
    principal: Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Rbac:
    """Policies and what they are for."""

    action: Action
    policies: tuple[Policy, ...] = ()
    needs: frozenset[Need] = field(init=False, repr=False, compare=False)
    """What must be known of every call."""

    def __post_init__(self) -> None:
        rules = [rule for each in self.policies for rule in (each.permission, each.principal)]
        object.__setattr__(self, "needs", frozenset().union(*map(needs_of, rules)))


@dataclass(frozen=True, slots=True)
class RbacFilter:
    """The rules for calls; None has none, and every call goes on."""

    rules: Rbac | None = None

    def build(self, state: State, override: object | None) -> Running:
        """Create the filter; an override replaces the whole configuration."""
        del state
        return override if isinstance(override, RbacFilter) else self

    def run(self, call: Call) -> Flow:
        """Let the call go on if the policies permit it."""
        yield from ()
        return Proceed(metadata=call.metadata) if self.rules is None or permits(self.rules, call) else _DENIED


def permits(rules: Rbac, call: Call) -> bool:
    """Tell whether a call is allowed; it is not if a value that the rules read is unknown."""
    connection = call.connection
    if connection is None or not all(is_known(need, call, connection) for need in rules.needs):
        return False
    matched = any(
        keeps(each.permission, call, connection) and keeps(each.principal, call, connection) for each in rules.policies
    )
    return matched == (rules.action is Action.ALLOW)
