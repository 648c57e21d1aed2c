//! A thousand definitions, as Crossplane's providers bring them: soon there, and small.

use std::time::Instant;

use futures::future::join_all;
use http::Request;
use serde_json::{Value, json};

use crate::harness::{Server, eventually, exchange};

/// How many, and what each may take at most. Text is stored once for each of the two states that a new definition has
/// within the store's history; a tree of it would take thirty times as much.
const MANY: usize = 300;
const TIMES_ITS_TEXT: u64 = 8;

fn definition(number: usize) -> Value {
    let words =
        "what a controller is told to make of it, and what it is to do where that cannot be made";
    let leaf = json!({"type": "string", "description": words, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"});
    let fields = |below: &Value| -> Value {
        (0..10)
            .map(|n| (format!("field{n}"), below.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let object = |below: &Value| json!({"type": "object", "description": words, "properties": fields(below)});
    let spec = object(&object(&leaf));
    let group = format!("group{}.example.com", number / 20);
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things{number}.{group}")},
        "spec": {"group": group, "scope": "Cluster",
            "names": {"plural": format!("things{number}"), "singular": format!("thing{number}"), "kind": format!("Thing{number}")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

#[test]
fn many_definitions_are_small_and_all_are_served() {
    let server = Server::start_alone();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    // The first brings what all need.
    let (code, body) = server.post(path, definition(MANY).to_string());
    assert_eq!(code, 201, "{body}");
    let before = server.resident_bytes();
    let (began, mut text) = (Instant::now(), 0);
    for number in 0..MANY {
        let body = definition(number).to_string();
        text += body.len() as u64;
        let (code, answer) = server.post(path, body);
        assert_eq!(code, 201, "{answer}");
    }
    eventually("the last is served", || {
        let (code, _) = server.get(&format!(
            "/apis/group{}.example.com/v1/things{}",
            (MANY - 1) / 20,
            MANY - 1
        ));
        code == 200
    });
    let grown = server.resident_bytes().saturating_sub(before);
    let each = |bytes: u64| bytes / MANY as u64 / 1024;
    println!(
        "{MANY} definitions of {} KiB in {:?}: {} KiB each",
        each(text),
        began.elapsed(),
        each(grown)
    );
    assert!(grown < TIMES_ITS_TEXT * text, "{} KiB each", each(grown));
    let (code, index) = server.get("/openapi/v3");
    assert_eq!(code, 200);
    assert!(index.contains("apis/group3.example.com/v1?hash="));
}

/// How many instances a definition takes along; a debug build is slow.
const INSTANCES: usize = if cfg!(debug_assertions) {
    2_000
} else {
    10_000
};

fn deletion() -> Request<Vec<u8>> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things1.group0.example.com";
    Request::delete(path)
        .body(Vec::new())
        .expect("a legal request")
}

#[test]
fn a_definition_that_was_going_when_the_power_went_is_gone_with_its_instances() {
    let mut server = Server::start_alone();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, body) = server.post(path, definition(1).to_string());
    assert_eq!(code, 201, "{body}");
    let things = "/apis/group0.example.com/v1/things1";
    eventually("it is served", || server.get(things).0 == 200);
    let client = server.client();
    let one = |n: usize| {
        let body = json!({"apiVersion": "group0.example.com/v1", "kind": "Thing1", "metadata": {"name": format!("t{n}")}});
        let request = Request::post(things).header("content-type", "application/json");
        let request = request
            .body(body.to_string().into_bytes())
            .expect("a legal request");
        let client = client.clone();
        async move { exchange(&client, request).await }
    };
    for start in (0..INSTANCES).step_by(50) {
        let answers = server.block_on(join_all((start..start + 50).map(one)));
        assert!(
            answers
                .iter()
                .all(|a| a.as_ref().is_ok_and(|(code, _)| *code == 201)),
            "{:?}",
            answers[0]
        );
    }
    let (code, body) = server.send(deletion());
    assert_eq!(code, 200, "{body}");
    // It is killed when some are gone and some are not.
    let left = |server: &Server| {
        let (_, body) = server.get(&format!("{things}?limit=1"));
        let list: Value = serde_json::from_str(&body).unwrap_or_default();
        let first = list["items"].as_array().map_or(0, Vec::len);
        first as i64 + list["metadata"]["remainingItemCount"].as_i64().unwrap_or(0)
    };
    eventually("the removal has begun", || left(&server) < INSTANCES as i64);
    server.kill();
    server.start_again();
    eventually("the definition is gone", || {
        server.get(&format!("{path}/things1.group0.example.com")).0 == 404
    });
    // Nothing of it comes back with a definition of the same name.
    let (code, body) = server.post(path, definition(1).to_string());
    assert_eq!(code, 201, "{body}");
    eventually("it is served again, empty", || {
        let (code, body) = server.get(things);
        code == 200 && body.contains("\"items\":[]")
    });
}
