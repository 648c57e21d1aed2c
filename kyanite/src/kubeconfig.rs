//! kubeconfig files: ours, and our entry in the user's.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::datadir::{DataDir, write_private};
use crate::exit::{Code, Failure, Result};
use crate::pki::{Authority, LEAVES, Pair, Pki};

/// The name of our cluster, user and context.
const NAME: &str = "kyanite";
const SECTIONS: [&str; 3] = ["clusters", "users", "contexts"];

/// The file kubectl would write to: the flag, the first of $KUBECONFIG, or ~/.kube/config.
pub(crate) fn users_file(flag: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = flag {
        return std::path::absolute(path).map_err(|e| Failure::file("use", path, &e));
    }
    let from_env = std::env::var_os("KUBECONFIG").filter(|v| !v.is_empty());
    if let Some(first) = from_env
        .as_ref()
        .and_then(|v| std::env::split_paths(v).next())
    {
        return Ok(first);
    }
    match std::env::var_os("HOME") {
        Some(home) => Ok(PathBuf::from(home).join(".kube/config")),
        None => {
            Err(Failure::new(Code::Usage, "HOME is not set").hint("name a file with --kubeconfig"))
        }
    }
}

/// A kubeconfig with one cluster and one user.
pub(crate) fn with_user(server: &str, bundle: &Path, name: &str, user: Value) -> Result<Value> {
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [{"name": NAME, "cluster": {
            "server": server,
            "certificate-authority-data": data(bundle)?,
        }}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": name}}],
        "current-context": NAME,
    }))
}

/// A user that proves itself by this certificate.
pub(crate) fn certificate_user(pair: &Pair) -> Result<Value> {
    Ok(json!({"client-certificate-data": data(&pair.cert)?, "client-key-data": data(&pair.key)?}))
}

fn data(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|e| Failure::file("read", path, &e))?;
    Ok(STANDARD.encode(bytes))
}

/// Writes the kubeconfig of every role into a data directory; gives back the admin's.
pub(crate) fn write_all(dir: &DataDir, server: &str, pki: &Pki) -> Result<Value> {
    let bundle = pki.authority(Authority::Cluster).cert;
    let mut admin = Value::Null;
    for leaf in &LEAVES {
        let Some(file) = leaf.kubeconfig else {
            continue;
        };
        let pair = pki.leaf(leaf.name);
        let user = certificate_user(&pair)?;
        let path = dir.path().join(file);
        let is_admin = path == dir.kubeconfig();
        let name = if is_admin { NAME } else { leaf.common_name };
        let config = with_user(server, &bundle, name, user)?;
        write(&path, &config)?;
        if is_admin {
            admin = config;
        }
    }
    Ok(admin)
}

/// The server that a kubeconfig of ours names.
pub(crate) fn server_of(path: &Path) -> Result<String> {
    let config = read(path)?.unwrap_or_default();
    let server = config["clusters"][0]["cluster"]["server"].as_str();
    server
        .map(str::to_owned)
        .ok_or_else(|| unreadable(path, "it names no server"))
}

/// Brings our entries in the user's file up to date, if they are there.
pub(crate) fn refresh(path: &Path, ours: &Value) -> Result<()> {
    let Some(mut config) = read(path)? else {
        return Ok(());
    };
    let mut changed = false;
    for section in ["clusters", "users"] {
        let added = ours[section].as_array().and_then(|all| all.first());
        let present = config[section].as_array_mut().into_iter().flatten();
        for entry in present.filter(|entry| entry["name"] == NAME) {
            if let Some(added) = added {
                entry.clone_from(added);
                changed = true;
            }
        }
    }
    match changed {
        true => write(path, &config),
        false => Ok(()),
    }
}

/// Writes a kubeconfig of its own.
pub(crate) fn write(path: &Path, config: &Value) -> Result<()> {
    write_private(path, objects::yaml::to_string(config).as_bytes())
}

