#![allow(clippy::unwrap_used, reason = "tests")]

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::*;
use crate::tokens::testing::{World, at, ec_key, forged, fresh_ec_key, opened, rsa_key};

const ISSUER: &str = "https://kyanite.default.svc";

fn reference(name: &str, uid: &str) -> Ref {
    Ref {
        name: name.into(),
        uid: uid.into(),
    }
}

fn grant(binding: Binding) -> Grant {
    Grant {
        namespace: "shop".into(),
        account: reference("till", "sa-1"),
        audiences: vec![ISSUER.into(), "vault".into()],
        seconds: 3600,
        warn_after: None,
        binding,
        id: "0b1c".into(),
    }
}

fn pod_binding() -> Binding {
    Binding::Pod {
        pod: reference("till-0", "pod-1"),
        node: Some(reference("n1", "node-1")),
    }
}

fn issuer() -> Issuer {
    Issuer {
        name: ISSUER.into(),
        key: ec_key(),
    }
}

fn token(binding: Binding) -> String {
    issuer().issue(&grant(binding), at(0)).unwrap()
}

fn authenticator() -> Authenticator {
    Authenticator {
        seen: Default::default(),
        issuers: vec![ISSUER.into()],
        keys: vec![rsa_key().public().clone(), ec_key().public().clone()],
        api_audiences: vec![ISSUER.into()],
    }
}

fn world() -> World {
    let object = |namespace: &str, name: &str, uid: &str| json!({"metadata": {"namespace": namespace, "name": name, "uid": uid, "labels": {}}, "data": {}});
    World::default()
        .with("serviceaccounts", object("shop", "till", "sa-1"))
        .with("pods", object("shop", "till-0", "pod-1"))
        .with("secrets", object("shop", "till-token", "secret-1"))
        .with("nodes", object("", "n1", "node-1"))
}

fn check(token: &str, seconds: i64, world: &World) -> Result<Authenticated, Invalid> {
    authenticator()
        .authenticate(token, at(seconds), &[], world)
        .unwrap()
}

fn refusal(token: &str, seconds: i64, world: &World) -> String {
    check(token, seconds, world).unwrap_err().0
}

#[test]
fn claims_and_header_are_upstreams() {
    let (header, claims) = opened(&token(pod_binding()));
    assert_eq!(
        header,
        json!({"alg": "ES256", "kid": ec_key().public().id().unwrap()})
    );
    let now = at(0).as_second();
    let expected = json!({
        "aud": [ISSUER, "vault"], "exp": now + 3600, "iat": now, "iss": ISSUER, "jti": "0b1c",
        "kubernetes.io": {
            "namespace": "shop",
            "node": {"name": "n1", "uid": "node-1"},
            "pod": {"name": "till-0", "uid": "pod-1"},
            "serviceaccount": {"name": "till", "uid": "sa-1"},
        },
        "nbf": now, "sub": "system:serviceaccount:shop:till",
    });
    assert_eq!(claims, expected);
}

#[test]
fn a_good_token_is_the_service_account_with_what_it_is_bound_to() {
    let found = check(&token(pod_binding()), 0, &world()).unwrap();
    assert_eq!(found.user.name, "system:serviceaccount:shop:till");
    assert_eq!(found.user.uid, "sa-1");
    assert_eq!(
        found.user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:shop"]
    );
    let extra: Vec<_> = found
        .user
        .extra
        .iter()
        .map(|(k, v)| format!("{k}={}", v.join(",")))
        .collect();
    let expected = [
        "credential-id=JTI=0b1c",
        "node-name=n1",
        "node-uid=node-1",
        "pod-name=till-0",
        "pod-uid=pod-1",
    ];
    assert_eq!(
        extra,
        expected.map(|e| format!("authentication.kubernetes.io/{e}"))
    );
    assert_eq!(found.audiences, [ISSUER]);
    assert_eq!(found.audit, []);
}

#[test]
fn every_binding_is_accepted_while_its_object_lives() {
    let node = || Binding::Node(reference("n1", "node-1"));
    let secret = || Binding::Secret(reference("till-token", "secret-1"));
    for binding in [Binding::Account, pod_binding(), node(), secret()] {
        let token = token(binding.clone());
        assert!(check(&token, 0, &world()).is_ok(), "{binding:?}");
    }
    let gone = "service account token has been invalidated";
    assert_eq!(
        refusal(&token(pod_binding()), 0, &world().without("pods", "till-0")),
        gone
    );
    assert_eq!(
        refusal(
            &token(secret()),
            0,
            &world().without("secrets", "till-token")
        ),
        gone
    );
    assert_eq!(
        refusal(&token(node()), 0, &world().without("nodes", "n1")),
        gone
    );
    let no_account = world().without("serviceaccounts", "till");
    assert_eq!(
        refusal(&token(node()), 0, &no_account),
        "serviceaccounts \"till\" not found"
    );
    assert!(
        check(&token(pod_binding()), 0, &world().without("nodes", "n1")).is_ok(),
        "a pod's node may go"
    );
}

