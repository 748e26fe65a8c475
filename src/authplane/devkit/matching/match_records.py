"""Describes how a call matches a tree: as JSON for programs, as a tree for people."""

from typing import Any

from authplane.core.problems import dotted
from authplane.devkit.matching.matching_files import ActionText, TreeFile
from authplane.devkit.policies.check_records import Branch
from authplane.matching.explain_tree import Explanation, Step


def match_record(file: TreeFile, found: Explanation[ActionText]) -> dict[str, Any]:
    """Describe where a call ends, and every step on the way."""
    return {
        "matched": found.action is not None,
        "action": None if found.action is None else _action_record(file, found.action, found),
        "noted": [action.text for action in (found.noted if found.action is None else found.noted[:-1])],
        "steps": _step_record(file, found.root),
    }


def match_line(file: TreeFile, found: Explanation[ActionText]) -> str:
    """Say where a call ends."""
    if found.action is None:
        return "no match" + ("; the composite filter ends the call with UNAVAILABLE" if file.composite else "")
    place, path = file.place(found.path)
    name = file.name(found.path)
    return f"{found.action.text}{f' ({name})' if name else ''}, at {place}: {dotted(path)}"


def match_tree(found: Explanation[ActionText]) -> tuple[Branch, ...]:
    """Describe everything that was tried, in order."""
    return (_step_branch(found.root),)


def _action_record(file: TreeFile, action: ActionText, found: Explanation[ActionText]) -> dict[str, Any]:
    place, path = file.place(found.path)
    return {
        "name": file.name(found.path),
        "type": action.type_name,
        "text": action.text,
        "path": dotted(path),
        "place": place,
    }


def _step_record(file: TreeFile, step: Step) -> dict[str, Any]:
    place, path = file.place(step.path)
    return {
        "text": step.text,
        "matched": step.matched,
        "why": step.why,
        "path": dotted(path),
        "place": place,
        "steps": [_step_record(file, each) for each in step.below],
    }


def _step_branch(step: Step) -> Branch:
    mark = "" if step.matched is None else "yes: " if step.matched else "no: "
    why = f" ({step.why})" if step.why else ""
    return Branch(f"{mark}{step.text}{why}", tuple(map(_step_branch, step.below)))
