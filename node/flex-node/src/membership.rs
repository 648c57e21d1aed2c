//! What the cluster grants to the identity that a machine joins as.
//!
//! An Entra identity is no `system:node`, so Kubernetes has to be told that this one may act as a node: a binding of the role
//! `system:node`, where upstream gives administrator rights. It is made as the cluster's administrator, whose credential is asked of
//! Azure when it is needed and never written down; so are the signing of what the kubelet serves with, and the end of the node's object.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{Method, Request};
use jiff::Timestamp;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config as ClientConfig};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use crate::config::{Config, Join};
use crate::identity::{self, Refused, Verb, private};
use crate::paths;
use crate::token::{self, SERVER_ID};

/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often something is looked at that is about to be there.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const LOOKS: u32 = 150;
/// A certificate is made anew while so much of its life is left.
const RESERVE: Duration = Duration::from_secs(30 * 24 * 3600);
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Somebody asks the API server.
pub struct Asker(Client);

/// What was refused, by status where there is one.
#[derive(Debug)]
pub struct Answered {
    status: u16,
    cause: String,
}

impl Asker {
    async fn of(config: ClientConfig) -> Result<Asker, String> {
        Client::try_from(config)
            .map(Asker)
            .map_err(|e| e.to_string())
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Value, Answered> {
        let broken = |cause: String| Answered { status: 0, cause };
        let bytes = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(bytes)
            .map_err(|e| broken(e.to_string()))?;
        let answer = tokio::time::timeout(PATIENCE, self.0.request::<Value>(request)).await;
        match answer.map_err(|_| broken(format!("no answer in {PATIENCE:?}")))? {
            Ok(value) => Ok(value),
            Err(kube::Error::Api(status)) => Err(Answered {
                status: status.code,
                cause: status.message.clone(),
            }),
            Err(error) => Err(broken(error.to_string())),
        }
    }
}

fn kubeconfig_error(cause: impl std::fmt::Display) -> Refused {
    Refused::new(
        format!("the cluster's credential cannot be used: {cause}"),
        "see `az aks get-credentials`",
    )
}

/// The cluster as its administrator; where local accounts are disabled, as whom the configuration names.
async fn administrator(config: &Config, acting: Option<&str>) -> Result<Asker, Refused> {
    const NEEDS: &str = "Azure Kubernetes Service Cluster Admin Role";
    let cluster = identity::cluster_of(config)?;
    let arm = identity::arm(config).await?;
    let path = |who: &str| format!("{}/listCluster{who}Credential", cluster.id);
    let admin: Result<Value, azure::Error> = arm.ask(&path("Admin"), &json!({})).await;
    let (answer, token) = match admin {
        Ok(answer) => (answer, None),
        Err(_) => {
            let user = arm.ask(&path("User"), &json!({})).await;
            let doing = format!("ask {} for a credential", cluster.name);
            let token = identity::token_for(config, SERVER_ID).await?;
            (user.map_err(identity::refused(&doing, NEEDS))?, Some(token))
        }
    };
    let text = answer["kubeconfigs"][0]["value"]
        .as_str()
        .unwrap_or_default();
    let text = STANDARD.decode(text).map_err(kubeconfig_error)?;
    let kubeconfig = Kubeconfig::from_yaml(&String::from_utf8_lossy(&text));
    let mut kubeconfig = kubeconfig.map_err(kubeconfig_error)?;
    for user in &mut kubeconfig.auth_infos {
        let mut who = match &token {
            Some(token) => bearer(token),
            None => user.auth_info.clone().unwrap_or_default(),
        };
        if let Some(name) = acting {
            who.impersonate = Some(name.to_owned());
            who.impersonate_groups =
                Some(vec!["system:nodes".into(), "system:authenticated".into()]);
        }
        user.auth_info = Some(who);
    }
    let options = KubeConfigOptions::default();
    let config = ClientConfig::from_custom_kubeconfig(kubeconfig, &options).await;
    let config = config.map_err(kubeconfig_error)?;
    Asker::of(config).await.map_err(kubeconfig_error)
}

fn bearer(token: &str) -> AuthInfo {
    AuthInfo {
        token: Some(token.to_owned().into()),
        ..AuthInfo::default()
    }
}

/// The server of the cluster, as the step before wrote it down.
fn server() -> Result<Value, Refused> {
    let text = std::fs::read_to_string(paths::CLUSTER).unwrap_or_default();
    serde_json::from_str(&text).map_err(|_| {
        let remedy = "run `aks-flex-node bootstrap`, which asks Azure";
        Refused::new("the cluster's address is not known yet", remedy)
    })
}

/// The node's own identity, and the cluster as it.
async fn as_node(config: &Config) -> Result<(String, Asker), Refused> {
    let environment = |name: &str| std::env::var(name).ok();
    let cache = token::cache(environment);
    let lease = token::lease(config, SERVER_ID, &cache, &environment, Timestamp::now()).await?;
    let object = object_id(&lease.token).ok_or_else(|| {
        Refused::new(
            "the token names no object",
            "see `aks-flex-node token --check`",
        )
    })?;
    let known = server()?;
    let text = |field: &str| known[field].as_str().unwrap_or_default().to_owned();
    let broken = |cause: String| Refused::new(cause, "see `aks-flex-node doctor`");
    let url = text("server").parse();
    let mut client =
        ClientConfig::new(url.map_err(|e| broken(format!("{}: {e}", text("server"))))?);
    let pem = text("authority");
    let authorities = CertificateDer::pem_slice_iter(pem.as_bytes());
    client.root_cert = Some(authorities.flatten().map(|der| der.to_vec()).collect());
    client.auth_info = bearer(&lease.token);
    Ok((object, Asker::of(client).await.map_err(broken)?))
}

/// Whose token it is, from its own words: whoever believes it checks them.
fn object_id(token: &str) -> Option<String> {
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    claims["oid"].as_str().map(str::to_owned)
}

fn binding_name(node: &str) -> String {
    format!("aks-flex-node:{node}")
}

fn binding(node: &str, object: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": binding_name(node), "labels": {"kubernetes.azure.com/managed-by": "aks-flex-node"}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": object}]})
}

