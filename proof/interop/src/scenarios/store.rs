//! What was written is there after a restart, as it was, and watches tell what happens to it.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::cluster::{Cluster, Whose};
use crate::kubectl::Kubectl;
use crate::wait::eventually;

const COUNT: usize = 25;

/// Writes, restarts the server, restarts the store, and reads again.
pub(crate) fn run(cluster: &mut Cluster<'_>, server: Whose) -> Result<()> {
    let names: Vec<String> = (0..COUNT).map(|n| format!("entry-{n:02}")).collect();
    let document: Vec<String> = names.iter().map(|name| entry(name)).collect();
    cluster
        .kubectl
        .with_input("create -f -", &document.join("---\n"))?;
    cluster.kubectl.run("delete configmap entry-00")?;
    cluster
        .kubectl
        .run("label configmap entry-01 changed=yes")?;
    let before = state(&cluster.kubectl)?;
    ensure!(
        before.lines().count() == COUNT - 1,
        "not all were written: {before}"
    );

    cluster.replace_api_server(server)?;
    same(&before, &cluster.kubectl, "a restart of the server")?;
    cluster.restart_store()?;
    cluster.replace_api_server(server)?;
    same(&before, &cluster.kubectl, "a restart of the store")?;
    versions_go_on(&cluster.kubectl)?;
    watches_go_on(cluster)?;
    let old = version(&cluster.kubectl)?;
    cluster.kubectl.run("create configmap later")?;
    cluster.replace_api_server(server)?;
    watches_resume(&cluster.kubectl, &old)
}

fn entry(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{set: entries}}}}, data: {{name: {name}}}}}\n"
    )
}

/// Name, uid, version and label of every entry, read in small pages.
pub(super) fn state(kubectl: &Kubectl) -> Result<String> {
    let fields = "{range .items[*]}{.metadata.name} {.metadata.uid} {.metadata.resourceVersion} {.metadata.labels.changed} {.data.name}{\"\\n\"}{end}";
    kubectl.args(&[
        "get",
        "configmaps",
        "-l",
        "set=entries",
        "--chunk-size=7",
        "-o",
        &format!("jsonpath={fields}"),
    ])
}

pub(super) fn same(before: &str, kubectl: &Kubectl, event: &str) -> Result<()> {
    let after = state(kubectl)?;
    let lost = before.lines().zip(after.lines()).find(|(a, b)| a != b);
    ensure!(
        before == after,
        "after {event} the entries differ, first (before, after): {lost:?}"
    );
    Ok(())
}

// A write with an old version is refused, one with the current version is taken.
fn versions_go_on(kubectl: &Kubectl) -> Result<()> {
    let mut object = kubectl.json("get configmap entry-02")?;
    object["data"]["name"] = "newer".into();
    let document = object.to_string();
    kubectl.with_input("replace -f -", &document)?;
    let again = kubectl.with_input("replace -f -", &document);
    let said = again
        .err()
        .map(|error| format!("{error:#}"))
        .unwrap_or_default();
    ensure!(
        said.contains("the object has been modified"),
        "a write with an old version: {said:?}"
    );
    Ok(())
}

// A watch that was begun before the store went away tells what happens after it has come back.
fn watches_go_on(cluster: &mut Cluster<'_>) -> Result<()> {
    let fields = "{.type} {.object.metadata.name} {.object.metadata.labels.step}";
    let words = "configmaps -l watched=yes --watch";
    // A clone: the cluster itself changes below.
    let kubectl = cluster.kubectl.clone();
    let make = |name: &str| {
        let document = entry(name).replace("set: entries", "watched: 'yes', step: first");
        kubectl.with_input("apply -f -", &document)
    };
    make("one")?;
    let mut watching = kubectl.watch("watch", words, fields)?;
    // It has begun once it tells what was there.
    watching.says(&["ADDED one first"])?;
    kubectl.run("label configmap one step=second --overwrite")?;
    kubectl.run("delete configmap one")?;
    let mut happened = vec![
        "ADDED one first",
        "MODIFIED one second",
        "DELETED one second",
    ];
    watching.says(&happened)?;
    cluster.restart_store()?;
    eventually("the server writes again", || make("two"))?;
    happened.push("ADDED two first");
    watching.says(&happened)
}

fn version(kubectl: &Kubectl) -> Result<String> {
    let list = kubectl.run("get --raw /api/v1/namespaces/default/configmaps?limit=1")?;
    let list: Value = serde_json::from_str(&list)?;
    let version = list["metadata"]["resourceVersion"].as_str();
    Ok(version.context("a list without a version")?.to_owned())
}

// A server that has just started may know the changes since an old version or not; both are in the contract.
fn watches_resume(kubectl: &Kubectl, version: &str) -> Result<()> {
    let events = kubectl.run(&format!(
        "get --raw /api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&resourceVersion={version}"
    ))?;
    let first: Value = serde_json::from_str(events.lines().next().unwrap_or_default())?;
    let resumed = first["type"] == "ADDED" && first["object"]["metadata"]["name"] == "later";
    let told = first["type"] == "ERROR" && first["object"]["code"] == 410;
    ensure!(
        resumed || told,
        "a watch from version {version}: {events:?}"
    );
    Ok(())
}
