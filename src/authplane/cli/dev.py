"""`authplane dev`: identities for development."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import click

from authplane.cli.shared.console import out
from authplane.cli.shared.output import Output, OutputOption, fail, print_json
from authplane.cli.shared.parameters import Argument, Option, command, group
from authplane.core.addresses import is_loopback, parse_ip_address
from authplane.core.problems import Problems
from authplane.core.strict_json import Limits, NotStrict, parse_json
from authplane.core.text import shorten
from authplane.core.timeouts import After, parse_timeout
from authplane.devkit.local.dev_folder import LIFETIME, CertificateFiles, DevFolderError, write_machines, write_secrets
from authplane.devkit.local.dev_issuer import (
    DEV_ADDRESS,
    DEV_FOLDER,
    IssuerPlan,
    RunningIssuer,
    dev_token,
    dev_workload,
    run_issuer,
)
from authplane.policy.identity.tokens.issuer_url import parse_issuer_url
from authplane.policy.identity.workload_identity.spiffe import NotSpiffe, parse_spiffe_id
from authplane.runtime.log import LogFormat, set_up_log
from authplane.runtime.servers.listen import AddressInvalidError, ListenError, TcpAddress, claim, parse_address

dev = group(
    "dev",
    "Create an issuer, tokens and certificates for development, not for production.\n\nExample: authplane dev token"
    " --sub alice --aud shop",
)

_OPTIONS: Final = {"iss": "--issuer", "sub": "--sub", "aud": "--aud", "exp": "--expires", "iat": "--expires"}
_LIMITS: Final = Limits(most_bytes=64 * 1024)
_LONGEST_NAME: Final = 64
_HOST: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")

IssuerFolderOption: TypeAlias = Annotated[
    Path, Option("--folder", metavar="DIR", help="Folder with the key of the development issuer.")
]
FolderOption: TypeAlias = Annotated[
    Path, Option("--folder", metavar="DIR", help="Folder for keys and certificates. authplane creates missing files.")
]


@command(dev, "issuer")
def issuer(
    address: Annotated[
        str, Option("--address", metavar="ADDRESS", help="Address to listen on: host:port or :port.")
    ] = str(DEV_ADDRESS),
    folder: FolderOption = DEV_FOLDER,
    name: Annotated[
        str, Option("--name", metavar="HOST", help="Host name in the issuer URL. Default: the host of --address.")
    ] = "",
    public: Annotated[bool, Option("--public", help="Allow an address that other machines can reach.")] = False,
    log_format: Annotated[
        LogFormat, Option(help="Log format: auto (text on a terminal, otherwise JSON), text or json.")
    ] = LogFormat.AUTO,
) -> None:
    """Serve the discovery document and the keys of a development issuer over HTTPS.

    Example: authplane dev issuer --folder .authplane/dev
    """
    where = _address(address)
    if not public and not is_loopback(where.host):
        fail(
            f"Other machines can reach {address}, and anyone who can read this folder can sign tokens. Use a loopback"
            " address, or add --public.",
            status=2,
        )
    plan = IssuerPlan(folder=folder, address=where, name=name)
    if not _HOST.fullmatch(plan.host) and parse_ip_address(plan.host) is None:
        fail(
            f"{shorten(plan.host, _LONGEST_NAME)!r} is not a host name or an IP address. Use a host such as"
            " issuer.example or 127.0.0.1.",
            status=2,
        )
    set_up_log(log_format)
    try:
        run_issuer(plan, datetime.now(UTC), _tell)
    except (DevFolderError, ListenError) as error:
        fail(str(error))


@command(dev, "token")
def token(
    sub: Annotated[str, Option("--sub", metavar="NAME", help="Subject of the token (claim sub).", show_default=False)],
    aud: Annotated[
        list[str] | None,
        Option("--aud", metavar="NAME", help="Audience of the token (claim aud); repeatable."),
    ] = None,
    claim: Annotated[
        list[str] | None,
        Option(
            "--claim",
            metavar="NAME=TEXT",
            help="Additional claim; repeatable. Use NAME:=JSON for a value that is not a string.",
        ),
    ] = None,
    issuer_url: Annotated[
        str,
        Option(
            "--issuer", metavar="URL", help="Issuer URL (claim iss). Default: the issuer that this folder served last."
        ),
    ] = "",
    expires: Annotated[
        str, Option("--expires", metavar="DURATION", help="Token lifetime; a negative value creates an expired token.")
    ] = "1h",
    folder: IssuerFolderOption = DEV_FOLDER,
) -> None:
    """Print a token that is signed with the key of the development issuer.

    Example: authplane dev token --sub alice --aud shop --claim group=admin --claim 'roles:=["reader"]'
    """
    claims: dict[str, Any] = {"sub": sub}
    if aud:
        claims["aud"] = aud[0] if len(aud) == 1 else aud
    for text in claim or ():
        name, value = _claim(text)
        if name in claims:
            fail(f"Claim {name!r} is set twice. Remove one of the --claim options.", status=2)
        claims[name] = value
    if issuer_url:
        problems = Problems()
        parse_issuer_url(issuer_url, problems)
        if problems.errors:
            fail(problems.errors[0].message, status=2)
    try:
        made = dev_token(folder, claims, now=datetime.now(UTC), lifetime=_duration(expires), issuer=issuer_url)
    except DevFolderError as error:
        fail(str(error))
    click.echo(made)


@command(dev, "spiffe")
def spiffe(
    id_: Annotated[
        str,
        Option(
            "--id", metavar="ID", help="SPIFFE ID of the workload: spiffe://<trust domain>/<path>.", show_default=False
        ),
    ],
    name: Annotated[
        str,
        Option(
            "--name",
            metavar="NAME",
            help="File name of the certificate and the key, without extension. Default: the last segment of the ID.",
        ),
    ] = "",
    expires: Annotated[
        str, Option("--expires", metavar="DURATION", help="Certificate lifetime, at most 2160h.")
    ] = "24h",
    folder: FolderOption = DEV_FOLDER,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write a client certificate for a workload, signed by a development CA.

    Example: authplane dev spiffe --id spiffe://cluster.local/ns/default/sa/agent
    """
    parsed = parse_spiffe_id(id_)
    if isinstance(parsed, NotSpiffe) or not parsed.path:
        why = parsed.why if isinstance(parsed, NotSpiffe) else "it has no path"
        fail(
            f"{shorten(id_, _LONGEST_NAME)!r} is not a workload's SPIFFE ID: {why}. Use spiffe://<trust"
            " domain>/<path>.",
            status=2,
        )
    lifetime = _lifetime(expires)
    called = name or parsed.path.rpartition("/")[2]
    if "/" in called or called.startswith(".") or len(called) > _LONGEST_NAME:
        fail(f"{shorten(called, _LONGEST_NAME)!r} is not a valid file name. Set --name to another name.", status=2)
    try:
        made = dev_workload(folder, id_, called, now=datetime.now(UTC), lifetime=lifetime)
    except DevFolderError as error:
        fail(str(error))
    if output is Output.JSON:
        print_json({"id": id_, "certificate": str(made.certificate), "key": str(made.key), "ca": str(made.ca)})
    else:
        click.echo(f"certificate  {made.certificate}\nkey          {made.key}\nca           {made.ca}")


