#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::tokens::testing::{World, at};

const TOKEN: &str = "abcdef.0123456789abcdef";

fn encoded(text: &str) -> Value {
    json!(STANDARD.encode(text))
}

fn world() -> World {
    World::default().with(
        "secrets",
        json!({
            "metadata": {"namespace": "kube-system", "name": "bootstrap-token-abcdef"},
            "type": SECRET_TYPE,
            "data": {
                "token-id": encoded("abcdef"),
                "token-secret": encoded("0123456789abcdef"),
                "expiration": encoded(&at(100).to_string()),
                "usage-bootstrap-authentication": encoded("true"),
                "auth-extra-groups": encoded("system:bootstrappers:worker,system:bootstrappers:a:b"),
            },
        }),
    )
}

fn changed(pointer: &str, value: Value) -> World {
    world().changed("secrets", "bootstrap-token-abcdef", pointer, value)
}

#[test]
fn a_good_token_is_a_bootstrapper_with_the_groups_of_its_secret() {
    let found = authenticate(TOKEN, at(99), &world()).unwrap().unwrap();
    assert_eq!(found.user.name, "system:bootstrap:abcdef");
    let groups = [
        "system:bootstrappers",
        "system:bootstrappers:a:b",
        "system:bootstrappers:worker",
    ];
    assert_eq!(found.user.groups, groups);
    let forever = changed("/data/expiration", json!(null));
    assert!(authenticate(TOKEN, at(1 << 30), &forever).unwrap().is_ok());
}

#[test]
fn what_is_no_bootstrap_token_is_left_to_others() {
    let cases = [
        "",
        ".",
        "abcdef",
        "abcdef.",
        "ABCDEF.0123456789abcdef",
        "abcde.0123456789abcdef",
        "abcdef.0123456789abcde",
        "abcdef.0123456789abcdef0",
        "abcdef.0123456789abcdef\n",
        "abcdef.01234567.9abcdef",
        "äbcde.0123456789abcdef",
    ];
    for case in cases {
        assert!(authenticate(case, at(0), &world()).is_none(), "{case:?}");
    }
}

#[test]
fn each_fault_of_the_secret_refuses_the_token() {
    let cases = [
        (
            "/metadata/deletionTimestamp",
            json!(at(0).to_string()),
            "is deleted and awaiting removal",
        ),
        ("/type", json!("Opaque"), "has invalid type"),
        ("/data", json!(null), "has invalid type"),
        (
            "/data/token-secret",
            encoded("0123456789abcdeg"),
            "invalid value for key token-secret",
        ),
        (
            "/data/token-secret",
            encoded("0123456789abcde"),
            "invalid value for key token-secret",
        ),
        (
            "/data/token-secret",
            json!(null),
            "invalid value for key token-secret",
        ),
        (
            "/data/token-id",
            encoded("abcdeg"),
            "invalid value for key token-id",
        ),
        (
            "/data/expiration",
            encoded(&at(10).to_string()),
            "has expired",
        ),
        ("/data/expiration", encoded("tomorrow"), "has expired"),
        (
            "/data/usage-bootstrap-authentication",
            encoded("True"),
            "not marked",
        ),
        (
            "/data/usage-bootstrap-authentication",
            json!(null),
            "not marked",
        ),
        (
            "/data/auth-extra-groups",
            encoded("system:masters"),
            "auth-extra-groups",
        ),
        (
            "/data/auth-extra-groups",
            encoded("system:bootstrappers:a,"),
            "auth-extra-groups",
        ),
        (
            "/data/auth-extra-groups",
            encoded("system:bootstrappers:"),
            "auth-extra-groups",
        ),
    ];
    for (pointer, value, expected) in cases {
        let refused = authenticate(TOKEN, at(10), &changed(pointer, value))
            .unwrap()
            .unwrap_err();
        assert!(refused.0.contains(expected), "{pointer}: {refused}");
        assert!(
            !refused.0.contains("0123456789"),
            "no secret in a message: {refused}"
        );
    }
    assert!(
        authenticate(TOKEN, at(0), &World::default())
            .unwrap()
            .is_err()
    );
}

#[test]
fn printing_a_token_shows_its_id_only() {
    let printed = format!("{:?}", Token::parse(TOKEN).unwrap());
    assert!(printed.contains("abcdef.…") && !printed.contains("0123"));
}
