"""What the reference engine says: the code of ``authplane check``, in this process."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.differential.certificates import pair_of
from tests.differential.minting import FIRST_KEYS, keys_of
from tests.differential.model import Answer
from tests.differential.site import Shot, Site
from tests.support.authservers.external_answers import answer

from authplane.core.envoy_releases import Release
from authplane.devkit.policies.check_records import http_status
from authplane.devkit.policies.checking import Circumstances, Enforced, check, enforce
from authplane.devkit.policies.request_files import AskedRequest, parse_request
from authplane.devkit.strict_files import Text
from authplane.policy.check.decision import Allow
from authplane.policy.decide.decide import MEANS
from authplane.policy.placement.placement_model import Native
from authplane.policy.placement.target_routes import TargetRoutes
from authplane.resources.typed.shapes import Report
from authplane.resources.yaml.nodes import Entry, Fields, Items, Node, Scalar
from authplane.sources.runtime.read_folder import Folder

_BINARY = (1, 1)
"""Where bodies stand: there only bytes do."""


class Entries(NamedTuple):
    """How many entries of rules Envoy decides, and how many there are."""

    native: int
    all: int


class Reference:
    """Judges requests by the documents of a site."""

    def __init__(self, site: Site, keys: tuple[int, ...] = FIRST_KEYS) -> None:
        self._site = site
        folder = Folder(site.folder)
        folder.scan()
        self.enforced: Enforced = enforce(folder.library.current())
        self._given = Circumstances(now=site.now, keys=keys_of(site.issuers, keys), answer=answer, means=MEANS)

    def answer(self, shot: Shot) -> Answer:
        """Judge a request; HTTPProxies have no policies."""
        if self._site.world.sets[shot.place].proxy:
            return Answer(True, 200)
        checked = check(self.enforced.policies, asked(document_of(self._site, shot)), self._given)
        decision = checked.verdict.decision
        grounds, status = checked.verdict.grounds, http_status(decision)
        why = " ".join(filter(None, (grounds.policy, grounds.rule, grounds.entry, grounds.reason)))
        # Hosts without a policy are none of the policy server's business: there Envoy forwards everything.
        removed = frozenset(decision.edits.remove) if isinstance(decision, Allow) else frozenset[str]()
        if grounds.reason == "unprotected":
            removed = frozenset()
        return Answer(isinstance(decision, Allow), 200 if status is None else status, removed=removed, why=why)

    def entries(self, release: Release) -> Entries:
        """Count the entries of rules at Backends, as the default placement has them for a release of Envoy."""
        routes = TargetRoutes(self.enforced.policies, dict.fromkeys(self.enforced.routed), release)
        places = [
            entry.place
            for route in routes
            if route.target.backend is not None
            for attachment in route.plan.attachments
            for policy in attachment.policies
            for entry in policy.entries
        ]
        return Entries(sum(isinstance(each, Native) for each in places), len(places))


def document_of(site: Site, shot: Shot) -> dict[str, Any]:
    """Describe a request as ``authplane check`` reads it."""
    secure = bool(shot.certificate)
    ports = site.listeners(shot.gateway)
    headers: dict[str, list[str]] = {"host": [shot.host]}
    for name, value in shot.seen_headers:
        headers.setdefault(name, []).append(value)
    gateway = {"name": f"g{shot.gateway}", "sectionName": "secure" if secure else "plain"}
    backend = {"kind": "Backend", "name": f"s{shot.place}", "gateway": gateway}
    made: dict[str, Any] = {
        "target": {"kind": "Gateway", **gateway} if site.world.sets[shot.place].service else backend,
        "method": shot.method,
        "path": shot.seen_path,
        "scheme": "https" if secure else "http",
        "port": ports.secure if secure else ports.plain,
        "headers": headers,
        "time": site.now.isoformat(),
    }
    if shot.body:
        made["body"] = shot.body
    if secure:
        made["peer"] = {"certificate": pair_of(shot.certificate).certificate.decode()}
    return made


def asked(document: Mapping[str, Any]) -> AskedRequest:
    """Read a description, as it would be read from a file; one that could not be is a mistake of ours."""
    report = Report()
    text = Text(file="request.yaml", root=None, findings=(), binary=frozenset({_BINARY}))
    found = parse_request(_node(document), (), text, report)
    assert found is not None, [str(each) for each in report.problems]
    return found


def _node(value: Any) -> Node:
    match value:
        case dict():
            return Fields({name: Entry(_node(each), 0, 0) for name, each in value.items()}, 0, 0)
        case list():
            return Items(tuple(_node(each) for each in value), 0, 0)
        case bytes():
            return Scalar(_base64(value), False, *_BINARY)
        case str():
            return Scalar(value, False, 0, 0)
        case _:
            return Scalar(str(value), True, 0, 0)


def _base64(value: bytes) -> str:
    return b64encode(value).decode()