/// Adds our entries to the user's file and makes our context current; gives back what was current.
pub(crate) fn merge(path: &Path, ours: &Value) -> Result<Option<String>> {
    let mut config = read(path)?
        .unwrap_or_else(|| json!({"apiVersion": "v1", "kind": "Config", "preferences": {}}));
    let previous = config["current-context"]
        .as_str()
        .filter(|c| !c.is_empty() && *c != NAME)
        .map(str::to_owned);
    for section in SECTIONS {
        drop_ours(&mut config[section]);
        if let (Some(all), Some(added)) = (config[section].as_array_mut(), ours[section].as_array())
        {
            all.extend(added.iter().cloned());
        }
    }
    config["current-context"] = NAME.into();
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(|e| Failure::file("create", dir, &e))?;
    }
    write(path, &config)?;
    Ok(previous)
}

/// Takes our entries out of the user's file again; an otherwise empty file goes.
pub(crate) fn unmerge(path: &Path, previous: Option<&str>) -> Result<()> {
    let Some(mut config) = read(path)? else {
        return Ok(());
    };
    for section in SECTIONS {
        drop_ours(&mut config[section]);
    }
    if config["current-context"] == NAME {
        let still_there = previous.filter(|name| {
            config["contexts"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|c| c["name"] == **name)
        });
        config["current-context"] = still_there.unwrap_or_default().into();
    }
    let is_empty = SECTIONS
        .iter()
        .all(|s| config[*s].as_array().is_none_or(Vec::is_empty));
    if is_empty {
        return std::fs::remove_file(path).map_err(|e| Failure::file("remove", path, &e));
    }
    write(path, &config)
}

fn drop_ours(section: &mut Value) {
    match section.as_array_mut() {
        Some(entries) => entries.retain(|entry| entry["name"] != NAME),
        None => *section = json!([]),
    }
}

fn read(path: &Path) -> Result<Option<Value>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::file("read", path, &error)),
    };
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let parsed = objects::yaml::parse(&bytes).map_err(|e| unreadable(path, &e.to_string()))?;
    match parsed.value {
        value @ Value::Object(_) => Ok(Some(value)),
        _ => Err(unreadable(path, "it is not a map")),
    }
}

fn unreadable(path: &Path, why: &str) -> Failure {
    Failure::new(
        Code::Failure,
        format!("your kubeconfig `{}` cannot be read: {why}", path.display()),
    )
    .hint("mend it, or name another file with --kubeconfig")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Value {
        json!({"clusters": [{"name": NAME}], "users": [{"name": NAME}], "contexts": [{"name": NAME}]})
    }

    #[test]
    fn merging_keeps_everything_else_and_unmerging_restores_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        let before = json!({"apiVersion": "v1", "kind": "Config", "current-context": "work",
            "clusters": [{"name": "work", "cluster": {"server": "https://x"}}],
            "users": [{"name": "work", "user": {"token": "t"}}],
            "contexts": [{"name": "work", "context": {"cluster": "work", "user": "work"}}],
            "extensions": [{"name": "own"}]});
        write(&path, &before).expect("written");
        let previous = merge(&path, &ours()).expect("merged");
        assert_eq!(previous.as_deref(), Some("work"));
        let merged = read(&path).expect("read").expect("there");
        assert_eq!(merged["current-context"], NAME);
        assert_eq!(merged["clusters"].as_array().map(Vec::len), Some(2));
        assert_eq!(merge(&path, &ours()).expect("again"), None);
        unmerge(&path, previous.as_deref()).expect("unmerged");
        assert_eq!(read(&path).expect("read").expect("there"), before);
    }

    #[test]
    fn a_file_that_was_only_ours_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sub/config");
        merge(&path, &ours()).expect("made");
        unmerge(&path, None).expect("unmade");
        assert!(!path.exists());
    }

    #[test]
    fn a_broken_file_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        std::fs::write(&path, "a: [").expect("written");
        assert!(merge(&path, &ours()).is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "a: [");
    }
}
