"""What `authplane doctor` looks at: a list of probes, each of which returns rows.

A probe is a function from what is examined to rows. To add one, write the function and name it in `PROBES`.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final, TypeAlias, assert_never

from authplane.controlplane.serving.generation import Generation
from authplane.controlplane.serving.runtime.handshake import Accepted, Greeting, NotTried, Refused, greet_once
from authplane.controlplane.serving.runtime.policy_server_probe import REMEDIES, dialled, dialled_with
from authplane.core.problems import Severity
from authplane.core.values import dataclass
from authplane.policy.attached.unprotected import unprotected_problems
from authplane.policy.rules.policy_targets import BACKENDS
from authplane.runtime.servers.listen import Address


class Outcome(StrEnum):
    """What became of a probe."""

    OK = "ok"
    FINDING = "finding"
    UNKNOWN = "unknown"
    """It could not be tried from here, which is nobody's mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that was looked at."""

    probe: str
    subject: str
    """What it is about: a resource or an address."""
    outcome: Outcome
    message: str
    remedy: str = ""
    """What to do about it; never empty unless all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What probes look at."""

    generation: Generation
    given: tuple[Address, ...] = ()
    """Where ``authplane run`` decides for the folder; empty if it does not run, or the folder names another server."""


Probe: TypeAlias = Callable[[Examined], Iterable[Row]]


def examine(examined: Examined, probes: Iterable[Probe] | None = None) -> tuple[Row, ...]:
    """Run every probe; rows come in the order of the probes."""
    return tuple(row for probe in (PROBES if probes is None else probes) for row in probe(examined))


def row_record(row: Row) -> dict[str, Any]:
    """Return a row as ``authplane doctor -o json`` prints it."""
    return {
        "probe": row.probe,
        "subject": row.subject,
        "outcome": row.outcome.value,
        "message": row.message,
        "remedy": row.remedy,
    }


# --- Probes


def probe_documents(examined: Examined) -> Iterable[Row]:
    """Count the errors of the documents; `authplane validate` names them."""
    errors = sum(each.problem.severity is Severity.ERROR for each in examined.generation.findings)
    if not errors:
        return (Row(probe="documents", subject="folder", outcome=Outcome.OK, message="no errors"),)
    return (
        Row(
            probe="documents",
            subject="folder",
            outcome=Outcome.FINDING,
            message=f"{errors} error{'' if errors == 1 else 's'} in documents",
            remedy="Run authplane validate and correct what it names.",
        ),
    )


def probe_protection(examined: Examined) -> Iterable[Row]:
    """Name every Backend that no policy protects, if there are Backends."""
    policies = examined.generation.compiled.policies
    if not any(aim.ref.kind in BACKENDS for aim in policies.attachments):
        return
    rows = [
        Row(probe="protection", subject=str(ref), outcome=Outcome.FINDING, message=message, remedy=f"{remedy}.")
        for ref, problem in unprotected_problems(policies, examined.generation.routed)
        for message, _, remedy in (problem.message.partition(". "),)
    ]
    fine = Row(probe="protection", subject="Backends", outcome=Outcome.OK, message="a policy protects each of them")
    yield from rows or (fine,)


def probe_policy_server(examined: Examined) -> Iterable[Row]:
    """Connect to every address of the policy server, if anything would ask it."""
    server = examined.generation.built.policy_server
    if server is None:
        return
    if examined.given:
        yield from map(_inside, greet_once(examined.given, None))
        return
    configuration = examined.generation.loaded.resources.configuration
    named = configuration is not None and configuration.spec.policy_server is not None
    addresses, tls = dialled(server), dialled_with(server)
    for address, greeting in zip(addresses, greet_once(addresses, tls), strict=True):
        outcome, message, remedy = _told(greeting) if named else _told_by_default(greeting)
        yield Row(probe=_POLICY_SERVER, subject=str(address), outcome=outcome, message=message, remedy=remedy)


def _inside(greeting: Greeting) -> Row:
    message = "decides in its own process"
    if isinstance(greeting, Accepted):
        return Row(probe=_POLICY_SERVER, subject="authplane run", outcome=Outcome.OK, message=message)
    return Row(
        probe=_POLICY_SERVER,
        subject="authplane run",
        outcome=Outcome.FINDING,
        message=f"{message}, which does not answer: {greeting.why}",
        remedy="Restart authplane run.",
    )


def _told(greeting: Greeting) -> tuple[Outcome, str, str]:
    match greeting:
        case Accepted():
            return Outcome.OK, "accepts connections", ""
        case NotTried(why):
            remedy = "Run authplane doctor on Envoy's machine, where the files of spec.policyServer are."
            return Outcome.UNKNOWN, f"not tried from this machine: {why}", remedy
        case Refused(cause=cause, why=why):
            return Outcome.FINDING, f"cannot connect to the policy server: {why}", REMEDIES[cause]
        case _:
            assert_never(greeting)


def _told_by_default(greeting: Greeting) -> tuple[Outcome, str, str]:
    """Say that nobody chose the address, and that `authplane run` would need none."""
    outcome, message, remedy = _told(greeting)
    message = f"{message} (the default address: spec.policyServer is not set)"
    if outcome is Outcome.OK:
        return outcome, message, remedy
    return outcome, message, f"Start authplane run, which decides in its own process. {_OR_NAME_IT}"


_POLICY_SERVER: Final = "policy-server"
_OR_NAME_IT: Final = (
    "Or start authplane authserver policy at this address, or set spec.policyServer to where it listens."
)
PROBES: Final[tuple[Probe, ...]] = (probe_documents, probe_protection, probe_policy_server)
