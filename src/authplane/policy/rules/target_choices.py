"""The annotations by which a backend or a Gateway chooses how its policies are enforced."""

from collections.abc import Iterable, Mapping
from typing import Final

from authplane.core.problems import Problems
from authplane.core.values import dataclass
from authplane.policy.rules.access_settings import NO_BODY_INSPECTION, Placement

PLACEMENT: Final = "authplane.dev/placement"
_BODY_INSPECTION: Final = "authplane.dev/body-inspection"
IDLE_TIMEOUT: Final = "authplane.dev/idle-timeout"
"""Of MCP servers; the control plane uses it for routes to them."""
_OURS: Final = "authplane.dev/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The annotations of a resource; None where one is not set."""

    placement: Placement | None = None


NOTHING_CHOSEN: Final = Chosen()


def parse_chosen(annotations: Mapping[str, str], problems: Problems, *, of_backend: bool) -> Chosen:
    """Read the annotations of a resource; an invalid one is reported and counts as the stricter choice."""
    known = (PLACEMENT, *([IDLE_TIMEOUT] if of_backend else ()))
    _warn_of_unknown(annotations, known, problems)
    if PLACEMENT not in annotations:
        return NOTHING_CHOSEN
    return Chosen(placement=_parse(annotations[PLACEMENT], problems))


def pick_strictest(written: Iterable[Placement | None], otherwise: Placement) -> Placement:
    """Return the strictest choice of several resources, or ``otherwise`` if none chooses."""
    found = [each for each in written if each is not None]
    return Placement.CALL_OUT if Placement.CALL_OUT in found else found[0] if found else otherwise


def _warn_of_unknown(annotations: Mapping[str, str], known: tuple[str, ...], problems: Problems) -> None:
    """Name the annotations that look as if they chose something and do not."""
    for key in sorted(key for key in annotations if key.startswith(_OURS) and key not in known):
        with problems.at("metadata", "annotations", key):
            if key == _BODY_INSPECTION:
                problems.warn("AnnotationObsolete", NO_BODY_INSPECTION)
                continue
            problems.warn("AnnotationUnknown", f"Unknown annotation. Supported: {', '.join(known)}.")


def _parse(text: str, problems: Problems) -> Placement:
    try:
        return Placement(text)
    except ValueError:
        known = " or ".join(repr(each.value) for each in Placement)
        strict = Placement.CALL_OUT
        with problems.at("metadata", "annotations", PLACEMENT):
            problems.add("AnnotationInvalid", f"{text!r} is not supported, so {strict.value!r} applies. Use {known}.")
        return strict
