//! The real Azure CLI against a cloud of this process: the slice that is quick enough for every run.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]
#![allow(missing_docs, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cloud::az::Setup;
use cloud::{Clock, Cloud, Config, Credentials, KeyPairFiles};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// az, where this machine has it.
fn az() -> Option<PathBuf> {
    let named = std::env::var_os("AZ").map(PathBuf::from);
    let found = named.filter(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIPPED: no az; `scripts/setup --for interop` brings it, and AZ names it");
    }
    found
}

fn certificates(dir: &Path) -> (PathBuf, KeyPairFiles) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    // The name differs from the leaf's: one that issued itself is refused.
    params
        .distinguished_name
        .push(DnType::CommonName, "the authority of a test");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["localhost", "*.vault.localhost"].map(str::to_owned))
        .unwrap()
        .signed_by(&own, &issuer)
        .unwrap();
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let files = KeyPairFiles {
        certificate: write("tls.crt", leaf.pem()),
        key: write("tls.key", own.serialize_pem()),
    };
    (write("ca.crt", authority.pem()), files)
}

struct Session {
    az: PathBuf,
    origin: String,
    config: PathBuf,
    authority: PathBuf,
    home: PathBuf,
}

impl Session {
    fn run(&self, words: &[&str]) -> Output {
        Command::new(&self.az)
            .args(words)
            .args(["-o", "json"])
            .env("AZURE_CONFIG_DIR", &self.config)
            .env("REQUESTS_CA_BUNDLE", &self.authority)
            .env("HOME", &self.home)
            .output()
            .unwrap()
    }

    /// A command of plain words that must succeed.
    fn words(&self, words: &str) -> Value {
        self.ok(&words.split_whitespace().collect::<Vec<_>>())
    }

    fn ok(&self, words: &[&str]) -> Value {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "az {}: {said}", words.join(" "));
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }
}

/// Runs a cloud, and what a person does with az while it runs.
async fn with_cloud(work: impl FnOnce(&Session, &Credentials) + Send + 'static) {
    let Some(az) = az() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (authority, certificate) = certificates(dir.path());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let config = Config {
        directory: dir.path().join("state"),
        certificate,
        origin: origin.clone(),
        pace: 0.1,
        issuers: Vec::new(),
        throttle: false,
        token_lifetime: None,
        clock: Clock::system(),
        region: std::sync::Arc::new(cloud::Hollow),
    };
    let cloud = Cloud::build(config, listener).await.unwrap();
    let credentials = cloud.credentials().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(cloud.run(async {
        let _ = stopped.await;
    }));
    let config = dir.path().join("az");
    let setup = Setup {
        origin: origin.clone(),
        authority: authority.clone(),
        directory: config.clone(),
        credentials: credentials.clone(),
    };
    std::fs::create_dir_all(&config).unwrap();
    for (name, content) in setup.files() {
        // Whoever tests signs in.
        if name.ends_with("config") {
            std::fs::write(config.join(name), content).unwrap();
        }
    }
    let session = Session {
        az,
        origin,
        config,
        authority,
        home: dir.path().to_owned(),
    };
    tokio::task::spawn_blocking(move || work(&session, &credentials))
        .await
        .unwrap();
    stop.send(()).unwrap();
    running.await.unwrap();
}

