"""Limits that the operator sets for authorization in HTTPProxies."""

from typing import Final, assert_never

from authplane.controlplane.graph.settings.gateway_settings import Disabling, Settings
from authplane.core.problems import Problems
from authplane.core.timeouts import After, Disabled, Timeout, UseDefault

_ASK: Final = "or ask the operator to change spec.contour"
_OF: Final = "of the AuthplaneConfiguration."


def require_fail_open_permitted(settings: Settings, problems: Problems) -> None:
    """Report ``failOpen`` where it is not allowed."""
    if not settings.may_fail_open:
        with problems.at("failOpen"):
            problems.add(
                "AuthFailOpenNotPermitted", f"failOpen is not permitted. Remove it, {_ASK}.allowFailOpen {_OF}"
            )


def require_shadow_permitted(settings: Settings, problems: Problems) -> bool:
    """Report a host that is not to be enforced, where that is not allowed; return whether it is."""
    if settings.may_fail_open and settings.disabling is not Disabling.NOBODY:
        return True
    field = "disabling" if settings.may_fail_open else "allowFailOpen"
    said = f"Shadow mode is not permitted. Remove the annotation, {_ASK}.{field} {_OF}"
    problems.add("AuthShadowNotPermitted", said)
    return False


def require_disabling_permitted(settings: Settings, root: str, namespace: str, problems: Problems) -> bool:
    """Report a policy that disables authorization where that is not allowed; return whether it is.

    ``root`` and ``namespace`` are those of the root and of the HTTPProxy with the policy.
    """
    match settings.disabling:
        case Disabling.ANYONE:
            return True
        case Disabling.ROOT_NAMESPACE:
            if namespace == root:
                return True
            why = f'Only HTTPProxies in the namespace of the root, "{root}", may disable authorization.'
        case Disabling.NOBODY:
            why = "Disabling authorization is not permitted."
        case _:
            assert_never(settings.disabling)
    with problems.at("authPolicy", "disabled"):
        problems.add("AuthDisablingNotPermitted", f"{why} Remove the field, {_ASK}.disabling {_OF}")
    return False


def require_short(timeout: Timeout, settings: Settings, problems: Problems) -> None:
    """Report a check that may take longer than is allowed, be it by the host's timeout or its ExtensionService's."""
    if not isinstance(settings.longest_check, After) or isinstance(timeout, UseDefault):
        return
    longest = settings.longest_check.duration
    if isinstance(timeout, Disabled) or timeout.duration > longest:
        with problems.at("responseTimeout"):
            problems.add(
                "AuthResponseTimeoutNotPermitted",
                f"The configuration limits a check to {longest.total_seconds():g} s. Lower the timeout, "
                f"{_ASK}.maxResponseTimeout {_OF}",
            )
