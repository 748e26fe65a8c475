"""Inputs of trees by which a server grants calls as the policy engine would."""

from dataclasses import field
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Call
from authplane.policy.check.answer_headers import fit_name
from authplane.policy.identity.workload_identity.certificate_identity import Svid, fault_in_svid, parse_svid
from authplane.policy.identity.workload_identity.peer_outcome import NoIdentity
from authplane.policy.mcp.header_front import canonical_path

PLAIN: Final = "plain"
_MOST_BYTES: Final = 16_384
"""Of all headers together: the policy engine takes more, and does not read each of them then."""
_PER_HEADER: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainInput:
    """Returns `PLAIN` for a call that the policy engine would decide without ambiguity and without changes."""

    absent: frozenset[str]
    """Headers that it would take out, or look into; with a hyphen for each underscore."""
    single: frozenset[str]
    """Headers that may be there once, and that nothing else may look like."""
    _known: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Names that were looked at: calls have the same ones again and again."""

    def read(self, subject: Call) -> str | None:
        """Return `PLAIN`, or None for a call that the policy server must decide."""
        if not canonical_path(subject.path):
            return None
        known, single, size = self._known, self.single, 0
        seen: set[str] = set()
        for name, value in subject.metadata:
            fit = known.get(name)
            if not (self._learn(name) if fit is None else fit):
                return None
            if isinstance(value, bytes):
                # They are shown as base64.
                size += len(value)
            elif not (value.isascii() and value.isprintable()):
                return None
            if name in single:
                if name in seen:
                    return None
                seen.add(name)
            size += len(name) + len(value) + _PER_HEADER
        return PLAIN if size <= _MOST_BYTES else None

    def _learn(self, name: str) -> bool:
        if len(self._known) >= 1024:
            # A client that sends new names all the time costs time, but no memory.
            self._known.clear()
        plain = name.replace("_", "-")
        odd = plain in self.absent or (plain != name and plain in self.single)
        fit = self._known[name] = not odd and fit_name(name) and name == name.lower()
        return fit

    def __str__(self) -> str:
        return "plain form of the call"


@dataclass(frozen=True, slots=True)
class WorkloadInput:
    """Gives the SPIFFE id that the certificate of the client proves now, by all that the policy engine asks of one."""

    def read(self, subject: Call) -> str | None:
        """Return the id, or None for a client that proves none."""
        certificate = None if subject.connection is None else subject.connection.certificate
        if certificate is None:
            return None
        svid = _svid(certificate.pem)
        if isinstance(svid, NoIdentity):
            return None
        # Whose ids count is up to who compares them.
        fault = fault_in_svid(svid, certificate.principal, (svid.id.trust_domain,), subject.started.timestamp())
        return str(svid.id) if fault is None else None

    def __str__(self) -> str:
        return "calling workload"


@lru_cache(maxsize=1024)
def _svid(pem: bytes) -> Svid | NoIdentity:
    return parse_svid(quote(pem, safe=""))
