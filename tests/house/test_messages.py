"""Every message says what is wrong and what to do, in the words of the glossary.

A message is full sentences: what is wrong with the value, then the remedy, which begins with an imperative, or is
``Supported: …``, ``Expected …`` or ``Ignore this if intended.``
"""

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest
from tests.house.messages import PASSED_ON, UNKNOWN, Message, found_messages

SOURCE: Final = Path(__file__).parents[2] / "src" / "authplane"

NOT_YET: Final[tuple[str, ...]] = ()
"""Folders whose texts are not yet written by these rules. This list only shrinks."""

NO_PROBLEMS: Final = {
    "authserver.fronts.runtime.asgi_front.Refusal": "the status of a gRPC call, for programs",
    "authserver.runtime.server_document.DocumentError": "it has findings, which are checked where they are built",
    "runtime.clients.ask_page.NotAnsweredError": "the end of a sentence; its caller adds the remedy",
    "runtime.clients.private_networks.PrivateAddressError": "the cause in a sentence; its caller adds the remedy",
    "runtime.extras.ExtraMissingError": "it writes the sentence itself",
    "runtime.issuers.issuer_client.FetchError": "the cause in a sentence; its caller adds the remedy",
    "runtime.servers.listen.AddressTakenError": "it writes the sentence itself",
    "runtime.servers.health_check.HealthFault": "the status of a gRPC call, for programs",
    "dataplane.filters.calls.Stop": "the status of a gRPC call, in the style of grpcio; clients cannot repair servers",
    "dataplane.filters.calls.Unanswered": "the status of a gRPC call to an authorization service",
    "dataplane.filters.extauthz.service_decision.Deny": "the status of a gRPC call that a service denies",
    "devkit.diagnosis.examination.Row": "a row of doctor has its remedy in a field of its own",
    "policy.rules.rule_model.Expression": "an expression as a policy has it",
    "xds.client.client_messages.Report": "the words of the xDS server",
    "xds.server.nacks.Nack": "the words of the proxy",
    "xds.server.stream_messages.Nacked": "the words of the proxy",
}
"""Classes with a field ``message`` that is no problem of ours: what it is."""

_METHOD: Final = "a method of the collection, whose callers are checked"
_FILE: Final = "the text comes from sources/runtime/listing.py or read_folder.py, which have remedies"
_CONTOUR: Final = "Contour's words, which users and tools match"
_CALL: Final = "the status of a gRPC call, which the caller of the server cannot change"

_STATE: Final = "a state of a condition, which needs no action"
_LISTED: Final = "messages of problems, which are checked where they are built"

CONTOURS_WORDS: Final = (
    'Service "□" is of unsupported type "ExternalName".',
    "Spec.VirtualHost.Authorization.ExtensionServiceRef can only be defined for root HTTPProxies that terminate TLS",
    "Spec.Virtualhost.TLS fallback & client authorization are incompatible",
    "TLS upstream validation policy error: ",
    "At least one error present, see Errors for details",
    "Valid □",
    "cannot specify ",
    'fqdn "□" is used in multiple HTTPProxies: ',
    "httpSettings can only be set when serviceType is 'http'",
    'ignoring field ".Spec.LoadBalancerPolicy"; ',
    'ignoring field ".Spec.TimeoutPolicy.Idle"; ',
    "must set exactly one of route.services or ",
    "must specify at least one query parameter condition",
    'no attributes rewritten for cookie "□"',
    "only one service per route may be nominated as mirror",
    'port "',
    'service "',
    "service.UpstreamValidation.CACertificate Secret ",
    "spec.timeoutPolicy failed to parse: ",
    'tls.envoy-client-certificate Secret "□" is invalid: ',
    "this HTTPProxy is not part of a delegation chain from a root HTTPProxy",
    'unsupported service protocol "',
    "upstream TLS validation not supported for ",
    "□ are only applied to grpc service type",
    "□ is invalid: one of prefix, suffix, exact or contains is required",
    "□ is invalid: only one of prefix, suffix, exact, and contains should be set",
    "□ is invalid: unable to parse timeout string",
    '□.ServiceRef extension service "□" not found',
    "□.extensionRef specifies an unsupported resource ",
    '□ ready endpoint; Envoy cluster "□"',
    '□ ready endpoints; Envoy cluster "□"',
)
"""The beginnings of messages that users of Contour know, and that tools compare."""

