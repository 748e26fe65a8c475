"""What servers and channels with filters are made of."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import SystemRandom
from typing import Any, Final, TypeAlias

import grpc
from cryptography import x509

from authplane.dataplane.filters.calls import PeerCertificate
from authplane.dataplane.filters.registry import Kept, State
from authplane.dataplane.runtime.calls.gated_handlers import Found

Count: TypeAlias = Callable[[str, str], None]
"""Adds one to a metric: its name, and the target of the channel (empty for servers). Must be quick."""
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


class Registered(Found):
    """The handlers that a program adds to its server; also later, as grpcio lets it."""

    def __init__(self, handlers: Sequence[grpc.GenericRpcHandler] | None) -> None:
        self.all = tuple(handlers or ())
        self._named = 0

    def add(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Add generic handlers."""
        self.all = (*self.all, *handlers)

    def add_named(self, service: str, methods: Mapping[str, Any]) -> None:
        """Add handlers by name: grpcio looks at these first.

        It does not tell the authority of calls to those that it knows by name, so that to it all are generic.
        """
        made = grpc.method_handlers_generic_handler(service, dict(methods))
        self.all = (*self.all[: self._named], made, *self.all[self._named :])
        self._named += 1


class TakesHandlers:
    """The part of a server that handlers are added to."""

    _handlers: Registered

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Add handlers."""
        self._handlers.add(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        """Add handlers by name."""
        self._handlers.add_named(service_name, method_handlers)


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
