#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn claims() -> Value {
    json!({
        "sub": "jane", "email": "jane@example.com", "email_verified": true, "level": 3, "hd": "example.com",
        "roles": ["user", "admin"], "org": {"unit": "ops"}, "weird key": "w",
    })
}

fn value(text: &str) -> Result<Value, String> {
    Expression::parse(text, "claims")?.value("claims", &claims())
}

#[test]
fn common_expressions_are_understood() {
    let cases = [
        ("claims.sub", json!("jane")),
        ("'oidc:' + claims.sub", json!("oidc:jane")),
        (
            "claims.org.unit + \"-\" + claims['weird key']",
            json!("ops-w"),
        ),
        ("claims.roles", json!(["user", "admin"])),
        ("claims.hd == 'example.com'", json!(true)),
        ("claims.hd != 'example.com'", json!(false)),
        ("claims.level == 3", json!(true)),
        (
            "claims.email_verified == true && claims.hd == 'example.com'",
            json!(true),
        ),
        ("claims.hd == 'x' || 'admin' in claims.roles", json!(true)),
        ("!claims.sub.startsWith('system:')", json!(true)),
        ("claims.email.endsWith('@example.com')", json!(true)),
        ("claims.?email_verified.orValue(false) == true", json!(true)),
        ("claims.?missing.orValue('x')", json!("x")),
        ("claims.roles.all(r, !r.startsWith('system:'))", json!(true)),
        ("claims.roles.exists(r, r == 'admin')", json!(true)),
        (
            "(claims.hd == 'x' || claims.level == 3) && claims.email_verified",
            json!(true),
        ),
        (r"'it\'s ' + claims.sub", json!("it's jane")),
        (
            "claims.missing == 'x' && claims.hd == 'other'",
            json!(false),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(value(text), Ok(expected), "{text}");
    }
}

#[test]
fn what_a_token_lacks_is_an_error_and_not_a_default() {
    let cases = [
        "claims.missing",
        "claims.missing == 'x'",
        "'a' + claims.level",
        "claims.sub.unit",
        "'a' in claims.sub",
    ];
    for text in cases {
        assert!(value(text).is_err(), "{text}");
    }
}

#[test]
fn everything_else_is_refused_at_load() {
    let cases = [
        "",
        "claims.",
        "user.username",
        "claims.exp - claims.nbf <= 86400",
        "claims.roles.map(r, 'x:' + r)",
        "claims.sub.split('@')[0]",
        "claims.a ? 'b' : 'c'",
        "size(claims.roles) > 0",
        "has(claims.sub)",
        "claims.sub == 'open",
        "claims.level == 1.5",
        "r'raw' + claims.sub",
        "'\\n'",
        "claims.sub claims.sub",
        "claims.?sub",
        "[claims.sub]",
    ];
    for text in cases {
        assert!(Expression::parse(text, "claims").is_err(), "{text}");
    }
}

#[test]
fn the_fields_an_expression_looks_at_are_known() {
    let expression = Expression::parse(
        "claims.email + claims.?email_verified.orValue('')",
        "claims",
    )
    .unwrap();
    assert!(expression.uses("claims", "email") && expression.uses("claims", "email_verified"));
    assert!(!expression.uses("claims", "sub"));
}

proptest! {
    #[test]
    fn random_text_does_not_panic(text in "\\PC{0,60}") {
        let _ = value(&text);
    }

    #[test]
    fn random_words_do_not_panic(words in prop::collection::vec(
        prop::sample::select(vec!["claims", ".", "sub", "'a'", "(", ")", "!", "&&", "==", "+", "all", ",", "[", "]", ".?", "in", "1"]), 0..250)) {
        let _ = value(&words.concat());
        let _ = value(&words.join(" "));
    }
}
