//! A cloud of ours, hollow, for whoever speaks to Azure.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use azure::{Arm, CloudConfig};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use wire::client::Client;

use crate::cluster::Cluster;
use crate::process::Process;
use crate::wait::eventually;

/// A running cloud, and how it is reached.
pub(crate) struct Cloud {
    process: Process,
    dir: PathBuf,
    known: Value,
    runtime: Runtime,
    arm: Arm,
}

/// The group that scenarios put things into.
const GROUP: &str = "g";
const PATIENCE: Duration = Duration::from_secs(60);

fn settings(known: &Value) -> Value {
    let credentials = &known["credentials"];
    json!({"cloud": "Kyanite", "resourceManagerEndpoint": known["origin"], "tenantId": credentials["tenant"],
        "subscriptionId": credentials["subscription"], "aadClientId": credentials["client_id"],
        "aadClientSecret": credentials["client_secret"], "resourceGroup": GROUP, "location": "eastus", "vnetName": "net",
        "subnetName": "nodes", "securityGroupName": "nsg", "routeTableName": "routes", "vmType": "vmss",
        "loadBalancerSku": "Standard", "routeUpdateIntervalInSeconds": 1, "routeUpdateWaitingInSeconds": 1})
}

impl Cloud {
    /// Starts one beside a cluster. Its operations take a tenth of their usual time.
    pub(crate) fn start(cluster: &Cluster<'_>) -> Result<Cloud> {
        Cloud::start_in(cluster, "cloud")
    }

    /// The same, in a directory of this name.
    pub(crate) fn start_in(cluster: &Cluster<'_>, name: &str) -> Result<Cloud> {
        let dir = cluster.subdirectory(name)?;
        let mut command = Command::new(cluster.programs.kyanite());
        command
            .args(["cloud", "--pace", "0.1", "--port"])
            .arg(cluster.ports.cloud.to_string())
            .arg("--data-dir")
            .arg(&dir)
            .env("HOME", cluster.dir);
        let mut process = Process::start("cloud", cluster.dir, &mut command)?;
        let known = eventually("the cloud is open", || {
            process.check()?;
            let mut command = Command::new(cluster.programs.kyanite());
            command
                .args(["az-env", "-o", "json", "--data-dir"])
                .arg(&dir);
            let output = command.env("HOME", cluster.dir).output()?;
            let known: Value =
                serde_json::from_slice(&output.stdout).context("az-env says no JSON")?;
            ensure!(known["origin"].is_string(), "az-env says {known}");
            Ok(known)
        })?;
        let settings = settings(&known);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let config = CloudConfig::parse(&settings.to_string(), |_| None)?;
        let authority = std::fs::read(dir.join("pki/ca.crt"))?;
        let tls = wire::https::tls(Some(&authority)).map_err(anyhow::Error::msg)?;
        let client = Client::new(tls, PATIENCE);
        let arm = runtime.block_on(Arm::connect(&config, Arc::new(client), |_| None))?;
        Ok(Cloud {
            process,
            dir,
            known,
            runtime,
            arm,
        })
    }

    /// azure.json of a cluster in the one group.
    pub(crate) fn settings(&self) -> Value {
        settings(&self.known)
    }

    fn group(&self) -> String {
        format!(
            "/subscriptions/{}/resourceGroups/{GROUP}",
            self.credential("subscription")
        )
    }

    /// The id of something in the group: `Microsoft.Network/loadBalancers/lb`.
    pub(crate) fn id(&self, path: &str) -> String {
        format!("{}/providers/{path}", self.group())
    }

    /// Makes the group.
    pub(crate) fn put_group(&self) -> Result<()> {
        let body = json!({"location": "eastus"});
        let id = self.group();
        self.runtime
            .block_on(self.arm.put::<_, Value>(&id, &body, ""))?;
        Ok(())
    }

    /// Writes a resource of the group.
    pub(crate) fn put(&self, path: &str, body: &Value) -> Result<()> {
        let id = self.id(path);
        self.runtime
            .block_on(self.arm.put::<_, Value>(&id, body, ""))?;
        Ok(())
    }

    /// Reads a resource of the group; null where there is none.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        let id = self.id(path);
        let found: Option<Value> = self.runtime.block_on(self.arm.get(&id, ""))?;
        Ok(found.unwrap_or_default())
    }

    /// The resources of a type.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<Value>> {
        let id = self.id(path);
        Ok(self.runtime.block_on(self.arm.list(&id, ""))?)
    }

    /// Fails when it has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.process.check()
    }

    /// One of the owner's credentials, by its name.
    pub(crate) fn credential(&self, name: &str) -> &str {
        self.known["credentials"][name].as_str().unwrap_or_default()
    }

    /// Where it is.
    pub(crate) fn origin(&self) -> &str {
        self.known["origin"].as_str().unwrap_or_default()
    }

    /// Its certificate authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.dir.join("pki/ca.crt")
    }

    /// A command in the environment that `kyanite az-env` gives a shell.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let exports = self.known["exports"].as_str().unwrap_or_default();
        for line in exports.lines() {
            if let Some((name, value)) = line.trim_start_matches("export ").split_once('=') {
                command.env(name, value.trim_matches('\''));
            }
        }
        command
            .env("ORIGIN", self.origin())
            .env("USERNAME", self.credential("username"))
            .env("PASSWORD", self.credential("password"))
            .env("HOME", &self.dir);
        command
    }
}
