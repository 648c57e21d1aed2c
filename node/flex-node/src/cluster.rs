//! The node as the cluster sees it, and its pods as the runtime does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use client_runtime::Connection;
use http::{Method, Request};
use jiff::Timestamp;
use kubelet::cri::{
    Client, ListPodSandboxRequest, RemovePodSandboxRequest, Runtime as _, StopPodSandboxRequest,
};
use serde_json::Value;
use tokio::time::Instant;

use crate::paths;

/// How often the node is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the cluster says of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Ready.
    Ready,
    /// There, and not Ready, for this reason.
    NotReady(String),
    /// Not there.
    Absent,
}

pub(crate) async fn client(kubeconfig: &Path) -> Result<kube::Client, String> {
    let connection = Connection::Kubeconfig(kubeconfig.to_owned());
    let client = client_runtime::client(&connection, "aks-flex-node").await;
    client.map_err(|e| e.to_string())
}

/// Whether the node has said how it is since then: what it said before says nothing of what it runs now.
fn is_since(node: &Value, since: Option<Timestamp>) -> bool {
    let Some(since) = since else { return true };
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Ready");
    let heard = ready.and_then(|ready| ready["lastHeartbeatTime"].as_str()?.parse().ok());
    heard.is_some_and(|heard: Timestamp| heard >= since)
}

/// Reads a node object.
pub fn seen(node: &Value) -> Seen {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Ready");
    match ready {
        Some(ready) if ready["status"] == "True" => Seen::Ready,
        Some(ready) => {
            let message = ready["message"].as_str().unwrap_or_default();
            Seen::NotReady(message.to_owned())
        }
        None => Seen::NotReady("it has not said how it is".to_owned()),
    }
}

async fn ask(kubeconfig: &Path, method: Method, name: &str) -> Result<Option<Value>, String> {
    let client = client(kubeconfig).await?;
    let request = Request::builder()
        .method(method)
        .uri(format!("/api/v1/nodes/{name}"))
        .body(Vec::new())
        .map_err(|e| e.to_string())?;
    let answer = tokio::time::timeout(PATIENCE, client.request::<Value>(request)).await;
    match answer.map_err(|_| format!("no answer in {PATIENCE:?}"))? {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => Err(error.to_string()),
    }
}

/// How a node is.
pub async fn look(kubeconfig: &Path, name: &str) -> Result<Seen, String> {
    let node = ask(kubeconfig, Method::GET, name).await?;
    Ok(node.map_or(Seen::Absent, |node| seen(&node)))
}

/// Waits until a node is Ready, and has said so since a moment; says why it is not when the time is over.
pub async fn wait_ready(
    kubeconfig: &Path,
    name: &str,
    patience: Duration,
    since: Option<Timestamp>,
) -> Result<(), String> {
    let end = Instant::now() + patience;
    loop {
        let why = match kubeconfig.exists() {
            false => "the kubelet has no certificate yet: its request waits to be approved (`kubectl get csr`), \
                or its bootstrap token is refused"
                .to_owned(),
            true => match ask(kubeconfig, Method::GET, name).await {
                Ok(None) => "it is not registered yet".to_owned(),
                Ok(Some(node)) => match seen(&node) {
                    Seen::Ready if is_since(&node, since) => return Ok(()),
                    Seen::Ready => "its kubelet has not said how it is since it was started".to_owned(),
                    Seen::NotReady(why) => why,
                    Seen::Absent => "it is not registered yet".to_owned(),
                },
                Err(why) => why,
            },
        };
        if Instant::now() >= end {
            return Err(why);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Deletes a node; one that is gone is fine. First as whoever was named, else as the kubelet, which mostly may not.
pub async fn remove(kubeconfig: Option<PathBuf>, name: &str) -> Result<(), String> {
    let file = kubeconfig.unwrap_or_else(|| PathBuf::from(paths::KUBECONFIG));
    if !file.exists() {
        // It never joined: there is nothing at the cluster.
        return match file == Path::new(paths::KUBECONFIG) {
            true => Ok(()),
            false => Err(format!("{} is not there", file.display())),
        };
    }
    ask(&file, Method::DELETE, name).await.map(drop)
}

/// Ends every pod of the runtime, with its network. A runtime that is not there has none.
pub async fn stop_pods() -> Result<usize, String> {
    if !Path::new(paths::CONTAINERD_SOCKET).exists() {
        return Ok(0);
    }
    let runtime = Client::new(paths::CONTAINERD_SOCKET, Duration::from_secs(30));
    let all = runtime
        .list_pod_sandbox(ListPodSandboxRequest::default())
        .await
        .map_err(|e| e.message().to_owned())?;
    let mut troubles = Vec::new();
    let count = all.items.len();
    for pod in all.items {
        let id = pod.id;
        let stop = StopPodSandboxRequest {
            pod_sandbox_id: id.clone(),
        };
        let remove = RemovePodSandboxRequest { pod_sandbox_id: id };
        let ended = match runtime.stop_pod_sandbox(stop).await {
            Ok(_) => runtime.remove_pod_sandbox(remove).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            troubles.push(error.message().to_owned());
        }
    }
    match troubles.is_empty() {
        true => Ok(count),
        false => Err(troubles.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_ready_when_it_says_so() {
        let node = |conditions: Value| json!({"status": {"conditions": conditions}});
        let cases = [
            (json!([{"type": "Ready", "status": "True"}]), Seen::Ready),
            (
                json!([{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": "False", "message": "no network"}]),
                Seen::NotReady("no network".to_owned()),
            ),
            (
                json!([]),
                Seen::NotReady("it has not said how it is".to_owned()),
            ),
        ];
        for (conditions, expected) in cases {
            assert_eq!(seen(&node(conditions.clone())), expected, "{conditions}");
        }
    }
}
