//! The Flex Node agent and an Azure: an Arc machine with its role, made once and taken back; and tokens that kubectl
//! gets from it as an exec credential plugin, for an API server that believes that Azure's Entra ID.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Azure, KYANITE, Pki, Replica, find_program, skip};
use ::harness::said;

/// The application that stands for API servers of AKS.
const SERVER_ID: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";

struct Site {
    azure: Azure,
    dir: tempfile::TempDir,
}

impl Site {
    fn start() -> Site {
        Site {
            azure: Azure::start(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn cluster(&self) -> String {
        self.azure
            .id("Microsoft.ContainerService/managedClusters/c")
    }

    /// Upstream's configuration for this cloud, with this in `azure`.
    fn config(&self, more: &Value) -> PathBuf {
        let known = self.azure.known();
        let credentials = &known["credentials"];
        let mut azure = json!({
            "subscriptionId": credentials["subscription"], "tenantId": credentials["tenant"],
            "resourceManagerEndpoint": known["origin"], "certificateAuthorities": self.azure.authority(),
            "servicePrincipal": {"clientId": credentials["client_id"], "clientSecret": credentials["client_secret"]},
            "targetCluster": {"resourceId": self.cluster(), "location": "eastus"},
        });
        for (name, value) in more.as_object().unwrap() {
            azure[name] = value.clone();
        }
        let file = self.dir.path().join("config.json");
        std::fs::write(
            &file,
            json!({"azure": azure, "agent": {"nodeName": "edge"}}).to_string(),
        )
        .unwrap();
        file
    }

    fn flex(&self, words: &str, config: &std::path::Path) -> Result<String, String> {
        let mut command = Command::new(KYANITE);
        command
            .arg("flex-node")
            .args(words.split_whitespace())
            .arg("--config")
            .arg(config)
            .env("AKS_FLEX_NODE_TOKENS", self.dir.path().join("tokens"))
            .env("AKS_FLEX_NODE_STATE", self.dir.path().join("state"));
        said(&mut command)
    }
}

#[test]
fn an_arc_machine_and_its_role_are_made_once_and_taken_back() {
    let site = Site::start();
    let config = site.config(
        &json!({"arc": {"enabled": true, "machineName": "edge-1", "tags": {"site": "lab"}}}),
    );
    let machine = "Microsoft.HybridCompute/machines/edge-1";
    let refused = site
        .flex("azure arc check", &config)
        .expect_err("there is none");
    assert!(refused.contains("is not there"), "{refused}");
    site.flex("azure arc make", &config).expect("it is made");
    site.flex("azure arc check", &config).expect("it is there");
    let made = site.azure.get(machine);
    let principal = made["identity"]["principalId"]
        .as_str()
        .expect("an identity");
    assert_eq!(
        (&made["tags"]["site"], &made["tags"]["madeBy"]),
        (&json!("lab"), &json!("aks-flex-node"))
    );
    site.flex("azure arc make", &config)
        .expect("once more is no more");
    assert_eq!(
        site.azure.get(machine)["identity"]["principalId"],
        principal,
        "it is the same machine"
    );

    site.flex("azure role check", &config)
        .expect_err("it has no role");
    let first = site.flex("azure role make", &config).expect("a role");
    let second = site
        .flex("azure role make", &config)
        .expect("the same role");
    assert_eq!(first, second, "its name is made of what it grants");
    site.flex("azure role check", &config)
        .expect("it has its role");

    site.flex("azure role remove", &config)
        .expect("the role goes");
    site.flex("azure role check", &config)
        .expect_err("it is gone");
    site.flex("azure arc remove", &config)
        .expect("the machine goes");
    assert_eq!(site.azure.get(machine), Value::Null);
    site.flex("azure arc remove", &config)
        .expect("it may be repeated");
    site.flex("azure role remove", &config)
        .expect("its roles went with it");
}

#[test]
fn a_machine_that_somebody_else_connected_stays() {
    let site = Site::start();
    let machine = "Microsoft.HybridCompute/machines/edge-1";
    site.azure.put(
        machine,
        json!({"location": "eastus", "identity": {"type": "SystemAssigned"}}),
    );
    let config = site.config(&json!({"arc": {"enabled": true, "machineName": "edge-1"}}));
    site.flex("azure arc make", &config).expect("it is there");
    let said = site
        .flex("azure arc remove", &config)
        .expect("nothing to take back");
    assert!(said.contains("was there before, and stays"), "{said}");
    assert_eq!(site.azure.get(machine)["name"], "edge-1");
    // Era A asks before it assigns roles; what to type is said.
    let asked = site.config(&json!({"arc": {"machineName": "edge-1", "resourceGroup": "g"}}));
    let refused = site
        .flex("azure role make", &asked)
        .expect_err("nobody asked for it");
    assert!(refused.contains("az role assignment create"), "{refused}");
    // A wrong secret is said as what it is, and is not printed.
    let wrong = json!({"arc": {"enabled": true}, "servicePrincipal": {
        "clientId": site.azure.known()["credentials"]["client_id"], "clientSecret": "not-the-secret"}});
    let refused = site
        .flex("azure arc check", &site.config(&wrong))
        .expect_err("a wrong secret");
    assert!(
        refused.contains("AADSTS7000215") && refused.contains("hint:"),
        "{refused}"
    );
    assert!(!refused.contains("not-the-secret"), "{refused}");
}

#[test]
fn kubectl_takes_its_tokens_as_an_exec_credential_plugin() {
    let Some(kubectl) = find_program("KUBECTL", "kubectl") else {
        return skip("kubectl is not there (scripts/setup --for test)");
    };
    let site = Site::start();
    let config = site.config(&json!({}));
    let pki = Pki::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(server_that_believes(&pki, &site.azure));
    for version in ["v1", "v1beta1"] {
        let kubeconfig = exec_kubeconfig(&server, &pki, &config, version, site.dir.path());
        let file = site.dir.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let mut command = Command::new(&kubectl);
        command
            .arg("--kubeconfig")
            .arg(&file)
            .args(["auth", "whoami", "-o", "json"])
            .env("HOME", site.dir.path());
        let whoami = said(&mut command).expect("kubectl takes it");
        let whoami: Value = serde_json::from_str(&whoami).unwrap();
        let name = whoami["status"]["userInfo"]["username"].as_str().unwrap();
        assert!(
            name.starts_with("entra:") && name.len() > 36,
            "{version}: {whoami}"
        );
    }
    let printed = site.flex("token", &config).expect("a token");
    let printed: Value = serde_json::from_str(&printed).expect("one object and nothing else");
    assert_eq!(printed["kind"], "ExecCredential");
    let kept: Vec<_> = std::fs::read_dir(site.dir.path().join("tokens"))
        .unwrap()
        .collect();
    assert_eq!(kept.len(), 1, "it was asked for once and kept");
}

async fn server_that_believes(pki: &Pki, azure: &Azure) -> Replica {
    let known = azure.known();
    let (origin, tenant) = (
        known["origin"].as_str().unwrap(),
        known["credentials"]["tenant"].as_str().unwrap(),
    );
    let authority = std::fs::read_to_string(azure.authority()).unwrap();
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": format!("https://sts.windows.net/{tenant}/"), "audiences": [SERVER_ID],
                "discoveryURL": format!("{}/{tenant}/.well-known/openid-configuration", origin.trim_end_matches('/')),
                "certificateAuthority": authority},
            "claimMappings": {"username": {"claim": "oid", "prefix": "entra:"}},
        }],
    });
    let file = pki.path("authentication.json");
    std::fs::write(&file, configuration.to_string()).unwrap();
    let flags = [
        format!("--authentication-config={}", file.display()),
        "--authorization-mode=RBAC".to_owned(),
    ];
    Replica::alone(pki, &flags).await
}

fn exec_kubeconfig(
    server: &Replica,
    pki: &Pki,
    config: &std::path::Path,
    version: &str,
    dir: &std::path::Path,
) -> Value {
    let exec = json!({
        "apiVersion": format!("client.authentication.k8s.io/{version}"), "command": KYANITE,
        "args": ["flex-node", "token", "kubelogin", "--server-id", SERVER_ID, "--config", config],
        "env": [{"name": "AKS_FLEX_NODE_TOKENS", "value": dir.join("tokens")}],
        "interactiveMode": "Never",
    });
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server.server(), "certificate-authority": pki.path("ca.crt")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"exec": exec}}],
    })
}
