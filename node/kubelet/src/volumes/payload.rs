//! What files a configMap, a secret, or a projection of several becomes. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, Pod, Secret};

/// The mode of files when nothing says otherwise.
pub(super) const DEFAULT_MODE: u32 = 0o644;

/// One file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    /// Its content.
    pub data: Vec<u8>,
    /// Its permissions.
    pub mode: u32,
    /// Its owner, where it is not root.
    pub owner: Option<u32>,
}

/// The files of a volume by their relative paths.
pub(super) type Payload = BTreeMap<String, File>;

/// Why an object does not give the files that are asked of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// `items` names a key that a configMap lacks.
    #[error("configmap references non-existent config key: {0}")]
    ConfigKey(String),
    /// `items` names a key that a secret lacks.
    #[error("references non-existent secret key: {0}")]
    SecretKey(String),
    /// A path that would leave the volume; the API server lets none through.
    #[error("invalid path: {0}")]
    Path(String),
}

/// How the keys of an object become files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys<'a> {
    /// Which keys and where to; all of them without any.
    pub items: &'a [KeyToPath],
    /// Mode of files whose item names none.
    pub mode: u32,
    /// Whether a missing key is no error.
    pub optional: bool,
}

/// The files of a configMap.
pub(super) fn of_config_map(map: &ConfigMap, keys: Keys<'_>) -> Result<Payload, Unfit> {
    let texts = map.data.iter().flatten().map(|(k, v)| (k, v.as_bytes()));
    let binaries = map.binary_data.iter().flatten();
    let binaries = binaries.map(|(k, v)| (k, v.0.as_slice()));
    of_keys(texts.chain(binaries).collect(), keys, Unfit::ConfigKey)
}

/// The files of a secret.
pub(super) fn of_secret(secret: &Secret, keys: Keys<'_>) -> Result<Payload, Unfit> {
    let data = secret.data.iter().flatten();
    let data = data.map(|(k, v)| (k, v.0.as_slice())).collect();
    of_keys(data, keys, Unfit::SecretKey)
}

fn of_keys(
    data: BTreeMap<&String, &[u8]>,
    keys: Keys<'_>,
    missing: fn(String) -> Unfit,
) -> Result<Payload, Unfit> {
    let file = |data: &[u8], mode: Option<i32>| File {
        data: data.to_vec(),
        mode: mode_of(mode, keys.mode),
        owner: None,
    };
    if keys.items.is_empty() {
        let all = data.iter();
        return Ok(all.map(|(k, v)| ((*k).clone(), file(v, None))).collect());
    }
    let mut payload = Payload::new();
    for item in keys.items {
        match data.get(&item.key) {
            Some(found) => {
                payload.insert(item.path.clone(), file(found, item.mode));
            }
            None if keys.optional => {}
            None => return Err(missing(item.key.clone())),
        }
    }
    Ok(payload)
}

/// A mode as the API has it, or else the default.
pub(super) fn mode_of(asked: Option<i32>, default: u32) -> u32 {
    asked
        .and_then(|mode| u32::try_from(mode).ok())
        .unwrap_or(default)
}

/// Refuses paths that are no plain relative ones (`validatePath` of upstream's AtomicWriter).
pub(super) fn check_paths(payload: &Payload) -> Result<(), Unfit> {
    let bad = |path: &&String| {
        path.is_empty()
            || path.len() > 4096
            || path.starts_with('/')
            || path.starts_with("..")
            || path
                .split('/')
                .any(|part| part == ".." || part.len() > 255 || part.contains('\0'))
    };
    match payload.keys().find(bad) {
        Some(path) => Err(Unfit::Path(path.clone())),
        None => Ok(()),
    }
}

/// The user that owns tokens: the one that all containers run as, if there is one (`FsUserFrom`).
pub(super) fn common_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let pods = spec.security_context.as_ref().and_then(|c| c.run_as_user);
    let containers = spec.init_containers.iter().flatten();
    let mut users = containers.chain(&spec.containers).map(|container| {
        let own = container.security_context.as_ref();
        own.and_then(|c| c.run_as_user).or(pods)
    });
    let first = users.next()??;
    let same = users.all(|user| user == Some(first));
    u32::try_from(first).ok().filter(|_| same)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    fn keys(items: &[KeyToPath], optional: bool) -> Keys<'_> {
        Keys {
            items,
            mode: 0o440,
            optional,
        }
    }

    fn item(key: &str, path: &str, mode: Option<i32>) -> KeyToPath {
        KeyToPath {
            key: key.into(),
            path: path.into(),
            mode,
        }
    }

    fn map() -> ConfigMap {
        serde_json::from_value(
            json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "/w=="}, "metadata": {}}),
        )
        .unwrap()
    }

    #[test]
    fn all_keys_become_files_when_no_items_are_named() {
        let payload = of_config_map(&map(), keys(&[], false)).unwrap();
        let found: Vec<_> = payload
            .iter()
            .map(|(k, f)| (k.as_str(), f.data.as_slice(), f.mode))
            .collect();
        let wanted: Vec<(&str, &[u8], u32)> = vec![
            ("a", b"1", 0o440),
            ("b", b"2", 0o440),
            ("c", b"\xff", 0o440),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn items_choose_keys_paths_and_modes() {
        let items = [item("a", "x/y", Some(0o600)), item("c", "z", None)];
        let payload = of_config_map(&map(), keys(&items, false)).unwrap();
        assert_eq!(payload["x/y"].mode, 0o600);
        assert_eq!(payload["z"].mode, 0o440);
        assert_eq!(payload.len(), 2);
    }

    #[test]
    fn missing_keys_are_told_in_upstreams_words_unless_optional() {
        let items = [item("nope", "x", None)];
        let told = of_config_map(&map(), keys(&items, false)).unwrap_err();
        assert_eq!(
            told.to_string(),
            "configmap references non-existent config key: nope"
        );
        let told = of_secret(&Secret::default(), keys(&items, false)).unwrap_err();
        assert_eq!(told.to_string(), "references non-existent secret key: nope");
        assert!(
            of_config_map(&map(), keys(&items, true))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn paths_may_not_leave_the_volume() {
        for (path, good) in [
            ("a", true),
            ("a/b", true),
            ("a..b", true),
            ("", false),
            ("/a", false),
            ("..", false),
            ("..a", false),
            ("a/../b", false),
        ] {
            let file = File {
                data: vec![],
                mode: 0,
                owner: None,
            };
            let payload = Payload::from([(path.to_owned(), file)]);
            assert_eq!(check_paths(&payload).is_ok(), good, "{path}");
        }
    }

    #[test]
    fn tokens_belong_to_the_user_that_all_containers_run_as() {
        for (pods, containers, wanted) in [
            (None, vec![None], None),
            (Some(5), vec![None, None], Some(5)),
            (None, vec![Some(7), Some(7)], Some(7)),
            (Some(5), vec![None, Some(7)], None),
            (None, vec![Some(7), None], None),
        ] {
            let containers: Vec<_> = containers
                .iter()
                .map(|user| json!({"name": "c", "securityContext": {"runAsUser": user}}))
                .collect();
            let pod: Pod = serde_json::from_value(json!({
                "spec": {"securityContext": {"runAsUser": pods}, "containers": containers}}))
            .unwrap();
            assert_eq!(common_user(&pod), wanted);
        }
    }
}
