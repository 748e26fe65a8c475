"""The language as its definition says, section by section, for the part that policies use.

Each line is an expression and what it says: true, false, or why it fails. ``identity`` is the one below.
"""

from typing import Final

import pytest
from tests.cel.expressions import outcome

from authplane.cel.check.expression_outcome import HOLDS, HOLDS_NOT, Code, Failed

IDENTITY: Final = {
    "s": "text",
    "n": 2,
    "f": 2.5,
    "t": True,
    "no": False,
    "nil": None,
    "l": ["a", "b", 3],
    "empty": [],
    "m": {"k": "v", "deep": {"x": [{"y": 1}]}},
    "u": "straße 𐍈",
}

SECTIONS: Final[dict[str, dict[str, bool | Code]]] = {
    "values: equality": {
        "identity.n == 2": True,
        "identity.n == 2u": True,
        "identity.n == 2.0": True,
        "identity.n != 3": True,
        "identity.s == identity.n": False,
        "identity.nil == null": True,
        "identity.s == null": False,
        "identity.l == ['a', 'b', 3]": True,
        "identity.l == ['b', 'a', 3]": False,
        "identity.m.deep == {'x': [{'y': 1}]}": True,
        "identity.m == {}": False,
        "identity.t == true": True,
        "identity.t == 1": False,
        "dyn(1) == dyn('1')": False,
        "dyn([1]) == dyn([1.0])": True,
        "0.0 == -0.0": True,
        "0.0/0.0 == 0.0/0.0": False,
    },
    "values: ordering": {
        "identity.n < 3": True,
        "identity.n < 2.5": True,
        "identity.f >= 2": True,
        "identity.s < 'texu'": True,
        "'B' < 'a'": True,
        "'' < 'a'": True,
        "identity.t > identity.no": True,
        "identity.s < identity.n": Code.NO_SUCH_OVERLOAD,
        "identity.l < identity.l": Code.NO_SUCH_OVERLOAD,
        "identity.nil < 1": Code.NO_SUCH_OVERLOAD,
        "timestamp('2026-01-01T00:00:00Z') < timestamp('2026-01-01T00:00:00.001Z')": True,
        "duration('1m') == duration('60s')": True,
    },
    "logical operators: a decision absorbs errors": {
        "identity.x == 1 || true": True,
        "true || identity.x == 1": True,
        "identity.x == 1 && false": False,
        "false && identity.x == 1": False,
        "identity.x == 1 || false": Code.NO_SUCH_KEY,
        "identity.x == 1 && true": Code.NO_SUCH_KEY,
        "!(identity.x == 1)": Code.NO_SUCH_KEY,
        "identity.s || true": True,
        "identity.s || false": Code.NO_SUCH_OVERLOAD,
        "identity.s && false": False,
        "!identity.no": True,
        "!identity.n": Code.NO_SUCH_OVERLOAD,
    },
    "the conditional evaluates one side only": {
        "identity.t ? true : identity.x == 1": True,
        "identity.no ? identity.x == 1 : false": False,
        "identity.x ? true : true": Code.NO_SUCH_KEY,
        "identity.s ? true : true": Code.NO_SUCH_OVERLOAD,
    },
    "field selection and has": {
        "identity.m.k == 'v'": True,
        "identity['m']['k'] == 'v'": True,
        "identity.m.deep.x[0].y == 1": True,
        "identity.x == 1": Code.NO_SUCH_KEY,
        "identity.m.x == 1": Code.NO_SUCH_KEY,
        "identity.s.x == 1": Code.NO_SUCH_OVERLOAD,
        "identity.nil.x == 1": Code.NO_SUCH_OVERLOAD,
        "has(identity.s)": True,
        "has(identity.nil)": True,
        "has(identity.empty)": True,
        "has(identity.x)": False,
        "has(identity.m.deep.x)": True,
        "has(identity.m.x)": False,
        "has(identity.x.y)": Code.NO_SUCH_KEY,
    },
    "indexes": {
        "identity.l[0] == 'a'": True,
        "identity.l[2] == 3.0": True,
        "identity.l[3] == 'a'": Code.INDEX_OUT_OF_RANGE,
        "identity.l[-1] == 'a'": Code.INDEX_OUT_OF_RANGE,
        "identity.l['0'] == 'a'": Code.NO_SUCH_OVERLOAD,
        "identity.m['x'] == 'a'": Code.NO_SUCH_KEY,
        "identity.s[0] == 't'": Code.NO_SUCH_OVERLOAD,
    },
    "in": {
        "'a' in identity.l": True,
        "3 in identity.l": True,
        "'c' in identity.l": False,
        "null in identity.l": False,
        "'k' in identity.m": True,
        "'v' in identity.m": False,
        "'t' in identity.s": Code.NO_SUCH_OVERLOAD,
        "'t' in identity.nil": Code.NO_SUCH_OVERLOAD,
        "identity.s in ['text']": True,
        "identity.s in []": False,
        "'s' in identity": True,
        "'x' in identity": False,
    },
    "macros": {
        "identity.l.exists(x, x == 'b')": True,
        "identity.l.exists(x, x == 'c')": False,
        "identity.empty.exists(x, true)": False,
        "identity.l.all(x, x != 'c')": True,
        "identity.empty.all(x, false)": True,
        "identity.l.exists_one(x, x == 'a')": True,
        "identity.l.exists_one(x, x != 'a')": False,
        "identity.l.filter(x, x == 3).size() == 1": True,
        "['a', 'b'].map(x, x + '!') == ['a!', 'b!']": True,
        "[1, 2, 3].map(x, x > 1, x * 2) == [4, 6]": True,
        "identity.m.exists(key, key == 'k')": True,
        "identity.l.exists(x, x.startsWith('b'))": True,
        "identity.l.exists(x, x.startsWith('z'))": Code.NO_SUCH_OVERLOAD,
        "identity.l.all(x, x.startsWith('z'))": False,
        "identity.s.all(x, true)": Code.NO_SUCH_OVERLOAD,
        "identity.x.all(x, true)": Code.NO_SUCH_KEY,
    },
    "strings": {
        "identity.s.startsWith('te') && identity.s.endsWith('xt') && identity.s.contains('ex')": True,
        "identity.s.startsWith('TE')": False,
        "identity.s.startsWith('')": True,
        "identity.n.startsWith('2')": Code.NO_SUCH_OVERLOAD,
        "identity.s.matches('^t[a-z]+$')": True,
        "identity.s.matches('ex')": True,
        "identity.s.matches('^ex')": False,
        "identity.u.matches('^straße \\\\p{Gothic}$')": True,
        "size(identity.u) == 8": True,
        "identity.u.size() == 8": True,
        "identity.s + '!' == 'text!'": True,
        "'\\u00e9' == 'e\\u0301'": False,
        "'é' == '\\u00e9' && r'\\n' != '\\n' && '''a''' == \"a\"": True,
    },
    "sizes": {
        "size(identity.l) == 3 && identity.m.size() == 2 && size('') == 0": True,
        "size(identity.n) == 1": Code.NO_SUCH_OVERLOAD,
        "size(identity.nil) == 0": Code.NO_SUCH_OVERLOAD,
    },
    "types and conversions": {
        "type(identity.s) == string && type(identity.n) == double && type(identity.t) == bool": True,
        "type(identity.nil) == null_type && type(identity.l) == list && type(identity.m) == map": True,
        "type(identity.n) == int": False,
        "type(type(identity.n)) == type": True,
        "int(identity.f) == 2": True,
        "int('12') == 12": True,
        "int(identity.s) == 1": Code.CONVERSION,
        "double('2.5') == identity.f": True,
        "string(identity.f) == '2.5'": True,
        "string(true) == 'true'": True,
        "string(identity.n) == '2' && string(1234567.0) == '1234567' && string(-9007199254740992.0) == "
        "'-9007199254740992'": True,
        "string(identity.n * 1e6) == '2000000' && string(identity.n / 1e6) == '2e-06'": True,
        "string(1e18) == '1000000000000000000' && string(1e19) == '1e+19' && string(-1e19) == '-1e+19'": True,
        "string(9223372036854774784.0) == '9223372036854774784' && string(-0.0) == '0'": True,
        "string(1234567.5) == '1.2345675e+06' && string(double('NaN')) == 'nan'": True,
        "[1.0, identity.n].map(x, string(x)) == ['1', '2']": True,
        "string({'a': string(identity.n)}.a) == '2' && string(dyn('a')) == 'a' && string(dyn(7)) == '7'": True,
        "string(identity.nil) == ''": Code.NO_SUCH_OVERLOAD,
        "string(identity.missing) == ''": Code.NO_SUCH_KEY,
        "string(identity.missing) == '' || true": True,
        "timestamp(int(1790000000000.0)) > timestamp(0)": Code.ARITHMETIC,
        "bool('true')": True,
        "bool(identity.s)": Code.CONVERSION,
        "duration('1h30m') == duration('5400s')": True,
        "timestamp('2026-02-30T00:00:00Z') > timestamp(0)": Code.CONVERSION,
        "timestamp('2026-11-15T12:30:00Z').getDayOfWeek() == 0": True,
        "timestamp('2026-11-15T23:30:00Z').getHours('+01:00') == 0": True,
    },
    "arithmetic": {
        "identity.n + 1.0 == 3.0": True,
        "identity.n * 2.0 - 1.0 == 3.0": True,
        "identity.n + 1 == 3": Code.NO_SUCH_OVERLOAD,
        "7 / 2 == 3 && 7 % 2 == 1 && -7 / 2 == -3": True,
        "1 / 0 == 0": Code.ARITHMETIC,
        "9223372036854775807 + 1 > 0": Code.ARITHMETIC,
        "[1] + [2] == [1, 2]": True,
        "timestamp(0) + duration('1s') == timestamp('1970-01-01T00:00:01Z')": True,
    },
}  # fmt: skip

LINES: Final = [
    pytest.param(text, want, id=f"{section}: {text}")
    for section, lines in SECTIONS.items()
    for text, want in lines.items()
]


@pytest.mark.parametrize(("text", "want"), LINES)
def test_an_expression_says_what_the_language_defines(text: str, want: bool | Code) -> None:
    assert outcome(text, IDENTITY) == (Failed(want) if isinstance(want, Code) else HOLDS if want else HOLDS_NOT)
