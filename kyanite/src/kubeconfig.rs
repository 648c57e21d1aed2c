//! kubeconfig files: ours, and our entry in the user's.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::datadir::{DataDir, write_private};
use crate::exit::{Code, Failure, Result};
use crate::pki::{self, Authority, LEAVES, Pair, Pki};

/// How long another cluster's server may take to show that it is there.
const PATIENCE: Duration = Duration::from_millis(500);
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
pub(crate) fn with_user(
    cluster: &str,
    server: &str,
    bundle: &Path,
    (name, user): (&str, Value),
) -> Result<Value> {
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [{"name": cluster, "cluster": {
            "server": server,
            "certificate-authority-data": data(bundle)?,
        }}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": name}}],
        "current-context": cluster,
    }))
}

/// A user that proves itself by this certificate.
pub(crate) fn certificate_user(pair: &Pair) -> Result<Value> {
    let key = STANDARD.encode(pki::key_for_clients(&pair.key)?);
    Ok(json!({"client-certificate-data": data(&pair.cert)?, "client-key-data": key}))
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
        let name = match is_admin {
            true => dir.name(),
            false => leaf.common_name,
        };
        let config = with_user(dir.name(), server, &bundle, (name, user))?;
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

/// The admin's kubeconfig of a data directory, as it was last written.
pub(crate) fn of(dir: &DataDir) -> Option<Value> {
    read(&dir.kubeconfig()).ok().flatten()
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
        for entry in present.filter(|entry| entry["name"] == ours["current-context"]) {
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

/// Refuses a name that the user's file has for another cluster, if that one answers.
pub(crate) fn check(path: &Path, name: &str, ours: Option<&Value>) -> Result<()> {
    let config = read(path)?.unwrap_or_default();
    let Some(other) = cluster_of(&config, name).filter(|there| !is_ours(there, ours)) else {
        return Ok(());
    };
    let server = other["server"].as_str().unwrap_or_default();
    if !answers(server) {
        return Ok(());
    }
    let what = format!(
        "`{}` has another cluster called `{name}`, at {server}",
        path.display()
    );
    Err(Failure::new(Code::Conflict, what).hint("give this one a name of its own: --name NAME"))
}

fn cluster_of<'a>(config: &'a Value, name: &str) -> Option<&'a Value> {
    let mut all = config["clusters"].as_array()?.iter();
    all.find(|entry| entry["name"] == name)
        .map(|entry| &entry["cluster"])
}

// Whoever has our CA or our address is us: either may have been changed since.
fn is_ours(cluster: &Value, ours: Option<&Value>) -> bool {
    let Some(own) = ours.map(|ours| &ours["clusters"][0]["cluster"]) else {
        return false;
    };
    ["certificate-authority-data", "server"]
        .iter()
        .any(|field| !own[*field].is_null() && cluster[*field] == own[*field])
}

fn answers(server: &str) -> bool {
    let address = server.trim_start_matches("https://").trim_end_matches('/');
    let found = address
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next());
    found.is_some_and(|address| TcpStream::connect_timeout(&address, PATIENCE).is_ok())
}

/// Writes a kubeconfig of its own.
pub(crate) fn write(path: &Path, config: &Value) -> Result<()> {
    write_private(path, objects::yaml::to_string(config).as_bytes())
}

/// Adds our entries to the user's file and makes our context current; gives back what was current.
pub(crate) fn merge(path: &Path, ours: &Value) -> Result<Option<String>> {
    let mut config = read(path)?
        .unwrap_or_else(|| json!({"apiVersion": "v1", "kind": "Config", "preferences": {}}));
    let name = ours["current-context"].as_str().unwrap_or_default();
    let previous = config["current-context"]
        .as_str()
        .filter(|c| !c.is_empty() && *c != name)
        .map(str::to_owned);
    for section in SECTIONS {
        drop_named(&mut config[section], name);
        if let (Some(all), Some(added)) = (config[section].as_array_mut(), ours[section].as_array())
        {
            all.extend(added.iter().cloned());
        }
    }
    config["current-context"] = name.into();
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(|e| Failure::file("create", dir, &e))?;
    }
    write(path, &config)?;
    Ok(previous)
}

/// Takes our entries out of the user's file again; an otherwise empty file goes. What has our name by now but is
/// another cluster's stays.
pub(crate) fn unmerge(path: &Path, ours: &Value, previous: Option<&str>) -> Result<()> {
    let Some(mut config) = read(path)? else {
        return Ok(());
    };
    let name = ours["current-context"].as_str().unwrap_or_default();
    if cluster_of(&config, name).is_some_and(|there| !is_ours(there, Some(ours))) {
        return Ok(());
    }
    for section in SECTIONS {
        drop_named(&mut config[section], name);
    }
    if config["current-context"] == name {
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

fn drop_named(section: &mut Value, name: &str) {
    match section.as_array_mut() {
        Some(entries) => entries.retain(|entry| entry["name"] != name),
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
        named("kyanite", "https://127.0.0.1:1", "ours")
    }

    fn named(name: &str, server: &str, authority: &str) -> Value {
        let cluster = json!({"server": server, "certificate-authority-data": authority});
        json!({"clusters": [{"name": name, "cluster": cluster}], "users": [{"name": name}],
            "contexts": [{"name": name}], "current-context": name})
    }

    #[test]
    fn each_of_two_clusters_has_entries_of_its_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        let second = named("second", "https://127.0.0.1:2", "theirs");
        merge(&path, &ours()).expect("merged");
        let previous = merge(&path, &second).expect("merged");
        assert_eq!(previous.as_deref(), Some("kyanite"));
        unmerge(&path, &second, previous.as_deref()).expect("unmerged");
        let left = read(&path).expect("read").expect("there");
        assert_eq!(left["current-context"], "kyanite");
        assert_eq!(left["clusters"], ours()["clusters"]);
    }

    #[test]
    fn a_name_that_another_cluster_has_taken_over_is_left_to_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let theirs = named("kyanite", &format!("https://{address}"), "theirs");
        merge(&path, &theirs).expect("merged");
        unmerge(&path, &ours(), None).expect("left alone");
        let left = read(&path).expect("read").expect("there");
        assert_eq!(left["clusters"], theirs["clusters"]);
        let refused = check(&path, "kyanite", Some(&ours())).expect_err("it answers");
        assert_eq!(refused.code, Code::Conflict);
        check(&path, "kyanite", Some(&theirs)).expect("it is the same");
        check(&path, "other", Some(&ours())).expect("nobody has that name");
        drop(listener);
        check(&path, "kyanite", None).expect("nobody answers there");
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
        assert_eq!(merged["current-context"], "kyanite");
        assert_eq!(merged["clusters"].as_array().map(Vec::len), Some(2));
        assert_eq!(merge(&path, &ours()).expect("again"), None);
        unmerge(&path, &ours(), previous.as_deref()).expect("unmerged");
        assert_eq!(read(&path).expect("read").expect("there"), before);
    }

    #[test]
    fn a_file_that_was_only_ours_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sub/config");
        merge(&path, &ours()).expect("made");
        unmerge(&path, &ours(), None).expect("unmade");
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
