"""Gives Envoy enough time for checks of passwords: ExtensionServices in Contour rarely set one."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import yaml

from authplane.devkit.scaffold.contour_documents import Document, items, mapping, with_text
from authplane.resources.yaml.nodes import parse_nodes, plain

_RESPONSE: Final = "5s"
_WHY: Final = "By default, Envoy waits 200 ms and then answers 403, but bcrypt takes longer."
_BLOCK: Final = re.compile(r"^spec:[ \t]*\n(?P<indent>[ ]+)(?=\S)", re.MULTILINE)


def with_response_timeouts(
    documents: Iterable[Document], services: frozenset[str]
) -> tuple[list[Document], tuple[str, ...]]:
    """Set a timeout in the ExtensionServices that lead to these Services and have none; also say where."""
    changed: list[str] = []
    made: list[Document] = []
    for each in documents:
        policy = mapping(each.spec.get("timeoutPolicy"))
        if _leads_to(each, services) and not policy.get("response"):
            changed.append(f"ExtensionService {each.name}: authplane set timeoutPolicy.response to {_RESPONSE}. {_WHY}")
            made.append(_with_timeout(each))
        else:
            made.append(each)
    return made, tuple(changed)


def _leads_to(document: Document, services: frozenset[str]) -> bool:
    names = (mapping(each).get("name") for each in items(document.spec.get("services")))
    return document.kind == "ExtensionService" and any(f"{document.namespace}/{name}" in services for name in names)


def _with_timeout(document: Document) -> Document:
    """Add the field to the text if that has no such block yet; otherwise write the document again."""
    policy = {**mapping(document.spec.get("timeoutPolicy")), "response": _RESPONSE}
    value = {**document.value, "spec": {**document.spec, "timeoutPolicy": policy}}
    block = _BLOCK.search(document.text)
    if block and "timeoutPolicy" not in document.spec:
        at = block["indent"]
        added = f"{at}# {_WHY}\n{at}timeoutPolicy:\n{at}  response: {_RESPONSE}\n"
        text = f"{document.text[: block.start('indent')]}{added}{document.text[block.start('indent') :]}"
        root = parse_nodes(text).root
        if root is not None and plain(root) == value:
            return replace(document, text=text, value=value)
    written = f"---\n{yaml.safe_dump(value, sort_keys=False, allow_unicode=True)}"
    return with_text(replace(document, text=written, value=value), f"timeoutPolicy.response: {_WHY}")
