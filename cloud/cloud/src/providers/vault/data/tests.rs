use bytes::Bytes;
use http::HeaderMap;

use super::*;
use crate::arena::Arena;

fn ask(arena: &mut Arena, method: Method, path: &str, body: &Value) -> Reply {
    let body = match body.is_null() {
        true => Bytes::new(),
        false => Bytes::from(body.to_string()),
    };
    let asked = Asked::new(method, path, HeaderMap::new(), body);
    let caller = arena.caller.clone();
    arena.now += jiff::SignedDuration::from_secs(1);
    arena.turn(|turn| answer(turn, &caller, "one-vault", &asked))
}

#[test]
fn secrets_have_versions_and_belong_to_those_whom_the_vault_names() {
    let mut arena = Arena::new();
    arena.group("g");
    let path = "/resourceGroups/g/providers/Microsoft.KeyVault/vaults/one-vault";
    let vault = |words: Value| {
        json!({"location": "eastus", "properties": {"tenantId": "t", "sku": {"family": "A", "name": "standard"},
            "enableRbacAuthorization": false, "accessPolicies": [{"tenantId": "t",
            "objectId": "00000000-0000-4000-8000-00000000000a", "permissions": {"secrets": words}}]}})
    };
    assert_eq!(arena.done("PUT", path, vault(json!(["get"]))).0, 200);
    let secret = json!({"value": "first"});
    let refused = ask(&mut arena, Method::PUT, "/secrets/s", &secret);
    assert_eq!(refused.status, 403);
    arena.done("PUT", path, vault(json!(["all"])));
    let first = ask(&mut arena, Method::PUT, "/secrets/s", &secret);
    assert_eq!(first.status, 200);
    ask(
        &mut arena,
        Method::PUT,
        "/secrets/s",
        &json!({"value": "second"}),
    );
    let newest = ask(&mut arena, Method::GET, "/secrets/s", &Value::Null);
    assert_eq!(newest.document()["value"], "second");
    let id = first.document()["id"].as_str().unwrap();
    let version = id.rsplit('/').next().unwrap();
    let old = ask(
        &mut arena,
        Method::GET,
        &format!("/secrets/s/{version}"),
        &Value::Null,
    );
    assert_eq!(old.document()["value"], "first");
    for (path, count) in [("/secrets", 1), ("/secrets/s/versions", 2)] {
        let listed = ask(&mut arena, Method::GET, path, &Value::Null);
        let listed = listed.document()["value"].as_array().unwrap().clone();
        assert_eq!(listed.len(), count, "{path}");
        assert!(listed.iter().all(|one| one["value"].is_null()), "{path}");
    }
    let gone = ask(&mut arena, Method::DELETE, "/secrets/s", &Value::Null);
    assert_eq!(gone.status, 200);
    let missing = ask(&mut arena, Method::GET, "/secrets/s", &Value::Null);
    assert_eq!(missing.document()["error"]["code"], "SecretNotFound");
    // Deleted is not gone: the name is taken until it is recovered or purged.
    let taken = ask(&mut arena, Method::PUT, "/secrets/s", &secret);
    let inner = &taken.document()["error"]["innererror"]["code"];
    assert_eq!(inner, "ObjectIsDeletedButRecoverable");
    let rows = [
        (Method::GET, "/deletedsecrets/s", 200),
        (Method::POST, "/deletedsecrets/s/recover", 200),
        (Method::GET, "/secrets/s", 200),
        (Method::DELETE, "/secrets/s", 200),
        (Method::DELETE, "/deletedsecrets/s", 204),
        (Method::GET, "/deletedsecrets/s", 404),
        (Method::GET, "/nothings/s", 404),
    ];
    for (method, path, status) in rows {
        let reply = ask(&mut arena, method.clone(), path, &Value::Null);
        assert_eq!(reply.status, status, "{method} {path}");
    }
    let wrong = ask(&mut arena, Method::PUT, "/secrets/a_b", &secret);
    assert_eq!(wrong.status, 400);
}