/// That the identity may be this node: asked with its own token, and granted as the administrator.
pub async fn access(config: &Config, verb: Verb, node: &str) -> Result<String, Refused> {
    match verb {
        Verb::Check => {
            let (object, asker) = as_node(config).await?;
            may_join(&asker, &object).await
        }
        Verb::Make => {
            let (object, asker) = as_node(config).await?;
            grant(config, node, &object).await?;
            seen(&asker, &object).await
        }
        Verb::Remove => {
            let admin = administrator(config, None).await?;
            remove(&admin, &format!("{BINDINGS}/{}", binding_name(node))).await
        }
    }
}

async fn may_join(asker: &Asker, object: &str) -> Result<String, Refused> {
    const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "create", "resource": "nodes"}}});
    let answer = asker.ask(Method::POST, PATH, &review).await;
    match answer {
        Ok(answer) if answer["status"]["allowed"] == true => Ok(format!("{object} may be a node")),
        Ok(_) => Err(Refused::new(
            format!("{object} may not be a node"),
            hint(object),
        )),
        Err(Answered { status: 401, .. }) => Err(Refused::new(
            format!("the cluster does not believe the token of {object}"),
            "the cluster needs Entra ID: `az aks update --enable-aad --enable-azure-rbac`",
        )),
        Err(answered) => Err(Refused::new(answered.cause, "see `aks-flex-node doctor`")),
    }
}

fn hint(object: &str) -> String {
    format!("`kubectl create clusterrolebinding NAME --clusterrole=system:node --user={object}`")
}

async fn grant(config: &Config, node: &str, object: &str) -> Result<(), Refused> {
    if matches!(&config.join, Join::Arc(arc) if !arc.assigns_roles) {
        let remedy = format!("set `azure.arc.autoRoleAssignment`, or {}", hint(object));
        return Err(Refused::new(
            format!("{object} may not be a node yet"),
            remedy,
        ));
    }
    let admin = administrator(config, None).await?;
    let failed = |answered: Answered| {
        let cause = format!("cannot let {object} be a node: {}", answered.cause);
        Refused::new(cause, hint(object))
    };
    let wanted = binding(node, object);
    match admin.ask(Method::POST, BINDINGS, &wanted).await {
        Ok(_) => return Ok(()),
        // Of a node of the same name before, mostly: whom it binds cannot be known to be right.
        Err(Answered { status: 409, .. }) => {}
        Err(answered) => return Err(failed(answered)),
    }
    remove(&admin, &format!("{BINDINGS}/{}", binding_name(node))).await?;
    admin
        .ask(Method::POST, BINDINGS, &wanted)
        .await
        .map(drop)
        .map_err(failed)
}

