"""Texts that parsers of JSON are commonly tried with, by what RFC 8259 says of them.

They cover the same ground as the public collections of such texts: structure, numbers, strings, bytes, depth.
"""

from typing import Final

VALID: Final = (
    # Arrays
    b"[]", b"[ ]", b"[[] ]", b'[""]', b"[null]", b"[1\n]", b" [1]", b"[2] ", b'["a"]', b"[false]", b"[1,null,null,2]",
    b'[null, 1, "1", {}]', b"[[[[[[[[]]]]]]]]",
    # Numbers
    b"0", b"-0", b"42", b"-1", b"-123", b"123", b"0e1", b"0e+1", b"1E22", b"1E-2", b"1E+2", b"123e45", b"123.456e78",
    b"123.456789", b"1e-2", b"123e65", b"-0.000000000000000000000000000000000000000000000000000000000000000000000001",
    b"20e1", b"0.5", b"1.5e300", b"999999999999999", b" 4",
    # Objects
    b"{}", b'{"":0}', b'{"a":[]}', b'{"asd":"sdf", "dfg":"fgh"}', b'{"asd":"sdf"}', b'{"min": -1.0e+28}',
    b'{"title":"\\u041f\\u043e\\u043b"}', b'{"a":"b"}', b'{\n"a": "b"\n}', b'{"x":[{"id": "aaaa"}], "id": "aaaa"}',
    b'{"a":"b","c":"b"}',
    # Strings
    b'""', b'" "', b'"asd"', b'"\\u0060\\u012a\\u12AB"', b'"\\uD801\\udc37"', b'"\\ud83d\\ude39\\ud83d\\udc8d"',
    b'"\\"\\\\\\/\\b\\f\\n\\r\\t"', b'"\\\\u0000"', b'"\\""', b'"a/*b*/c/*d//e"', b'"\\\\a"', b'"\\\\n"', b'"\\u0012"',
    b'"\\uFFFF"', b'"\\uDBFF\\uDFFF"', b'"new\\u00A0line"', b'"\xf4\x8f\xbf\xbf"', b'"\xef\xbf\xbf"', b'"\xcf\x80"',
    b'"\xf0\x9b\xbf\xbf"', b'"\\u0020"', b'"\xe2\x80\xa8"', b'"\xe2\x80\xa9"', b'"\\u005C"', b'"\\u0022"', b'"\x7f"',
    b'"\\u200B"', b'"\\u2064"', b'"\\uFDD0"', b'"\\uFFFE"', b'"\\uD83F\\uDFFE"', b'"\xe2\x82\xac\xf0\x9d\x84\x9e"',
    b'"\xe3\x81\x82"', b'"aa\x7faa"', b'"\xc2\x80"', b'"\xef\xbb\xbf"', b'"%s %d \\\\"',
    # Literals and blanks
    b"true", b"false", b"null", b" true ", b"\ttrue", b"\r\n[\t]\n", b"[\n\n\n]", b'{ "a" : [ 1 , 2 ] }',
)  # fmt: skip
"""Every parser must read these."""

UNUSUAL: Final = (
    b'{"a":"b","a":"c"}', b'{"a":"b","a":"b"}', b'{"a":1,"\\u0061":2}', b'{"\\u0061":1}', b'{"foo\\u0000bar": 42}',
    b'"\\u0000"', b"-0e0", b"12345678901234567890", b"9007199254740993", b"1e400", b"-1e400", b"123123e100000",
    b"0.4e00669999999999999999999999999999999999999999999", b"1e-400", b"123.456e-789", b"1e999999999999999999",
    b"-123123123123123123123123123123", b"100000000000000000000", b"-237462374673276894279832749832423479823246327846",
    b'"\\uDADA"', b'"\\ud888\\u1234"', b'"\\uD800\\n"', b'"\\ud800"', b'"\\ud800abc"', b'"\\ud800\\ud800\\n"',
    b'"\\uDd1ea"', b'"\\uDFAA"', b'"\\uDd1e\\uD834"', b'"\\ud83d\\u0041"', b'"\xe6\x97\xa5\xd1\x88\xfa"', b'"\xff"',
    b'"\xed\xa0\x80"', b'"\xed\xbf\xbf"', b'"\x81"', b'"\xf4\xbf\xbf\xbf"', b'"\xe0\xff"', b'"\xc0\xaf"',
    b'"\xfc\x83\xbf\xbf\xbf\xbf"', b'"\xfc\x80\x80\x80\x80\x80"', b'"\xf0\x8f\xbf\xbf"', b'"\xc3"', b'"\xe9"',
    b'\xff\xfe[\x00"\x00\xe9\x00"\x00]\x00', b'\x00[\x00"\x00\xe9\x00"\x00]', b"\xef\xbb\xbf{}", b"\xef\xbb\xbf[1]",
    b"[" * 65 + b"]" * 65, b"[" * 500 + b"]" * 500, b'{"a":' * 70 + b"1" + b"}" * 70, b"[" + b"0," * 10_000 + b"0]",
    b'"' + b"a" * 70_000 + b'"', b"1" * 400, b"0." + b"1" * 400,
)  # fmt: skip
"""Parsers differ about these: some refuse them, some change them."""

