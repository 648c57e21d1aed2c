//! What ties the node to its cluster: the cloud's configuration, certificates, and the kubelet's
//! first credential.

use ::steps::engine::{Change, Content, Failure, File, Goal, Scene, Unit};

use super::{Changes, observe};
use crate::config::Configuration;
use crate::config::predicates::is_custom_cloud;
use crate::render::azure::{self, decoded};
use crate::render::{kubeconfig, kubelet, kubelet_file, tls_bootstrap, units};

const API_SERVER_CERTIFICATE: &str = "/etc/kubernetes/certs/apiserver.crt";
const CLIENT_CERTIFICATE: &str = "/etc/kubernetes/certs/client.crt";
const CLIENT_KEY: &str = "/etc/kubernetes/certs/client.key";

/// `azure.json`, and the environment of a cloud of its own.
pub(super) fn azure_json(config: &Configuration, _: &Scene<'_>) -> Changes {
    let mut changes = vec![Change::secret_file(
        azure::AZURE_JSON,
        azure::azure_json(config),
    )];
    if is_custom_cloud(config) {
        let environment = azure::custom_environment(config);
        changes.push(Change::secret_file(azure::CUSTOM_ENVIRONMENT, environment));
    }
    Ok(changes)
}

/// The cluster's CA.
pub(super) fn ca(config: &Configuration, _: &Scene<'_>) -> Changes {
    let pem = pem(&config.kubernetes_ca_cert, "kubernetes_ca_cert")?;
    Ok(vec![Change::file(kubeconfig::CA_FILE, 0o600, pem)])
}

/// Certificates that came with the configuration, and the kubelet's configuration file.
pub(super) fn kubelet_files(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let mut changes = Vec::new();
    let public = &config.api_server_config.api_server_public_key;
    if !public.is_empty() {
        let pem = pem(public, "api_server_config.api_server_public_key")?;
        changes.push(Change::file(API_SERVER_CERTIFICATE, 0o644, pem));
    }
    if kubeconfig::token(config).is_none() && !tls_bootstrap::enabled(config) {
        changes.extend(client_certificate(config)?);
    }
    if config.kubelet_config.enable_kubelet_config_file {
        let machine = observe::machine(config, scene);
        let text = kubelet_file::config_file(config, &machine);
        changes.push(Change::file(kubelet::CONFIG_FILE, 0o600, text));
    }
    Ok(changes)
}

fn client_certificate(config: &Configuration) -> Result<Vec<Change>, Failure> {
    let kubelet = &config.kubelet_config;
    let mut changes = Vec::new();
    if !kubelet.kubelet_client_key.is_empty() {
        let key = pem(
            kubelet.kubelet_client_key.reveal(),
            "kubelet_config.kubelet_client_key",
        )?;
        changes.push(Change::secret_file(CLIENT_KEY, key));
    }
    if !kubelet.kubelet_client_cert_content.is_empty() {
        let field = "kubelet_config.kubelet_client_cert_content";
        let certificate = pem(&kubelet.kubelet_client_cert_content, field)?;
        changes.push(Change::file(CLIENT_CERTIFICATE, 0o644, certificate));
    }
    Ok(changes)
}

/// The client that gets the first certificate: enabled only, the kubelet's start pulls it in.
pub(super) fn secure_tls_bootstrap(config: &Configuration, scene: &Scene<'_>) -> Changes {
    const UNIT: &str = "secure-tls-bootstrap.service";
    let flags = Content::Bytes(tls_bootstrap::default_file(config).into_bytes());
    let mut changes = vec![
        Change::File(File::new(tls_bootstrap::DEFAULT_FILE, 0o600, flags)),
        Change::file(tls_bootstrap::DROP_IN, 0o600, tls_bootstrap::drop_in()),
    ];
    changes.extend(observe::own_unit(
        scene,
        UNIT,
        units::secure_tls_bootstrap(),
    ));
    changes.push(Change::Unit(Unit {
        name: UNIT.to_owned(),
        enabled: Some(true),
        goal: Goal::AsIs,
        inputs: Vec::new(),
        no_block: false,
    }));
    Ok(changes)
}

fn pem(encoded: &str, field: &str) -> Result<Vec<u8>, Failure> {
    decoded(encoded).filter(|pem| pem.starts_with(b"-----BEGIN ")).ok_or_else(|| {
        let what = if encoded.is_empty() { "is missing" } else { "is not base64 of PEM" };
        Failure::permanent(
            format!("`{field}` {what}"),
            format!("put the output of `base64 -w0` of the PEM file into `{field}`; `validate` shows every such field"),
        )
    })
}