PASSES_ON: Final[dict[str, str]] = {
    "authserver/fronts/runtime/pyvoy/pyvoy_front.py:_ask_pyvoy_anew": "a remedy follows the output of pyvoy",
    "authserver/records/runtime/traces.py:open_traces": "ExtraMissingError names the extra to install",
    "controlplane/graph/gateway/route_rules.py:_service": _LISTED,
    "controlplane/status/access_policy_status.py:_protected": _LISTED,
    "controlplane/status/access_policy_status.py:_resolved": _LISTED,
    "controlplane/status/enforced_condition.py:_placed": _STATE,
    "controlplane/status/gateway_status.py:_resolved_as": _LISTED,
    "controlplane/status/gateway_status.py:_resolved_refs": _LISTED,
    "controlplane/status/policy_server_status.py:policy_server_condition": "REMEDIES of policy_server_probe",
    "controlplane/status/resource_status.py:_left_to_others": _LISTED,
    "controlplane/status/resource_status.py:_sub": _LISTED,
    "controlplane/status/resource_status.py:programmed_condition": "the words of the proxy",
    "controlplane/status/resource_status.py:server_condition": "the words of the gRPC server",
    "controlplane/status/tls_policy_status.py:_ancestor": _LISTED,
    "policy/compile/compile_policies.py:_excess": "the message of a problem, which is checked where it is built",
    "policy/compile/compile_policies.py:_refusal": "Stands.crowd() ends each with a remedy",
    "policy/compile/compile_policies.py:_settle": "the message of a problem, which is checked where it is built",
    "policy/compile/compile_policies.py:_standing": "the message of a problem, which is checked where it is built",
    "policy/rules/backend_tls.py:find": "_close() ends each with a remedy",
    "runtime/envoy_process.py:ready": "the last lines of Envoy follow, which say what is wrong",
    "cel/check/engine.py:_parse_problems": "_reworded() ends each with a remedy",
    "cel/check/expression_lint.py:lint": "_whole(), _risky() and _part() end each with a remedy",
    "dataplane/runtime/channels/xds_targets.py:_check": "_name_options() ends the fault with a remedy",
    "dataplane/runtime/servers/xds_ports.py:_files": "the errors of runtime.servers.tls_files have their own remedies",
    "devkit/policies/policy_folders.py:load_paths": "the troubles of sources.runtime.listing have their own remedies",
    "core/problems.py:add": _METHOD,
    "core/problems.py:warn": _METHOD,
    "resources/mcp_places.py:place_problems": "parse_mcp_url() ends each with a remedy",
    "resources/typed/shapes.py:warn": _METHOD,
    "runtime/kubernetes/api_client.py:__exit__": "each CredentialsError ends with a remedy",
    "runtime/kubernetes/api_client.py:_lines": "ApiStatusError writes the sentence itself",
    "runtime/kubernetes/kubeconfig.py:refuse": "the messages of its tables end with a remedy",
    "sources/kubernetes/object_documents.py:object_chunk": "each _UnusableError ends with a remedy",
    "sources/runtime/read_cluster.py:read_once": "the troubles of a reflector end with a remedy",
    "sources/runtime/read_folder.py:_complain": _FILE,
    "sources/runtime/read_folder.py:_read": _FILE,
    "grpc/filters.py:filter_from": "each problem ends with a remedy",
    "grpc/matching.py:_require": "each problem ends with a remedy",
    "grpc/matching.py:cel": "each problem of the expression ends with a remedy",
}
"""``file:function`` whose message ends with a part that the walker cannot resolve: why it has a remedy all the same."""

