//! The API server, as a client sees it: for tokens and leases only.

use std::path::Path;

use client_runtime::Connection;

/// Who we are to the API server.
const AGENT: &str = "kyanite-konnectivity";

/// There is no way to the API server.
#[derive(Debug, thiserror::Error)]
#[error("there is no way to the API server: {0}")]
pub struct KubeError(#[from] client_runtime::Error);

/// A client from a kubeconfig, or from a pod's own credentials.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client, KubeError> {
    let connection = match kubeconfig {
        Some(path) => Connection::Kubeconfig(path.to_owned()),
        None => Connection::InCluster,
    };
    Ok(client_runtime::client(&connection, AGENT).await?)
}

/// The status and reason of an answer, as metrics have them.
pub(crate) fn outcome<T>(result: &kube::Result<T>) -> (String, String) {
    match result {
        Ok(_) => ("200".to_owned(), String::new()),
        Err(kube::Error::Api(status)) => (status.code.to_string(), status.reason.clone()),
        Err(_) => ("0".to_owned(), "Unknown".to_owned()),
    }
}
