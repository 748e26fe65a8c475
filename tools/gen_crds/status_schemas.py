"""Schemas of the status of each kind: conditions by type, and entries for targets, parents and listeners."""

from typing import Any, Final

_SUBJECT: Final = {"type": "string"}
_REASON: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": 1024,
    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
}
_MESSAGE: Final = {"type": "string", "maxLength": 32768}
_TRUTH: Final = {"type": "string", "enum": ["True", "False", "Unknown"]}
_TYPE: Final = {"type": "string", "minLength": 1, "maxLength": 316}
_WITHOUT: Final = frozenset({"ReferenceGrant"})
"""Kinds that have no status upstream either."""


def status_schema(kind: str) -> dict[str, Any] | None:
    """Return the schema of the status of a kind; None if it has none."""
    if kind in _WITHOUT:
        return None
    match kind:
        case "AccessPolicy" | "XAccessPolicy" | "BackendTLSPolicy":
            members = {"ancestors": _entries("ancestorRef", "One entry for each target and controller.", 16)}
        case "HTTPRoute" | "GRPCRoute":
            members = {"parents": _entries("parentRef", "One entry for each parent and controller.", 32)}
        case "Gateway":
            members = {"addresses": _ADDRESSES, "conditions": _conditions(errors=True), "listeners": _listeners()}
        case "HTTPProxy":
            members = {
                "conditions": _conditions(errors=True),
                "currentStatus": {"type": "string", "description": "valid, invalid, orphaned or NotReconciled."},
                "description": {"type": "string", "description": "Message of the condition Valid."},
                "loadBalancer": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            }
        case _:
            members = {"conditions": _conditions(errors=True)}
    return {"type": "object", "description": "What the control plane reports.", "properties": members}


def _conditions(*, errors: bool = False) -> dict[str, Any]:
    members: dict[str, Any] = {
        "type": _TYPE | {"description": "Type of the condition."},
        "status": _TRUTH | {"description": "Whether it is true."},
        "reason": _REASON | {"description": "Reason of the status, for programs."},
        "message": _MESSAGE | {"description": "Reason of the status, for people."},
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "Generation of the object that the condition is about.",
        },
        "lastTransitionTime": {
            "type": "string",
            "format": "date-time",
            "description": "Time when the status last changed.",
        },
    }
    if errors:
        members |= {"errors": _SUB_CONDITIONS, "warnings": _SUB_CONDITIONS}
    return {
        "type": "array",
        "description": "Conditions by their type.",
        "items": {
            "type": "object",
            "properties": members,
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }


_SUB_CONDITIONS: Final = {
    "type": "array",
    "description": "What the message summarizes, one by one.",
    "items": {
        "type": "object",
        "properties": {"type": _TYPE, "status": _TRUTH, "reason": _REASON, "message": _MESSAGE},
        "required": ["type", "status", "reason", "message"],
    },
}
_ADDRESSES: Final = {
    "type": "array",
    "description": "Addresses of the Gateway.",
    "items": {
        "type": "object",
        "properties": {"type": _SUBJECT, "value": _SUBJECT},
        "required": ["value"],
    },
    "maxItems": 16,
    "x-kubernetes-list-type": "atomic",
}
_REF: Final = {
    "type": "object",
    "properties": {
        "group": _SUBJECT,
        "kind": _SUBJECT,
        "namespace": _SUBJECT,
        "name": _SUBJECT,
        "sectionName": _SUBJECT,
        "port": {"type": "integer", "format": "int64"},
    },
    "required": ["name"],
}


def _entries(ref: str, description: str, most: int) -> dict[str, Any]:
    """Return a list that controllers share and that has no keys, as upstream."""
    return {
        "type": "array",
        "description": description,
        "items": {
            "type": "object",
            "properties": {ref: _REF, "controllerName": _SUBJECT, "conditions": _conditions()},
            "required": [ref, "controllerName"],
        },
        "maxItems": most,
        "x-kubernetes-list-type": "atomic",
    }


def _listeners() -> dict[str, Any]:
    kinds = {"type": "object", "properties": {"group": _SUBJECT, "kind": _SUBJECT}, "required": ["kind"]}
    return {
        "type": "array",
        "description": "Listeners by their name.",
        "items": {
            "type": "object",
            "properties": {
                "name": _SUBJECT,
                "supportedKinds": {"type": "array", "items": kinds, "x-kubernetes-list-type": "atomic"},
                "attachedRoutes": {"type": "integer", "format": "int64"},
                "conditions": _conditions(),
            },
            "required": ["name", "attachedRoutes", "conditions"],
        },
        "maxItems": 64,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
