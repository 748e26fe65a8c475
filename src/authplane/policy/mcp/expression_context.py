"""The data of a call that expressions read as ``request.mcp``."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, assert_never

from authplane.policy.mcp.mcp_calls import (
    TOOLS_CALL,
    ClientResponse,
    EndSession,
    McpCall,
    MethodCall,
    Notification,
    OpenStream,
    ToolCall,
)

_LARGEST: Final = 2**63


class Unfit(StrEnum):
    """Why no expression may see a call."""

    NUL = "nul_in_input"
    """The engine of expressions ends a text there, so that two different texts would be equal."""
    INTEGER = "integer_too_large"


class _UnfitError(Exception):
    """Raised inside the conversion only."""

    def __init__(self, reason: Unfit) -> None:
        super().__init__(reason)
        self.reason = reason


def mcp_context(call: McpCall) -> dict[str, Any] | Unfit:
    """Return ``request.mcp``, or why expressions must not see it.

    ``params`` has the arguments of a tool, and the parameters of any other method. ``tool_name`` is set for tools only,
    and nothing is set for a request that calls no method: an expression that reads it then fails, which denies. All
    numbers are floats, and zero has no sign.
    """
    try:
        match call:
            case ToolCall(name=name, arguments=arguments):
                return {"method": TOOLS_CALL, "tool_name": _text(name), "params": _object(arguments)}
            case MethodCall(method=method, params=params) | Notification(method=method, params=params):
                return {"method": method, "params": _object(params)}
            case ClientResponse() | OpenStream() | EndSession():
                return {}
            case _:
                assert_never(call)
    except _UnfitError as unfit:
        return unfit.reason


def _object(value: Mapping[str, Any]) -> dict[str, Any]:
    return {_text(name): _converted(each) for name, each in value.items()}


def _converted(value: Any) -> Any:
    """Copy a JSON value of bounded depth."""
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
            raise _UnfitError(Unfit.INTEGER)
        return float(value) + 0.0
    return _object(value) if isinstance(value, Mapping) else [_converted(each) for each in value]


def _text(value: str) -> str:
    if "\0" in value:
        raise _UnfitError(Unfit.NUL)
    return value
