"""A folder of Contour's resources as one that authplane serves: what it takes over, changes and cannot move."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from authplane.core.problems import Severity, dotted
from authplane.core.text import name_some
from authplane.core.values import dataclass
from authplane.devkit.scaffold.check_files import check_files
from authplane.devkit.scaffold.check_timeouts import with_response_timeouts
from authplane.devkit.scaffold.contour_documents import Document, MoveError, items, mapping, with_text
from authplane.devkit.scaffold.new_servers import NewServer, move_servers
from authplane.devkit.scaffold.referenced_documents import missing_lines, referenced, unreferenced_lines
from authplane.resources.documents import Finding

ASIDE: Final = ".not-moved"
"""Where documents go that authplane would refuse; the name starts with a dot, so that it is not read."""
_SET_ASIDE: Final = frozenset({"ExtensionService", "HTTPProxy", "Secret", "TLSCertificateDelegation"})
"""Kinds without which no host is less protected: what needs them is refused and set aside as well."""
_MOST_NAMED: Final = 5
_ADVICE: Final = {
    "Ingress": "Write an HTTPProxy for each host.",
    "Endpoints": "Export EndpointSlices instead: kubectl get endpointslices -A -o yaml.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What becomes of a folder."""

    files: Mapping[str, str]
    private: frozenset[str]
    """Files with keys or passwords."""
    changed: tuple[str, ...]
    left: tuple[str, ...]
    missing: tuple[str, ...]
    """What the folder of Contour's resources seems to lack."""
    warnings: int
    servers: tuple[NewServer, ...]


def move_folder(documents: Sequence[Document]) -> Moved:
    """Decide what goes into the new folder; raises `MoveError` if that would protect less than Contour does."""
    kept = [each for each in documents if each.ours]
    if not kept:
        raise MoveError("The folder has no resource that authplane supports. Use a folder with HTTPProxies.")
    servers = move_servers(documents)
    ours = [each for each in kept if each.name not in servers.replaced or each.kind != "EndpointSlice"]
    ours, waits = with_response_timeouts(ours, servers.password_services)
    named = referenced(ours, check_files({**_joined(ours), **servers.files}))
    kept, aside = _set_aside(named, servers.files)
    files = {**_joined(kept), **servers.files, **_aside_files(aside)}
    secrets = {each.file for each in kept if each.kind == "Secret"}
    findings = check_files(files).findings
    return Moved(
        files=files,
        private=frozenset({*secrets, *servers.private, *(name for name in files if name.startswith(f"{ASIDE}/"))}),
        changed=(*_from_lists(kept), *servers.changed, *waits, *_without_effect(findings), *_passwords(findings)),
        left=(
            *servers.left,
            *_refused(aside),
            *unreferenced_lines(ours, named, servers.certificates),
            *_foreign(documents, servers.workloads),
        ),
        missing=tuple(missing_lines(documents, kept)),
        warnings=sum(each.problem.severity is Severity.WARNING for each in findings),
        servers=servers.started,
    )


Aside: TypeAlias = list[tuple[Document, list[Finding]]]


def _set_aside(kept: list[Document], more: Mapping[str, str]) -> tuple[list[Document], Aside]:
    """Take out what authplane refuses, until nothing is left that it refuses."""
    aside: Aside = []
    while True:
        checked = check_files({**_joined(kept), **more})
        findings = [each for each in checked.findings if each.problem.severity is Severity.ERROR]
        if not findings:
            _require_no_takeover(kept, [each for each, _ in aside])
            return kept, aside
        wrong = {each: [found for found in findings if found.ref in each.refs] for each in kept}
        out = [each for each in kept if wrong[each] and each.kind in _SET_ASIDE]
        explained = {id(found) for each in out for found in wrong[each]}
        rest = [found for found in findings if id(found) not in explained]
        if rest and (not out or any(found.ref is None or found.ref.kind not in _SET_ASIDE for found in rest)):
            why = "Settings of the whole gateway have errors, so authplane wrote no files."
            raise MoveError(f"{why} Correct these settings in the folder and run init again.", findings)
        aside.extend((each, wrong[each]) for each in out)
        kept = [each for each in kept if each not in out]


