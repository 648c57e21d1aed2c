//! Azure's own agent of Arc, where it is installed: it connects the machine and serves its identity. Its options travel in a file
//! that root alone may read: an argument would show the token to everybody on the machine.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Refused, private};
use crate::config::{Arc as ArcMachine, Config};

/// Where its package puts it.
pub const PROGRAM: &str = "/opt/azcmagent/bin/azcmagent";

/// The options of `connect`, as its `--config` has them.
fn options(config: &Config, arc: &ArcMachine, name: &str, token: &str) -> Value {
    let tags: Vec<String> = arc.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
    json!({"access-token": token, "tenant-id": config.azure.tenant, "subscription-id": config.azure.subscription,
        "resource-group": arc.group, "location": arc.location, "resource-name": name, "cloud": cloud(&config.azure.cloud),
        "tags": tags.join(",")})
}

/// The clouds as it calls them.
fn cloud(name: &str) -> &'static str {
    match name.to_lowercase().as_str() {
        "azureusgovernmentcloud" | "azureusgovernment" => "AzureUSGovernment",
        "azurechinacloud" => "AzureChinaCloud",
        _ => "AzureCloud",
    }
}

/// Connects the machine.
pub(super) async fn connect(
    program: &Path,
    config: &Config,
    arc: &ArcMachine,
    name: &str,
    token: &str,
) -> Result<(), Refused> {
    run(program, "connect", &options(config, arc, name, token)).await
}

/// Disconnects it.
pub(super) async fn disconnect(program: &Path, token: &str) -> Result<(), Refused> {
    run(program, "disconnect", &json!({ "access-token": token })).await
}

async fn run(program: &Path, verb: &str, options: &Value) -> Result<(), Refused> {
    let file = PathBuf::from(crate::paths::VOLATILE).join("azcmagent.json");
    let refused = |cause: String| Refused {
        cause: format!("`azcmagent {verb}`: {cause}"),
        remedy: "see `azcmagent check`, `azcmagent show` and /var/opt/azcmagent/log".to_owned(),
    };
    private::write(&file, options.to_string().as_bytes()).map_err(|e| refused(e.to_string()))?;
    let ran = tokio::process::Command::new(program)
        .arg(verb)
        .arg("--config")
        .arg(&file)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    // What holds a token does not outlive what it was for.
    let _ = std::fs::remove_file(&file);
    let output = ran.map_err(|e| refused(e.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            let last = said.lines().last().unwrap_or_default();
            Err(refused(format!("{}: {last}", output.status)))
        }
    }
}
