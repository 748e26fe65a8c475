"""What `authplane doctor` looks at: a list of probes, each of which returns rows.

A probe is a function from a generation to rows. To add one, write the function and name it in `PROBES`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias, assert_never

from authplane.app.generation import Generation
from authplane.app.policy_server_probe import REMEDIES, dialled, dialled_with
from authplane.base.problems import Severity
from authplane.io.handshake import Accepted, Greeting, NotTried, Refused, greet_once
from authplane.policy.access.targets import BACKENDS
from authplane.policy.access.unprotected import unprotected_problems


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


Probe: TypeAlias = Callable[[Generation], Iterable[Row]]


def examine(generation: Generation, probes: Iterable[Probe] | None = None) -> tuple[Row, ...]:
    """Run every probe; rows come in the order of the probes."""
    return tuple(row for probe in (PROBES if probes is None else probes) for row in probe(generation))


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


def probe_documents(generation: Generation) -> Iterable[Row]:
    """Count the errors of the documents; `authplane validate` names them."""
    errors = sum(each.problem.severity is Severity.ERROR for each in generation.findings)
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


def probe_protection(generation: Generation) -> Iterable[Row]:
    """Name every Backend that no policy protects, if there are Backends."""
    policies = generation.compiled.policies
    if not any(aim.ref.kind in BACKENDS for aim in policies.guards):
        return
    rows = [
        Row(probe="protection", subject=str(ref), outcome=Outcome.FINDING, message=message, remedy=f"{remedy}.")
        for ref, problem in unprotected_problems(policies, generation.routed)
        for message, _, remedy in (problem.message.partition(". "),)
    ]
    fine = Row(probe="protection", subject="Backends", outcome=Outcome.OK, message="a policy protects each of them")
    yield from rows or (fine,)


def probe_policy_server(generation: Generation) -> Iterable[Row]:
    """Connect to every address of the policy server, if anything would ask it."""
    server = generation.built.policy_server
    if server is None:
        return
    addresses, tls = dialled(server), dialled_with(server)
    for address, greeting in zip(addresses, greet_once(addresses, tls), strict=True):
        outcome, message, remedy = _told(greeting)
        yield Row(probe="policy-server", subject=str(address), outcome=outcome, message=message, remedy=remedy)


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


PROBES: Final[tuple[Probe, ...]] = (probe_documents, probe_protection, probe_policy_server)
