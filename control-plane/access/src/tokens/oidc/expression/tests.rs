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
    Expression::parse(text, About::Claims, Yields::Anything)?.value(&claims())
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
        "claims.roles[7]",
    ];
    for text in cases {
        assert!(value(text).is_err(), "{text}");
    }
}

#[test]
fn the_whole_language_is_understood() {
    let cases = [
        ("claims.level - 1 <= 2", json!(true)),
        (
            "claims.roles.map(r, 'x:' + r)",
            json!(["x:user", "x:admin"]),
        ),
        ("claims.email.split('@')[0]", json!("jane")),
        ("claims.level > 5 ? 'b' : 'c'", json!("c")),
        ("has(claims.sub) && size(claims.roles) > 1", json!(true)),
        ("[claims.sub]", json!(["jane"])),
    ];
    for (text, expected) in cases {
        assert_eq!(value(text), Ok(expected), "{text}");
    }
}

#[test]
fn mistakes_are_named_at_load() {
    let cases = [
        ("", About::Claims, "compilation failed: ERROR: <input>:1:1"),
        ("claims.", About::Claims, "compilation failed: "),
        (
            "user.username",
            About::Claims,
            "undeclared reference to 'user'",
        ),
        ("user.name", About::User, "undefined field 'name'"),
        (
            "user.username + 1",
            About::User,
            "found no matching overload for '_+_'",
        ),
        ("user.username", About::User, "must evaluate to bool"),
        ("claims.sub", About::Claims, "must evaluate to bool"),
        ("claims.sub == 'open", About::Claims, "compilation failed: "),
    ];
    for (text, about, why) in cases {
        let said = Expression::parse(text, about, Yields::Bool).unwrap_err();
        assert!(said.contains(why), "{text}: {said}");
    }
}

#[test]
fn users_are_judged_by_their_fields() {
    let user =
        json!({"username": "a:jane", "uid": "7", "groups": ["g"], "extra": {"k.io/x": ["1"]}});
    let cases = [
        ("!user.username.startsWith('system:')", true),
        (
            "user.groups.all(g, g != 'system:masters') && 'g' in user.groups",
            true,
        ),
        ("user.extra['k.io/x'][0] == '1' && user.uid == '7'", true),
        ("user.username == 'b'", false),
    ];
    for (text, holds) in cases {
        let rule = Expression::parse(text, About::User, Yields::Bool).unwrap();
        assert_eq!(rule.value(&user), Ok(Value::Bool(holds)), "{text}");
    }
}

#[test]
fn the_fields_an_expression_looks_at_are_known() {
    let text = "claims.email + claims.?email_verified.orValue('')";
    let expression = Expression::parse(text, About::Claims, Yields::Anything).unwrap();
    assert!(expression.uses("email") && expression.uses("email_verified"));
    assert!(!expression.uses("sub"));
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
