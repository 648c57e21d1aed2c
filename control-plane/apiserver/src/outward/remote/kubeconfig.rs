//! A kubeconfig that says where a server's records go: as much of it as that takes. Pure but for its files.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde::Deserialize;

/// Where to, whom to believe, and who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) server: String,
    /// CAs as PEM; the host's own without any.
    pub(super) authority: Option<Vec<u8>>,
    pub(super) unchecked: bool,
    /// Certificate and key as PEM.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The Authorization header.
    pub(super) authorization: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct File {
    clusters: Vec<Named<Cluster>>,
    users: Vec<Named<User>>,
    contexts: Vec<Named<Context>>,
    current_context: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named<T> {
    name: String,
    #[serde(alias = "cluster", alias = "user", alias = "context")]
    value: T,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: String,
    certificate_authority_data: String,
    insecure_skip_tls_verify: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
    username: String,
    password: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

/// Reads a file; says what is wrong with it.
pub(super) fn read(path: &Path) -> Result<Target, String> {
    let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let beside = path.parent().unwrap_or(Path::new(""));
    parse(&text, beside).map_err(|why| format!("{}: {why}", path.display()))
}

fn parse(text: &[u8], beside: &Path) -> Result<Target, String> {
    let parsed = objects::yaml::parse(text).map_err(|error| error.to_string())?;
    let file: File = serde_json::from_value(parsed.value).map_err(|error| error.to_string())?;
    let context = find(&file.contexts, &file.current_context)
        .ok_or_else(|| format!("context {:?} does not exist", file.current_context))?;
    let cluster = find(&file.clusters, &context.cluster)
        .ok_or_else(|| format!("cluster {:?} does not exist", context.cluster))?;
    let nobody = User::default();
    let user = find(&file.users, &context.user).unwrap_or(&nobody);
    let load = |data: &str, path: &str| content(data, path, beside);
    let certificate = load(&user.client_certificate_data, &user.client_certificate)?;
    let key = load(&user.client_key_data, &user.client_key)?;
    let token = match (user.token.as_str(), user.token_file.as_str()) {
        ("", "") => None,
        ("", file) => load("", file)?.map(|text| String::from_utf8_lossy(&text).trim().to_owned()),
        (token, _) => Some(token.to_owned()),
    };
    let basic = (!user.username.is_empty()).then(|| {
        let pair = format!("{}:{}", user.username, user.password);
        format!(
            "Basic {}",
            base64::engine::general_purpose::STANDARD.encode(pair)
        )
    });
    Ok(Target {
        server: cluster.server.clone(),
        authority: load(
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
        )?,
        unchecked: cluster.insecure_skip_tls_verify,
        identity: certificate.zip(key),
        authorization: token.map(|token| format!("Bearer {token}")).or(basic),
    })
}

fn find<'f, T>(all: &'f [Named<T>], name: &str) -> Option<&'f T> {
    let found = all.iter().find(|named| named.name == name);
    found.map(|named| &named.value)
}

fn content(data: &str, path: &str, beside: &Path) -> Result<Option<Vec<u8>>, String> {
    if !data.is_empty() {
        let decoded = base64::engine::general_purpose::STANDARD.decode(data);
        return decoded.map(Some).map_err(|error| error.to_string());
    }
    if path.is_empty() {
        return Ok(None);
    }
    let path: PathBuf = beside.join(path);
    let read = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()));
    read.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_context_counts() {
        let text = "{apiVersion: v1, kind: Config, current-context: b, clusters: [{name: first, cluster: {server: 'https://x'}}, \
            {name: second, cluster: {server: 'https://y:1/audit', certificate-authority-data: Y2E=}}], \
            users: [{name: u, user: {token: t}}], \
            contexts: [{name: a, context: {cluster: first}}, {name: b, context: {cluster: second, user: u}}]}";
        let target = parse(text.as_bytes(), Path::new("")).expect("good");
        assert_eq!(target.server, "https://y:1/audit");
        assert_eq!(target.authority.as_deref(), Some(&b"ca"[..]));
        assert_eq!(target.authorization.as_deref(), Some("Bearer t"));
        assert!(target.identity.is_none());
        let wrong = parse(b"{current-context: c}", Path::new(""));
        assert_eq!(wrong.expect_err("missing"), "context \"c\" does not exist");
    }
}