#[test]
fn a_namesake_does_not_inherit_tokens() {
    let node = Binding::Node(reference("n1", "node-1"));
    let secret = Binding::Secret(reference("till-token", "secret-1"));
    let cases = [
        (
            Binding::Account,
            "serviceaccounts",
            "till",
            "service account UID (new) does not match claim (sa-1)",
        ),
        (
            pod_binding(),
            "pods",
            "till-0",
            "pod UID (new) does not match service account pod ref claim (pod-1)",
        ),
        (
            secret,
            "secrets",
            "till-token",
            "secret UID (new) does not match service account secret ref claim (secret-1)",
        ),
        (
            node,
            "nodes",
            "n1",
            "node UID (new) does not match service account node ref claim (node-1)",
        ),
    ];
    for (binding, plural, name, expected) in cases {
        let world = world().changed(plural, name, "/metadata/uid", json!("new"));
        assert_eq!(refusal(&token(binding), 0, &world), expected);
    }
}

#[test]
fn a_token_outlives_the_deletion_of_its_object_by_a_minute() {
    let node = Binding::Node(reference("n1", "node-1"));
    let secret = Binding::Secret(reference("till-token", "secret-1"));
    let cases = [
        (Binding::Account, "serviceaccounts", "till"),
        (pod_binding(), "pods", "till-0"),
        (secret, "secrets", "till-token"),
        (node, "nodes", "n1"),
    ];
    for (binding, plural, name) in cases {
        let token = token(binding);
        let world = world().changed(
            plural,
            name,
            "/metadata/deletionTimestamp",
            json!(at(0).to_string()),
        );
        assert!(check(&token, 60, &world).is_ok(), "{plural}");
        assert!(check(&token, 61, &world).is_err(), "{plural}");
    }
    let unreadable = world().changed(
        "pods",
        "till-0",
        "/metadata/deletionTimestamp",
        json!("soon"),
    );
    assert!(check(&token(pod_binding()), 0, &unreadable).is_err());
}

#[test]
fn time_is_checked_with_a_minute_of_leeway() {
    let token = token(Binding::Account);
    assert!(check(&token, 3660, &world()).is_ok());
    assert_eq!(
        refusal(&token, 3661, &world()),
        "service account token has expired"
    );
    assert!(check(&token, -60, &world()).is_ok());
    assert_eq!(
        refusal(&token, -61, &world()),
        "service account token is not valid yet"
    );
    let (header, mut claims) = opened(&token);
    claims["nbf"] = json!(at(-1000).as_second());
    claims["iat"] = json!(at(100).as_second());
    let early = forged(&header, &claims, |m| ec_key().sign(m).unwrap());
    assert_eq!(
        refusal(&early, 0, &world()),
        "service account token is issued in the future"
    );
}

#[test]
fn the_audience_must_be_the_one_wanted() {
    let token = token(Binding::Account);
    let ask = |wanted: &[&str]| {
        let wanted: Vec<String> = wanted.iter().map(|w| w.to_string()).collect();
        authenticator()
            .authenticate(&token, at(0), &wanted, &world())
            .unwrap()
    };
    assert_eq!(ask(&["vault"]).unwrap().audiences, ["vault"]);
    assert_eq!(
        ask(&["x", "vault", ISSUER]).unwrap().audiences,
        [ISSUER, "vault"]
    );
    let expected = format!(
        "token audiences [{ISSUER:?} \"vault\"] is invalid for the target audiences [\"x\"]"
    );
    assert_eq!(ask(&["x"]).unwrap_err().0, expected);
    let elsewhere = issuer().issue(
        &Grant {
            audiences: vec!["vault".into()],
            ..grant(Binding::Account)
        },
        at(0),
    );
    assert!(check(&elsewhere.unwrap(), 0, &world()).is_err());
}

