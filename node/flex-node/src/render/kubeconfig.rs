//! How the kubelet reaches its API server.

use serde_json::{Value, json};

use crate::paths;

/// The server and who vouches for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// `https://…`.
    pub url: String,
    /// The cluster's name.
    pub cluster: String,
}

/// With a bootstrap token. Only good for asking for a certificate.
pub fn with_token(server: &Server, token: &str) -> String {
    text(
        server,
        "kubelet-bootstrap",
        "bootstrap",
        &json!({"token": token}),
    )
}

/// With a token of the machine's identity, asked for when it is needed. Names are era A's.
pub fn with_exec(server: &Server, program: &str, arguments: &[String]) -> String {
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": program,
        "args": arguments,
        "interactiveMode": "Never",
        "provideClusterInfo": false,
    });
    text(server, "arc-user", "arc-context", &json!({"exec": exec}))
}

/// JSON is YAML too.
fn text(server: &Server, user: &str, context: &str, credential: &Value) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": server.cluster, "cluster": {"server": server.url, "certificate-authority": paths::CLUSTER_CA}}],
        "users": [{"name": user, "user": credential}],
        "contexts": [{"name": context, "context": {"cluster": server.cluster, "user": user}}],
        "current-context": context,
    });
    format!("{config:#}\n")
}

/// The shim of era A's script: whoever still calls it gets the same answer.
pub fn token_script(command: &[String]) -> String {
    let words: Vec<String> = command
        .iter()
        .map(|w| format!("'{}'", w.replace('\'', r"'\''")))
        .collect();
    format!(
        "#!/bin/sh\n# Kept for those who call it by this name.\nexec {}\n",
        words.join(" ")
    )
}
