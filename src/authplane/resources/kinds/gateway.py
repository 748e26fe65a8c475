"""Gateway API's kinds: ReferenceGrant."""

from dataclasses import dataclass
from typing import Annotated

from authplane.resources.kinds.meta import Meta
from authplane.resources.schema import Length, Named


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantFrom:
    """Who may refer: a kind in a namespace."""

    group: str
    kind: Annotated[str, Length(1)]
    namespace: Annotated[str, Length(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantTo:
    """What may be referred to: a kind, or one object of it."""

    group: str
    kind: Annotated[str, Length(1)]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceGrantSpec:
    """``spec`` of a ReferenceGrant."""

    origins: Annotated[tuple[GrantFrom, ...], Named("from"), Length(1, 16)]
    targets: Annotated[tuple[GrantTo, ...], Named("to"), Length(1, 16)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceGrant:
    """Lets objects of other namespaces refer to objects of its own."""

    metadata: Meta
    spec: ReferenceGrantSpec
