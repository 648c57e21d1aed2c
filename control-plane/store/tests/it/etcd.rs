//! What only the etcd engine has: endpoints that fail, certificates, and servers that die.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use harness::Authority;
use store::etcd::{ClientIdentity, Options, Tls};
use store::{Error, Etcd, Expect, Store, WatchItem};

use crate::engines::{EtcdServer, connect, done, events, free_addresses, next, put};

#[tokio::test]
async fn another_endpoint_is_used_when_one_is_dead() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = EtcdServer::start(&dir, &[]) else {
        return;
    };
    let [dead] = free_addresses();
    let store = connect(Options::new([format!("http://{dead}"), server.url.clone()])).await;
    let mut watch = store.watch("/", 1).await.unwrap();
    let revision = done(&*store, "/a", Expect::Absent, put("v")).await;
    assert_eq!(
        store.get("/a").await.unwrap().unwrap().mod_revision,
        revision
    );
    assert_eq!(events(&mut watch, 1).await[0].revision, revision);
}

#[tokio::test]
async fn an_endpoint_that_never_answers_costs_a_time_limit_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = EtcdServer::start(&dir, &[]) else {
        return;
    };
    connect(Options::new([server.url.clone()])).await;
    // Accepts connections, by its backlog, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    let quick = |endpoints: Vec<String>| Options {
        call_timeout: Duration::from_secs(1),
        ..Options::new(endpoints)
    };
    let started = Instant::now();
    let error = Etcd::connect(quick(vec![silent_url.clone()]))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    let store = Etcd::connect(quick(vec![silent_url, server.url.clone()]))
        .await
        .unwrap();
    // The endpoint that answered is asked first from now on.
    done(&*store, "/a", Expect::Absent, put("v")).await;
}

#[tokio::test]
async fn a_watch_and_writes_fail_when_the_server_dies() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = EtcdServer::start(&dir, &[]) else {
        return;
    };
    let store = connect(Options::new([server.url.clone()])).await;
    let mut watch = store.watch("/", 1).await.unwrap();
    done(&*store, "/a", Expect::Absent, put("v")).await;
    assert_eq!(events(&mut watch, 1).await[0].key, "/a");
    drop(server);
    let end = loop {
        match next(&mut watch).await.expect("an error before the end") {
            Ok(WatchItem::Progress(_)) => {}
            other => break other,
        }
    };
    assert!(matches!(end, Err(Error::Unavailable { .. })), "{end:?}");
    assert!(next(&mut watch).await.is_none());
    let error = store
        .write("/b", Expect::Absent, put("v"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn the_oldest_revision_is_known_to_those_who_did_not_compact() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = EtcdServer::start(&dir, &[]) else {
        return;
    };
    let store = connect(Options::new([server.url.clone()])).await;
    let mut last = 0;
    for _ in 0..9 {
        last = done(&*store, "/a", Expect::Modified(last), put("v")).await;
    }
    store.compact(last - 2).await.unwrap();
    let other = connect(Options::new([server.url.clone()])).await;
    let error = other.range("/", "0", 0, Some(1)).await.unwrap_err();
    assert!(
        matches!(error, Error::Compacted { requested: 1, oldest } if oldest == last - 2),
        "{error:?}"
    );
}

#[tokio::test]
async fn no_endpoint_and_a_wrong_one_are_errors() {
    for endpoints in [vec![], vec!["not a url".to_owned()]] {
        let error = Etcd::connect(Options::new(endpoints)).await.unwrap_err();
        assert!(error.to_string().contains("endpoint"), "{error}");
    }
}

#[tokio::test]
async fn a_write_larger_than_etcd_accepts_is_refused_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = EtcdServer::start(&dir, &[]) else {
        return;
    };
    let store = connect(Options::new([server.url.clone()])).await;
    for size in [1_800_000, 2 << 20] {
        let error = store.write("/a", Expect::Absent, put(vec![1; size])).await;
        assert!(matches!(error, Err(Error::TooLarge { .. })), "{error:?}");
    }
}

#[tokio::test]
async fn certificates_are_asked_for_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    let server_files = ours.issue("server", &[], &[]);
    let mut flags = vec!["--client-cert-auth".to_owned()];
    for (flag, name, pem) in [
        ("--cert-file", "cert", server_files.cert),
        ("--key-file", "key", server_files.key),
        ("--trusted-ca-file", "ca", ours.pem()),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, pem).unwrap();
        flags.push(format!("{flag}={}", path.display()));
    }
    let Some(server) = EtcdServer::start(&dir, &flags) else {
        return;
    };
    let client = ours.issue("client", &[], &[]);
    let options = |ca_pem: String, client: Option<ClientIdentity>| Options {
        tls: Some(Tls {
            ca_pem,
            client,
            server_name: None,
        }),
        ..Options::new([server.url.clone()])
    };
    let identity = ClientIdentity {
        certificate_pem: client.cert,
        key_pem: client.key,
    };
    let store = connect(options(ours.pem(), Some(identity.clone()))).await;
    done(&*store, "/a", Expect::Absent, put("v")).await;
    for wrong in [
        options(ours.pem(), None),
        options(Authority::new("others").pem(), Some(identity)),
    ] {
        let refused = Etcd::connect(wrong).await.map(drop).unwrap_err();
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    }
}
