//! A node is emptied as `kubectl drain` does it: cordoned, then its pods evicted, which budgets may refuse for a while.
//! The node asks as itself: it may cordon itself and evict its own pods, and nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster;

/// How often pods are looked at, and a refused eviction is asked for again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(15);

async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<Value, (u16, String)> {
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        })
        .map_err(|e| (0, e.to_string()))?;
    let answer = tokio::time::timeout(PATIENCE, client.request::<Value>(request)).await;
    match answer.map_err(|_| (0, format!("no answer in {PATIENCE:?}")))? {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(error) => Err((0, error.to_string())),
    }
}

/// Cordons a node, or ends that; says whether it was so before.
pub async fn cordon(kubeconfig: &Path, node: &str, cordoned: bool) -> Result<bool, String> {
    let client = cluster::client(kubeconfig).await?;
    let path = format!("/api/v1/nodes/{node}");
    let found = ask(&client, Method::GET, &path, &Value::Null).await;
    let was = found.map_err(|(_, cause)| cause)?["spec"]["unschedulable"] == true;
    if was != cordoned {
        let value = if cordoned { json!(true) } else { Value::Null };
        let patch = json!({"spec": {"unschedulable": value}});
        let patched = ask(&client, Method::PATCH, &path, &patch).await;
        patched.map_err(|(_, cause)| cause)?;
    }
    Ok(was)
}

/// Whether a pod has to go: not those that belong to the node itself, nor those that have ended.
fn must_go(pod: &Value) -> bool {
    let metadata = &pod["metadata"];
    let owners = metadata["ownerReferences"].as_array();
    let is_of_daemons = owners
        .into_iter()
        .flatten()
        .any(|owner| owner["kind"] == "DaemonSet");
    let is_mirror = metadata["annotations"]["kubernetes.io/config.mirror"].is_string();
    let has_ended = ["Succeeded", "Failed"]
        .iter()
        .any(|phase| pod["status"]["phase"] == *phase);
    !is_of_daemons && !is_mirror && !has_ended
}

fn name_of(pod: &Value) -> (String, String) {
    let text = |field: &str| {
        pod["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("namespace"), text("name"))
}

/// Evicts every pod that has to go, and waits until they are gone. What stays is named, with what holds it.
pub async fn drain(kubeconfig: &Path, node: &str, patience: Duration) -> Result<usize, String> {
    let client = cluster::client(kubeconfig).await?;
    let end = Instant::now() + patience;
    let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
    let mut evicted = 0;
    let mut held = BTreeMap::new();
    loop {
        let found = ask(&client, Method::GET, &path, &Value::Null).await;
        let found = found.map_err(|(_, cause)| cause)?;
        let pods: Vec<&Value> = found["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|pod| must_go(pod))
            .collect();
        if pods.is_empty() {
            return Ok(evicted);
        }
        for pod in pods
            .iter()
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        {
            let name = name_of(pod);
            match evict(&client, &name).await {
                Ok(()) => {
                    evicted += 1;
                    held.remove(&name);
                }
                Err(why) => {
                    held.insert(name, why);
                }
            }
        }
        if Instant::now() >= end {
            return Err(stuck(&pods, &held));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn evict(client: &Client, (namespace, name): &(String, String)) -> Result<(), String> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}});
    match ask(client, Method::POST, &path, &body).await {
        Ok(_) | Err((404, _)) => Ok(()),
        // A budget allows no more just now.
        Err((_, why)) => Err(why),
    }
}

fn stuck(pods: &[&Value], held: &BTreeMap<(String, String), String>) -> String {
    let lines = pods.iter().map(|pod| {
        let name = name_of(pod);
        let why = held.get(&name).map_or("it is still ending", String::as_str);
        format!("{}/{} stays: {why}", name.0, name.1)
    });
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_the_node_itself_and_those_that_ended_stay() {
        let cases = [
            (
                json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}}),
                true,
            ),
            (
                json!({"metadata": {"name": "a", "ownerReferences": [{"kind": "DaemonSet"}]}}),
                false,
            ),
            (
                json!({"metadata": {"name": "a", "annotations": {"kubernetes.io/config.mirror": "x"}}}),
                false,
            ),
            (
                json!({"metadata": {"name": "a"}, "status": {"phase": "Succeeded"}}),
                false,
            ),
        ];
        for (pod, expected) in cases {
            assert_eq!(must_go(&pod), expected, "{pod}");
        }
    }

    #[test]
    fn what_stays_is_named_with_what_holds_it() {
        let pod = json!({"metadata": {"namespace": "n", "name": "web"}});
        let held = BTreeMap::from([(("n".to_owned(), "web".to_owned()), "budget web".to_owned())]);
        assert_eq!(stuck(&[&pod], &held), "n/web stays: budget web");
    }
}
