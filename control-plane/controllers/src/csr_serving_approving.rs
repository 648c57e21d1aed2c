//! Approves the certificates that kubelets serve with. Upstream leaves that to the cloud, and AKS' cloud does it: a
//! node may have one for itself, with names and addresses that its Node object has and no other node has.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use client_runtime::{Actor, Cache, End, Need, ObjectKey, Queue, Synced, enqueue_changes};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::Api;

use crate::Manager;
use crate::csr::request::Request;
use crate::csr::signers::Signer;
use crate::csr::{self, ACCOUNT};

/// The controller's name; upstream has none like it.
pub(crate) const NAME: &str = "kubelet-serving-certificate-approving-controller";

const MESSAGE: &str =
    "Auto approving kubelet serving certificate for names and addresses of its node.";
/// What the names of nodes as users begin with.
const NODE_USER: &str = "system:node:";

/// What a node is reached by: its own name, and the addresses of its status.
type Names = BTreeSet<String>;

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let requests = manager.whole::<CertificateSigningRequest>();
    let queue = Arc::new(Queue::new());
    enqueue_changes(&requests, &queue);
    // Where no kubelet asks, nobody follows what nodes are called.
    let need = Need::default();
    let arising = need.clone();
    requests.on_change(move |change| {
        if change.after.is_some_and(|request| asker(request).is_some()) {
            arising.arises();
        }
    });
    let nodes = manager.watch_when(Some(need), Api::all(manager.client()), "", names);
    ask_again(&requests, &nodes, &queue);
    let actor = manager.act_as(ACCOUNT);
    let completions = [requests.completion(), nodes.completion()];
    manager.start_work(name, queue, 1, completions, move |key| {
        sync(requests.clone(), nodes.clone(), actor.clone(), key)
    });
}

// A kubelet may ask before its node has its addresses.
fn ask_again(
    requests: &Cache<CertificateSigningRequest>,
    nodes: &Cache<Names>,
    queue: &Arc<Queue<ObjectKey>>,
) {
    let (requests, queue) = (requests.clone(), Arc::clone(queue));
    nodes.on_change(move |change| {
        if change.before == change.after {
            return;
        }
        let open = requests.all().into_iter();
        let open = open.filter(|(_, request)| asker(request).is_some());
        queue.add_all(open.map(|(key, _)| key));
    });
}

async fn sync(
    requests: Cache<CertificateSigningRequest>,
    nodes: Cache<Names>,
    actor: Actor,
    key: ObjectKey,
) -> Synced {
    let Some(request) = requests.get(&key) else {
        return Ok(End::Done);
    };
    let Some(node) = asker(&request) else {
        return Ok(End::Done);
    };
    let all = nodes.all();
    let all = all.iter().map(|(key, names)| (key.name.as_str(), &**names));
    match check(&request, node, all) {
        Ok(()) => {
            actor
                .replace_part("approval", &csr::approved(&request, MESSAGE))
                .await?;
            tracing::info!(request = key.name, node, "approved");
        }
        // A person may know better, and a change of the node asks again.
        Err(why) => tracing::warn!(request = key.name, node, why, "not approved"),
    }
    Ok(End::Done)
}

/// The node that asks, if this is an open request for a certificate to serve with.
fn asker(request: &CertificateSigningRequest) -> Option<&str> {
    let is_serving = Signer::named(&request.spec.signer_name) == Some(Signer::KubeletServing);
    let is_open = is_serving && !csr::is_decided(request);
    let user = request.spec.username.as_deref().filter(|_| is_open)?;
    user.strip_prefix(NODE_USER)
}

fn names(node: Node) -> Names {
    let addresses = node.status.and_then(|status| status.addresses);
    let addresses = addresses.into_iter().flatten();
    // One way to write each, however the node writes it.
    let plain = |text: &str| match text.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => text.to_ascii_lowercase(),
    };
    let addresses = addresses.map(|address| plain(&address.address));
    addresses.chain(node.metadata.name).collect()
}

