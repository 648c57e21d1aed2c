//! Azure's command line and SDKs on a cloud of ours: programs in `clients/` that tell what they saw.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::cluster::Cluster;
use crate::kubectl::run as run_program;
use crate::outcome::Missing;

/// A program that uses an SDK, and what it has to see besides what all of them do.
pub(crate) struct Sdk {
    needs: &'static str,
    program: fn(&Path) -> Result<Vec<PathBuf>>,
    also: fn() -> Value,
}

/// Python's, as they come with az, and azure-identity.
pub(crate) const PYTHON: Sdk = Sdk {
    needs: "azure/sdk.py",
    program: |clients| Ok(vec![python()?, clients.join("azure/sdk.py")]),
    also: || json!({"disk": "Succeeded", "person": true, "federated": true, "other subject": true}),
};

/// JavaScript's.
pub(crate) const JAVASCRIPT: Sdk = Sdk {
    needs: "javascript/node_modules/@azure/identity/package.json",
    program: |clients| Ok(vec!["node".into(), clients.join("javascript/azure.js")]),
    also: || json!({}),
};

/// Go's, as compiled from their modules.
pub(crate) const GO: Sdk = Sdk {
    needs: "go/azure",
    program: |clients| Ok(vec![clients.join("go/azure")]),
    also: || json!({}),
};

/// The Python that az runs with.
fn python() -> Result<PathBuf> {
    let az = std::env::var_os("AZ").map(PathBuf::from);
    let found = az
        .map(|az| az.with_file_name("python"))
        .filter(|path| path.exists());
    found.ok_or_else(|| Missing("AZ names no az with a Python beside it".into()).into())
}

fn check_for(clients: &Path, needs: &str) -> Result<()> {
    match clients.join(needs).exists() {
        true => Ok(()),
        false => Err(Missing(format!("set-up has not made {needs}")).into()),
    }
}

/// Runs an SDK's program, and compares what it saw.
pub(crate) fn sdk(cluster: &Cluster<'_>, sdk: &Sdk) -> Result<()> {
    let clients = cluster.programs.clients();
    check_for(clients, sdk.needs)?;
    let words = (sdk.program)(clients)?;
    let mut cloud = Cloud::start(cluster)?;
    let mut command = cloud.command(&words[0]);
    let seen = run_program(command.args(&words[1..]), "")?;
    let seen: Value = serde_json::from_str(&seen).with_context(|| format!("it said {seen:?}"))?;
    let mut wanted = json!({"wrong": true, "group": "Succeeded", "missing": "ResourceGroupNotFound",
        "cluster": "Succeeded", "second": 409, "pages": 4, "groups": 7, "refused": 400, "left": 0});
    let also = (sdk.also)();
    for (key, value) in also.as_object().into_iter().flatten() {
        wanted[key] = value.clone();
    }
    ensure!(seen == wanted, "it saw {seen}, not {wanted}");
    cloud.check()
}

/// Does with az what the table says.
pub(crate) fn az(cluster: &Cluster<'_>) -> Result<()> {
    let clients = cluster.programs.clients();
    check_for(clients, "azure/az.py")?;
    let python = python()?;
    let mut cloud = Cloud::start(cluster)?;
    let tmp = cluster.subdirectory("files")?;
    let mut files = Command::new(&python);
    run_program(files.arg(clients.join("azure/files.py")).arg(&tmp), "")?;
    // Whoever follows the table signs in by themselves.
    for file in ["azureProfile.json", "service_principal_entries.json"] {
        std::fs::remove_file(cluster.dir.join("cloud/azure").join(file)).context(file)?;
    }
    let mut command = cloud.command(&python);
    command.args([clients.join("azure/az.py"), clients.join("azure/az.tbl")]);
    for (name, value) in [
        ("client", cloud.credential("client_id")),
        ("secret", cloud.credential("client_secret")),
        ("tenant", cloud.credential("tenant")),
        ("subscription", cloud.credential("subscription")),
        ("vault", "kyaniteinterop"),
        ("storage", "kyaniteinterop"),
        ("tmp", &tmp.display().to_string()),
    ] {
        command.arg(format!("{name}={value}"));
    }
    let said = run_program(&mut command, "")?;
    // Some commands of az print by themselves; what was seen is the last line.
    let last = said.lines().last().unwrap_or_default();
    let said: Value = serde_json::from_str(last).with_context(|| format!("it said {said:?}"))?;
    let wrong: Vec<String> = said["wrong"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| format!("az {}: {}", one["line"], one["trouble"]))
        .collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    cloud.check()
}
