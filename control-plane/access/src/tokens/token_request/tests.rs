#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::tokens::testing::{World, at, ec_key, opened};

fn requests() -> TokenRequests {
    TokenRequests {
        issuer: Issuer {
            name: "https://kyanite".into(),
            key: ec_key(),
        },
        api_audiences: vec!["https://kyanite".into()],
        max_seconds: None,
        extend: true,
    }
}

fn world() -> World {
    World::default()
        .with(
            "serviceaccounts",
            json!({"metadata": {"namespace": "shop", "name": "till", "uid": "sa-1"}}),
        )
        .with(
            "pods",
            json!({
                "metadata": {"namespace": "shop", "name": "till-0", "uid": "pod-1"},
                "spec": {"serviceAccountName": "till", "nodeName": "n1"},
            }),
        )
        .with(
            "secrets",
            json!({"metadata": {"namespace": "shop", "name": "s", "uid": "secret-1"}}),
        )
        .with(
            "nodes",
            json!({"metadata": {"name": "n1", "uid": "node-1"}}),
        )
}

fn ask_of(
    requests: &TokenRequests,
    name: &str,
    body: Value,
    world: &World,
) -> Result<Issued, Refusal> {
    let prepared = requests.prepare("shop", name, &body, at(0), world)?;
    requests.issue(prepared, "id-1".into(), at(0), world)
}

fn ask(body: Value) -> Result<Issued, Refusal> {
    ask_of(&requests(), "till", body, &world())
}

fn bound(kind: &str, name: &str, uid: &str) -> Value {
    json!({"spec": {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}}})
}

fn claims(issued: &Issued) -> Value {
    opened(issued.object["status"]["token"].as_str().unwrap()).1
}

#[test]
fn an_empty_request_gets_an_hour_for_the_api_server() {
    let issued = ask(json!({"status": {"token": "ignored"}})).unwrap();
    let mut object = issued.object.clone();
    object["status"]["token"] = json!("…");
    let expected = json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": "till", "namespace": "shop", "uid": "sa-1", "creationTimestamp": "2027-01-15T08:00:00Z"},
        "spec": {"audiences": ["https://kyanite"], "expirationSeconds": 3600},
        "status": {"token": "…", "expirationTimestamp": "2027-01-15T09:00:00Z"},
    });
    assert_eq!(object, expected);
    assert_eq!(issued.credential_id, "JTI=id-1");
    assert_eq!(claims(&issued)["exp"], at(3600).as_second());
}

#[test]
fn bindings_stand_in_the_claims() {
    let with = |body| claims(&ask(body).unwrap())["kubernetes.io"].clone();
    let pod = with(bound("Pod", "till-0", "pod-1"));
    assert_eq!(pod["pod"], json!({"name": "till-0", "uid": "pod-1"}));
    assert_eq!(pod["node"], json!({"name": "n1", "uid": "node-1"}));
    assert_eq!(
        with(bound("Secret", "s", ""))["secret"],
        json!({"name": "s", "uid": "secret-1"})
    );
    assert_eq!(
        with(bound("Node", "n1", "node-1"))["node"],
        json!({"name": "n1", "uid": "node-1"})
    );
    let lost = ask_of(
        &requests(),
        "till",
        bound("Pod", "till-0", ""),
        &world().without("nodes", "n1"),
    )
    .unwrap();
    assert_eq!(
        claims(&lost)["kubernetes.io"]["node"],
        json!({"name": "n1"})
    );
}

#[test]
fn only_pods_tokens_for_the_api_server_of_that_one_length_are_made_to_last() {
    let seconds = |extend: bool, audience: &str, body: Value, asked: i64| {
        let mut body = body;
        body["spec"]["audiences"] = json!([audience]);
        body["spec"]["expirationSeconds"] = json!(asked);
        let requests = TokenRequests {
            extend,
            ..requests()
        };
        let issued = ask_of(&requests, "till", body, &world()).unwrap();
        assert_eq!(
            issued.object["spec"]["expirationSeconds"], asked,
            "the answer tells what was asked"
        );
        let claims = claims(&issued);
        let warn = claims["kubernetes.io"]["warnafter"]
            .as_i64()
            .map(|w| w - at(0).as_second());
        (claims["exp"].as_i64().unwrap() - at(0).as_second(), warn)
    };
    let pod = || bound("Pod", "till-0", "");
    assert_eq!(
        seconds(true, "https://kyanite", pod(), 3607),
        (31_536_000, Some(3607))
    );
    assert_eq!(seconds(false, "https://kyanite", pod(), 3607), (3607, None));
    assert_eq!(seconds(true, "vault", pod(), 3607), (3607, None));
    assert_eq!(seconds(true, "https://kyanite", pod(), 3600), (3600, None));
    assert_eq!(
        seconds(true, "https://kyanite", json!({}), 3607),
        (3607, None)
    );
}

