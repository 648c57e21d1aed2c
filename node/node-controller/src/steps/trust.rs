//! Certificate authorities the whole machine trusts: the cluster's custom ones and the proxy's.

use ::steps::engine::{Change, Check, Failure, Scene};
use ::steps::host::Command;

use super::Changes;
use crate::config::Configuration;
use crate::render::azure::decoded;
use crate::render::proxy;

const STORE: &str = "/usr/local/share/ca-certificates";
const PREFIX: &str = "aks-custom-";

/// Whether there are any.
pub(super) fn wanted(config: &Configuration) -> bool {
    !config.custom_ca_certs.is_empty() || has_proxy_ca(config)
}

fn has_proxy_ca(config: &Configuration) -> bool {
    proxy::wanted(config) && !config.http_proxy_config.proxy_trusted_ca.is_empty()
}

/// Puts them where the distribution looks, removes those of an earlier configuration, and has the
/// distribution's bundle made anew when something there changed.
pub(super) fn certificates(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let (mut changes, mut present) = (Vec::new(), Vec::new());
    for (n, encoded) in config.custom_ca_certs.iter().enumerate() {
        let name = format!("00000000000000cert{n}.crt");
        let pem = certificate(encoded, &format!("custom_ca_certs[{n}]"))?;
        changes.push(Change::file(
            format!("/opt/certs/{name}"),
            0o644,
            pem.clone(),
        ));
        changes.push(Change::file(
            format!("{STORE}/certs/{PREFIX}{name}"),
            0o644,
            pem,
        ));
        present.push(format!("{PREFIX}{name}"));
    }
    if has_proxy_ca(config) {
        let encoded = &config.http_proxy_config.proxy_trusted_ca;
        let pem = certificate(encoded, "http_proxy_config.proxy_trusted_ca")?;
        changes.push(Change::file(format!("{STORE}/proxyCA.crt"), 0o644, pem));
    }
    changes.extend(stale(scene, &present));
    let check = Check::Inputs {
        paths: vec![STORE.into()],
        per_boot: false,
    };
    let update = Command::new("update-ca-certificates", &["--fresh"]);
    changes.push(Change::command(
        "make the bundle of trusted CAs",
        check,
        update,
    ));
    Ok(changes)
}

fn stale(scene: &Scene<'_>, present: &[String]) -> Vec<Change> {
    let directory = format!("{STORE}/certs");
    let names = scene.host.files().list(&directory).unwrap_or_default();
    let old = names
        .into_iter()
        .filter(|n| n.starts_with(PREFIX) && !present.contains(n));
    old.map(|name| Change::absent(format!("{directory}/{name}")))
        .collect()
}

fn certificate(encoded: &str, field: &str) -> Result<Vec<u8>, Failure> {
    let pem = decoded(encoded).filter(|pem| pem.starts_with(b"-----BEGIN CERTIFICATE-----"));
    pem.ok_or_else(|| {
        Failure::permanent(
            format!("`{field}` is not a certificate: it must be base64 of PEM"),
            format!(
                "encode the PEM file as it is: `base64 -w0 ca.pem`, and put that into `{field}`"
            ),
        )
    })
}
