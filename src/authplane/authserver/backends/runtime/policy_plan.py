"""Which policies a server decides by, in a form that other processes can read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPlan:
    """Policies in a folder."""

    folder: str
    allow_private_issuers: bool = False
    target: str = ""
    """What checks are about whose route does not say it: ``Backend/<namespace>/<name>``."""
    gateway: str = ""
    """Through which Gateway they come: ``Gateway/<namespace>/<name>[/<listener>]``."""
    poll: bool = False
    state_dir: str = ""
    """Where last good versions are kept; empty is nowhere."""
    loosen_after: float = 2.0
    """Seconds that a file must be unchanged before a change that loosens takes effect."""