/// A right that was just given is there when the one who has it sees it.
async fn seen(asker: &Asker, object: &str) -> Result<String, Refused> {
    let mut last = may_join(asker, object).await;
    for _ in 0..LOOKS {
        if last.is_ok() {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        last = may_join(asker, object).await;
    }
    last
}

async fn remove(asker: &Asker, path: &str) -> Result<String, Refused> {
    let gone = format!("{path} is gone");
    match asker.ask(Method::DELETE, path, &Value::Null).await {
        Ok(_) | Err(Answered { status: 404, .. }) => Ok(gone),
        Err(answered) => Err(Refused::new(
            format!("cannot remove {path}: {}", answered.cause),
            "remove it with kubectl as somebody who may",
        )),
    }
}

/// Ends the node's object, as the administrator.
pub async fn remove_node(config: &Config, node: &str) -> Result<String, Refused> {
    let admin = administrator(config, None).await?;
    remove(&admin, &format!("/api/v1/nodes/{node}")).await
}

/// What the kubelet serves with, signed by the cluster: an API server that checks it reaches pods here only so, and the cluster signs
/// that for nobody but nodes.
pub async fn serving(config: &Config, verb: Verb, node: &str) -> Result<String, Refused> {
    let file = Path::new(paths::SERVING_CERTIFICATE);
    match verb {
        Verb::Check => {
            let validity = kubelet::certificates::validity(file);
            let left = validity.map(|(_, end)| end.duration_since(Timestamp::now()));
            match left.filter(|left| left.as_secs() > RESERVE.as_secs().cast_signed()) {
                Some(_) => Ok(format!("{} is good", file.display())),
                None => Err(Refused::new(
                    format!("{} is not there or ends soon", file.display()),
                    "",
                )),
            }
        }
        Verb::Make => sign(config, node).await,
        Verb::Remove => {
            for path in [paths::SERVING_CERTIFICATE, paths::SERVING_KEY] {
                let _ = std::fs::remove_file(path);
            }
            Ok(format!("{} is gone", file.display()))
        }
    }
}

/// The address by which this machine reaches the API server, and the one that the configuration names.
fn addresses(config: &Config) -> Vec<IpAddr> {
    let named = config
        .node
        .node_ip
        .split(',')
        .filter_map(|text| text.trim().parse().ok());
    let mut all: Vec<IpAddr> = named.collect();
    let server = server().ok();
    let host = server.as_ref().and_then(|s| s["server"].as_str());
    let uri: Option<http::Uri> = host.and_then(|url| url.parse().ok());
    let outward = uri.and_then(|uri| {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        let port = uri.port_u16().unwrap_or(443);
        socket.connect((uri.host()?, port)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    });
    all.extend(outward);
    all.dedup();
    all
}

fn request(node: &str, addresses: &[IpAddr]) -> Result<(String, String), rcgen::Error> {
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(vec![node.to_owned()])?;
    let own = addresses.iter().map(|ip| rcgen::SanType::IpAddress(*ip));
    params.subject_alt_names.extend(own);
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = &mut params.distinguished_name;
    name.push(rcgen::DnType::OrganizationName, "system:nodes");
    name.push(rcgen::DnType::CommonName, format!("system:node:{node}"));
    Ok((params.serialize_request(&key)?.pem()?, key.serialize_pem()))
}

async fn sign(config: &Config, node: &str) -> Result<String, Refused> {
    let failed = |cause: String| {
        let remedy = "see `kubectl get csr`, or set `node.kubelet.serverTLSBootstrap` to false";
        Refused::new(
            format!("the kubelet's serving certificate: {cause}"),
            remedy,
        )
    };
    let (csr, key) = request(node, &addresses(config)).map_err(|e| failed(e.to_string()))?;
    let user = format!("system:node:{node}");
    let acting = administrator(config, Some(&user)).await?;
    let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "aks-flex-node-"},
        "spec": {"request": STANDARD.encode(csr), "signerName": "kubernetes.io/kubelet-serving",
            "usages": ["digital signature", "server auth"]}});
    let made = acting.ask(Method::POST, REQUESTS, &object).await;
    let mut made = made.map_err(|answered| failed(answered.cause))?;
    let path = format!(
        "{REQUESTS}/{}",
        made["metadata"]["name"].as_str().unwrap_or_default()
    );
    let admin = administrator(config, None).await?;
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    made["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "FlexNode",
        "message": "approved by aks-flex-node as the cluster's administrator", "lastUpdateTime": now}]);
    let approved = admin
        .ask(Method::PUT, &format!("{path}/approval"), &made)
        .await;
    approved.map_err(|answered| failed(answered.cause))?;
    let certificate = signed(&admin, &path).await.map_err(failed)?;
    let write = |path: &str, bytes: &[u8]| {
        private::write(Path::new(path), bytes)
            .map_err(|e| failed(format!("`{path}` cannot be written: {e}")))
    };
    write(paths::SERVING_KEY, key.as_bytes())?;
    write(paths::SERVING_CERTIFICATE, &certificate)?;
    Ok(format!("{} is there", paths::SERVING_CERTIFICATE))
}

async fn signed(admin: &Asker, path: &str) -> Result<Vec<u8>, String> {
    for _ in 0..LOOKS {
        let found = admin.ask(Method::GET, path, &Value::Null).await;
        let found = found.map_err(|answered| answered.cause)?;
        if let Some(text) = found["status"]["certificate"].as_str() {
            return STANDARD.decode(text).map_err(|e| e.to_string());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err("nobody signed the request".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_identity_is_let_be_a_node_and_no_more() {
        let made = binding("edge", "oid");
        assert_eq!(made["roleRef"]["name"], "system:node");
        assert_eq!(
            made["subjects"],
            json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "oid"}])
        );
    }

    #[test]
    fn a_token_says_whose_it_is() {
        let payload = URL_SAFE_NO_PAD.encode(json!({"oid": "x"}).to_string());
        assert_eq!(object_id(&format!("h.{payload}.s")), Some("x".to_owned()));
        assert_eq!(object_id("nonsense"), None);
    }

    #[test]
    fn a_request_names_the_node_and_its_addresses() {
        let (csr, key) = request("edge", &["10.0.0.4".parse().unwrap()]).unwrap();
        assert!(csr.contains("CERTIFICATE REQUEST") && key.contains("PRIVATE KEY"));
    }
}
