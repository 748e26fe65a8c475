"""A difference as files: ``authplane check`` replays what the reference says, and any client what Envoy does."""

import json
from pathlib import Path
from typing import Final

import yaml
from tests.differential.differences import Difference
from tests.differential.minting import published
from tests.differential.model import ISSUERS
from tests.differential.reference import document_of
from tests.differential.site import Shot, Site
from tests.differential.wire import bytes_of

POLICIES: Final = "policies"
REQUEST: Final = "request.yaml"
KEYS: Final = "keys.json"
BYTES: Final = "request.http"
SUMMARY: Final = "difference.txt"


def write_report(found: Difference, site: Site, shot: Shot, folder: Path) -> str:
    """Write all that it takes to see a difference again, and return what it is."""
    (folder / POLICIES).mkdir(parents=True, exist_ok=True)
    (folder / POLICIES / "all.yaml").write_text(yaml_of(*site.documents(found.placement.settings)), encoding="utf-8")
    (folder / REQUEST).write_text(yaml_of(document_of(site, shot)), encoding="utf-8")
    keys = {site.issuers[issuer]: json.loads(published(issuer)) for issuer in ISSUERS}
    (folder / KEYS).write_text(json.dumps(keys), encoding="utf-8")
    (folder / BYTES).write_bytes(bytes_of(0, shot))
    said = _summary(found, shot, folder)
    (folder / SUMMARY).write_text(said, encoding="utf-8")
    return said


def yaml_of(*documents: object) -> str:
    """Write documents as people read them; the same value twice is written twice, since names for it are refused."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _data: object) -> bool:
        return True


def _summary(found: Difference, shot: Shot, folder: Path) -> str:
    backend, gateway = (
        yaml_of([{"kind": each.kind, "version": each.version, **each.spec} for each in drafts])
        for drafts in (found.policies.backend, found.policies.gateway)
    )
    return f"""{found.kind}
reference: {_word(found.wanted.allowed)} {found.wanted.status}  {found.wanted.why}
Envoy:     {_word(found.got.allowed)} {found.got.status}  {found.got.changed or found.got.why}
placement: {found.placement.name}, Envoy {found.version.number}
settings:  {json.dumps(dict(found.world.settings))}, tokens of workloads: {found.world.workload_tokens}
certificate: {shot.certificate or "none"}
route: rewrites {found.policies.rewrite}, weights: {found.policies.weighted}, call-out: {found.policies.call_out}
{f"HTTP/2, with another host: {shot.other_host!r}" if shot.http2 else "HTTP/1.1"}, in {shot.pieces} pieces
policies of the Backend:
{backend}policies of the Gateway:
{gateway}request:
{bytes_of(0, shot).decode("utf-8", errors="backslashreplace")}
Again: authplane check {folder / POLICIES} --request {folder / REQUEST} --keys {folder / KEYS} --explain
"""


def _word(allowed: bool) -> str:
    return "allow" if allowed else "deny"
