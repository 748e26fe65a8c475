"""Probes from here whether the policy server accepts us, as Envoy connects to it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, assert_never

from authplane.controlplane.graph.model.port_model import Certificate
from authplane.controlplane.graph.model.upstreams import CaFile, CertificateFiles, Plaintext
from authplane.controlplane.graph.upstreams.policy_connection import OverSocket, OverTcp, PolicyServer, Where
from authplane.controlplane.serving.runtime.control_socket import NotLiveError, ask_live
from authplane.controlplane.serving.runtime.handshake import (
    Accepted,
    Cause,
    ClientTls,
    Greeting,
    NotTried,
    PemFiles,
    PemPair,
    Refused,
    Shown,
)
from authplane.controlplane.serving.runtime.server_monitor import Greeter
from authplane.controlplane.status.policy_server_status import Trial, Tried
from authplane.core.values import dataclass
from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress, parse_address

PAGE: Final = "/policy-server"
"""Where a control plane says which policy server it was given, whatever the documents name."""

REMEDIES: Final[Mapping[Cause, str]] = {
    Cause.UNREACHABLE: "Start 'authplane authserver policy' at this address, or correct"
    " spec.policyServer of the AuthplaneConfiguration.",
    Cause.SERVER_CERTIFICATE: "Set caFile or caSecret in spec.policyServer of the AuthplaneConfiguration to the CA of"
    " the server's certificate, and serverName to a name in that certificate.",
    Cause.HANDSHAKE: "Set clientSecret, or clientCertFile and clientKeyFile, in spec.policyServer of the"
    " AuthplaneConfiguration to a certificate of a CA in --tls-ca-path of the policy server.",
    Cause.PROTOCOL: "If the server expects TLS, set caFile or caSecret in spec.policyServer of the"
    " AuthplaneConfiguration. Otherwise, correct the address there.",
}
"""The remedies if the policy server cannot be used."""


@dataclass(frozen=True, slots=True)
class PolicyServerTried:
    """The control plane tried to connect to the policy server, and it ended otherwise than before."""

    tried: Tried
    remedy: str = ""


class PolicyServerProbe:
    """Tries the policy server while the control plane runs, and knows what status says of it."""

    def __init__(self, tell: Callable[[PolicyServerTried], None]) -> None:
        self._tell = tell
        self._greeter = Greeter(self._heard)

    def configure(self, server: PolicyServer | None) -> None:
        """Try this server from now on; None tries nothing."""
        if server is None:
            self._greeter.configure((), None)
        else:
            self._greeter.configure(dialled(server), dialled_with(server))

    @property
    def tried(self) -> tuple[Tried, ...]:
        """The outcomes of the last attempts."""
        return tuple(_tried(address, greeting) for address, greeting in self._greeter.results.items())

    async def renew(self) -> None:
        """Try now, so that `tried` is new."""
        await self._greeter.renew()

    async def follow(self) -> None:
        """Try for ever."""
        await self._greeter.follow()

    def _heard(self, address: Address, greeting: Greeting) -> None:
        tried = _tried(address, greeting)
        self._tell(PolicyServerTried(tried, tried.remedy))


def _tried(address: Address, greeting: Greeting) -> Tried:
    match greeting:
        case Accepted():
            return Tried(address=str(address), trial=Trial.ACCEPTED)
        case NotTried(why):
            return Tried(
                address=str(address), trial=Trial.NOT_TRIED, why=f"the control plane did not try to connect: {why}"
            )
        case Refused(cause=cause, why=why):
            trial = Trial.UNREACHABLE if cause is Cause.UNREACHABLE else Trial.HANDSHAKE
            return Tried(address=str(address), trial=trial, why=why, remedy=REMEDIES[cause])
        case _:
            assert_never(greeting)


def given_record(given: PolicyServer | None) -> dict[str, list[str]]:
    """Return the content of `PAGE`: the addresses of the policy server that was passed to the control plane, if any."""
    return {"given": [] if given is None else [str(address) for address in dialled(given)]}


def ask_served(root: Path) -> tuple[Address, ...] | None:
    """Ask the control plane of a folder which policy server it was given; None if no control plane serves it."""
    try:
        answer = ask_live(root, PAGE)
    except NotLiveError:
        return None
    return tuple(map(parse_address, json.loads(answer)["given"]))


def dialled(server: PolicyServer) -> tuple[Address, ...]:
    """Return where the policy server is tried."""
    return tuple(map(_address, server.addresses))


def dialled_with(server: PolicyServer) -> ClientTls | None:
    """Return the TLS with which it is tried; None is plain text."""
    tls = server.tls
    if isinstance(tls, Plaintext):
        return None
    return ClientTls(
        ca=tls.ca.path if isinstance(tls.ca, CaFile) else tls.ca,
        server_name=tls.server_name,
        shown=shown_as(server.client),
    )


def shown_as(client: Certificate | CertificateFiles | None) -> Shown | None:
    """Return the certificate that Envoy shows, in the form in which it is shown from here."""
    match client:
        case None:
            return None
        case Certificate(chain=chain, key=key):
            return PemPair(certificate=chain, key=key)
        case CertificateFiles(chain=path, key=key_path):
            return PemFiles(certificate=path, key=key_path)
        case _:
            assert_never(client)


def _address(where: Where) -> Address:
    match where:
        case OverTcp(host, port):
            return TcpAddress(host=host, port=port)
        case OverSocket(path):
            return UnixAddress(path=path)
        case _:
            assert_never(where)
