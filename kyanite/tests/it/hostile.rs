//! Requests no well-behaved client sends. Each gets a proper refusal, and the server goes on serving others.

use std::time::Duration;

use futures::future::join_all;
use http::Request;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::harness::{RawConnection, Server, eventually_async, exchange};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The refusal is a Status object with this code and reason; gives its message.
#[track_caller]
fn refused((code, body): (u16, String), wanted: u16, reason: &str) -> String {
    let status: Value =
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{code} with {body:?}: {error}"));
    let found = (
        code,
        status["kind"].as_str(),
        status["reason"].as_str(),
        status["code"].as_u64(),
    );
    assert_eq!(
        found,
        (
            wanted,
            Some("Status"),
            Some(reason),
            Some(u64::from(wanted))
        ),
        "{body}"
    );
    status["message"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn still_serves(server: &Server) {
    let (code, body) = server.get("/readyz");
    assert_eq!((code, body.as_str()), (200, "ok"));
}

fn with_type(content_type: &str, body: impl Into<Vec<u8>>) -> Request<Vec<u8>> {
    Request::post(CONFIG_MAPS)
        .header("content-type", content_type)
        .body(body.into())
        .unwrap()
}

#[test]
fn malformed_json_is_a_bad_request() {
    let server = Server::start();
    let bodies = [
        "",
        "{",
        "[]",
        "\"text\"",
        "{\"apiVersion\":\"v1\",\"kind\":",
        "\u{0}\u{1}",
        "{\"kind\":}",
    ];
    for body in bodies {
        refused(server.post(CONFIG_MAPS, body), 400, "BadRequest");
    }
    // JSON's null is an object without a name.
    refused(server.post(CONFIG_MAPS, "null"), 422, "Invalid");
    refused(
        server.post(CONFIG_MAPS, vec![0xff, 0xfe, 0x00, 0x80]),
        400,
        "BadRequest",
    );
    still_serves(&server);
}

#[test]
fn malformed_protobuf_is_a_bad_request() {
    let server = Server::start();
    let protobuf =
        |body: &[u8]| server.send(with_type("application/vnd.kubernetes.protobuf", body));
    let bodies: [&[u8]; 5] = [
        b"",
        b"k8s\0",
        b"k8s\0\xff\xff\xff\xff\xff",
        b"not protobuf at all",
        b"k8s\0\x0a\xff\xff\xff\xff\x0f\x01",
    ];
    for body in bodies {
        refused(protobuf(body), 400, "BadRequest");
    }
    still_serves(&server);
}

#[test]
fn a_body_of_the_wrong_kind_is_a_bad_request() {
    let server = Server::start();
    let post = |body: Value| server.post(CONFIG_MAPS, body.to_string());
    let message = refused(
        post(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}})),
        400,
        "BadRequest",
    );
    assert!(
        message.contains("Secret") && message.contains("ConfigMap"),
        "{message}"
    );
    refused(
        post(json!({"apiVersion": "apps/v1", "kind": "ConfigMap", "metadata": {"name": "x"}})),
        400,
        "BadRequest",
    );
    refused(
        post(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": "x"})),
        400,
        "BadRequest",
    );
    refused(
        post(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": 7}})),
        400,
        "BadRequest",
    );
    refused(
        post(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": [1]}),
        ),
        400,
        "BadRequest",
    );
}

#[test]
fn names_that_cannot_be_names_are_invalid() {
    let server = Server::start();
    let named =
        |name: &str| server.post(CONFIG_MAPS, json!({"metadata": {"name": name}}).to_string());
    for name in ["UPPER", "a/b", "..", "a b", "", "-a", &"x".repeat(254)] {
        refused(named(name), 422, "Invalid");
    }
    let (code, _) = named(&"x".repeat(253));
    assert_eq!(code, 201, "253 characters are allowed");
}

#[test]
fn a_body_past_three_mebibytes_is_too_large() {
    let server = Server::start();
    let padding = "x".repeat(3 * 1024 * 1024);
    let body = json!({"metadata": {"name": "big"}, "data": {"a": padding}}).to_string();
    refused(server.post(CONFIG_MAPS, body), 413, "RequestEntityTooLarge");
    let (code, _) = server.get(&format!("{CONFIG_MAPS}/big"));
    assert_eq!(code, 404);
    still_serves(&server);
}

#[test]
fn a_body_nobody_reads_does_not_spoil_the_next_request() {
    let server = Server::start();
    let ask = |length: usize, sent: usize, more: &str| {
        format!(
            "POST /api/v1/nothing HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{more}\r\n{}",
            "x".repeat(sent)
        )
    };
    // Small, and come: the connection goes on. Too much of it, or only promised: the answer says that it ends.
    let cases = [
        (ask(1_000, 1_000, ""), false),
        (ask(1024 * 1024, 10, ""), true),
        (ask(1_000, 0, "expect: 100-continue\r\n"), true),
    ];
    for (request, closes) in cases {
        server.block_on(async {
            let mut connection = RawConnection::open(&server).await;
            connection.write(request.as_bytes()).await.unwrap();
            let answer = connection.read_until("\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
            assert_eq!(answer.contains("connection: close"), closes, "{answer}");
            if !closes {
                let next = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n";
                connection.write(next).await.unwrap();
                let answer = connection.read_until("ok").await;
                assert!(answer.contains("HTTP/1.1 200"), "{answer}");
            }
        });
    }
}

#[test]
fn more_data_than_a_config_map_may_hold_is_invalid() {
    let server = Server::start();
    let body = json!({"metadata": {"name": "big"}, "data": {"a": "x".repeat(1024 * 1024 + 1)}})
        .to_string();
    let message = refused(server.post(CONFIG_MAPS, body), 422, "Invalid");
    assert!(message.contains("Too long"), "{message}");
}

#[test]
fn an_endless_body_is_cut_off() {
    let server = Server::start();
    server.block_on(async {
        let mut connection = RawConnection::open(&server).await;
        let head = format!(
            "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        connection.write(head.as_bytes()).await.unwrap();
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000));
        // 64 MiB at most: the server must have answered or hung up long before.
        for _ in 0..1024 {
            if connection.write(chunk.as_bytes()).await.is_err() {
                return;
            }
        }
        let answer = connection.read_until("\r\n\r\n").await;
        assert!(
            answer.starts_with("HTTP/1.1 413") || answer.is_empty(),
            "{answer}"
        );
    });
    still_serves(&server);
}

#[test]
fn deep_nesting_is_refused_and_not_followed() {
    let server = Server::start();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        let body = format!("{{\"metadata\":{{\"name\":\"deep\"}},\"data\":{deep}}}");
        refused(server.post(CONFIG_MAPS, body), 400, "BadRequest");
    }
    still_serves(&server);
}

