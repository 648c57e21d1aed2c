#![allow(clippy::unwrap_used, reason = "tests")]
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::config::read;

fn arc() -> Config {
    let text = r#"{"azure": {"subscriptionId": "s", "tenantId": "t", "servicePrincipal": {"clientId": "a", "clientSecret": "b"},
        "arc": {"enabled": true}, "targetCluster": {"location": "l", "resourceId":
        "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c"}}}"#;
    read(text, &|_| Err(String::new())).unwrap().config
}

/// An agent of Arc: names a key for every question, and gives a token to who has read it. `vanishes` so many keys before
/// they can be read.
async fn himds(proofs: PathBuf, vanishes: u32) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!(
        "http://{}/metadata/identity/oauth2/token",
        listener.local_addr().unwrap()
    );
    let given = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&given);
    tokio::spawn(async move {
        let mut asked = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = vec![0; 4096];
            let n = stream.read(&mut bytes).await.unwrap();
            let request = String::from_utf8_lossy(&bytes[..n]).to_lowercase();
            let is_right = request.contains(&format!("resource={SERVER_ID}"))
                && request.contains("metadata: true");
            let answer = match request.contains("authorization: basic key") {
                _ if !is_right => {
                    "HTTP/1.1 400 Bad\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()
                }
                true => {
                    count.fetch_add(1, Ordering::SeqCst);
                    let body = r#"{"access_token": "from-himds", "expires_in": "3600", "expires_on": "1"}"#;
                    format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    )
                }
                false => {
                    asked += 1;
                    let file = proofs.join(format!("{asked}.key"));
                    if asked > vanishes {
                        std::fs::write(&file, "key\n").unwrap();
                    }
                    format!(
                        "HTTP/1.1 401 No\r\nwww-authenticate: Basic realm={}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                        file.display()
                    )
                }
            };
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address, given)
}

async fn ask(endpoint: &str, proofs: &Path, cache: &Cache, now: i64) -> Result<Lease, Refused> {
    let environment = |name: &str| match name {
        "IDENTITY_ENDPOINT" => Some(endpoint.to_owned()),
        "AKS_FLEX_NODE_ARC_TOKENS" => Some(proofs.display().to_string()),
        _ => None,
    };
    lease(
        &arc(),
        SERVER_ID,
        cache,
        &environment,
        Timestamp::from_second(now).unwrap(),
    )
    .await
}

#[tokio::test]
async fn an_agent_of_arc_is_shown_the_key_it_laid_down_and_asked_again_only_near_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let proofs = dir.path().join("tokens");
    std::fs::create_dir(&proofs).unwrap();
    let cache = Cache(dir.path().join("cache"));
    let (endpoint, given) = himds(proofs.clone(), 0).await;
    let first = ask(&endpoint, &proofs, &cache, 1000).await.unwrap();
    assert_eq!(
        (first.token.as_str(), first.until.as_second()),
        ("from-himds", 4600)
    );
    ask(&endpoint, &proofs, &cache, 4200).await.unwrap();
    assert_eq!(given.load(Ordering::SeqCst), 1, "it was kept");
    ask(&endpoint, &proofs, &cache, 4301).await.unwrap();
    assert_eq!(
        given.load(Ordering::SeqCst),
        2,
        "less than five minutes are left"
    );
    let file = std::fs::read_dir(dir.path().join("cache"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_key_that_vanishes_is_asked_for_again_and_silence_is_said_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let proofs = dir.path().to_owned();
    let cache = Cache(dir.path().join("cache"));
    let (endpoint, _) = himds(proofs.clone(), 2).await;
    assert!(
        ask(&endpoint, &proofs, &cache, 0).await.is_ok(),
        "the third key stays"
    );
    let nobody = ask(
        "http://127.0.0.1:1/x",
        &proofs,
        &Cache(dir.path().join("other")),
        0,
    )
    .await;
    let refused = nobody.unwrap_err();
    assert!(refused.remedy.contains("himdsd"), "{refused}");
    // A key elsewhere is not read, whoever names it.
    let elsewhere = ask(
        &endpoint,
        Path::new("/somewhere/else"),
        &Cache(dir.path().join("third")),
        0,
    )
    .await;
    assert!(elsewhere.unwrap_err().cause.contains("not one of its own"));
}

#[test]
fn the_contract_of_exec_plugins_is_kept_in_both_versions() {
    let cases = [
        (None, "client.authentication.k8s.io/v1"),
        (
            Some(r#"{"apiVersion": "client.authentication.k8s.io/v1beta1"}"#),
            "client.authentication.k8s.io/v1beta1",
        ),
        (
            Some(r#"{"apiVersion": "client.authentication.k8s.io/v1"}"#),
            "client.authentication.k8s.io/v1",
        ),
        (Some("nonsense"), "client.authentication.k8s.io/v1"),
    ];
    for (info, version) in cases {
        assert_eq!(wanted_version(info), version, "{info:?}");
    }
    let lease = Lease {
        token: "t".into(),
        until: Timestamp::from_second(0).unwrap(),
    };
    let printed = credential(&lease, "client.authentication.k8s.io/v1");
    assert_eq!(
        printed["status"]["expirationTimestamp"],
        "1970-01-01T00:00:00Z"
    );
    assert_eq!(
        (&printed["kind"], &printed["status"]["token"]),
        (&json!("ExecCredential"), &json!("t"))
    );
    assert!(!format!("{lease:?}").contains("\"t\""));
}