/// A vault whose policies let the one caller do everything.
fn open_vault() -> Arena {
    let mut arena = Arena::new();
    arena.group("g");
    let path = "/resourceGroups/g/providers/Microsoft.KeyVault/vaults/one-vault";
    let all = json!({"secrets": ["all"], "keys": ["all"], "certificates": ["all"]});
    let vault = json!({"location": "eastus", "properties": {"tenantId": "t", "sku": {"family": "A", "name": "standard"},
        "enableRbacAuthorization": false, "accessPolicies": [{"tenantId": "t",
        "objectId": "00000000-0000-4000-8000-00000000000a", "permissions": all}]}});
    assert_eq!(arena.done("PUT", path, vault).0, 200);
    arena
}

fn ok(arena: &mut Arena, method: Method, path: &str, body: &Value) -> Value {
    let reply = ask(arena, method, path, body);
    let said = reply.document().clone();
    assert!(reply.status.is_success(), "{path}: {said}");
    said
}

#[test]
fn keys_sign_and_encrypt_where_they_lie() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let mut arena = open_vault();
    let digest = URL_SAFE_NO_PAD.encode([7; 32]);
    for (name, made, alg) in [
        ("r", json!({"kty": "RSA", "key_size": 2048}), "PS256"),
        ("e", json!({"kty": "EC", "crv": "P-256"}), "ES256"),
    ] {
        let key = ok(
            &mut arena,
            Method::POST,
            &format!("/keys/{name}/create"),
            &made,
        );
        assert_eq!(key["key"]["d"], Value::Null, "a private key stays");
        let id = key["key"]["kid"].as_str().unwrap();
        let version = id.rsplit('/').next().unwrap();
        let path = |verb: &str| format!("/keys/{name}/{version}/{verb}");
        let asked = json!({"alg": alg, "value": digest});
        let signed = ok(&mut arena, Method::POST, &path("sign"), &asked);
        let check = |value: &Value| json!({"alg": alg, "digest": digest, "value": value});
        let good = ok(
            &mut arena,
            Method::POST,
            &path("verify"),
            &check(&signed["value"]),
        );
        assert_eq!(good["value"], true, "{name}");
        let wrong = check(&json!(URL_SAFE_NO_PAD.encode([1; 64])));
        assert_eq!(
            ok(&mut arena, Method::POST, &path("verify"), &wrong)["value"],
            false
        );
    }
    let text = URL_SAFE_NO_PAD.encode(b"plain");
    let asked = json!({"alg": "RSA-OAEP-256", "value": text});
    let sealed = ok(&mut arena, Method::POST, "/keys/r/wrapkey", &asked);
    assert_ne!(sealed["value"], json!(text));
    let asked = json!({"alg": "RSA-OAEP-256", "value": sealed["value"]});
    assert_eq!(
        ok(&mut arena, Method::POST, "/keys/r/unwrapkey", &asked)["value"],
        json!(text)
    );
    let refused = ask(&mut arena, Method::POST, "/keys/e/wrapkey", &asked);
    assert_eq!(refused.status, 403);
    ok(&mut arena, Method::POST, "/keys/r/rotate", &Value::Null);
    let listed = ok(&mut arena, Method::GET, "/keys/r/versions", &Value::Null);
    assert_eq!(listed["value"].as_array().map(Vec::len), Some(2));
    // A backup goes back where its name is free.
    let backup = ok(&mut arena, Method::POST, "/keys/r/backup", &Value::Null);
    assert_eq!(
        ask(&mut arena, Method::POST, "/keys/restore", &backup).status,
        409
    );
    ok(&mut arena, Method::DELETE, "/keys/r", &Value::Null);
    assert_eq!(
        ask(&mut arena, Method::DELETE, "/deletedkeys/r", &Value::Null).status,
        204
    );
    ok(&mut arena, Method::POST, "/keys/restore", &backup);
    ok(&mut arena, Method::GET, "/keys/r", &Value::Null);
}