#[test]
fn a_yaml_body_full_of_aliases_does_not_explode() {
    let server = Server::start();
    let mut bomb = "metadata: {name: bomb}\ndata:\n  a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (this, last) in ('b'..='k').zip('a'..='j') {
        bomb += &format!(
            "  {this}: &{this} [*{last},*{last},*{last},*{last},*{last},*{last},*{last},*{last}]\n"
        );
    }
    refused(
        server.send(with_type("application/yaml", bomb)),
        400,
        "BadRequest",
    );
    assert!(
        server.resident_bytes() < 512 << 20,
        "{} bytes resident",
        server.resident_bytes()
    );
    still_serves(&server);
}

#[test]
fn bad_selectors_and_parameters_are_bad_requests() {
    let server = Server::start();
    let queries = [
        "labelSelector=a%20in%20(",
        "labelSelector=%3D%3D%3D",
        "labelSelector=a%3Db%20c",
        "fieldSelector=metadata.name",
        "fieldSelector=no.such.field%3Dx",
        "limit=1&continue=rubbish",
        "resourceVersion=abc",
        "resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Nonsense",
    ];
    for query in queries {
        let (code, body) = server.get(&format!("{CONFIG_MAPS}?{query}"));
        assert!([400, 422].contains(&code), "{query}: {code} {body}");
    }
    still_serves(&server);
}

