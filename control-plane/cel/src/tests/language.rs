use super::table;

#[test]
fn operators_and_literals() {
    table(&[
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3 % 5", "4"),
        ("-2 - -3", "1"),
        ("- -3", "3"),
        ("!!true", "true"),
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("7.0 / 2.0", "3.5"),
        ("1u + 2u", "3u"),
        ("0xff", "255"),
        ("1e3", "1000.0"),
        (".5", "0.5"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("9223372036854775807 + 1", "error: integer overflow"),
        ("1 / 0", "error: division by zero"),
        ("1 % 0", "error: modulus by zero"),
        ("1u - 2u", "error: unsigned integer overflow"),
        ("'a' + \"b\"", "\"ab\""),
        (r"'\x41\u00e4\n\101'", "\"Aä\\nA\""),
        (r"r'\d'", "\"\\\\d\""),
        ("'''a\nb'''", "\"a\\nb\""),
        ("b'ab'", "b[97, 98]"),
        ("[1, 2] + [3]", "[1, 2, 3]"),
        ("{'a': 1}['a']", "1"),
        ("{'a': 1}.a", "1"),
        ("[1, 2][1]", "2"),
        ("[1][2]", "error: index out of bounds: 2"),
        ("{'a': 1}['b']", "error: no such key: b"),
        ("1 < 2 && 'a' < 'b'", "true"),
        (
            "1 == 1.0",
            "found no matching overload for '_==_' applied to '(int, double)'",
        ),
        ("dyn(1) == 1.0", "true"),
        ("1 < 1.5", "true"),
        ("dyn('a') == 1", "false"),
        ("2 in [1, 2]", "true"),
        ("'a' in {'a': 1}", "true"),
        ("true ? 1 : 2", "1"),
        ("null == null", "true"),
        ("type(1) == int", "true"),
        ("type('a')", "string"),
        ("// nothing\n 1", "1"),
    ]);
}

#[test]
fn errors_are_absorbed_where_the_other_side_decides() {
    table(&[
        ("1 / 0 == 1 || true", "true"),
        ("true || 1 / 0 == 1", "true"),
        ("1 / 0 == 1 && false", "false"),
        ("1 / 0 == 1 && true", "error: division by zero"),
        ("[1, 0, 2].exists(x, 4 / x == 2)", "true"),
        ("[0, 1].all(x, 1 / x == 1)", "error: division by zero"),
        ("[0, 2].all(x, 1 / x == 1)", "false"),
        ("(1 / 0 > 0) ? 1 : 2", "error: division by zero"),
    ]);
}

#[test]
fn macros_loop() {
    table(&[
        ("[1, 2, 3].all(x, x > 0)", "true"),
        ("[1, 2, 3].exists(x, x == 4)", "false"),
        ("[1, 2, 3].exists_one(x, x > 2)", "true"),
        ("[1, 2, 3].map(x, x * 2)", "[2, 4, 6]"),
        ("[1, 2, 3].map(x, x > 1, x * 2)", "[4, 6]"),
        ("[1, 2, 3].filter(x, x % 2 == 1)", "[1, 3]"),
        ("{'a': 1, 'b': 2}.map(k, k)", "[\"a\", \"b\"]"),
        ("{'a': 1}.all(k, v, k == 'a' && v == 1)", "true"),
        ("[5, 6].all(i, v, v == i + 5)", "true"),
        ("[5, 6].transformList(i, v, i + v)", "[5, 7]"),
        (
            "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 10)",
            "{\"b\": 20}",
        ),
        ("{'a': 1}.transformMapEntry(k, v, {v: k})", "{1: \"a\"}"),
        ("[[1, 2], [3]].map(l, l.map(x, x + 1))", "[[2, 3], [4]]"),
        ("[3, 1, 2].sortBy(x, -x)", "[3, 2, 1]"),
        ("has(object.spec.replicas)", "true"),
        ("has(object.spec.none)", "false"),
        ("has(object.spec)", "true"),
        ("has(1)", "invalid argument to has() macro"),
        ("[1].all(1, true)", "argument must be a simple name"),
        (
            "1.all(x, true)",
            "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
    ]);
}

#[test]
fn json_is_seen_as_it_is() {
    table(&[
        ("object.spec.replicas > 1", "true"),
        ("object.spec.replicas + count", "5"),
        ("object.metadata.labels['a-b']", "\"x\""),
        ("object.spec.ports.map(p, p.port)", "[80, 443]"),
        ("object.spec.ports.exists(p, p.port == 443)", "true"),
        ("object.spec.ratio * 2.0", "1.0"),
        ("object.spec.empty == null", "true"),
        ("object.spec.none", "error: no such key: none"),
        (
            "'wants replicas > 1, got ' + object.spec.replicas",
            "error: no such overload",
        ),
        ("object.spec == object.spec", "true"),
        ("size(object.metadata.labels)", "2"),
        ("object.spec.ports[1].port", "443"),
        ("object.missing.more", "error: no such key: missing"),
    ]);
}

#[test]
fn optional_values() {
    table(&[
        ("object.?spec.?none.orValue(7)", "7"),
        ("object.?spec.?replicas.orValue(7)", "3"),
        ("object.?spec.replicas.value()", "3"),
        ("object[?'spec'].hasValue()", "true"),
        ("[1, 2][?5].hasValue()", "false"),
        ("optional.none().or(optional.of(1)).value()", "1"),
        ("optional.of(2).optMap(x, x * 2).value()", "4"),
        ("optional.none().optMap(x, x).hasValue()", "false"),
        (
            "optional.of(2).optFlatMap(x, optional.of(x + 1)).orValue(0)",
            "3",
        ),
        ("optional.ofNonZeroValue(0).hasValue()", "false"),
        ("[1, ?optional.none(), ?optional.of(2)]", "[1, 2]"),
        ("{'a': 1, ?'b': object.?none}", "{\"a\": 1}"),
        (
            "optional.none().value()",
            "error: optional.none() dereference",
        ),
    ]);
}

#[test]
fn the_checker_speaks_as_upstream() {
    table(&[
        (
            "1 > 'a'",
            "found no matching overload for '_>_' applied to '(int, string)'",
        ),
        (
            "'a'.contains(1)",
            "found no matching overload for 'contains' applied to 'string.(int)'",
        ),
        ("x", "undeclared reference to 'x' (in container '')"),
        ("f(1)", "undeclared reference to 'f' (in container '')"),
        ("count.foo", "type 'int' does not support field selection"),
        ("1 && true", "expected type 'bool' but found 'int'"),
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        (
            "{'a': 1, 'b': 'c'}",
            "expected type 'int' but found 'string'",
        ),
        (
            "words.map(w, w + 1)",
            "found no matching overload for '_+_' applied to '(string, int)'",
        ),
        ("duration('x')", "invalid duration argument"),
        ("timestamp('x')", "invalid timestamp argument"),
        ("'a'.matches('(')", "invalid matches argument"),
        (
            "true ? 1 : 'a'",
            "found no matching overload for '_?_:_' applied to '(bool, int, string)'",
        ),
        (
            "1 +",
            "Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
        ),
        ("if", "reserved identifier: if"),
        ("words.size() == words.map(w, w.size()).sum()", "true"),
    ]);
}

#[test]
fn conversions() {
    table(&[
        ("int('12')", "12"),
        ("int(2.9)", "2"),
        (
            "int('x')",
            "error: type conversion error from 'string' to 'int': \"x\"",
        ),
        ("uint(5)", "5u"),
        ("double('1.5')", "1.5"),
        ("string(1.0)", "\"1\""),
        ("string(true)", "\"true\""),
        ("bytes('a')", "b[97]"),
        ("string(b'a')", "\"a\""),
        ("bool('true')", "true"),
        ("duration('1h') > duration('59m')", "true"),
        ("string(duration('90s'))", "\"90s\""),
        (
            "timestamp('2024-01-01T00:00:00Z') + duration('24h') == timestamp('2024-01-02T00:00:00Z')",
            "true",
        ),
        ("timestamp('2024-03-01T12:30:00Z').getMonth()", "2"),
        ("timestamp('2024-03-01T23:30:00Z').getHours('+02:00')", "1"),
        ("timestamp('2024-03-01T12:30:00Z').getDayOfWeek()", "5"),
        ("duration('3661s').getMinutes()", "61"),
        ("int(timestamp('1970-01-01T00:01:00Z'))", "60"),
    ]);
}
