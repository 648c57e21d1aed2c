//! What every controller manager must do before the first workload can run.

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::json;

use crate::cluster::Cluster;
use crate::kubectl::Kubectl;
use crate::wait::eventually;

/// Everything in turn.
pub(crate) fn run(cluster: &mut Cluster<'_>) -> Result<()> {
    cluster.check()?;
    furnishes_namespaces(cluster)?;
    fills_token_secrets(cluster)?;
    counts_quotas(&cluster.kubectl)?;
    aggregates_roles(&cluster.kubectl)?;
    signs_for_joining_nodes(cluster)
}

fn furnishes_namespaces(cluster: &Cluster<'_>) -> Result<()> {
    let kubectl = &cluster.kubectl;
    kubectl.run("create namespace shop")?;
    eventually("the namespace has an account", || {
        kubectl.run("get serviceaccount default -n shop")
    })?;
    let root = std::fs::read_to_string(cluster.pki.file("ca.crt"))?;
    eventually("the namespace has the root certificate", || {
        let found = kubectl.json("get configmap kube-root-ca.crt -n shop")?;
        ensure!(
            found["data"]["ca.crt"] == root.as_str(),
            "another certificate: {found}"
        );
        Ok(())
    })?;
    kubectl.run("delete configmap kube-root-ca.crt -n shop")?;
    eventually("a deleted root certificate comes back", || {
        kubectl.run("get configmap kube-root-ca.crt -n shop")
    })?;
    Ok(())
}

fn fills_token_secrets(cluster: &Cluster<'_>) -> Result<()> {
    let kubectl = &cluster.kubectl;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "key", "namespace": "shop", "annotations": {"kubernetes.io/service-account.name": "default"}},
    });
    kubectl.with_input("create -f -", &secret.to_string())?;
    let token = eventually("the secret has a token", || {
        let token = kubectl.run("get secret key -n shop -o jsonpath={.data.token}")?;
        ensure!(!token.is_empty(), "no token yet");
        Ok(String::from_utf8(STANDARD.decode(token)?)?)
    })?;
    let kubeconfig = cluster
        .pki
        .token_kubeconfig("account", cluster.ports.api_server, &token)?;
    let me = kubectl
        .as_user(kubeconfig)
        .run("auth whoami -o jsonpath={.status.userInfo.username}")?;
    ensure!(
        me == "system:serviceaccount:shop:default",
        "the token is {me:?}'s"
    );
    Ok(())
}

fn counts_quotas(kubectl: &Kubectl) -> Result<()> {
    kubectl.run("create quota small -n shop --hard=secrets=2")?;
    eventually("the quota is counted", || {
        kubectl.expect("get quota small -n shop", "{.status.used.secrets}", "1")
    })?;
    kubectl.run("create secret generic second -n shop")?;
    kubectl.refused(
        "create secret generic third -n shop",
        "exceeded quota: small, requested: secrets=1, used: secrets=2, limited: secrets=2",
    )?;
    kubectl.run("delete secret second -n shop")?;
    eventually("what was freed is counted", || {
        kubectl.expect("get quota small -n shop", "{.status.used.secrets}", "1")
    })
}

fn aggregates_roles(kubectl: &Kubectl) -> Result<()> {
    kubectl.run("create clusterrole extra --verb=get --resource=nodes")?;
    kubectl.run("label clusterrole extra rbac.authorization.k8s.io/aggregate-to-view=true")?;
    eventually("the role `view` has taken in the new one", || {
        let view = kubectl.json("get clusterrole view")?;
        let rules = view["rules"].as_array().into_iter().flatten();
        ensure!(
            rules
                .clone()
                .any(|rule| rule["resources"] == json!(["nodes"])),
            "no rule for nodes yet"
        );
        Ok(())
    })
}

/// The rights kubeadm gives to bootstrap tokens and nodes: name, role, group.
pub(super) const JOINING: [(&str, &str, &str); 3] = [
    (
        "interop-bootstrap",
        "system:node-bootstrapper",
        "system:bootstrappers",
    ),
    (
        "interop-approve",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "system:bootstrappers",
    ),
    (
        "interop-renew",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "system:nodes",
    ),
];

/// Lets nodes join and gives the token they join with.
pub(super) fn allow_joining(kubectl: &Kubectl) -> Result<&'static str> {
    for (name, role, group) in JOINING {
        kubectl.run(&format!(
            "create clusterrolebinding {name} --clusterrole={role} --group={group}"
        ))?;
    }
    kubectl.run(
        "create secret generic bootstrap-token-abcdef -n kube-system --type=bootstrap.kubernetes.io/token \
         --from-literal=token-id=abcdef --from-literal=token-secret=0123456789abcdef \
         --from-literal=usage-bootstrap-authentication=true --from-literal=usage-bootstrap-signing=true",
    )?;
    Ok("abcdef.0123456789abcdef")
}

fn signs_for_joining_nodes(cluster: &Cluster<'_>) -> Result<()> {
    let kubectl = &cluster.kubectl;
    let token = allow_joining(kubectl)?;
    let joining = cluster
        .pki
        .token_kubeconfig("joining", cluster.ports.api_server, token)?;
    kubectl
        .as_user(joining)
        .with_input("create -f -", &request("node-1")?)?;
    eventually("the certificate is there", || {
        let found = kubectl.json("get csr node-1")?;
        let kinds: Vec<_> = found["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| &c["type"])
            .collect();
        ensure!(kinds == ["Approved"], "conditions: {kinds:?}");
        ensure!(
            found["status"]["certificate"].is_string(),
            "approved, but no certificate"
        );
        Ok(())
    })?;
    kubectl.run("create configmap cluster-info -n kube-public --from-literal=kubeconfig=x")?;
    eventually("cluster-info is signed", || {
        let found = kubectl.json("get configmap cluster-info -n kube-public")?;
        ensure!(
            found["data"]["jws-kubeconfig-abcdef"].is_string(),
            "no signature in {}",
            found["data"]
        );
        Ok(())
    })
}

fn request(node: &str) -> Result<String> {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(DnType::CommonName, format!("system:node:{node}"));
    let request = params.serialize_request(&KeyPair::generate()?)?.pem()?;
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": node},
        "spec": {"request": STANDARD.encode(request), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                 "usages": ["digital signature", "client auth"]},
    });
    Ok(object.to_string())
}
