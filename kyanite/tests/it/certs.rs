//! `kyanite certs` and `kyanite token` beside a server that runs, and what becomes of its connections.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use http::Request;
use kube::config::Kubeconfig;
use serde_json::Value;

use crate::harness::{Finished, JsonWatch, KYANITE, Server, exchange};

fn data(server: &Server) -> PathBuf {
    server.home().join("data")
}

fn kyanite(server: &Server, words: &str) -> Finished {
    let mut command = Command::new(KYANITE);
    command
        .args(words.split_whitespace())
        .env("KYANITE_DATA_DIR", data(server))
        .env("HOME", server.home());
    Finished::run(&mut command, "")
}

fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).unwrap()
}

fn kubeconfig(server: &Server) -> Kubeconfig {
    Kubeconfig::read_from(data(server).join("kubeconfig")).unwrap()
}

async fn client(kubeconfig: Kubeconfig) -> kube::Client {
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    kube::Client::try_from(config.unwrap()).unwrap()
}

async fn code(kubeconfig: &Kubeconfig) -> Result<u16, String> {
    let fresh = client(kubeconfig.clone()).await;
    let (code, _) = exchange(&fresh, get("/api/v1/namespaces")).await?;
    Ok(code)
}

fn expiry_of<'a>(list: &'a Value, name: &str) -> &'a Value {
    let rows = list["certificates"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap()
}

// Whole days: 365 in the second in which a certificate was made, 364 from then on.
fn is_a_year(days: &Value) -> bool {
    matches!(days.as_i64(), Some(364 | 365))
}

#[test]
fn certificates_are_listed_for_people_and_programs() {
    let server = Server::start();
    let text = kyanite(&server, "certs list").ok();
    for name in ["ca", "front-proxy-ca", "apiserver", "admin", "scheduler"] {
        assert!(!text.row(name).is_empty());
    }
    let list = kyanite(&server, "certs list -o json").ok().json();
    let row = expiry_of(&list, "apiserver");
    assert_eq!(row["subject"], "CN=kube-apiserver");
    assert!(is_a_year(&row["daysLeft"]), "{row}");
    let names = row["names"].as_array().unwrap();
    for name in [
        "localhost",
        "127.0.0.1",
        "kubernetes.default.svc",
        "10.0.0.1",
    ] {
        assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
    }
    let status = kyanite(&server, "status -o json").ok().json();
    assert!(
        is_a_year(&status["certificates"][0]["daysLeft"]),
        "{status}"
    );
    let (_, metrics) = server.send(get("/metrics"));
    assert!(
        metrics.contains("kyanite_certificate_expiry_seconds{name=\"apiserver\"}"),
        "{metrics}"
    );
    assert!(
        metrics.contains("apiserver_client_certificate_expiration_seconds_count"),
        "{metrics}"
    );
}

#[test]
fn new_certificates_are_used_at_once_and_no_connection_is_dropped() {
    let server = Server::start();
    let old = kubeconfig(&server);
    server.block_on(async {
        let kept = client(old.clone()).await;
        let watching = "/api/v1/namespaces?watch=true&resourceVersion=0";
        let mut watch = JsonWatch::open(&kept, watching).await.unwrap();
        watch.next().await.unwrap();
        let serving = || std::fs::read(data(&server).join("pki/apiserver.crt")).unwrap();
        let before = serving();
        kyanite(&server, "certs rotate").ok().prints("apiserver");
        assert_ne!(serving(), before);
        assert_eq!(code(&kubeconfig(&server)).await, Ok(200));
        // The old admin certificate is good until it expires, and the watch goes on.
        assert_eq!(code(&old).await, Ok(200));
        let namespace = r#"{"metadata":{"name":"seen"}}"#;
        let create = Request::post("/api/v1/namespaces")
            .header("content-type", "application/json")
            .body(namespace.as_bytes().to_vec());
        exchange(&kept, create.unwrap()).await.unwrap();
        loop {
            let event = watch.next().await.unwrap();
            if event["object"]["metadata"]["name"] == "seen" {
                break;
            }
        }
    });
}

