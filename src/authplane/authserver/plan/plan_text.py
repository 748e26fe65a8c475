"""A plan as text, for other processes of the server: JSON in which every value of ours names its type."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from authplane.authserver.engine.backend_choice import ByContext, ByHost, ByPath
from authplane.authserver.engine.http_check import ForwardedHeaders, OriginalHeaders, SameRequest
from authplane.authserver.plan.server_plan import (
    BranchPlan,
    ClusterPlan,
    Engine,
    FilePlan,
    FrontLimits,
    FrontPlan,
    HtpasswdPlan,
    PolicyPlan,
    ServerPlan,
    TestServerPlan,
)
from authplane.runtime.log import LogFormat
from authplane.runtime.servers.admin import AdminSettings
from authplane.runtime.servers.listen import TcpAddress, TlsPaths, UnixAddress

_TYPE: Final = "type"
_TYPES: Final[Mapping[str, type]] = {
    kind.__name__: kind
    for kind in (
        *(
            BranchPlan,
            ClusterPlan,
            FilePlan,
            FrontLimits,
            FrontPlan,
            HtpasswdPlan,
            PolicyPlan,
            ServerPlan,
            TestServerPlan,
        ),
        *(ByContext, ByHost, ByPath),
        *(ForwardedHeaders, OriginalHeaders, SameRequest),
        *(AdminSettings, TcpAddress, TlsPaths, UnixAddress),
        *(Engine, LogFormat),
    )
}


def plan_text(plan: ServerPlan) -> str:
    """Write a plan; no secret is in it, only the paths of files."""
    return json.dumps(_written(plan), sort_keys=True)


def read_plan(text: str) -> ServerPlan:
    """Read what `plan_text` wrote."""
    plan = json.loads(text, object_hook=_read)
    if not isinstance(plan, ServerPlan):
        raise TypeError("the text is not a server plan")
    return plan


def _written(value: Any) -> Any:
    if isinstance(value, Enum):
        return {_TYPE: type(value).__name__, "value": value.value}
    if is_dataclass(value):
        return {_TYPE: type(value).__name__} | {
            each.name: _written(getattr(value, each.name)) for each in fields(value)
        }
    return [_written(each) for each in value] if isinstance(value, tuple) else value


def _read(written: dict[str, Any]) -> Any:
    """Make the value of one object; those within it have been made before."""
    kind = _TYPES[written.pop(_TYPE)]
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in written.items()})
