//! What was written is there after a restart, as it was.

use anyhow::{Result, ensure};

use crate::cluster::{Cluster, Whose};
use crate::kubectl::Kubectl;

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
    versions_go_on(&cluster.kubectl)
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
