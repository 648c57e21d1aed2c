//! What clients other than kubectl ask for: Java's, Python's, browsers, and client-go's older ways.

use http::Request;
use serde_json::{Value, json};

use crate::harness::{Finished, KYANITE, RawConnection, Server, ServerOptions};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string()
}

/// fabric8, the Java client, watches over WebSockets: 101, and a message for each event.
#[test]
fn a_watch_over_a_websocket_sends_a_message_for_each_event() {
    let server = Server::start_alone();
    let (code, created) = server.post(CONFIG_MAPS, config_map("first"));
    assert_eq!(code, 201, "{created}");
    server.block_on(async {
        let mut connection = RawConnection::open(&server).await;
        let request = format!(
            "GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Origin: https://localhost\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        connection.write(request.as_bytes()).await.unwrap();
        let seen = connection.read_until("\"name\":\"first\"").await;
        assert!(seen.starts_with("HTTP/1.1 101 "), "{seen}");
        let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        assert!(seen.contains(accept), "{seen}");
        // Text, of a length that takes two bytes; then the event itself.
        let client = server.client();
        let body = config_map("second").into_bytes();
        let request = Request::post(CONFIG_MAPS).header("content-type", "application/json");
        let request = request.body(body).unwrap();
        let (code, _) = crate::harness::exchange(&client, request).await.unwrap();
        assert_eq!(code, 201);
        let seen = connection.read_until("\"name\":\"second\"").await;
        assert!(seen.contains("{\"type\":\"ADDED\",\"object\":"), "{seen}");
        // A masked goodbye ends it.
        connection.write(&[0x88, 0x80, 0, 0, 0, 0]).await.unwrap();
        connection.read_until("\u{0}never\u{0}").await;
    });
}

#[test]
fn openapi_v2_comes_as_protobuf_and_the_version_with_a_slash() {
    let server = Server::start_alone();
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let request = Request::get("/openapi/v2").header("accept", protobuf);
    let (code, body) = server.send(request.body(Vec::new()).unwrap());
    assert_eq!(code, 200, "{}", &body[..body.len().min(300)]);
    assert!(
        body.starts_with("\n\u{3}2.0"),
        "gnostic's first field is the version"
    );
    assert!(body.contains("io.k8s.api.core.v1.Pod"));
    let (code, version) = server.get("/version/");
    assert_eq!(code, 200);
    let version: Value = serde_json::from_str(&version).unwrap();
    assert_eq!(version["major"], "1");
    for path in ["/statusz", "/flagz", "/metrics/slis"] {
        let (code, text) = server.get(path);
        assert_eq!(code, 200, "{path}: {text}");
    }
}

#[test]
fn a_cluster_with_two_ranges_gives_services_addresses_of_both_families() {
    let server = Server::start_with(ServerOptions {
        flags: vec![
            "--controllers=",
            "--service-cluster-ip-range=10.9.0.0/16,fd00:9::/108",
        ],
    });
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, policy: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ipFamilyPolicy": policy, "selector": {"a": "b"}, "ports": [{"port": 80}]}})
    };
    let made = |name: &str, policy: &str| -> Value {
        let (code, body) = server.post(services, service(name, policy).to_string());
        assert_eq!(code, 201, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    let both = made("both", "RequireDualStack");
    assert_eq!(both["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    let addresses = both["spec"]["clusterIPs"].as_array().unwrap();
    assert!(
        addresses[0].as_str().unwrap().starts_with("10.9."),
        "{addresses:?}"
    );
    assert!(
        addresses[1].as_str().unwrap().starts_with("fd00:9::"),
        "{addresses:?}"
    );
    let one = made("one", "SingleStack");
    assert_eq!(one["spec"]["ipFamilies"], json!(["IPv4"]));
    // Down to one family, and the second address is free again.
    let patch = json!({"spec": {"ipFamilyPolicy": "SingleStack"}})
        .to_string()
        .into_bytes();
    let request = Request::patch(format!("{services}/both"))
        .header("content-type", "application/merge-patch+json");
    let (code, body) = server.send(request.body(patch).unwrap());
    assert_eq!(code, 200, "{body}");
    let down: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(down["spec"]["clusterIPs"].as_array().map(Vec::len), Some(1));
    let second = addresses[1].as_str().unwrap();
    let (code, _) = server.get(&format!("/apis/networking.k8s.io/v1/ipaddresses/{second}"));
    assert_eq!(code, 404);
}

#[test]
fn usage_is_told_in_the_form_that_is_asked_for() {
    let run = |words: &str| {
        let mut command = std::process::Command::new(KYANITE);
        Finished::run(command.args(words.split_whitespace()), "")
    };
    let refused = run("up --nope -o json").exits_with(2);
    let value: Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!(value["code"], 2);
    run("help").ok();
    let version = run("version -o json").ok();
    let value: Value = serde_json::from_str(&version.stdout).unwrap();
    assert!(value["kubernetes"].is_string());
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            run(&format!("completion {shell}"))
                .ok()
                .stdout
                .contains("kyanite")
        );
    }
    let refused = run("apiserver --token-auth-file=/x").exits_with(2);
    assert!(refused.stderr.contains("static tokens"), "{refused}");
}