#[test]
fn a_huge_selector_is_answered() {
    let server = Server::start();
    let values: Vec<String> = (0..2_000).map(|n| format!("value-{n}")).collect();
    let selector = format!("labelSelector=app%20in%20({})", values.join(","));
    let (code, body) = server.get(&format!("{CONFIG_MAPS}?{selector}"));
    assert_eq!(code, 200, "{body}");
    still_serves(&server);
}

#[test]
fn odd_paths_and_methods_are_refused_politely() {
    let server = Server::start();
    let not_found = [
        "/nothing",
        "/api/v2",
        "/apis/nothing.example/v1",
        "/api/v1/unicorns",
        "/api/v1/namespaces/default/unicorns",
    ];
    for path in not_found {
        let (code, _) = server.get(path);
        assert_eq!(code, 404, "{path}");
    }
    refused(
        server.get(&format!("{CONFIG_MAPS}/absent")),
        404,
        "NotFound",
    );
    let send = |method: &str, path: &str| {
        server.send(
            Request::builder()
                .method(method)
                .uri(path)
                .body(vec![])
                .unwrap(),
        )
    };
    refused(send("PUT", CONFIG_MAPS), 405, "MethodNotAllowed");
    refused(
        send("POST", &format!("{CONFIG_MAPS}/name")),
        405,
        "MethodNotAllowed",
    );
    for path in ["/api/v1/namespaces/default/configmaps/%2e%2e", "//api//v1"] {
        let (code, body) = server.get(path);
        assert!((300..500).contains(&code), "{path}: {code} {body}");
    }
    still_serves(&server);
}

/// Numbers at the edge and targets without a path are answered, never with 500.
#[test]
fn the_longest_timeout_and_a_target_without_a_path_are_answered() {
    let server = Server::start();
    let longest = format!("{CONFIG_MAPS}?timeoutSeconds={}", i64::MAX);
    let (code, body) = server.get(&longest);
    assert_eq!(code, 200, "{body}");
    server.block_on(async {
        let mut connection = RawConnection::open(&server).await;
        connection
            .write(b"GET x:1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .unwrap();
        let head = connection.read_until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 4"), "{head}");
        let watch = format!("GET {longest}&watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut connection = RawConnection::open(&server).await;
        connection.write(watch.as_bytes()).await.unwrap();
        let head = connection.read_until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    });
    still_serves(&server);
}

#[test]
fn a_media_type_nobody_speaks_is_refused() {
    let server = Server::start();
    refused(
        server.send(with_type("text/plain", "hello")),
        415,
        "UnsupportedMediaType",
    );
    let accept = Request::get(CONFIG_MAPS)
        .header("accept", "image/png")
        .body(vec![])
        .unwrap();
    refused(server.send(accept), 406, "NotAcceptable");
    let patch = Request::patch(format!("{CONFIG_MAPS}/x"))
        .header("content-type", "application/json")
        .body(b"{}".to_vec());
    refused(server.send(patch.unwrap()), 415, "UnsupportedMediaType");
}

#[test]
fn without_credentials_nothing_is_shown() {
    let server = Server::start();
    let anonymous = server.block_on(async {
        let mut config = kube::Config::new(
            format!("https://127.0.0.1:{}", server.port())
                .parse()
                .unwrap(),
        );
        config.accept_invalid_certs = true;
        kube::Client::try_from(config).unwrap()
    });
    let ask = |path: &str| {
        let request = Request::get(path).body(vec![]).unwrap();
        server.block_on(exchange(&anonymous, request)).unwrap()
    };
    let (code, body) = ask("/api/v1/secrets");
    assert!([401, 403].contains(&code), "{code} {body}");
    let request = Request::get("/api/v1/secrets")
        .header("authorization", "Bearer invented")
        .body(vec![])
        .unwrap();
    let (code, body) = server.block_on(exchange(&anonymous, request)).unwrap();
    assert_eq!(code, 401, "{body}");
}

#[test]
fn half_open_connections_do_not_hold_up_others() {
    let server = Server::start();
    server.block_on(async {
        let mut held = Vec::new();
        for n in 0..200 {
            let mut tcp = TcpStream::connect(("127.0.0.1", server.port()))
                .await
                .unwrap();
            // Silent, or stopped in the middle of a TLS hello.
            if n % 2 == 0 {
                tcp.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01])
                    .await
                    .unwrap();
            }
            held.push(tcp);
        }
        let mut slow_heads = Vec::new();
        for _ in 0..20 {
            let mut connection = RawConnection::open(&server).await;
            connection
                .write(b"GET /api/v1/pods HTTP/1.1\r\nhost: loc")
                .await
                .unwrap();
            slow_heads.push(connection);
        }
        let client = server.client();
        let ask = exchange(&client, Request::get("/readyz").body(vec![]).unwrap());
        let answer = tokio::time::timeout(Duration::from_secs(10), ask)
            .await
            .expect("answered in time");
        assert_eq!(answer.unwrap().0, 200);
    });
}

