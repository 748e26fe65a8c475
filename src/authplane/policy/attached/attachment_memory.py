"""Attachments of the pass before: most targets keep their policies, and whoever compares finds the same object."""

from collections.abc import Sequence
from dataclasses import dataclass

from authplane.policy.attached.attachments import Attachment, build_attachment
from authplane.policy.rules.policy_targets import Aim
from authplane.policy.rules.rule_model import AnyPolicy, Unusable
from authplane.policy.rules.target_choices import Chosen


@dataclass(frozen=True, slots=True)
class _Made:
    """An attachment, and what it was made of."""

    policies: Sequence[AnyPolicy]
    shadows: Sequence[AnyPolicy]
    mcp: bool
    chosen: Chosen
    attachment: Attachment


class AttachmentMemory:
    """Builds attachments, pass after pass."""

    def __init__(self) -> None:
        self._before: dict[Aim, _Made] = {}
        self._now: dict[Aim, _Made] = {}

    def next_pass(self) -> None:
        """Forget what the last pass did not need."""
        self._before, self._now = self._now, {}

    def ensure(
        self, aim: Aim, policies: Sequence[AnyPolicy], shadows: Sequence[AnyPolicy], *, mcp: bool, chosen: Chosen
    ) -> Attachment:
        """Return what `build_attachment` does; the same policies give the same object."""
        made = self._before.get(aim)
        if (
            made is None
            or made.mcp is not mcp
            or made.chosen != chosen
            or not _same(made.policies, policies)
            or not _same(made.shadows, shadows)
        ):
            attachment = build_attachment(aim, policies, shadows, mcp=mcp, chosen=chosen)
            made = _Made(tuple(policies), tuple(shadows), mcp, chosen, attachment)
        self._now[made.attachment.aim] = made
        return made.attachment


def _same(these: Sequence[AnyPolicy], those: Sequence[AnyPolicy]) -> bool:
    """Compare by identity, as whole policies would take too long; those that deny everything say little else."""
    return len(these) == len(those) and all(
        one is other or (isinstance(one, Unusable) and one == other) for one, other in zip(these, those, strict=True)
    )
