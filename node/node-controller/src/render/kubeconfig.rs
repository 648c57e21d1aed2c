//! How the kubelet reaches its API server: with a bootstrap token, or with a certificate that came
//! with the configuration.

use crate::config::Configuration;

/// The cluster's CA.
pub const CA_FILE: &str = "/etc/kubernetes/certs/ca.crt";
/// The kubelet's own kubeconfig.
pub const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
/// What the kubelet asks for its first certificate with.
pub const BOOTSTRAP_KUBECONFIG: &str = "/var/lib/kubelet/bootstrap-kubeconfig";

/// The API server's host and port. The contract knows only port 443; another one may follow the
/// name, for clusters that are not Azure's.
pub fn endpoint(config: &Configuration) -> (&str, u16) {
    let name = config.api_server_config.api_server_name.as_str();
    let split = name
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse().ok()?)));
    split
        .filter(|(host, _)| !host.contains(':'))
        .unwrap_or((name, 443))
}

/// The URL of the API server.
pub fn server(config: &Configuration) -> String {
    let (host, port) = endpoint(config);
    format!("https://{host}:{port}")
}

/// The bootstrap token, if there is one.
pub fn token(config: &Configuration) -> Option<&str> {
    let token = config
        .bootstrapping_config
        .tls_bootstrapping_token
        .as_ref()?;
    Some(token.reveal()).filter(|token| !token.is_empty())
}

/// The kubeconfig that holds the bootstrap token.
pub fn with_token(config: &Configuration, token: &str) -> String {
    let token = serde_json::Value::from(token);
    kubeconfig(
        config,
        "kubelet-bootstrap",
        "bootstrap-context",
        &format!("    token: {token}\n"),
    )
}

/// The kubeconfig that points at the client certificate of the configuration.
pub fn with_certificate(config: &Configuration) -> String {
    let credential = "    client-certificate: /etc/kubernetes/certs/client.crt\n    \
                      client-key: /etc/kubernetes/certs/client.key\n";
    kubeconfig(config, "client", "localclustercontext", credential)
}

fn kubeconfig(config: &Configuration, user: &str, context: &str, credential: &str) -> String {
    let server = server(config);
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: localcluster\n  \
           cluster:\n    \
             certificate-authority: {CA_FILE}\n    \
             server: {server}\n\
         users:\n\
         - name: {user}\n  \
           user:\n\
         {credential}\
         contexts:\n\
         - name: {context}\n  \
           context:\n    \
             cluster: localcluster\n    \
             user: {user}\n\
         current-context: {context}\n"
    )
}