def _require_no_takeover(kept: Iterable[Document], aside: Iterable[Document]) -> None:
    """Refuse to take a host away if a wildcard host would get its requests."""
    wildcards = {_fqdn(each).removeprefix("*"): each for each in kept if _fqdn(each).startswith("*.")}
    for each in aside:
        label, dot, rest = _fqdn(each).partition(".")
        owner = wildcards.get(f"{dot}{rest}") if label != "*" else None
        if owner is not None:
            why = f"HTTPProxy {each.name} has errors, and without it HTTPProxy {owner.name} would receive its requests"
            raise MoveError(
                f"{why}. Run 'authplane validate' to list the errors, and correct HTTPProxy {each.name} first."
            )


def _fqdn(document: Document) -> str:
    if document.kind != "HTTPProxy":
        return ""
    return str(mapping(document.spec.get("virtualhost")).get("fqdn") or "").lower()


def _joined(documents: Iterable[Document]) -> dict[str, str]:
    """Put documents back into the files that they come from, in their order."""
    files: dict[str, str] = {}
    for each in documents:
        name = re.sub(r"\.json$", ".yaml", each.file)
        text = each.text if each.text.endswith("\n") else f"{each.text}\n"
        before = files.get(name, "")
        files[name] = f"{before}{text}" if not before or text.startswith("---") else f"{before}---\n{text}"
    return files


def _aside_files(aside: Aside) -> dict[str, str]:
    return _joined(
        with_text(_placed(each), "\n".join(f"{_where(one)}{_sentence(one)}" for one in found)) for each, found in aside
    )


def _placed(document: Document) -> Document:
    return Document(file=f"{ASIDE}/{document.file}", text=document.text, value=document.value, refs=document.refs)


def _where(finding: Finding) -> str:
    path = dotted(finding.problem.path)
    return f"{path}: " if path else ""


def _sentence(finding: Finding) -> str:
    return " ".join(finding.problem.message.split())


def _refused(aside: Aside) -> Iterator[str]:
    for each, found in aside:
        owner = _including(each, aside) if found[0].problem.reason == "Orphaned" else ""
        why = (
            f"authplane did not move HTTPProxy {owner}, which includes it. Correct HTTPProxy {owner}."
            if owner
            else _sentence(found[0])
        )
        yield f"{each.kind} {each.name}: {why}"
    if aside:
        yield (
            f"authplane wrote the refused documents with all their problems to {ASIDE}. Add missing"
            " Secrets to the folder that you move, correct the other problems, and run init again with --force."
        )


def _including(child: Document, aside: Aside) -> str:
    """Return the name of an HTTPProxy set aside that includes another one; empty if there is none."""
    for each, _ in aside:
        for include in map(mapping, items(each.spec.get("includes"))):
            if f"{include.get('namespace') or each.namespace}/{include.get('name')}" == child.name:
                return each.name
    return ""


def _without_effect(findings: Iterable[Finding]) -> Iterator[str]:
    """Name the fields that Contour uses and authplane does not."""
    fields: dict[str, list[str]] = {}
    for each in findings:
        if each.problem.reason == "FieldNotSupported" and each.ref is not None:
            owners = fields.setdefault(str(each.problem.path[-1]), [])
            owners += [str(each.ref)] if str(each.ref) not in owners else []
    for field, owners in sorted(fields.items()):
        yield (
            f"{field} has no effect, because authplane does not support it. Resources with this field:"
            f" {name_some(owners, _MOST_NAMED)}."
        )


def _passwords(findings: Iterable[Finding]) -> Iterator[str]:
    """Name the users that contour-authserver accepts and authplane does not, or only with a warning."""
    for each in findings:
        if each.ref is not None and each.ref.kind == "Secret" and each.problem.severity is Severity.WARNING:
            yield f"Secret {each.ref.object_name}: {_sentence(each)}"


def _from_lists(kept: Iterable[Document]) -> Iterable[str]:
    listed = Counter(each.file for each in kept if each.listed)
    for file, number in sorted(listed.items()):
        yield (
            f"{file}: authplane wrote each item of a List ({number} in all) as a document, without status and"
            " fields of the API server."
        )


def _foreign(documents: Iterable[Document], known: frozenset[str]) -> Iterable[str]:
    kinds = Counter(each.kind for each in documents if not each.ours and f"{each.kind} {each.name}" not in known)
    for kind, number in sorted(kinds.items()):
        advice = f" {_ADVICE[kind]}" if kind in _ADVICE else ""
        yield f"{kind or 'Documents without a kind'} ({number}): authplane does not use these documents.{advice}"
