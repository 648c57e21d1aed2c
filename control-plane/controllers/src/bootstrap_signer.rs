//! Signs ConfigMap kube-public/cluster-info with each bootstrap token, so that who knows the token can
//! trust what anyone can read.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use crate::Manager;
use crate::bootstrap_token::for_signing;
use crate::watched::BootstrapToken;
use client_runtime::Synced;
use client_runtime::{Actor, is_outdated};
use client_runtime::{Cache, ObjectKey};
use client_runtime::{End, Queue};

const ACCOUNT: &str = "bootstrap-signer";
const NAMESPACE: &str = "kube-public";
const NAME: &str = "cluster-info";
const CONTENT: &str = "kubeconfig";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let tokens = manager.shared::<BootstrapToken>();
    let fields = format!("metadata.name={NAME}");
    let maps = manager.watch(
        Api::namespaced(manager.client(), NAMESPACE),
        &fields,
        |map: ConfigMap| map,
    );
    let queue = Arc::new(Queue::new());
    let noticed = Arc::clone(&queue);
    tokens.on_change(move |_| noticed.add(()));
    let noticed = Arc::clone(&queue);
    maps.on_change(move |_| noticed.add(()));
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(
        name,
        queue,
        1,
        [tokens.completion(), maps.completion()],
        move |()| sync(tokens.clone(), maps.clone(), actor.clone()),
    );
}

async fn sync(tokens: Cache<BootstrapToken>, maps: Cache<ConfigMap>, actor: Actor) -> Synced {
    let Some(map) = maps.get(&ObjectKey::new(NAMESPACE, NAME)) else {
        return Ok(End::Done);
    };
    let tokens = tokens.all();
    let now = Timestamp::now();
    let secrets = tokens.iter().map(|(_, token)| &token.0);
    let living = secrets.filter_map(|secret| for_signing(secret, now));
    let Some(data) = signed(map.data.as_ref(), living) else {
        return Ok(End::Done);
    };
    let mut map = ConfigMap::clone(&map);
    map.data = Some(data);
    match actor.replace(&map).await {
        Err(error) if is_outdated(&error) => Ok(End::Done),
        other => other.map(|_| End::Done),
    }
}

/// The data with one signature per token and no other, if it is not so already.
fn signed<'a>(
    data: Option<&BTreeMap<String, String>>,
    tokens: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<BTreeMap<String, String>> {
    let data = data?;
    let content = data.get(CONTENT)?;
    let mut signed: BTreeMap<String, String> = data
        .iter()
        .filter(|(key, _)| !key.starts_with(SIGNATURE_PREFIX))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for (id, key) in tokens {
        signed.insert(
            format!("{SIGNATURE_PREFIX}{id}"),
            signature(content, id, key),
        );
    }
    (signed != *data).then_some(signed)
}

/// A JWS with HS256 whose content is left out (RFC 7515, appendix F).
fn signature(content: &str, id: &str, key: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let tag = hmac::sign(&key, signed.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn data(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let entries = entries.iter();
        entries
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    /// The expected text was computed with Python's hmac module.
    #[test]
    fn signatures_are_detached_hs256() {
        assert_eq!(
            signature("clusters: []\n", "abcdef", "0123456789abcdef"),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..aiG7z8XWjjzLz3AwuhjgjACCUfWawXW2oX1uxgNWBSg"
        );
    }

    #[test]
    fn each_token_signs_and_stale_signatures_go() {
        let before = data(&[
            ("kubeconfig", "c"),
            ("jws-kubeconfig-gonegone", "x"),
            ("other", "o"),
        ]);
        let tokens = [("abcdef", "s1"), ("ghijkl", "s2")];
        let after = signed(Some(&before), tokens.into_iter()).unwrap();
        let keys: Vec<&str> = after.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "jws-kubeconfig-abcdef",
                "jws-kubeconfig-ghijkl",
                "kubeconfig",
                "other"
            ]
        );
        assert_eq!(
            signed(Some(&after), tokens.into_iter()),
            None,
            "it is right"
        );
    }

    #[test]
    fn nothing_to_sign_is_nothing_to_do() {
        assert_eq!(signed(None, [("abcdef", "s")].into_iter()), None);
        assert_eq!(
            signed(Some(&data(&[("x", "y")])), [("abcdef", "s")].into_iter()),
            None
        );
    }
}