/// Whether a node may have what it asks for; why not, otherwise.
fn check<'a>(
    request: &CertificateSigningRequest,
    node: &str,
    all: impl Iterator<Item = (&'a str, &'a Names)>,
) -> Result<(), String> {
    let parsed = Request::parse(&request.spec.request.0)?;
    if !parsed.is_authentic {
        return Err("it is not signed with its own key".to_owned());
    }
    let usages: Vec<String> = request.spec.usages.clone().unwrap_or_default();
    Signer::KubeletServing.check(&parsed, &usages)?;
    if parsed.subject.common_name() != format!("{NODE_USER}{node}") {
        let other = parsed.subject.common_name();
        return Err(format!("it is for {other}"));
    }
    let (own, others): (Vec<_>, Vec<_>) = all.partition(|(name, _)| *name == node);
    let asked = parsed
        .alt_names
        .dns
        .iter()
        .map(|name| name.to_ascii_lowercase());
    let asked = asked.chain(parsed.alt_names.ips.iter().map(ToString::to_string));
    for name in asked {
        let has = |(_, names): &(&str, &Names)| names.contains(&name);
        if !own.iter().any(has) {
            return Err(format!("its node does not have {name}"));
        }
        if let Some((other, _)) = others.iter().find(|other| has(other)) {
            return Err(format!("{name} is claimed by node {other} as well"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::csr::testing::{Wish, tampered};
    use k8s_openapi::ByteString;
    use serde_json::json;

    fn request(pem: String, user: &str) -> CertificateSigningRequest {
        let mut request = CertificateSigningRequest::default();
        request.spec.request = ByteString(pem.into_bytes());
        request.spec.signer_name = "kubernetes.io/kubelet-serving".into();
        request.spec.usages = Some(vec!["digital signature".into(), "server auth".into()]);
        request.spec.username = Some(user.into());
        request
    }

    fn wish() -> Wish {
        Wish::of("system:node:a").organisations(&["system:nodes"])
    }

    fn node(name: &str, addresses: &[&str]) -> Names {
        let addresses: Vec<_> = addresses
            .iter()
            .map(|address| json!({"type": "InternalIP", "address": address}))
            .collect();
        let node = json!({"metadata": {"name": name}, "status": {"addresses": addresses}});
        names(serde_json::from_value(node).unwrap())
    }

    fn verdict(request: &CertificateSigningRequest) -> Result<(), String> {
        let (a, b) = (
            node("a", &["A.example", "10.0.0.4", "10.0.0.9"]),
            node("b", &["10.0.0.5", "10.0.0.9"]),
        );
        check(request, "a", [("a", &a), ("b", &b)].into_iter())
    }

    #[test]
    fn a_node_gets_what_its_object_says() {
        for wish in [
            wish().dns("a").ip("10.0.0.4"),
            wish().dns("a.Example"),
            wish().ip("10.0.0.4"),
        ] {
            assert_eq!(verdict(&request(wish.pem(), "system:node:a")), Ok(()));
        }
    }

    #[test]
    fn nobody_gets_what_belongs_to_others() {
        let cases = [
            (wish().dns("b").pem(), "its node does not have b"),
            (
                wish().dns("a").ip("10.0.0.5").pem(),
                "its node does not have 10.0.0.5",
            ),
            (
                wish().ip("10.0.0.9").pem(),
                "10.0.0.9 is claimed by node b as well",
            ),
            (
                Wish::of("system:node:b")
                    .organisations(&["system:nodes"])
                    .dns("a")
                    .pem(),
                "it is for system:node:b",
            ),
            (
                wish().email("a@b").dns("a").pem(),
                "Email subjectAltNames are not allowed",
            ),
            (
                tampered(&wish().dns("a")),
                "it is not signed with its own key",
            ),
        ];
        for (pem, why) in cases {
            let refused = verdict(&request(pem, "system:node:a")).unwrap_err();
            assert_eq!(refused, why);
        }
    }

    #[test]
    fn only_nodes_are_answered_and_only_once() {
        let asks = |user: &str| asker(&request(wish().dns("a").pem(), user)).map(str::to_owned);
        assert_eq!(asks("system:node:a").as_deref(), Some("a"));
        assert_eq!(asks("jane"), None);
        let mut other = request(wish().pem(), "system:node:a");
        other.spec.signer_name = "kubernetes.io/kube-apiserver-client-kubelet".into();
        assert_eq!(asker(&other), None);
        let open = request(wish().dns("a").pem(), "system:node:a");
        assert_eq!(asker(&csr::approved(&open, MESSAGE)), None);
    }
}
