"""The folder for one MCP server: a Backend, a policy, tests of it, and settings."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from authplane.devkit.scaffold.answers import DEV, Answers, Grant

SCHEMA_FILE: Final = "authplane.schema.json"
_EDITORS: Final = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = frozenset(
    {
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
        "namespace", "null", "package", "return", "true", "var", "void", "while",
    }
)  # fmt: skip
"""Words that CEL does not take for the name of a field."""
_CA_SECRET: Final = "dev-issuer-ca"  # noqa: S105 (the name of a Secret)


def render_mcp_folder(answers: Answers, schema: str, dev_ca: bytes = b"") -> Mapping[str, str]:
    """Return the files of the folder by name; ``dev_ca`` is the CA of the development issuer, if that is the issuer."""
    files = {
        SCHEMA_FILE: schema,
        "backend.yaml": _backend(answers),
        "policy.yaml": _policy(answers),
        "policy.test.yaml": _tests(answers),
        "settings.yaml": _settings(answers),
    }
    if answers.issuer == DEV:
        files["dev-issuer.yaml"] = _trust(dev_ca)
    return files


def group_claims(answers: Answers, group: str) -> str:
    """Return the claim of a member of a group as ``authplane dev token --claim`` takes it."""
    return f"{answers.claim}:={json.dumps([group], ensure_ascii=False)}"


def _backend(answers: Answers) -> str:
    return f"""\
{_EDITORS}\
# The MCP server, as Envoy reaches it. Clients use {answers.served_url} instead.
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata:
  name: {answers.name}
spec:
  mcp:
    url: {_text(answers.url)}
"""


def _policy(answers: Answers) -> str:
    rules = "".join(_rule(answers, grant, name) for grant, name in zip(answers.grants, _names(answers), strict=True))
    return f"""\
{_EDITORS}\
# Who may call which tools. authplane denies every call that no rule grants.
# Every caller with a valid token of the issuer, in any group or none, may also connect and list the tools.
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata:
  name: {answers.name}
spec:
  targetRefs:
  - group: agentic.networking.x-k8s.io
    kind: Backend
    name: {answers.name}
  rules:
{rules}"""


def _rule(answers: Answers, grant: Grant, name: str) -> str:
    member = _member(answers.claim, grant.group)
    what = "every tool" if grant.everything else ", ".join(grant.tools)
    called = ['request.mcp.method == "tools/call"']
    if not grant.everything:
        called.append(f"request.mcp.tool_name in {json.dumps(list(grant.tools), ensure_ascii=False)}")
    lines = " &&\n          ".join([*member, *called])
    return f"""\
  # {grant.group}: {what}
  - name: {name}
    source:
      type: OIDC
      oidc:
        issuerUrl: {_text(answers.issuer_url)}
        audiences: [{_text(answers.audience)}]
    authorization:
    - type: CEL
      cel:
        expression: >-
          {lines}
"""


def _member(claim: str, group: str) -> tuple[str, str]:
    """Write that the claim is there, and that it lists the group."""
    if _IDENTIFIER.fullmatch(claim) and claim not in _RESERVED:
        return f"has(identity.{claim})", f"{_text(group)} in identity.{claim}"
    return f"{_text(claim)} in identity", f"{_text(group)} in identity[{_text(claim)}]"


def _names(answers: Answers) -> Iterator[str]:
    """Name rules after their groups, as far as the names of rules allow it."""
    taken: set[str] = set()
    for number, grant in enumerate(answers.grants, 1):
        slug = re.sub(r"[^a-z0-9]+", "-", grant.group.lower()).strip("-")[:50].strip("-")
        name = slug if slug and slug not in taken else f"group-{number}"
        taken.add(name)
        yield name


def _tests(answers: Answers) -> str:
    cases = "".join(_cases(answers))
    return f"""\
# Tests of policy.yaml, without Envoy and without an issuer: authplane test runs them.
policies: .
cases:
{cases}"""


def _cases(answers: Answers) -> Iterator[str]:
    for grant in answers.grants:
        tool = "any_tool" if grant.everything else grant.tools[0]
        yield _case(answers, f"{grant.group} may call {tool}", tool, grant.group, "decision: allow")
        if not grant.everything:
            other = _unlisted(grant, answers.grants)
            yield _case(
                answers, f"{grant.group} may not call {other}", other, grant.group, "decision: deny, httpStatus: 403"
            )
    first = answers.grants[0]
    tool = "any_tool" if first.everything else first.tools[0]
    stranger = _stranger(answers)
    yield _case(answers, f"{stranger} may call nothing", tool, stranger, "decision: deny, httpStatus: 403")
    yield _case(answers, "a caller without a token may call nothing", tool, "", "decision: deny, httpStatus: 401")


def _case(answers: Answers, name: str, tool: str, group: str, expect: str) -> str:
    claims = {"sub": "alice", "aud": answers.audience, answers.claim: [group]}
    token = {"issuer": answers.issuer_url, "claims": claims}
    peer = f"    peer:\n      token: {json.dumps(token, ensure_ascii=False)}\n" if group else ""
    return f"""\
- name: {_text(name)}
  request:
    target: {{kind: Backend, name: {answers.name}}}
    mcp: {{method: tools/call, params: {{name: {_text(tool)}}}}}
{peer}  expect: {{{expect}}}
"""


def _unlisted(grant: Grant, grants: Iterable[Grant]) -> str:
    """Return a tool that a group may not call: one of another group if possible."""
    others = (tool for each in grants for tool in each.tools)
    return next(
        each for each in (*others, "another_tool", "other_tool", "x") if each not in grant.tools and each != "*"
    )


def _stranger(answers: Answers) -> str:
    groups = {each.group for each in answers.grants}
    return next(name for name in ("strangers", *(f"strangers{number}" for number in range(100))) if name not in groups)


def _settings(answers: Answers) -> str:
    issuers = ""
    if answers.issuer == DEV:
        issuers = f"""\
  # The development issuer. Replace it before production: everybody who can read its folder can sign tokens.
  issuers:
  - url: {answers.issuer_url}
    allowPrivateNetwork: true
    caSecret:
      name: {_CA_SECRET}
      namespace: default
"""
    return f"""\
{_EDITORS}\
# Settings of the gateway. Envoy listens on this machine only, without TLS.
# To serve other machines, set spec.gateway.tls and another address.
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata:
  name: authplane
spec:
  gateway:
    address: 127.0.0.1
    port: {answers.port}
{issuers}"""


def _trust(ca: bytes) -> str:
    lines = "\n".join(f"    {line}" for line in ca.decode("ascii").splitlines())
    return f"""\
{_EDITORS}\
# The CA of the development issuer. Not for production.
# Its keys are in .authplane/dev of the directory where you ran 'authplane init'. Run authplane in that directory.
apiVersion: v1
kind: Secret
metadata:
  name: {_CA_SECRET}
type: Opaque
stringData:
  ca.crt: |
{lines}
"""


def _text(value: str) -> str:
    """Quote a text for YAML and for CEL alike: both read JSON's quotes."""
    return json.dumps(value, ensure_ascii=False)
