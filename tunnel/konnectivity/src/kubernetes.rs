//! The API server, as a client sees it: for tokens and leases only.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};

/// There is no way to the API server.
#[derive(Debug, thiserror::Error)]
#[error("{from} gives no way to the API server: {text}")]
pub struct KubeError {
    from: String,
    text: String,
}

/// A client from a kubeconfig, or from a pod's own credentials.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client, KubeError> {
    let from = match kubeconfig {
        Some(path) => path.display().to_string(),
        None => "the pod's service account".to_owned(),
    };
    let failed = |text: String| KubeError {
        from: from.clone(),
        text,
    };
    let config = match kubeconfig {
        None => kube::Config::incluster().map_err(|e| failed(e.to_string()))?,
        Some(path) => {
            let file = Kubeconfig::read_from(PathBuf::from(path));
            let file = file.map_err(|e| failed(e.to_string()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(|e| failed(e.to_string()))?
        }
    };
    kube::Client::try_from(config).map_err(|e| failed(e.to_string()))
}

/// The status and reason of an answer, as metrics have them.
pub(crate) fn outcome<T>(result: &kube::Result<T>) -> (String, String) {
    match result {
        Ok(_) => ("200".to_owned(), String::new()),
        Err(kube::Error::Api(status)) => (status.code.to_string(), status.reason.clone()),
        Err(_) => ("0".to_owned(), "Unknown".to_owned()),
    }
}