INVALID: Final = (
    # Arrays
    b"[1 true]", b"[a\xe5]", b'["": 1]', b'[""],', b"[,1]", b"[1,,2]", b'["x",,]', b'["x"]]', b'["",]', b'["x"',
    b"[x", b"[3[4]]", b"[\xff]", b"[1:2]", b"[,]", b"[-]", b'[   , ""]', b'["a",\n4\n,1,', b"[1,]", b"[1,,]",
    b'["\x0ba"\\f]', b"[*]", b'[""', b"[1,", b"[1,\n1\n,1", b"[{}", b"[]]", b"[1]x", b"[1]]", b'["asd]', b"[undefined]",
    b"[1 2]", b"[][]", b"]", b"[", b"[[[[", b"[<null>]", b"[True]", b'["asd"', b"[\x0c]", b"[\xe2\x81\xa0]",
    # Literals
    b"nul", b"tru", b"fals", b"TRUE", b"True", b"Null", b"truee", b"nan", b"NaN", b"Inf", b"Infinity", b"-Infinity",
    b"undefined", b"*", b"<.>", b"",
    # Numbers
    b"++1234", b"+1", b"+Inf", b"-01", b"-1.0.", b"-2.", b"-NaN", b".-1", b".2e-3", b"0.1.2", b"0.3e+", b"0.3e",
    b"0.e1", b"0e+", b"0e", b"0E", b"0E+", b"1.0e+", b"1.0e-", b"1.0e", b"1 000.0", b"1eE2", b"2.e+3", b"2.e-3",
    b"2.e3", b"9.e+", b"\xef\xbc\x91", b"1+2", b"0x1", b"0x42", b"-foo", b"- 1", b"-012", b"-.123", b"-1x", b"1ea",
    b"1e\xe5", b"1.", b".123", b"1.2a-3", b"1.8011670033376514H-308", b"012", b"01", b"123\xe5", b"-", b"1_000", b"1f",
    b"0b1", b"1,000", b"0\x00", b"1 1",
    # Objects
    b'["x", truth]', b'{[: "x"}\n', b'{"x", null}', b'{"x"::"b"}', b'{"a":"a" 123}', b"{key: 'value'}", b'{"a" b}',
    b"{'a':0}", b'{:"b"}', b'{"a" "b"}', b'{"a":', b'{"a"', b"{1:1}", b"{9999E9999:1}", b"{null:null,null:null}",
    b'{"id":0,,,,,}', b'{"id":0,}', b'{"a":"b"}/**/', b'{"a":"b"}//', b'{"a":"b"}/', b'{"a":"b"}#',
    b'{"a":"b",,"c":"d"}',
    b'{"a": true} "x"', b'{"a":"a', b'{ "foo" : "bar", "a" }', b'{"a":"b"}}', b"{", b"}", b"{]", b"[}", b"{,}", b'{"":',
    b'{"a":1,b:2}', b"{\xf0\x9f\x87\xa8:1}", b'{"a":/*x*/"b"}', b'{"x": 1;}',
    # Strings
    b'"\\uD800\\"', b'"\\uD800\\u"', b'"\\uD800\\u1"', b'"\\uD800\\u1x"', b"\xe9", b'"\\x00"', b'"\\\\\\"', b'"\\\t"',
    b'"\\\xf0\x9f\x8c\x80"', b'"\\"', b'"\\u00A"', b'"\\uD834\\uDd"', b'"\\uD800\\uD800\\x"', b'"\\a"', b'"\\uqqqq"',
    b'"\\\xe5"', b'\\u0020"asd"', b"\\n", b'"', b"'single quote'", b"abc", b'"\\', b'"a\x00a"', b'"new\nline"',
    b'"\t"', b'"\\UA66D"', b'"" x', b'"\x1f"', b'"\x01"', b'"a\rb"', b'"\\\'"', b'"\\0"', b'"\\u{61}"', b'"\\N"',
    # Blanks and other things around values
    b"\x0c1", b"\x0b1", b"\xc2\xa01", b"\xe2\x81\xa01", b"\xe2\x80\xa81", b"1\x00", b"\xef\xbb\xbf", b"\xef\xbb",
    b"\xe5", b"<null>", b"#1", b"//1\n1", b"/*1*/1", b"--1\n1", b"1;", b"(1)", b"`a`", b'u"a"', b'r"a"', b"0 //",
    b",", b":", b"1,", b"a1", b'{"a":1}{"b":2}', b'{"a":1}\n{"b":2}', b"\x1e1", b"[1]\x1a", b'""""', b"\\", b"&", b"=1",
)  # fmt: skip
"""No parser may read these; some do."""