#[test]
fn tokens_of_other_issuers_and_texts_that_are_none_are_left_to_others() {
    let good = token(Binding::Account);
    let (header, mut claims) = opened(&good);
    claims["iss"] = json!("https://elsewhere");
    let other = forged(&header, &claims, |m| ec_key().sign(m).unwrap());
    let huge = format!("{good}{}", "A".repeat(70_000));
    let cut = good.rsplit_once('.').unwrap().0;
    let more = format!("{good}.AAAA");
    for text in [
        other.as_str(),
        "",
        "..",
        "a.b.c",
        cut,
        &more,
        &huge,
        "{\"payload\":\"\"}",
    ] {
        assert!(
            authenticator()
                .authenticate(text, at(0), &[], &world())
                .is_none()
        );
    }
}

#[test]
fn forgeries_are_refused() {
    let good = token(Binding::Account);
    let (header, claims) = opened(&good);
    let with = |changes: Value, sign: &dyn Fn(&[u8]) -> Vec<u8>| {
        let mut header = header.clone();
        changes
            .as_object()
            .unwrap()
            .iter()
            .for_each(|(k, v)| header[k] = v.clone());
        forged(&header, &claims, sign)
    };
    let ours = |m: &[u8]| ec_key().sign(m).unwrap();
    let theirs = |m: &[u8]| fresh_ec_key().sign(m).unwrap();
    let public = crate::tokens::jwk::key_set(&[ec_key().public().clone()]);
    let hmac = |m: &[u8]| {
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, public.as_bytes());
        aws_lc_rs::hmac::sign(&key, m).as_ref().to_vec()
    };
    let rsa_id = rsa_key().public().id().unwrap().to_owned();
    let embedded: Value = serde_json::from_str(&public).unwrap();
    let cases = [
        ("no algorithm", with(json!({"alg": "none"}), &|_| vec![])),
        (
            "no algorithm, differently",
            with(json!({"alg": "None"}), &|_| vec![]),
        ),
        (
            "the public key as a secret",
            with(json!({"alg": "HS256"}), &hmac),
        ),
        ("another key", with(json!({}), &theirs)),
        ("another key, unnamed", with(json!({"kid": ""}), &theirs)),
        (
            "another key, embedded",
            with(json!({"kid": "", "jwk": embedded["keys"][0]}), &theirs),
        ),
        ("another key's name", with(json!({"kid": rsa_id}), &ours)),
        ("a key nobody knows", with(json!({"kid": "x"}), &ours)),
        ("another algorithm", with(json!({"alg": "RS256"}), &ours)),
        ("another curve", with(json!({"alg": "ES384"}), &ours)),
        (
            "critical extension",
            with(json!({"crit": ["b64"], "b64": false}), &ours),
        ),
        ("empty signature", with(json!({}), &|_| vec![])),
        ("zero signature", with(json!({}), &|_| vec![0; 64])),
        ("cut signature", good[..good.len() - 2].to_owned()),
        ("padded", format!("{good}=")),
        ("longer signature", format!("{good}AAAA")),
        ("space", format!("{good} ")),
    ];
    for (name, forgery) in cases {
        let verdict = authenticator().authenticate(&forgery, at(0), &[], &world());
        assert!(matches!(verdict, Some(Err(_))), "{name}: {verdict:?}");
    }
    assert!(
        check(&with(json!({"kid": "", "typ": "JWT"}), &ours), 0, &world()).is_ok(),
        "keys need no name"
    );
}

#[test]
fn changed_claims_are_refused() {
    let good = token(Binding::Account);
    let (header, mut claims) = opened(&good);
    claims["kubernetes.io"]["serviceaccount"]["name"] = json!("admin");
    let signature = good.rsplit_once('.').unwrap().1;
    let forgery = forged(&header, &claims, |_| {
        URL_SAFE_NO_PAD.decode(signature).unwrap()
    });
    assert_eq!(refusal(&forgery, 0, &world()), "invalid signature");
}

#[test]
fn the_last_bits_of_a_signature_have_one_spelling() {
    let good = token(Binding::Account);
    let (head, last) = good.split_at(good.len() - 1);
    // 64 bytes leave four bits unused in the last character: its neighbours decode to the same bytes.
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let next = alphabet
        .chars()
        .nth(alphabet.find(last).unwrap() + 1)
        .unwrap();
    assert!(check(&format!("{head}{next}"), 0, &world()).is_err());
}