#[test]
fn a_certificate_has_a_key_and_a_secret_and_they_go_with_it() {
    let mut arena = open_vault();
    let policy = json!({"issuer": {"name": "Self"}, "x509_props": {"subject": "CN=a.example, O=us",
        "sans": {"dns_names": ["a.example"]}, "validity_months": 3},
        "secret_props": {"contentType": "application/x-pem-file"}});
    let begun = ask(
        &mut arena,
        Method::POST,
        "/certificates/c/create",
        &json!({"policy": policy}),
    );
    assert_eq!(begun.status, 202);
    let pending = ok(
        &mut arena,
        Method::GET,
        "/certificates/c/pending",
        &Value::Null,
    );
    assert_eq!(pending["status"], "completed");
    let made = ok(&mut arena, Method::GET, "/certificates/c", &Value::Null);
    assert_eq!(made["policy"]["key_props"]["key_size"], 2048);
    let days = made["attributes"]["exp"].as_i64().unwrap() - arena.now.as_second();
    assert!((80 * 86_400..100 * 86_400).contains(&days), "{days}");
    let secret = ok(&mut arena, Method::GET, "/secrets/c", &Value::Null);
    let pem = secret["value"].as_str().unwrap();
    assert!(pem.contains("BEGIN PRIVATE KEY") && pem.contains("BEGIN CERTIFICATE"));
    ok(&mut arena, Method::GET, "/keys/c", &Value::Null);
    let imported = ok(
        &mut arena,
        Method::POST,
        "/certificates/d/import",
        &json!({"value": pem}),
    );
    assert_eq!(imported["cer"], made["cer"]);
    ok(&mut arena, Method::DELETE, "/certificates/c", &Value::Null);
    for path in ["/certificates/c", "/keys/c", "/secrets/c"] {
        assert_eq!(
            ask(&mut arena, Method::GET, path, &Value::Null).status,
            404,
            "{path}"
        );
    }
    ok(
        &mut arena,
        Method::POST,
        "/deletedcertificates/c/recover",
        &Value::Null,
    );
    ok(&mut arena, Method::GET, "/secrets/c", &Value::Null);
    let other = json!({"policy": {"issuer": {"name": "DigiCert"}}});
    assert_eq!(
        ask(&mut arena, Method::POST, "/certificates/x/create", &other).status,
        400
    );
}

#[test]
fn a_vault_comes_back_with_what_was_in_it_until_it_is_purged() {
    let mut arena = open_vault();
    ok(
        &mut arena,
        Method::PUT,
        "/secrets/s",
        &json!({"value": "kept"}),
    );
    let path = "/resourceGroups/g/providers/Microsoft.KeyVault/vaults/one-vault";
    arena.done("DELETE", path, Value::Null);
    assert_eq!(
        ask(&mut arena, Method::GET, "/secrets/s", &Value::Null).status,
        404
    );
    let vault = |mode: Value| {
        json!({"location": "eastus", "properties": {"createMode": mode, "tenantId": "t",
            "sku": {"family": "A", "name": "standard"}}})
    };
    let taken = arena.done("PUT", path, vault(json!("default")));
    assert_eq!(taken, (409, "ConflictError".into()));
    assert_eq!(arena.done("PUT", path, vault(json!("recover"))).0, 200);
    let kept = ok(&mut arena, Method::GET, "/secrets/s", &Value::Null);
    assert_eq!(kept["value"], "kept");
    arena.done("DELETE", path, Value::Null);
    let place = "/providers/Microsoft.KeyVault/locations/eastus/deletedVaults/one-vault";
    assert_eq!(arena.done("GET", place, Value::Null).0, 200);
    assert_eq!(
        arena.done("POST", &format!("{place}/purge"), Value::Null).0,
        202
    );
    assert_eq!(arena.done("GET", place, Value::Null).0, 404);
    assert_eq!(arena.done("PUT", path, vault(json!("default"))).0, 200);
    let empty = ask(&mut arena, Method::GET, "/secrets/s", &Value::Null);
    assert_ne!(empty.status, 200);
}
