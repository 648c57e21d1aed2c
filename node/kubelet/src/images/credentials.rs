//! Credentials for registries: of the pod's pull secrets and of the programs that the node was told of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::cri::AuthConfig;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    username: String,
    password: String,
    auth: String,
    identitytoken: String,
}

/// What the pod's secrets have for an image, the longest match first.
pub(super) fn matching(image: &str, secrets: &[Arc<Secret>]) -> Vec<AuthConfig> {
    let mut found: Vec<(usize, AuthConfig)> = Vec::new();
    for secret in secrets {
        for (registry, entry) in entries(secret) {
            let place = registry
                .trim_start_matches("https://")
                .trim_start_matches("http://")
                .trim_end_matches('/');
            let place = place.trim_end_matches("/v1").trim_end_matches("/v2");
            if is_within(image, place) {
                found.push((place.len(), auth(&registry, entry)));
            }
        }
    }
    found.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    found.into_iter().map(|(_, auth)| auth).collect()
}

fn entries(secret: &Secret) -> BTreeMap<String, Entry> {
    let data = secret.data.iter().flatten();
    let mut found = BTreeMap::new();
    for (key, value) in data {
        let parsed: Option<Value> = serde_json::from_slice(&value.0).ok();
        let auths = match key.as_str() {
            ".dockerconfigjson" => parsed.and_then(|mut v| v.get_mut("auths").map(Value::take)),
            ".dockercfg" => parsed,
            _ => None,
        };
        let auths: Option<BTreeMap<String, Entry>> =
            auths.and_then(|v| serde_json::from_value(v).ok());
        found.extend(auths.unwrap_or_default());
    }
    found
}

fn auth(registry: &str, entry: Entry) -> AuthConfig {
    let mut auth = AuthConfig {
        username: entry.username,
        password: entry.password,
        server_address: registry.to_owned(),
        identity_token: entry.identitytoken,
        ..AuthConfig::default()
    };
    let pair = STANDARD
        .decode(&entry.auth)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some((user, password)) = pair.as_deref().and_then(|pair| pair.split_once(':')) {
        auth.username = user.to_owned();
        auth.password = password.trim_matches('\0').to_owned();
    }
    auth
}

/// Whether an image is of a registry or below a path of it. A name without a registry is Docker Hub's.
fn is_within(image: &str, place: &str) -> bool {
    let first = image.split('/').next().unwrap_or_default();
    let has_registry = image.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    let full = match has_registry {
        true => image.to_owned(),
        false => format!("index.docker.io/{image}"),
    };
    let (host, path) = place.split_once('/').unwrap_or((place, ""));
    let (image_host, image_path) = full.split_once('/').unwrap_or((&full, ""));
    let host = if host == "docker.io" {
        "index.docker.io"
    } else {
        host
    };
    let image_host = if image_host == "docker.io" {
        "index.docker.io"
    } else {
        image_host
    };
    host_matches(host, image_host) && image_path.starts_with(path)
}

/// Part by part; `*` stands for what is between two dots.
fn host_matches(pattern: &str, host: &str) -> bool {
    let split = |text: &str| -> Vec<String> { text.split('.').map(str::to_owned).collect() };
    let (pattern, host) = (split(pattern), split(host));
    let part = |(pattern, part): (&String, &String)| match pattern.split_once('*') {
        None => pattern == part,
        Some((before, after)) => {
            part.len() >= before.len() + after.len()
                && part.starts_with(before)
                && part.ends_with(after)
        }
    };
    pattern.len() == host.len() && pattern.iter().zip(&host).all(part)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Providers {
    #[serde(default)]
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Provider {
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
    #[serde(default)]
    api_version: String,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    value: String,
}

/// What the node's programs have for an image.
pub(super) async fn provided(ctx: &Context, image: &str) -> Vec<AuthConfig> {
    let Some((config, programs)) = &ctx.settings.credential_provider else {
        return Vec::new();
    };
    let text = std::fs::read_to_string(config).unwrap_or_default();
    let providers: Providers = match serde_saphyr::from_str(&text) {
        Ok(providers) => providers,
        Err(error) => {
            tracing::warn!(file = %config.display(), %error, "the credential providers cannot be read");
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for provider in providers.providers {
        if !provider
            .match_images
            .iter()
            .any(|pattern| is_within(image, pattern))
        {
            continue;
        }
        let program = programs.join(&provider.name);
        let answer = ask(&provider, &program, image);
        match tokio::time::timeout(Duration::from_secs(60), answer).await {
            Ok(Ok(auths)) => found.extend(auths),
            Ok(Err(error)) => {
                tracing::warn!(provider = provider.name, %error, "a credential provider failed")
            }
            Err(_) => tracing::warn!(
                provider = provider.name,
                "a credential provider does not answer"
            ),
        }
    }
    found
}

async fn ask(
    provider: &Provider,
    program: &std::path::Path,
    image: &str,
) -> std::io::Result<Vec<AuthConfig>> {
    use tokio::io::AsyncWriteExt as _;
    let request = json!({"apiVersion": provider.api_version, "kind": "CredentialProviderRequest", "image": image});
    let mut child = tokio::process::Command::new(program)
        .args(&provider.args)
        .envs(provider.env.iter().map(|v| (&v.name, &v.value)))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(request.to_string().as_bytes()).await?;
    }
    let output = child.wait_with_output().await?;
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let auths: BTreeMap<String, Entry> =
        serde_json::from_value(answer["auth"].clone()).unwrap_or_default();
    let auths = auths
        .into_iter()
        .filter(|(place, _)| is_within(image, place));
    Ok(auths.map(|(place, entry)| auth(&place, entry)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_match_registries_paths_and_stars() {
        for (image, place, matches) in [
            ("busybox:1", "index.docker.io", true),
            ("busybox:1", "docker.io", true),
            ("a.azurecr.io/x:1", "*.azurecr.io", true),
            ("a.b.azurecr.io/x:1", "*.azurecr.io", false),
            ("r.example/team/x", "r.example/team", true),
            ("r.example/other/x", "r.example/team", false),
            ("r.example:5000/x", "r.example", false),
        ] {
            assert_eq!(is_within(image, place), matches, "{image} {place}");
        }
    }
}