#[test]
fn rubbish_instead_of_tls_or_http_is_dropped() {
    let server = Server::start();
    server.block_on(async {
        let mut plain = TcpStream::connect(("127.0.0.1", server.port()))
            .await
            .unwrap();
        plain
            .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        let mut connection = RawConnection::open(&server).await;
        connection
            .write(b"\x00\x01\x02 rubbish\r\n\r\n")
            .await
            .unwrap();
        let answer = connection.read_until("\r\n\r\n").await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
            "{answer}"
        );
    });
    still_serves(&server);
}

/// Opens a watch on config maps and reads only the head of its answer.
async fn watch_without_reading(server: &Server) -> RawConnection {
    let mut connection = RawConnection::open(server).await;
    let request = format!("GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nhost: localhost\r\n\r\n");
    connection.write(request.as_bytes()).await.unwrap();
    let head = connection.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    connection
}

#[test]
fn a_watch_nobody_reads_costs_neither_memory_nor_others() {
    let server = Server::start();
    server.block_on(async {
        let mut stuck = Vec::new();
        for _ in 0..10 {
            stuck.push(watch_without_reading(&server).await);
        }
        let mut reader = watch_without_reading(&server).await;
        let before = server.resident_bytes();
        let padding = "x".repeat(100_000);
        // 40 MB of events for each of the ten stuck watches.
        for n in 0..400 {
            let body =
                json!({"metadata": {"name": format!("n{n}")}, "data": {"a": padding}}).to_string();
            let request = Request::post(CONFIG_MAPS)
                .header("content-type", "application/json")
                .body(body.into_bytes());
            let (code, body) = exchange(&server.client(), request.unwrap()).await.unwrap();
            assert_eq!(code, 201, "{body}");
            if n == 0 {
                reader.read_until("\"name\":\"n0\"").await;
            }
        }
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(
            grown < 300 << 20,
            "resident memory grew by {} MiB",
            grown >> 20
        );
        let ready = Request::get("/readyz").body(vec![]).unwrap();
        assert_eq!(exchange(&server.client(), ready).await.unwrap().0, 200);
    });
}

#[test]
fn many_watches_all_hear_of_one_change() {
    let server = Server::start();
    server.block_on(async {
        let mut watches = join_all((0..300).map(|_| watch_without_reading(&server))).await;
        let body = json!({"metadata": {"name": "news"}})
            .to_string()
            .into_bytes();
        let request = Request::post(CONFIG_MAPS)
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        assert_eq!(exchange(&server.client(), request).await.unwrap().0, 201);
        join_all(
            watches
                .iter_mut()
                .map(|watch| watch.read_until("\"name\":\"news\"")),
        )
        .await;
    });
    still_serves(&server);
}

#[test]
fn watches_that_hang_up_are_forgotten() {
    let server = Server::start_alone();
    server.block_on(async {
        let open_files = || {
            std::fs::read_dir(format!("/proc/{}/fd", server.pid()))
                .unwrap()
                .count()
        };
        let before = open_files();
        for _ in 0..5 {
            let watches = join_all((0..40).map(|_| watch_without_reading(&server))).await;
            drop(watches);
        }
        eventually_async(
            "the connections are closed on the server's side too",
            async || {
                let now = open_files();
                if now <= before + 5 {
                    Ok(())
                } else {
                    Err(format!("{now} open files, {before} before"))
                }
            },
        )
        .await;
    });
}