fn login<'a>(credentials: &'a Credentials, secret: &'a str) -> [&'a str; 8] {
    let (id, tenant) = (&credentials.client_id, &credentials.tenant);
    [
        "login",
        "--service-principal",
        "-u",
        id,
        "-p",
        secret,
        "--tenant",
        tenant,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn az_signs_in_makes_groups_and_clusters_and_removes_them() {
    with_cloud(|session, credentials| {
        let wrong = session.run(&login(credentials, "wrong"));
        let said = String::from_utf8_lossy(&wrong.stderr);
        assert!(said.contains("AADSTS7000215"), "{said}");
        let signed_in = session.ok(&login(credentials, &credentials.client_secret));
        assert_eq!(signed_in[0]["id"], credentials.subscription);
        session.words("group create -n g -l eastus");
        session.words("aks create -g g -n c --no-ssh-key -c 1");
        let shown = session.words("aks show -g g -n c");
        assert_eq!(shown["provisioningState"], "Succeeded");
        let missing = session.run(&["aks", "show", "-g", "g", "-n", "none"]);
        assert_eq!(missing.status.code(), Some(3));
        session.words("group delete -n g -y");
        assert_eq!(session.words("group list"), Value::Array(Vec::new()));
    })
    .await;
}

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEjvPPXlsZNkX5CbBBWyNzPYhvMqSvvZ3aWfCmYwbhhM test";

#[tokio::test(flavor = "multi_thread")]
async fn az_makes_machines_balancers_vaults_and_deployments() {
    with_cloud(|session, credentials| {
        session.ok(&login(credentials, &credentials.client_secret));
        session.words("group create -n g -l eastus");
        session.words("network vnet create -g g -n v --address-prefix 10.0.0.0/16 --subnet-name s --subnet-prefix 10.0.0.0/24");
        session.words("network lb create -g g -n lb --sku Standard --backend-pool-name p --public-ip-address ip");
        session.words("network lb probe create -g g --lb-name lb -n h --protocol tcp --port 80");
        let key = session.home.join("key.pub");
        std::fs::write(&key, KEY).unwrap();
        let key = key.to_str().unwrap();
        const IMAGE: &str = "Canonical:ubuntu-24_04-lts:server:latest";
        let made = session.words(&format!(
            "vm create -g g -n m --image {IMAGE} --size Standard_D2s_v3 --vnet-name v --subnet s \
             --admin-username somebody --ssh-key-values {key}"
        ));
        assert_eq!(made["powerState"], "VM running", "{made}");
        session.words(&format!(
            "vmss create -g g -n w --image {IMAGE} --vm-sku Standard_D2s_v3 --instance-count 2 --vnet-name v --subnet s \
             --lb lb --backend-pool-name p --orchestration-mode Uniform --admin-username somebody --ssh-key-values {key}"
        ));
        let machines = session.words("vmss list-instances -g g -n w");
        assert_eq!(machines.as_array().map(Vec::len), Some(2));
        let template = session.home.join("template.json");
        std::fs::write(&template, TEMPLATE).unwrap();
        let template = template.to_str().unwrap();
        let made = session.words(&format!("deployment group create -g g -n d -f {template} -p name=t"));
        assert_eq!(made["properties"]["outputs"]["kind"]["value"], "Microsoft.Network/routeTables");
        let vault = session.words("keyvault create -g g -n kyanite-test -l eastus");
        assert_eq!(vault["properties"]["provisioningState"], "Succeeded");
        let shown = session.words("keyvault show -n kyanite-test");
        assert_eq!(shown["id"], vault["id"]);
        session.words("group delete -n g -y");
        assert_eq!(session.words("group list"), Value::Array(Vec::new()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn azures_own_management_sdk_finds_what_it_expects() {
    with_cloud(|session, credentials| {
        // The libraries that az brings along, and the one that set-up puts beside them.
        let python = session.az.with_file_name("python");
        let has = Command::new(&python).args(["-c", "import azure.identity"]).status();
        if !has.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no azure-identity beside az; `scripts/setup --for interop` brings it");
            return;
        }
        let origin = session.origin.as_str();
        let output = Command::new(python)
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../proof/interop/clients/azure/sdk.py"
            ))
            .env("ORIGIN", origin)
            .env("REQUESTS_CA_BUNDLE", &session.authority)
            .env("AZURE_TENANT_ID", &credentials.tenant)
            .env("AZURE_SUBSCRIPTION_ID", &credentials.subscription)
            .env("AZURE_CLIENT_ID", &credentials.client_id)
            .env("AZURE_CLIENT_SECRET", &credentials.client_secret)
            .env("USERNAME", &credentials.username)
            .env("PASSWORD", &credentials.password)
            .env("HOME", &session.home)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = serde_json::json!({"wrong": true, "person": true, "federated": true, "other subject": true, "group": "Succeeded", "missing": "ResourceGroupNotFound", "disk": "Succeeded",
            "cluster": "Succeeded", "second": 409, "pages": 4, "groups": 7, "refused": 400, "left": 0});
        assert_eq!(seen, expected);
    })
    .await;
}

const TEMPLATE: &str = r#"{
    "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
    "contentVersion": "1.0.0.0",
    "parameters": {"name": {"type": "string"}},
    "resources": [{"type": "Microsoft.Network/routeTables", "apiVersion": "2024-01-01", "name": "[parameters('name')]",
        "location": "[resourceGroup().location]", "properties": {}}],
    "outputs": {"kind": {"type": "string",
        "value": "[reference(resourceId('Microsoft.Network/routeTables', parameters('name')), '2024-01-01', 'Full').type]"}}
}"#;
