"""Why an expression holds or not."""

from typing import Final

import pytest
from tests.support.cel.expressions import known, program

from authplane.cel.check.expression_outcome import HOLDS, HOLDS_NOT, Code, Failed
from authplane.cel.explain.explain_expression import FALSE, TRUE, Explanation, Hidden, Part, Shown, explain

FACTS: Final = {
    "request.method": "POST",
    "request.path": "/mcp",
    "request.headers": {"x-a": "1", "authorization": "Bearer hunter2"},
    "request.mcp.tool_name": "write_file",
    "request.mcp.params": {"n": 3, "deep": {"password": "hunter2"}},
    "identity": {"group": "user", "email": "a@example.com", "level": 3, "roles": ["a", "b"], "none": None},
}


def explained(text: str) -> Explanation:
    secret = {"identity.email", 'request.headers["authorization"]', "request.headers.authorization"}
    return explain(program(text), known(FACTS), secret=lambda path: path in secret)


def test_every_part_has_its_value() -> None:
    assert explained('request.mcp.tool_name.startsWith("read_") &&\n  identity.role == "admin"') == Explanation(
        outcome=HOLDS_NOT,
        root=Part(
            text='request.mcp.tool_name.startsWith("read_") && identity.role == "admin"',
            value=FALSE,
            line=1,
            column=43,
            parts=(
                Part(
                    text='request.mcp.tool_name.startsWith("read_")',
                    value=FALSE,
                    line=1,
                    column=33,
                    parts=(Part(text="request.mcp.tool_name", value=Shown('"write_file"'), line=1, column=12),),
                ),
                Part(
                    text='identity.role == "admin"',
                    value=Failed(Code.NO_SUCH_KEY),
                    line=2,
                    column=17,
                    parts=(Part(text="identity.role", value=Failed(Code.NO_SUCH_KEY), line=2, column=11),),
                ),
            ),
        ),
        hints=(
            'request.mcp.tool_name must start with "read_"; it is "write_file"',
            'identity.role must be "admin"; it is missing',
        ),
    )


def test_a_true_expression_needs_no_hint() -> None:
    found = explained("identity.group == 'user' || identity.x == 'y'")
    assert (found.outcome, found.root.value, found.hints) == (HOLDS, TRUE, ())


HINTS = {
    "identity.group == 'admin'": ('identity.group must be "admin"; it is "user"',),
    "'admin' == identity.group": ('identity.group must be "admin"; it is "user"',),
    "identity.group != 'user'": ('identity.group must not be "user"; it is "user"',),
    "!(identity.group == 'user')": ('identity.group must not be "user"; it is "user"',),
    "identity.level > 5": ("identity.level must be more than 5; it is 3.0",),
    "5 < identity.level": ("identity.level must be more than 5; it is 3.0",),
    "!(identity.level <= 5)": ("identity.level must be more than 5; it is 3.0",),
    "identity.level < 2": ("identity.level must be less than 2; it is 3.0",),
    "identity.level <= 2": ("identity.level must be at most 2; it is 3.0",),
    "identity.level >= 5": ("identity.level must be at least 5; it is 3.0",),
    "!(identity.level < 5)": ("identity.level must be at least 5; it is 3.0",),
    "!(identity.level >= 2)": ("identity.level must be less than 2; it is 3.0",),
    "2 >= identity.level": ("identity.level must be at most 2; it is 3.0",),
    "identity.group in ['a', 'b']": ('identity.group must be one of ["a", "b"]; it is "user"',),
    "!(identity.group in ['user'])": ('identity.group must be none of ["user"]; it is "user"',),
    "'c' in identity.roles": ('identity.roles must contain "c"; it is ["a", "b"]',),
    "!('a' in identity.roles)": ('identity.roles must not contain "a"; it is ["a", "b"]',),
    "has(identity.x)": ("identity.x must be present",),
    "!has(identity.group)": ("identity.group must be absent",),
    "request.path.endsWith('x')": ('request.path must end with "x"; it is "/mcp"',),
    "!request.path.contains('m')": ('request.path must not contain "m"; it is "/mcp"',),
    "request.path.matches('^/x$')": ('request.path must match "^/x$"; it is "/mcp"',),
    "identity.group == 'a' || identity.group == 'b' && request.path == '/'": (
        'identity.group must be "a"; it is "user", or identity.group must be "b"; it is "user" and '
        'request.path must be "/"; it is "/mcp"',
    ),
    "identity.roles.exists(x, x == 'c')": ('identity.roles.exists(x, x == "c") must be true',),
    "identity.email == 'b@example.com'": ('identity.email must be "b@example.com"',),
    "identity.level + 1 == 4": ("identity.level + 1 must be 4",),
    "'x-b' in request.headers": ('request.headers must contain "x-b"',),
}


@pytest.mark.parametrize(("text", "hints"), HINTS.items())
def test_what_would_have_to_change(text: str, hints: tuple[str, ...]) -> None:
    assert explained(text).hints == hints


VALUES = {
    "identity.level": Shown("3.0"),
    "identity.none": Shown("null"),
    "identity.roles": Shown('["a", "b"]'),
    "identity.roles.map(x, x + x)": Shown('["aa", "bb"]'),
    "type(identity.level)": Shown("double"),
    "identity.email": Hidden(),
    "identity.email.size()": Hidden(),
    "identity.email + 'x'": Hidden(),
    "request.headers['authorization']": Hidden(),
    "request.headers": Hidden(),
    "identity": Hidden(),
    "request.mcp.params.deep": Hidden(),
    "[request.mcp.params.deep]": Shown("[{…}]"),
    "identity.missing": Failed(Code.NO_SUCH_KEY),
    "identity.group + 1": Failed(Code.NO_SUCH_OVERLOAD),
}


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_values_are_shown_unless_they_are_or_may_contain_secrets(text: str, value: object) -> None:
    found = explained(f"dyn({text}) == null").root
    assert [each.value for each in found.parts[0].parts] == [value]
    assert "hunter2" not in repr(explained(f"dyn({text}) == null"))


def test_long_values_are_cut() -> None:
    facts = known({"request.path": "/" + "x" * 1000})
    found = explain(program("request.path == '\\n'"), facts, secret=lambda _: False)
    assert found.root.parts[0].value == Shown('"/' + "x" * 77 + "…")


def test_values_cannot_garble_a_terminal() -> None:
    facts = known({"request.path": "\x1b[31m\n"})
    found = explain(program("request.path == 'x'"), facts, secret=lambda _: False)
    assert found.root.parts[0].value == Shown('"\\x1b[31m\\n"')


def test_data_that_is_refused_explains_every_part() -> None:
    facts = known({"identity": {"a": "\0"}})
    found = explain(program("identity.a == 'x'"), facts, secret=lambda _: False)
    assert (found.outcome, found.root.value, found.root.parts[0].value) == (Failed(Code.NUL_IN_INPUT),) * 3


def test_loops_show_what_they_go_over() -> None:
    found = explained("identity.roles.exists(x, x == 'c')").root
    assert [(each.text, each.value) for each in found.parts] == [("identity.roles", Shown('["a", "b"]'))]
