"""Events of an issuer, for logs, metrics and alerts."""

from typing import TypeAlias

from authplane.core.values import dataclass
from authplane.policy.identity.tokens.discovery import Metadata
from authplane.policy.identity.tokens.keys import Ignored, KeySet


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """An answer of the issuer could be used."""

    issuer: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFailed:
    """No answer came, or one that is not used; what was known before stays."""

    issuer: str
    url: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChanged:
    """The issuer's discovery document has changed."""

    issuer: str
    before: Metadata
    after: Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysLoaded:
    """The issuer's keys are there for the first time."""

    issuer: str
    keys: tuple[str, ...]
    ignored: tuple[Ignored, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysChanged:
    """The issuer has other keys than before; each goes by its ``kid``, or by its thumbprint if it has none."""

    issuer: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    """Names under which another key was published: a correct key rotation does not do that."""
    ignored: tuple[Ignored, ...] = ()


IssuerEvent: TypeAlias = Fetched | FetchFailed | MetadataChanged | KeysLoaded | KeysChanged


def keys_changed(issuer: str, before: KeySet, after: KeySet) -> KeysChanged:
    """Describe the difference between two key sets."""
    old, new = before.labelled(), after.labelled()
    return KeysChanged(
        issuer=issuer,
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        replaced=tuple(sorted(label for label in old.keys() & new.keys() if old[label] != new[label])),
        ignored=after.ignored,
    )