#[test]
fn malformed_claims_are_refused_without_quoting_them() {
    let (header, claims) = opened(&token(Binding::Account));
    for (field, value) in [
        ("exp", json!("never")),
        ("aud", json!(7)),
        ("kubernetes.io", json!("x")),
        ("sub", json!(1)),
    ] {
        let mut claims = claims.clone();
        claims[field] = value;
        let token = forged(&header, &claims, |m| ec_key().sign(m).unwrap());
        assert_eq!(refusal(&token, 0, &world()), "token claims are malformed");
    }
}

#[test]
fn rsa_keys_sign_too_and_rotated_keys_still_check() {
    let old = Issuer {
        name: ISSUER.into(),
        key: rsa_key(),
    };
    let token = old.issue(&grant(Binding::Account), at(0)).unwrap();
    assert_eq!(opened(&token).0["alg"], "RS256");
    assert!(check(&token, 0, &world()).is_ok());
    let without_old = Authenticator {
        keys: vec![ec_key().public().clone()],
        ..authenticator()
    };
    let refused = without_old
        .authenticate(&token, at(0), &[], &world())
        .unwrap()
        .unwrap_err();
    assert_eq!(refused.0, "invalid signature, no keys found");
}

#[test]
fn stale_tokens_are_noted_for_the_audit() {
    let extended = Grant {
        seconds: 1 << 25,
        warn_after: Some(3607),
        ..grant(pod_binding())
    };
    let token = issuer().issue(&extended, at(0)).unwrap();
    assert_eq!(check(&token, 3607, &world()).unwrap().audit, []);
    let note =
        "subject: system:serviceaccount:shop:till, seconds after warning threshold: 3".to_owned();
    assert_eq!(
        check(&token, 3610, &world()).unwrap().audit,
        [("authentication.k8s.io/stale-token", note)]
    );
}

fn legacy_world(token: &str) -> World {
    world().changed(
        "secrets",
        "till-token",
        "/data/token",
        json!(STANDARD.encode(token)),
    )
}

fn legacy() -> String {
    legacy_token(&rsa_key(), "shop", "till", "sa-1", "till-token").unwrap()
}

#[test]
fn a_legacy_token_is_good_while_its_secret_holds_it() {
    let token = legacy();
    let world = || legacy_world(&token);
    let found = check(&token, 0, &world()).unwrap();
    assert_eq!(found.user.name, "system:serviceaccount:shop:till");
    assert!(found.user.extra.is_empty() && found.warning.is_none());
    assert_eq!(found.last_used.unwrap().date, "2027-01-15");
    let listed = world().changed(
        "serviceaccounts",
        "till",
        "/secrets",
        json!([{"name": "till-token"}]),
    );
    assert!(
        check(&token, 0, &listed)
            .unwrap()
            .warning
            .unwrap()
            .contains("auto-generated")
    );
    let used = world().changed(
        "secrets",
        "till-token",
        "/metadata/labels",
        json!({"kubernetes.io/legacy-token-last-used": "2027-01-16"}),
    );
    assert_eq!(check(&token, 0, &used).unwrap().last_used, None);
}

#[test]
fn each_fault_refuses_a_legacy_token() {
    let token = legacy();
    let cases = [
        (
            "secrets",
            "till-token",
            "/metadata/deletionTimestamp",
            json!("x"),
            "Token has been invalidated",
        ),
        (
            "secrets",
            "till-token",
            "/data/token",
            json!("b3RoZXI="),
            "Token does not match server's copy",
        ),
        (
            "serviceaccounts",
            "till",
            "/metadata/deletionTimestamp",
            json!("x"),
            "ServiceAccount shop/till has been deleted",
        ),
        (
            "serviceaccounts",
            "till",
            "/metadata/uid",
            json!("new"),
            "ServiceAccount UID (new) does not match claim (sa-1)",
        ),
    ];
    for (plural, name, pointer, value, expected) in cases {
        assert_eq!(
            refusal(
                &token,
                0,
                &legacy_world(&token).changed(plural, name, pointer, value)
            ),
            expected
        );
    }
    let labels = json!({"kubernetes.io/legacy-token-invalid-since": "2027-01-01"});
    let marked = legacy_world(&token).changed("secrets", "till-token", "/metadata/labels", labels);
    assert!(
        refusal(&token, 0, &marked)
            .contains("shop/till-token for service account shop/till has been marked invalid")
    );
    let (header, mut claims) = opened(&token);
    claims["sub"] = json!("system:serviceaccount:shop:admin");
    let forgery = forged(&header, &claims, |m| rsa_key().sign(m).unwrap());
    assert_eq!(
        refusal(&forgery, 0, &legacy_world(&forgery)),
        "sub claim is invalid"
    );
}
