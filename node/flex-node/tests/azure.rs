//! An Azure in this process: a machine connected by Arc gets tokens of its own identity from HIMDS, which proves that it is
//! root there.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use cloud::{Adopted, Clock, Cloud, Hollow, KeyPairFiles};
use flex_node::config::{self, Config};
use flex_node::himds::Service;
use flex_node::identity::own::Keys;
use flex_node::identity::{self, Local, Verb};
use flex_node::token::{self, Cache, SERVER_ID};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const PEM: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

/// A cloud that knows a cluster; gives what a configuration says of both.
async fn azure(dir: &Path, throttle: bool) -> Value {
    let pki = harness::Pki::new(dir, "cloud", &["localhost"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let config = cloud::Config {
        directory: dir.join("state"),
        certificate: KeyPairFiles {
            certificate: pki.cert,
            key: pki.key,
        },
        origin: origin.clone(),
        pace: 0.0,
        issuers: Vec::new(),
        throttle,
        token_lifetime: None,
        clock: Clock::system(),
        region: Arc::new(Hollow),
    };
    let cloud = Cloud::build(config, listener).await.unwrap();
    let access = json!({"server": "https://c.example:443", "authority": STANDARD.encode(PEM), "certificate": "", "key": ""});
    let pool = json!({"name": "p", "count": 1, "mode": "System", "vmSize": "Standard_D2s_v5"});
    let adopted = Adopted {
        group: "g".into(),
        name: "c".into(),
        body: json!({"location": "eastus", "identity": {"type": "SystemAssigned"},
            "properties": {"dnsPrefix": "c", "agentPoolProfiles": [pool]}}),
        hidden: json!({"access": access, "sets": {"p": "1"}}),
    };
    let cluster = cloud.adopt(&adopted).await.unwrap();
    let own = cloud.credentials().clone();
    tokio::spawn(cloud.run(std::future::pending()));
    json!({"subscriptionId": own.subscription, "tenantId": own.tenant, "resourceManagerEndpoint": origin,
        "certificateAuthorities": pki.ca, "servicePrincipal": {"clientId": own.client_id, "clientSecret": own.client_secret},
        "arc": {"enabled": true, "machineName": "edge"}, "targetCluster": {"resourceId": cluster, "location": "eastus"}})
}

fn read(azure: &Value) -> Config {
    let file = |path: &str| std::fs::read_to_string(path).map_err(|e| e.to_string());
    config::read(&json!({"azure": azure}).to_string(), &file)
        .unwrap()
        .config
}

/// Whom a token is of.
fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connected_machine_gets_tokens_of_its_own_identity_and_learns_of_its_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let azure = azure(dir.path(), false).await;
    let config = read(&azure);
    let local = Local {
        keys: Keys(dir.path().join("state")),
        agent: None,
    };
    let made = identity::machine(&config, Verb::Make, "edge", &local)
        .await
        .unwrap();
    let principal = made.rsplit(' ').next().unwrap().to_owned();
    identity::role(&config, Verb::Make, "edge").await.unwrap();
    identity::role(&config, Verb::Check, "edge").await.unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!(
        "http://{}/metadata/identity/oauth2/token",
        listener.local_addr().unwrap()
    );
    let service = Service::open(&config, &local.keys, dir.path()).await;
    tokio::spawn(Arc::new(service.unwrap()).serve(listener));
    let proofs = dir.path().display().to_string();
    let environment = move |name: &str| match name {
        "IDENTITY_ENDPOINT" => Some(endpoint.clone()),
        "AKS_FLEX_NODE_ARC_TOKENS" => Some(proofs.clone()),
        _ => None,
    };
    let cache = Cache(dir.path().join("tokens"));
    let now = jiff::Timestamp::now();
    let lease = token::lease(&config, SERVER_ID, &cache, &environment, now)
        .await
        .unwrap();
    let claims = claims(&lease.token);
    assert_eq!(
        (&claims["oid"], &claims["aud"]),
        (&json!(principal), &json!(SERVER_ID)),
        "{claims}"
    );
    assert!(lease.until > now);

    // A machine of the same name with another key is another machine.
    let other = Local {
        keys: Keys(dir.path().join("other")),
        agent: None,
    };
    let refused = identity::machine(&config, Verb::Make, "edge", &other).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("another machine of this name"),
        "{refused}"
    );

    identity::role(&config, Verb::Remove, "edge").await.unwrap();
    identity::machine(&config, Verb::Remove, "edge", &local)
        .await
        .unwrap();
    assert!(
        identity::machine(&config, Verb::Check, "edge", &local)
            .await
            .is_err()
    );
    assert_eq!(local.keys.read(), None, "its key is gone too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttled_azure_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let config = read(&azure(dir.path(), true).await);
    let local = Local {
        keys: Keys(dir.path().join("state")),
        agent: None,
    };
    // The bucket of reads has room for 250.
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..280 {
        let (config, local) = (config.clone(), local.clone());
        asking.spawn(async move { identity::machine(&config, Verb::Check, "edge", &local).await });
    }
    for refused in asking.join_all().await {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("is not there"), "{refused}");
    }
    let made = identity::machine(&config, Verb::Make, "edge", &local).await;
    assert!(made.is_ok(), "{made:?}");
}