#[test]
fn a_ca_is_replaced_with_an_overlap() {
    let server = Server::start();
    let old = kubeconfig(&server);
    server.block_on(async {
        let kept = client(old.clone()).await;
        exchange(&kept, get("/api/v1/namespaces")).await.unwrap();
        kyanite(&server, "certs rotate --ca")
            .ok()
            .prints("--finish");
        // Who knows only the old CA, and has a certificate of it, goes on as before.
        assert_eq!(code(&old).await, Ok(200));
        let new = kubeconfig(&server);
        assert_eq!(code(&new).await, Ok(200));
        kyanite(&server, "certs rotate --ca")
            .exits_with(4)
            .complains("being replaced already");
        kyanite(&server, "certs rotate --ca --finish").ok();
        assert_eq!(code(&kubeconfig(&server)).await, Ok(200));
        assert!(
            code(&old).await.is_err(),
            "the old CA must not know the server"
        );
        // Also on a connection from before.
        let (answer, body) = exchange(&kept, get("/api/v1/namespaces")).await.unwrap();
        assert_eq!(answer, 401, "{body}");
        let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let ca = std::fs::read_to_string(data(&server).join("pki/ca.crt")).unwrap();
        crate::harness::eventually_async("the new CA is published", async || {
            let (_, text) = exchange(&client(kubeconfig(&server)).await, get(map)).await?;
            let found: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            (found["data"]["client-ca-file"] == ca.as_str())
                .then_some(())
                .ok_or(text)
        })
        .await;
    });
}

#[test]
fn a_certificate_of_a_stranger_is_answered_with_401_not_with_an_alert() {
    let (server, stranger) = (Server::start(), Server::start());
    let mut mixed = kubeconfig(&server);
    mixed.auth_infos = kubeconfig(&stranger).auth_infos;
    let answer = server.block_on(code(&mixed));
    assert_eq!(answer, Ok(401));
}

#[test]
fn no_key_is_readable_by_others() {
    let server = Server::start();
    kyanite(&server, "certs rotate --ca").ok();
    kyanite(&server, "certs rotate service-account").ok();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data(&server).join("pki")), 0o700);
    let mut keys = 0;
    for entry in std::fs::read_dir(data(&server).join("pki")).unwrap() {
        let path = entry.unwrap().path();
        keys += usize::from(path.extension().is_some_and(|e| e == "key"));
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert_eq!(keys, 9);
    for name in ["kubeconfig", "controller-manager.conf", "scheduler.conf"] {
        assert_eq!(mode(&data(&server).join(name)), 0o600, "{name}");
    }
}

#[test]
fn service_account_keys_are_replaced_with_an_overlap() {
    let server = Server::start();
    let keys = || kyanite(&server, "certs list -o json").ok().json()["serviceAccountKeys"].clone();
    assert_eq!(keys(), 1);
    kyanite(&server, "certs rotate service-account").ok();
    assert_eq!(keys(), 2);
    kyanite(&server, "certs rotate service-account --finish").ok();
    assert_eq!(keys(), 1);
    kyanite(&server, "certs rotate --finish").exits_with(2);
    kyanite(&server, "certs rotate nobody")
        .exits_with(3)
        .complains("hint: use one of");
}

#[test]
fn bootstrap_tokens_are_made_listed_and_removed() {
    let server = Server::start();
    let made = kyanite(&server, "token create --ttl 1h --description rack -o json")
        .ok()
        .json();
    let (token, id) = (
        made["token"].as_str().unwrap(),
        made["id"].as_str().unwrap(),
    );
    let path = format!("/api/v1/namespaces/kube-system/secrets/bootstrap-token-{id}");
    let (code, secret) = server.send(get(&path));
    assert_eq!(code, 200, "{secret}");
    let list = kyanite(&server, "token list").ok();
    assert_eq!(
        list.row(id)[2],
        "system:bootstrappers:kyanite:default-node-token"
    );
    let half = token.split_once('.').unwrap().1;
    list.prints_no(half);
    let log = std::fs::read_to_string(server.home().join("log")).unwrap_or_default();
    assert!(!log.contains(half));
    kyanite(&server, &format!("token delete {id}")).ok();
    kyanite(&server, &format!("token delete {id}")).exits_with(3);
    kyanite(&server, "token create --groups system:masters").exits_with(2);
    let config = kyanite(&server, "token create --print-kubeconfig").ok();
    let joining = Kubeconfig::from_yaml(&config.stdout).unwrap();
    assert!(
        joining.auth_infos[0]
            .auth_info
            .as_ref()
            .unwrap()
            .token
            .is_some()
    );
}

#[test]
fn nodes_may_join_from_the_start() {
    let server = Server::start();
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kyanite:kubelet-bootstrap";
    let binding = crate::harness::eventually("the bindings are made", || {
        let (code, text) = server.send(get(path));
        if code == 200 { Ok(text) } else { Err(text) }
    });
    let binding: Value = serde_json::from_str(&binding).unwrap();
    assert_eq!(binding["roleRef"]["name"], "system:node-bootstrapper");
}
