//! `az aks command invoke`: a command in a pod of the cluster, with all rights there.
//!
//! AKS has an image with kubectl and helm for it. Here the pod sees its node's programs, this host's kubectl among them.

use std::time::Duration;

use ::cloud::{Done, Trouble};
use ::images::built_in;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{archive, trouble};
use crate::client::Client;
use crate::datadir::DataDir;
use crate::exit::{Code, Result};

/// Where AKS runs commands.
const NAMESPACE: &str = "aks-command";
const FAILED: &str = "KubernetesPerformanceError";
/// How long a command may take: az asks no longer.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Where the files are that come with a command, and where it begins.
const FILES: &str = "/command-files";
/// What of its node a command sees.
const PROGRAMS: [&str; 4] = ["usr", "bin", "lib", "lib64"];

/// Runs a command, and gives what it printed and how it ended.
pub(super) async fn run(dir: &DataDir, input: &Value) -> Result<Done, Trouble> {
    let files = files(input["context"].as_str().unwrap_or_default())
        .map_err(|cause| Trouble::new("BadRequest", cause))?;
    let output = in_a_pod(dir, input, &files)
        .await
        .map_err(trouble(FAILED))?;
    Ok(Done {
        output,
        ..Done::default()
    })
}

/// The files that come with a command, as a ConfigMap has them: a key for each, and where it belongs.
type Files = Vec<(String, String, String)>;

fn files(context: &str) -> std::result::Result<Files, &'static str> {
    if context.is_empty() {
        return Ok(Vec::new());
    }
    // az breaks it into lines.
    let context: String = context.split_whitespace().collect();
    let bytes = STANDARD
        .decode(context)
        .map_err(|_| "these files are not in base64")?;
    let files = archive::files(&bytes)?.into_iter().enumerate();
    let file = |(at, (path, bytes))| {
        (
            format!("file-{at}"),
            path,
            STANDARD.encode::<Vec<u8>>(bytes),
        )
    };
    Ok(files.map(file).collect())
}

async fn in_a_pod(dir: &DataDir, input: &Value, files: &Files) -> Result<Value> {
    let client = Client::of_running(dir).await?;
    for (collection, object) in surroundings() {
        match client.create(&collection, &object).await {
            Err(failure) if failure.code != Code::Conflict => return Err(failure),
            _ => {}
        }
    }
    let text = |field: &str| input[field].as_str().unwrap_or_default();
    let name = format!("command-{}", text("id"));
    let collection = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let path = format!("{collection}/{name}");
    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let map = map(&name, files);
    let objects = [
        (&maps, map),
        (&collection, pod(&name, text("command"), files)),
    ];
    for (collection, object) in objects {
        match client.create(collection, &object).await {
            // The cloud was interrupted, and asks again for what runs already.
            Err(failure) if failure.code != Code::Conflict => return Err(failure),
            _ => {}
        }
    }
    let ended = ended(&client, &path).await;
    let logs = client.get_text(&format!("{path}/log")).await;
    for left in [
        format!("{path}?gracePeriodSeconds=0"),
        format!("{maps}/{name}"),
    ] {
        if let Err(failure) = client.delete(&left).await {
            tracing::warn!(%failure, left, "something of a command stays");
        }
    }
    let (code, reason) = ended?;
    let mut output = json!({"exitCode": code, "logs": logs.unwrap_or_default()});
    if let Some(reason) = reason {
        output["reason"] = json!(reason);
    }
    Ok(output)
}

/// Waits until the pod has ended; its exit code, or why there is none.
async fn ended(client: &Client, path: &str) -> Result<(i64, Option<String>)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pod = client.get(path).await?;
        let status = &pod["status"];
        let container = &status["containerStatuses"][0]["state"];
        if let Some(code) = container["terminated"]["exitCode"].as_i64() {
            return Ok((code, None));
        }
        if Instant::now() > deadline {
            let why = [
                &container["waiting"]["message"],
                &status["conditions"][0]["message"],
            ];
            let why = why
                .into_iter()
                .find_map(Value::as_str)
                .unwrap_or("it did not end");
            return Ok((
                1,
                Some(format!(
                    "the command did not end within five minutes: {why}"
                )),
            ));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What a command's pod needs: a place, and somebody to be.
fn surroundings() -> [(String, Value); 3] {
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAMESPACE}});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": NAMESPACE}]});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    [
        ("/api/v1/namespaces".into(), namespace),
        (
            format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
            account,
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".into(),
            binding,
        ),
    ]
}

fn map(name: &str, files: &Files) -> Value {
    let data: serde_json::Map<String, Value> = files
        .iter()
        .map(|(key, _, bytes)| (key.clone(), json!(bytes)))
        .collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "binaryData": data})
}

// kubectl would look into the pod's own namespace first, but for POD_NAMESPACE.
fn pod(name: &str, command: &str, files: &Files) -> Value {
    let volume = |part: &str| json!({"name": part, "hostPath": {"path": format!("/{part}")}});
    let mount =
        |part: &str| json!({"name": part, "mountPath": format!("/{part}"), "readOnly": true});
    let items: Vec<Value> = files
        .iter()
        .map(|(key, path, _)| json!({"key": key, "path": path}))
        .collect();
    // Without items everything of a map would be there, by its key; there is nothing then.
    let brought = json!({"name": "files", "configMap": {"name": name, "items": items}});
    let volumes: Vec<Value> = PROGRAMS
        .iter()
        .map(|part| volume(part))
        .chain([brought])
        .collect();
    let here = json!({"name": "files", "mountPath": FILES});
    let mounts: Vec<Value> = PROGRAMS
        .iter()
        .map(|part| mount(part))
        .chain([here])
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": NAMESPACE}}, "spec": {
        "serviceAccountName": NAMESPACE, "restartPolicy": "Never", "volumes": volumes,
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "containers": [{"name": "command", "image": built_in::KYANITE_NAME, "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/sh", "-c", command], "workingDir": FILES, "volumeMounts": mounts,
            "env": [{"name": "PATH", "value": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                {"name": "HOME", "value": "/tmp"}, {"name": "POD_NAMESPACE", "value": "default"}]}]}})
}