NO_REMEDY: Final[dict[str, str]] = {
    "Access denied. No policy protects": "the client cannot add a policy; status, validate and lint tell the operator",
    "did not answer with the statistics of Envoy": "a part of a sentence of `authplane decisions`, which has one",
    "did not answer with metrics": "likewise",
    "Channel is closed.": "the words of grpcio",
    "The policy is enforced.": "nothing is wrong",
    "The policy is evaluated but not enforced.": "nothing is wrong",
    "authplane calls the Service over TLS.": "nothing is wrong",
    "All listeners are valid.": _STATE,
    "authplane serves the Gateways of this class.": _STATE,
    "The installed CustomResourceDefinitions keep every field": _STATE,
    "A policy protects the Backend.": _STATE,
    "Every connected proxy accepted this resource.": _STATE,
    "Every gRPC server that requests this resource accepted it.": _STATE,
    "This gateway does not serve the ingress class of this HTTPProxy.": _STATE,
    "All references of the policy are resolved.": _STATE,
    "The policy grants nothing, so authplane denies every request.": _STATE,
    "The policy is not enforced.": _STATE,
    "The policy is neither enforced nor evaluated": _STATE,
    "The target is protected by ": _STATE,
    "The target is protected by the policies of its Gateways.": _STATE,
    "A gRPC server has no references.": _STATE,
    "□ is a URL and does not need a Service.": _STATE,
    "□:□ is an external host.": _STATE,
    'Service "□" has port □.': _STATE,
    **dict.fromkeys(CONTOURS_WORDS, _CONTOUR),
    "xDS server □: □ (xDS node": _CALL,
    "□ '□' □ (xDS node": _CALL,
}
"""The beginning of a message that has no remedy: why there is none."""

VERBS: Final = (
    r"Add|Allow|Ask|Change|Check|Choose|Close|Compare|Compile|Configure|Connect|Copy|Correct|Create|Declare|Delete|Disable"
    r"|Enable|Encode|End|Escape|Fetch|Fix|Free|Generate|Get|Give|Grant|Guard|Increase|Install|Issue|Join|Keep|Leave|List"
    r"|Lower|Make|Merge|Mount|Move|Name|Open|Pass|Point|Put|Quote|Raise|Read|Reduce|Refer|Remove|Rename|Renew"
    r"|Repair|Replace|Report|Restart|Restore|Retry|Rewrite|Run|Save|See|Select|Send|Set|Shorten|Sign|Simplify|Specify|Split|Start"
    r"|Stop|Store|Test|Trust|Try|Turn|Update|Upgrade|Use|Wait|Write"
)
REMEDY: Final = re.compile(
    rf"(?:(?:To|For|If|In|Otherwise|Either)\b[^.]*, )?(?:{VERBS}|{VERBS.lower()})\b"
    r"|Supported(?: \w+)?: |Expected |Ignore this\b|Did you mean "
)
SENTENCES: Final = re.compile(r"(?<=[.?!])\s+|(?<=[.?!][\"')])\s+")
LOWER: Final = re.compile(
    r"(?:a|an|and|another|cannot|every|it|its|must|no|none|not|one|only|the|there|these|this|until)\b"
)

AVOIDED: Final = {
    r"authorization servers?\b": "authorization service, or policy server",
    r"\b(?:is|are|was|be|been) told\b": "an active verb: 'the server sends …'",
    r"\b[Ww]hoever\b": "the actor",
    r"\b[Nn]obody\b": "'no client', 'no one'",
    r"\basked (?:about|for)\b": "call-out, check, request",
    r"\blets?\b[^.]{0,30}\bpass(?:es)?\b": "grants, allows",
    r"\bcannot tell\b": "unavailable, 'no decision'",
    r"\bstands?\b": "is, applies",
    r"\bholds?\b": "has, contains, applies",
    r"\bso be it\b": "Ignore this if intended.",
    r"\bif that is meant\b": "Ignore this if intended.",
    r"\bwhat there is\b": "Supported: …",
    r"\bhas to be said\b": "is required",
}
"""Words that the glossary replaces, and what to write."""
SAID_BY_OTHERS: Final[dict[str, str]] = {}
"""``file: text`` with such a word: why it is right there."""


def _done(file: str) -> bool:
    return not file.startswith(NOT_YET)


def _complaint(text: str) -> str | None:
    """Say what a message lacks."""
    plain = text.strip()
    if plain.startswith(PASSED_ON) or plain.endswith((PASSED_ON, f"{PASSED_ON}.")):
        return None  # A sentence may follow that says what becomes of it.
    if not plain:
        return None
    if plain.strip(f". {UNKNOWN}") == "" or plain.endswith(UNKNOWN):
        return "ends with an unknown part"
    if LOWER.match(plain):
        return "starts with a small letter"
    last = SENTENCES.split(plain)[-1]
    if not plain.endswith(".") and not (last.startswith("Did you mean ") and plain.endswith("?")):
        return "has no period at its end"
    return None if REMEDY.match(last) else "has no remedy as its last sentence"


