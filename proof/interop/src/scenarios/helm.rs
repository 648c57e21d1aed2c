//! A chart's life.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::kubectl::run as run_program;

/// Install, upgrade, an upgrade that is refused, rollback, uninstall.
pub(crate) fn run(cluster: &mut Cluster<'_>) -> Result<()> {
    let helm = Helm(cluster);
    let kubectl = &cluster.kubectl;
    let chart = cluster.programs.chart().display().to_string();
    helm.run(&["install", "shop", &chart, "--set", "greeting=hello"])?;
    kubectl.expect("get configmap shop", "{.data.greeting}", "hello")?;
    kubectl.expect("get deployment shop", "{.spec.replicas}", "1")?;
    kubectl.expect(
        "get service shop",
        "{.metadata.labels.app\\.kubernetes\\.io/managed-by}",
        "Helm",
    )?;

    helm.run(&[
        "upgrade",
        "shop",
        &chart,
        "--set",
        "greeting=bye,replicas=3",
    ])?;
    kubectl.expect("get configmap shop", "{.data.greeting}", "bye")?;
    kubectl.expect("get deployment shop", "{.spec.replicas}", "3")?;

    helm.refused(
        &["upgrade", "shop", &chart, "--set", "replicas=-1"],
        "spec.replicas",
    )?;
    helm.run(&["rollback", "shop", "1"])?;
    kubectl.expect("get configmap shop", "{.data.greeting}", "hello")?;
    kubectl.expect("get deployment shop", "{.spec.replicas}", "1")?;
    helm.expect_history(&["superseded", "superseded", "failed", "deployed"])?;

    helm.run(&["uninstall", "shop"])?;
    kubectl.refused("get deployment shop", "(NotFound)")?;
    kubectl.expect("get secrets", "{.items}", "[]")
}

struct Helm<'a, 'b>(&'a Cluster<'b>);

impl Helm<'_, '_> {
    fn run(&self, args: &[&str]) -> Result<String> {
        let cluster = self.0;
        let mut command = Command::new(cluster.programs.upstream("helm")?);
        command.args(args).env("HOME", cluster.dir);
        command.env("KUBECONFIG", cluster.pki.file("admin.kubeconfig"));
        run_program(&mut command, "")
    }

    fn refused(&self, args: &[&str], complaint: &str) -> Result<()> {
        match self.run(args) {
            Ok(said) => bail!("helm {args:?} should have been refused, said {said:?}"),
            Err(error) if format!("{error:#}").contains(complaint) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn expect_history(&self, wanted: &[&str]) -> Result<()> {
        let text = self.run(&["history", "shop", "-o", "json"])?;
        let history: Vec<Value> = serde_json::from_str(&text).context("helm history")?;
        let states: Vec<&str> = history
            .iter()
            .filter_map(|entry| entry["status"].as_str())
            .collect();
        ensure!(states == wanted, "helm history: {states:?}, not {wanted:?}");
        Ok(())
    }
}
