//! Whose tokens a cluster believes besides its own: those of the Entra ID of the cloud that it is in, as AKS does.
//!
//! To be believed is not to be allowed: who somebody of Entra is here is their object id (a person's is their name), and what they may
//! do is said by roles and bindings.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::Up;
use crate::datadir::{DataDir, make_private, write_private};
use crate::exit::{Failure, Result};

/// The application that stands for API servers of AKS.
const SERVER_ID: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";

fn file(dir: &DataDir) -> PathBuf {
    dir.path().join("azure").join("authentication.json")
}

/// The file that says whom to believe, for a cluster in a cloud. The cloud may open later than the cluster: until then
/// nobody is believed, or who was before.
pub(super) fn believed(up: &Up, dir: &DataDir) -> Result<Option<PathBuf>> {
    if !up.beside.cloud && up.beside.cloud_config.is_none() {
        return Ok(None);
    }
    let file = file(dir);
    if !file.exists() {
        write(&file, &configuration(&[]))?;
    }
    Ok(Some(file))
}

/// Tells a cluster of the Entra ID of the cloud that an azure.json names.
pub(crate) fn tell(dir: &DataDir, config: &Value, signed_by: &Path) -> Result<()> {
    let pem = std::fs::read_to_string(signed_by);
    let pem = pem.map_err(|e| Failure::file("read", signed_by, &e))?;
    let text = |field: &str| config[field].as_str().unwrap_or_default();
    let (tenant, origin) = (text("tenantId"), text("resourceManagerEndpoint"));
    write(&file(dir), &configuration(&[issuer(tenant, origin, &pem)]))
}

fn write(file: &Path, configuration: &Value) -> Result<()> {
    if let Some(place) = file.parent() {
        make_private(place)?;
    }
    write_private(file, configuration.to_string().as_bytes())
}

fn configuration(issuers: &[Value]) -> Value {
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": issuers})
}

fn issuer(tenant: &str, origin: &str, authority: &str) -> Value {
    let origin = origin.trim_end_matches('/');
    json!({
        "issuer": {"url": format!("https://sts.windows.net/{tenant}/"), "audiences": [SERVER_ID],
            "discoveryURL": format!("{origin}/{tenant}/.well-known/openid-configuration"), "certificateAuthority": authority},
        "claimMappings": {
            "username": {"expression": "has(claims.upn) ? claims.upn : claims.oid"},
            "groups": {"expression": "has(claims.groups) ? claims.groups : []"},
        },
    })
}
