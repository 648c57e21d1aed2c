//! The API server on etcd, alone and in several replicas.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams, WatchEvent};

use crate::by_tunnel::{Tunnel, selected};
use crate::harness::{
    Etcd, INSIDE, Namespace, Pki, Process, Replica, eventually, eventually_async, find_program,
    skip,
};

fn api(replica: &Replica) -> Api<ConfigMap> {
    Api::namespaced(replica.client.clone(), "default")
}

fn config_map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    ConfigMap {
        metadata,
        data: Some(BTreeMap::from([("a".into(), "b".into())])),
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn replicas_on_one_etcd_see_each_others_writes_at_once() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let pki = Pki::new();
    let (one, two) = (
        Replica::start(&etcd, &pki).await,
        Replica::start(&etcd, &pki).await,
    );
    for round in 0..20 {
        let (writer, reader) = if round % 2 == 0 {
            (&one, &two)
        } else {
            (&two, &one)
        };
        let name = format!("n{round}");
        let written = api(writer)
            .create(&PostParams::default(), &config_map(&name))
            .await
            .unwrap();
        // A plain get is linearizable: no wait between the two.
        let read = api(reader).get(&name).await.unwrap();
        assert_eq!(
            read.metadata.resource_version,
            written.metadata.resource_version
        );
        let listed = api(reader).list(&Default::default()).await.unwrap();
        assert!(
            listed
                .items
                .iter()
                .any(|item| item.metadata.name.as_deref() == Some(&name)),
            "{name} is not listed"
        );
    }
}

#[tokio::test]
async fn a_watch_begun_on_one_replica_resumes_on_another() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let pki = Pki::new();
    let (one, two) = (
        Replica::start(&etcd, &pki).await,
        Replica::start(&etcd, &pki).await,
    );
    let first = api(&one)
        .create(&PostParams::default(), &config_map("first"))
        .await
        .unwrap();
    for name in ["second", "third"] {
        api(&one)
            .create(&PostParams::default(), &config_map(name))
            .await
            .unwrap();
    }
    let seen = first.metadata.resource_version.unwrap();
    let events = api(&two).watch(&Default::default(), &seen).await.unwrap();
    let added = events.try_filter_map(async |event| match event {
        WatchEvent::Added(object) => Ok(object.metadata.name),
        _ => Ok(None),
    });
    let names: Vec<String> = futures::StreamExt::take(added, 2)
        .try_collect()
        .await
        .unwrap();
    assert_eq!(names, ["second", "third"]);
}

#[tokio::test]
async fn replicas_do_not_hand_out_one_address_twice() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let pki = Pki::new();
    let replicas = [
        Replica::start(&etcd, &pki).await,
        Replica::start(&etcd, &pki).await,
    ];
    let mut addresses = std::collections::HashSet::new();
    let creations = (0..20).map(|n| {
        let services: Api<k8s_openapi::api::core::v1::Service> =
            Api::namespaced(replicas[n % 2].client.clone(), "default");
        let service = serde_json::json!({"metadata": {"name": format!("s{n}")}, "spec": {"ports": [{"port": 80}]}});
        async move { services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await }
    });
    for created in futures::future::join_all(creations).await {
        let address = created.unwrap().spec.unwrap().cluster_ip.unwrap();
        assert!(
            addresses.insert(address.clone()),
            "{address} was handed out twice"
        );
    }
}

