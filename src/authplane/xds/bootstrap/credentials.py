"""Credentials of channels, as a bootstrap names them."""

import re
from typing import Final, TypeAlias

from authplane.core.values import dataclass
from authplane.xds.bootstrap.json_fields import Fields

_DURATION: Final = re.compile(r"([0-9]{1,12})(\.[0-9]{1,9})?s")
_LONGEST: Final = 315_576_000_000.0
"""Ten thousand years: no JSON duration is longer."""
_DEFAULT_REFRESH: Final = 600.0
_SHORTEST_REFRESH: Final = 1.0


@dataclass(frozen=True, slots=True)
class Insecure:
    """Plain text."""


@dataclass(frozen=True, slots=True)
class GoogleDefault:
    """What a program has on Google's cloud."""


@dataclass(frozen=True, slots=True)
class IdentityFiles:
    """A certificate chain and its private key, PEM."""

    certificate: str
    private_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Certificates in files that may be renewed."""

    ca: str | None = None
    """The CA of the peer's certificate; None means what the system trusts."""
    identity: IdentityFiles | None = None
    """The certificate to present to the peer; None means none."""
    refresh: float = _DEFAULT_REFRESH
    """Seconds after which the files are read again."""


@dataclass(frozen=True, slots=True)
class JwtTokenFile:
    """Each call carries the token of a file."""

    path: str


ChannelCredentials: TypeAlias = Insecure | GoogleDefault | TlsFiles
CallCredentials: TypeAlias = JwtTokenFile


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCredentials:
    """How to talk to one service."""

    channel: ChannelCredentials
    calls: tuple[CallCredentials, ...] = ()
    """All of them apply, in order."""


def parse_service_credentials(fields: Fields, *, call_creds: bool) -> ServiceCredentials:
    """Read ``channel_creds``, and ``call_creds`` if that feature is on."""
    channel = _parse_channel_creds(fields)
    calls = tuple(_parse_call_creds(fields)) if call_creds else ()
    return ServiceCredentials(channel=channel, calls=calls)


def parse_channel_credentials(kind: str, config: Fields) -> ChannelCredentials | None:
    """Read one entry; None means that the type is not supported."""
    match kind:
        case "insecure":
            return Insecure()
        case "google_default":
            return GoogleDefault()
        case "tls":
            return parse_tls_files(config)
        case _:
            return None


def parse_tls_files(config: Fields) -> TlsFiles:
    """Read where certificates are; the caller checks that those it needs are present."""
    return TlsFiles(
        ca=config.path("ca_certificate_file"), identity=_parse_identity(config), refresh=_parse_refresh(config)
    )


def _parse_channel_creds(fields: Fields) -> ChannelCredentials:
    """Take the first supported entry; the others are read as well, so that their problems show at once."""
    problems = fields.problems
    before = problems.error_count
    found = []
    for each in fields.objects("channel_creds"):
        kind, config = each.required_text("type"), _config(each)
        with each.at("config"):
            made = parse_channel_credentials(kind, config)
        if made is not None:
            found.append(made)
    if found:
        return found[0]
    if problems.error_count == before and fields.require("channel_creds"):
        with problems.at("channel_creds"):
            problems.add("Unsupported", "No entry has a supported type. Supported: insecure, google_default, tls.")
    return Insecure()  # never used: there is a problem


def _parse_call_creds(fields: Fields) -> list[CallCredentials]:
    found = []
    for each in fields.objects("call_creds"):
        kind = each.required_text("type")
        config = _config(each)
        if kind == "jwt_token_file":
            with each.at("config"):
                found.append(JwtTokenFile(config.required_path("jwt_token_file")))
    return found


def _config(entry: Fields) -> Fields:
    return entry.fields("config") or Fields({}, entry.problems)


def _parse_identity(config: Fields) -> IdentityFiles | None:
    certificate, private_key = config.path("certificate_file"), config.path("private_key_file")
    for name, other in (("certificate_file", "private_key_file"), ("private_key_file", "certificate_file")):
        if config.has(name) and not config.has(other):
            with config.at(other):
                config.problems.add("Missing", f"This field is required together with {name}. Add it.")
    return None if certificate is None or private_key is None else IdentityFiles(certificate, private_key)


def _parse_refresh(config: Fields) -> float:
    text = config.text("refresh_interval")
    if text is None:
        return _DEFAULT_REFRESH
    if not _DURATION.fullmatch(text) or float(text[:-1]) > _LONGEST:
        with config.at("refresh_interval"):
            config.problems.add("Invalid", "Expected a duration such as '600s' or '1.5s'.")
        return _DEFAULT_REFRESH
    return max(float(text[:-1]), _SHORTEST_REFRESH)
