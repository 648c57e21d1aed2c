use super::table;

#[test]
fn texts() {
    table(&[
        ("'tacocat'.charAt(3)", "\"o\""),
        ("'hello'.indexOf('l')", "2"),
        ("'hello'.indexOf('l', 3)", "3"),
        ("'hello'.lastIndexOf('l')", "3"),
        ("'HeLLo'.lowerAscii()", "\"hello\""),
        ("'a b a'.replace('a', 'x')", "\"x b x\""),
        ("'a b a'.replace('a', 'x', 1)", "\"x b a\""),
        ("'a,b,c'.split(',')", "[\"a\", \"b\", \"c\"]"),
        ("'a,b,c'.split(',', 2)", "[\"a\", \"b,c\"]"),
        ("'abc'.split('')", "[\"a\", \"b\", \"c\"]"),
        ("'hello'.substring(1, 3)", "\"el\""),
        ("'hello'.substring(9)", "error: index out of range: 9"),
        ("' a '.trim()", "\"a\""),
        ("['a', 'b'].join('-')", "\"a-b\""),
        ("words.join()", "\"ba\""),
        ("strings.quote('a\"b')", r#""\"a\\\"b\"""#),
        (
            "'%s has %d (%.2f) %x %%'.format(['a', 3, 1.5, 255])",
            "\"a has 3 (1.50) ff %\"",
        ),
        ("'%s'.format([[1, 2]])", "\"[1, 2]\""),
        (
            "'%d'.format(['a'])",
            "error: error during formatting: %d cannot be used on string",
        ),
        ("'abc'.matches('^a.c$')", "true"),
        ("'abc 123'.find('[0-9]+')", "\"123\""),
        ("'a1b2'.findAll('[0-9]')", "[\"1\", \"2\"]"),
        ("'a1b2'.findAll('[0-9]', 1)", "[\"1\"]"),
        ("'abc'.matches(words[0])", "true"),
        ("'ä'.size()", "1"),
    ]);
}

#[test]
fn lists_and_sets() {
    table(&[
        ("[1, 2, 3].isSorted()", "true"),
        ("words.isSorted()", "false"),
        ("[1, 2, 3].sum()", "6"),
        ("[3, 1, 2].min()", "1"),
        ("['a', 'c'].max()", "\"c\""),
        ("[1, 2, 2].indexOf(2)", "1"),
        ("[1, 2, 2].lastIndexOf(2)", "2"),
        ("[1, 2, 3].slice(1, 2)", "[2]"),
        ("[[1], [2, 3]].flatten()", "[1, 2, 3]"),
        ("[3, 1, 2].sort()", "[1, 2, 3]"),
        ("[1, 2, 1].distinct()", "[1, 2]"),
        ("[1, 2].reverse()", "[2, 1]"),
        ("lists.range(3)", "[0, 1, 2]"),
        ("sets.contains([1, 2, 3], [2])", "true"),
        ("sets.equivalent([1, 2], [2, 1, 1])", "true"),
        ("sets.intersects([1], [2])", "false"),
        ("[].min()", "error: min called on empty list"),
    ]);
}

#[test]
fn kubernetes_types() {
    table(&[
        ("quantity('1.5Gi').isGreaterThan(quantity('1Gi'))", "true"),
        ("quantity('100m').add(quantity('900m')).asInteger()", "1"),
        ("quantity('50k').compareTo(quantity('50000'))", "0"),
        ("quantity('1') == quantity('1000m')", "true"),
        ("isQuantity('x')", "false"),
        ("quantity('200M').sub(1).sign()", "1"),
        ("ip('192.168.0.1').family()", "4"),
        ("ip('::1').isLoopback()", "true"),
        ("isIP('::ffff:1.2.3.4')", "false"),
        ("ip.isCanonical('2001:DB8::1')", "false"),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3')", "true"),
        ("cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))", "false"),
        ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", "true"),
        ("cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')", "true"),
        ("cidr('10.1.2.3/8').prefixLength()", "8"),
        ("string(cidr('10.1.2.3/8').ip())", "\"10.1.2.3\""),
        ("isCIDR('10.0.0.0/33')", "false"),
        ("semver('1.2.3').isLessThan(semver('1.10.0'))", "true"),
        ("semver('1.0.0-alpha').compareTo(semver('1.0.0'))", "-1"),
        ("isSemver('v1.0')", "false"),
        ("isSemver('v1.0', true)", "true"),
        ("semver('v1.2', true).minor()", "2"),
        (
            "url('https://a.b:8080/x?q=1&q=2').getHost()",
            "\"a.b:8080\"",
        ),
        ("url('https://a.b:8080/x?q=1&q=2').getPort()", "\"8080\""),
        ("url('https://[::1]:80/').getHostname()", "\"::1\""),
        (
            "url('https://a/x?q=1&q=2').getQuery()['q']",
            "[\"1\", \"2\"]",
        ),
        ("isURL('a b')", "false"),
        ("isURL('/path')", "true"),
        ("format.dns1123Label().validate('a-b').hasValue()", "false"),
        ("format.dns1123Label().validate('A').value().size()", "1"),
        ("format.named('nope').hasValue()", "false"),
        (
            "format.named('uuid').value().validate('x').hasValue()",
            "true",
        ),
        ("jsonpatch.escapeKey('a/b~c')", "\"a~1b~0c\""),
    ]);
}
