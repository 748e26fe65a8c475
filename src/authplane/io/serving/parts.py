"""What servers and channels with filters are made of."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import SystemRandom
from typing import Any, Final, TypeAlias

import grpc
from cryptography import x509

from authplane.filters.calls import PeerCertificate
from authplane.filters.registry import Kept, State

Count: TypeAlias = Callable[[str, str], None]
"""Adds one to a metric: its name, and the target of the channel (empty for servers). Must be quick."""
Wrap: TypeAlias = Callable[[Sequence[grpc.GenericRpcHandler]], grpc.GenericRpcHandler]
"""Puts handlers behind the gate of a server."""
Options: TypeAlias = Sequence[tuple[str, Any]]

_log: Final = logging.getLogger("authplane.grpc")
_random: Final = SystemRandom()
_PAUSE: Final = 1.0
"""Seconds between two sentences of filters: while a service is away there is one for each call."""


class Teller:
    """Writes sentences of filters to the log, few enough to be read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0
        self._skipped = 0
        self._lock = threading.Lock()

    def __call__(self, sentence: str) -> None:
        """Write a sentence, or count it."""
        with self._lock:
            now = self._clock()
            if now < self._next:
                self._skipped += 1
                return
            skipped, self._skipped, self._next = self._skipped, 0, now + _PAUSE
        more = f" (and {skipped} more before)" if skipped else ""
        _log.warning("%s%s", sentence, more)


def filter_state(count: Count | None, tell: Callable[[str], None], kept: Kept) -> State:
    """Return what filters are built with."""
    if count is None:
        return State(random=_random.random, monotonic=time.monotonic, tell=tell, kept=kept)
    return State(random=_random.random, monotonic=time.monotonic, count=count, tell=tell, kept=kept)


@dataclass(slots=True)
class Registered:
    """The handlers that a program adds to its server."""

    generic: list[grpc.GenericRpcHandler]
    named: list[grpc.GenericRpcHandler]

    @classmethod
    def of(cls, handlers: Sequence[grpc.GenericRpcHandler] | None) -> "Registered":
        """Begin with those that the server is made with."""
        return cls(list(handlers or ()), [])

    def add(self, handlers: Any) -> None:
        """Add generic handlers."""
        self.generic.extend(handlers)

    def add_named(self, service: str, methods: Mapping[str, Any]) -> None:
        """Add handlers by name: grpcio looks at these first.

        It does not tell the authority of calls to those that it knows by name, so that to it all are generic.
        """
        self.named.append(grpc.method_handlers_generic_handler(service, dict(methods)))

    @property
    def all(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """All of them, in the order in which they are asked."""
        return (*self.named, *self.generic)


def own_principal(certificate: bytes | None) -> str:
    """Return who a certificate says we are; nothing without one. Raises `ValueError` if it is not a certificate."""
    if certificate is None:
        return ""
    found = x509.load_pem_x509_certificate(certificate)
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    return PeerCertificate(
        uris=tuple(names.get_values_for_type(x509.UniformResourceIdentifier)),
        dns_names=tuple(names.get_values_for_type(x509.DNSName)),
        subject=found.subject.rfc4514_string(),
    ).principal