def _faults(messages: Iterable[Message]) -> Iterator[tuple[str, str]]:
    """Yield the file and a line for each message at fault."""
    for (file, line, function), group in groupby(messages, key=lambda each: each[:3]):
        texts = [each.text for each in group]
        for text in texts:
            whole = [each for each in texts if each != text and each.startswith(text)]
            if text != text.rstrip() and whole:
                continue  # A function returns "" if there is nothing wrong, and the message is not built.
            complaint = _complaint(text)
            if complaint == "ends with an unknown part" and f"{file}:{function}" in PASSES_ON:
                continue
            if complaint is not None and not text.startswith(tuple(NO_REMEDY)):
                yield file, f"src/authplane/{file}:{line} {function}() {complaint}: {text}"


def _avoided(path: Path) -> Iterator[str]:
    """Yield texts with words that the glossary replaces."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    file = path.relative_to(SOURCE).as_posix()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        for pattern, instead in AVOIDED.items():
            found = re.search(pattern, node.value) if " " in node.value else None
            if found is not None and f"{file}: {node.value.strip()}" not in SAID_BY_OTHERS:
                yield f"src/authplane/{file}:{node.lineno} has {found[0]!r}; write {instead}: {node.value}"


@pytest.fixture(scope="module")
def messages() -> tuple[Message, ...]:
    return tuple(found_messages(SOURCE, NO_PROBLEMS))


@pytest.mark.requirement("O20")
def test_every_message_says_what_to_do(messages: tuple[Message, ...]) -> None:
    faults = [fault for file, fault in _faults(messages) if _done(file)]
    assert not faults, "\n".join(["say what is wrong, then what to do:", *faults])


@pytest.mark.requirement("O21")
def test_texts_use_the_words_of_the_glossary() -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    found = [each for path in paths if _done(path.relative_to(SOURCE).as_posix()) for each in _avoided(path)]
    assert not found, "\n".join(found)


def test_folders_that_are_done_are_not_listed_any_more(messages: tuple[Message, ...]) -> None:
    open_faults = {file for file, _ in _faults(messages)} | {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if any(_avoided(path))
    }
    done = [folder for folder in NOT_YET if not any(file.startswith(folder) for file in open_faults)]
    assert done == [], "take these out of NOT_YET"


def test_every_documented_exception_is_needed(messages: tuple[Message, ...]) -> None:
    files = {f"{each.file}:{each.function}" for each in messages}
    assert [each for each in PASSES_ON if each not in files] == []
    assert [each for each in NO_REMEDY if not any(message.text.startswith(each) for message in messages)] == []


WRITTEN: Final = '''
from typing import NamedTuple

LIMIT = "Use at most 10."

class Wrong(NamedTuple):
    path: tuple
    message: str

class UserError(Exception):
    """A user reads it."""

def check(problems, value, other):
    problems.add("Reason", f"{value!r} is bad")
    problems.warn("Reason", "It is bad. " + LIMIT)
    words = "It is worse. Remove it." if other else "it is worst. Remove it."
    problems.add("Reason", words)
    problems.add("Reason", other.message)
    _pass_on(problems, "it is late. Wait.")
    seen.add(value)
    raise UserError(_said(value))

def _pass_on(problems, why):
    return Wrong((), f"No answer: {why}")

def _said(value):
    return f"{value} cannot be read."
'''


def test_the_walker_finds_messages_however_they_are_built(tmp_path: Path) -> None:
    package = tmp_path / "written"
    package.mkdir()
    (package / "module.py").write_text(WRITTEN, encoding="utf-8")
    assert [each.text for each in found_messages(package)] == [
        f"{UNKNOWN} is bad",
        "It is bad. Use at most 10.",
        "It is worse. Remove it.",
        "it is worst. Remove it.",
        PASSED_ON,
        "No answer: it is late. Wait.",
        f"{UNKNOWN} cannot be read.",
    ]
    assert [fault.partition(" ")[2].partition(": ")[0] for _, fault in _faults(found_messages(package))] == [
        "check() has no period at its end",
        "check() starts with a small letter",
        "check() has no remedy as its last sentence",
    ]