@command(dev, "tls")
def tls(
    names: Annotated[
        list[str],
        Argument(metavar="NAME...", help="One or more DNS names or IP addresses. Each gets its own certificate."),
    ],
    expires: Annotated[
        str, Option("--expires", metavar="DURATION", help="Certificate lifetime, at most 2160h.")
    ] = "720h",
    secrets: Annotated[
        Path | None,
        Option(
            "--secrets",
            metavar="FILE",
            help=(
                "YAML file to write. It contains a Secret with the certificate of each name, and the Secret"
                " workloads-ca with the CA of 'authplane dev spiffe'."
            ),
        ),
    ] = None,
    folder: FolderOption = DEV_FOLDER,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write certificates for machines that are servers or clients, signed by a development CA.

    Example: authplane dev tls --folder certs control.internal policy.internal edge.internal
    """
    for name in names:
        if not _HOST.fullmatch(name) and parse_ip_address(name) is None:
            fail(
                f"{shorten(name, _LONGEST_NAME)!r} is not a DNS name or an IP address. Use a name such as"
                " edge.internal.",
                status=2,
            )
    now, lifetime = datetime.now(UTC), _lifetime(expires)
    try:
        made = write_machines(folder, names, now=now, lifetime=lifetime)
        if secrets is not None:
            write_secrets(folder, secrets, names, now=now)
    except DevFolderError as error:
        fail(str(error))
    _print_files(dict(zip(names, made, strict=True)), made[0].ca, output)


def _print_files(made: Mapping[str, CertificateFiles], ca: Path, output: Output) -> None:
    if output is Output.JSON:
        files = [
            {"name": name, "certificate": str(each.certificate), "key": str(each.key)} for name, each in made.items()
        ]
        print_json({"ca": str(ca), "certificates": files})
        return
    click.echo(f"ca           {ca}")
    for each in made.values():
        click.echo(f"certificate  {each.certificate}\nkey          {each.key}")


@command(dev, "tools")
def tools(
    address: Annotated[
        str, Option("--address", metavar="ADDRESS", help="Address to listen on: host:port.")
    ] = "127.0.0.1:9082",
) -> None:
    """Serve the sample MCP server at /mcp, with the tools add, list_notes, read_note and delete_note.

    Example: authplane dev tools --address 127.0.0.1:9082
    """
    where = _address(address)
    if not is_loopback(where.host):
        fail(
            f"Other machines can reach {address}, and the server authenticates no client. Use a loopback address.",
            status=2,
        )
    try:
        claim(where)
    except ListenError as error:
        fail(str(error))
    # Only here: the SDK takes longer to load than all of authplane.
    from authplane.devkit.local.sample_tools import serve_sample_tools  # noqa: PLC0415

    serve_sample_tools(where)


def _lifetime(text: str) -> timedelta:
    """Parse the lifetime of a certificate."""
    found = _duration(text)
    if not timedelta() < found <= LIFETIME:
        fail(f"{text!r} is not a duration above 0s and up to 2160h. Use a duration such as '24h'.", status=2)
    return found


def _address(text: str) -> TcpAddress:
    try:
        found = parse_address(text)
    except AddressInvalidError as error:
        fail(str(error), status=2)
    if not isinstance(found, TcpAddress):
        fail(
            "The command cannot listen on a unix socket, because clients use a URL with a host. Use host:port.",
            status=2,
        )
    return found


def _claim(text: str) -> tuple[str, Any]:
    """Read ``name=text`` or ``name:=json``."""
    name, equals, value = text.partition("=")
    is_json = name.endswith(":")
    name = name.removesuffix(":")
    if not equals or not name:
        fail(
            f"{shorten(text, _LONGEST_NAME)!r} is not a claim. Use NAME=TEXT or NAME:=JSON, such as group=admin or"
            " admin:=true.",
            status=2,
        )
    if name in _OPTIONS:
        fail(f"Claim {name!r} has its own option. Use {_OPTIONS[name]}.", status=2)
    if not is_json:
        return name, value
    parsed = parse_json(value.encode(errors="surrogateescape"), _LIMITS)
    if isinstance(parsed, NotStrict):
        fail(f"The value of claim {name!r} is not valid JSON: {parsed.why}. Use NAME=TEXT for a string.", status=2)
    return name, parsed


def _duration(text: str) -> timedelta:
    """Parse a duration; a leading minus makes it negative."""
    found = parse_timeout(text.removeprefix("-"))
    if not isinstance(found, After):
        fail(f"{text!r} is not a duration. Use a duration such as '1h' or '90s'.", status=2)
    return -found.duration if text.startswith("-") else found.duration


def _tell(running: RunningIssuer) -> None:
    """Print the settings that make policies trust the issuer."""
    out.print("[yellow]Development issuer, not for production.[/] In a policy: ", end="")
    click.echo(f"issuerUrl: {running.url}")
    issuers = [{"url": running.url, "caFile": str(running.ca_file.resolve()), "allowPrivateNetwork": True}]
    click.echo(f"In AuthplaneConfiguration:   issuers: {json.dumps(issuers)}")
    click.echo(
        f"A token:                     authplane dev token --folder {running.folder.root} --sub alice --aud shop"
    )