#[test]
fn a_limit_shortens_and_says_so() {
    let limited = TokenRequests {
        max_seconds: Some(7200),
        ..requests()
    };
    let issued = ask_of(
        &limited,
        "till",
        json!({"spec": {"expirationSeconds": 10_000}}),
        &world(),
    )
    .unwrap();
    assert_eq!(
        issued.warnings,
        ["requested expiration of 10000 seconds shortened to 7200 seconds"]
    );
    assert_eq!(issued.object["spec"]["expirationSeconds"], 7200);
    assert_eq!(
        issued.object["status"]["expirationTimestamp"],
        "2027-01-15T10:00:00Z"
    );
}

#[test]
fn refusals_are_upstreams() {
    let cases = [
        (
            json!({"spec": {"expirationSeconds": 599}}),
            422,
            "Invalid",
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        ),
        (
            json!({"spec": {"expirationSeconds": 4_294_967_297_i64}}),
            422,
            "Invalid",
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
        (
            json!({"metadata": {"name": "x"}}),
            422,
            "Invalid",
            "TokenRequest.authentication.k8s.io \"till\" is invalid: metadata.name: Invalid value: \"x\": must match the service account name if specified",
        ),
        (
            json!({"metadata": {"namespace": "x"}}),
            422,
            "Invalid",
            "TokenRequest.authentication.k8s.io \"till\" is invalid: metadata.namespace: Invalid value: \"x\": must match the service account namespace if specified",
        ),
        (
            json!({"metadata": {"uid": "x"}}),
            409,
            "Conflict",
            "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"till\": the UID in the token request (x) does not match the UID of the service account (sa-1)",
        ),
        (
            bound("Pod", "till-0", "x"),
            409,
            "Conflict",
            "Operation cannot be fulfilled on Pod \"till-0\": the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated",
        ),
        (
            bound("Pod", "none", ""),
            404,
            "NotFound",
            "pods \"none\" not found",
        ),
        (
            bound("Node", "none", ""),
            404,
            "NotFound",
            "nodes \"none\" not found",
        ),
        (
            bound("ConfigMap", "c", ""),
            400,
            "BadRequest",
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "apps/v1", "name": "p"}}}),
            400,
            "BadRequest",
            "cannot bind token to object of type apps/v1, Kind=Pod",
        ),
    ];
    for (body, code, reason, message) in cases {
        let refusal = ask(body).map(|_| ()).unwrap_err();
        assert_eq!(
            (refusal.code, refusal.reason, refusal.message.as_str()),
            (code, reason, message)
        );
    }
    let short = ask(json!({"spec": {"expirationSeconds": 1}}))
        .map(|_| ())
        .unwrap_err();
    let details = short.details.unwrap();
    assert_eq!(
        (details.group, details.kind.as_str()),
        ("authentication.k8s.io", "TokenRequest")
    );
    assert_eq!(
        (details.causes[0].0, details.causes[0].2),
        ("FieldValueInvalid", "spec.expirationSeconds")
    );
    let missing = ask_of(&requests(), "nobody", json!({}), &world())
        .map(|_| ())
        .unwrap_err();
    assert_eq!(
        (missing.code, missing.message.as_str()),
        (404, "serviceaccounts \"nobody\" not found")
    );
}

#[test]
fn a_pod_of_another_account_binds_nothing() {
    let other = world().changed("pods", "till-0", "/spec/serviceAccountName", json!("admin"));
    let refusal = ask_of(&requests(), "till", bound("Pod", "till-0", "pod-1"), &other)
        .map(|_| ())
        .unwrap_err();
    assert_eq!(refusal.code, 400);
    let expected = "cannot bind token for serviceaccount \"till\" to pod running with different serviceaccount name.";
    assert_eq!(refusal.message, expected);
}