#[tokio::test]
async fn the_server_recovers_when_etcd_comes_back() {
    let Some(mut etcd) = Etcd::start().await else {
        return;
    };
    let pki = Pki::new();
    let replica = Replica::start(&etcd, &pki).await;
    api(&replica)
        .create(&PostParams::default(), &config_map("before"))
        .await
        .unwrap();
    etcd.stop();
    let (api, object) = (api(&replica), config_map("meanwhile"));
    let params = PostParams::default();
    let creation = api.create(&params, &object);
    // Upstream's default request timeout; nothing may wait longer for an answer.
    let answer = tokio::time::timeout(Duration::from_secs(60), creation).await;
    match answer.expect("an answer while etcd is away") {
        Err(kube::Error::Api(status)) => {
            assert!([500, 503, 504].contains(&status.code), "{status:?}")
        }
        other => panic!("neither etcd nor an error: {other:?}"),
    }
    etcd.start_again().await;
    // A name per attempt: one that was told to have failed may still have been written.
    let mut attempt = 0;
    let after = eventually_async("writes work again", async || {
        attempt += 1;
        let object = config_map(&format!("after-{attempt}"));
        let made = api.create(&PostParams::default(), &object).await;
        made.map(|made| made.metadata.name)
            .map_err(|error| error.to_string())
    })
    .await;
    let listed = api.list(&Default::default()).await.unwrap();
    let names: Vec<_> = listed
        .items
        .into_iter()
        .map(|item| item.metadata.name)
        .collect();
    assert!(
        names.contains(&Some("before".to_owned())) && names.contains(&after),
        "{names:?}"
    );
}

/// An etcd and an agent, both inside a namespace that only the tunnel's socket leads into.
struct BehindTunnel {
    flags: Vec<String>,
    pki: Pki,
    _etcd: Process,
    _tunnel: Tunnel,
    _dir: tempfile::TempDir,
    _namespace: Namespace,
}

impl BehindTunnel {
    fn start(protocol: &str, mode: &str) -> Option<BehindTunnel> {
        let Some(program) = find_program("ETCD_BIN", "etcd") else {
            skip("etcd not found on PATH or in ETCD_BIN");
            return None;
        };
        let namespace = Namespace::make()?;
        let (dir, pki) = (tempfile::tempdir().unwrap(), Pki::new());
        let tunnel = Tunnel::start(&namespace, &pki, dir.path(), mode);
        let url = format!("http://{INSIDE}:2379");
        let mut command = namespace.command(program);
        command
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args(["--listen-peer-urls", "http://127.0.0.1:2380", "--data-dir"])
            .arg(dir.path().join("etcd"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let etcd = Process::spawn(&mut command);
        for (address, path) in [(INSIDE, "2379/health"), ("127.0.0.1", "8136/readyz")] {
            let (port, path) = path.split_once('/').unwrap();
            eventually("what is inside is ready", || {
                namespace.inside(|| get(address, port.parse().unwrap(), path))
            });
        }
        Some(BehindTunnel {
            flags: vec![
                format!("--etcd-servers={url}"),
                selected("etcd", protocol, dir.path()),
            ],
            pki,
            _etcd: etcd,
            _tunnel: tunnel,
            _dir: dir,
            _namespace: namespace,
        })
    }
}

fn get(address: &str, port: u16, path: &str) -> Result<(), String> {
    use std::io::{Read as _, Write as _};
    let broken = |error: std::io::Error| error.to_string();
    let mut stream = std::net::TcpStream::connect((address, port)).map_err(broken)?;
    let ask = format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).map_err(broken)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(broken)?;
    let good = answer.starts_with("HTTP/1.1 200");
    good.then_some(()).ok_or(answer)
}

async fn a_server_keeps_its_objects_there(protocol: &str, mode: &str) {
    let Some(far) = BehindTunnel::start(protocol, mode) else {
        return;
    };
    let (one, two) = (
        Replica::start_with(&far.pki, &far.flags).await,
        Replica::start_with(&far.pki, &far.flags).await,
    );
    let written = api(&one)
        .create(&PostParams::default(), &config_map("far"))
        .await
        .unwrap();
    // Linearizable, and read by another process: it can only have come from etcd.
    let read = api(&two).get("far").await.unwrap();
    assert_eq!(read.metadata.uid, written.metadata.uid);
}

#[tokio::test]
async fn an_etcd_behind_a_tunnel_is_reached_by_http_connect() {
    a_server_keeps_its_objects_there("HTTPConnect", "http-connect").await;
}

#[tokio::test]
async fn an_etcd_behind_a_tunnel_is_reached_by_grpc() {
    a_server_keeps_its_objects_there("GRPC", "grpc").await;
}
