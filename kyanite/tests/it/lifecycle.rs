//! `kyanite up`, `status`, `down`: processes, files, permissions, exit codes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{Finished, KYANITE, client_of, eventually, exchange};

/// A home directory in which `kyanite` keeps its data; whatever still runs there is stopped when dropped.
struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn kyanite(&self, words: &str) -> Finished {
        let mut command = Command::new(KYANITE);
        command
            .args(words.split_whitespace())
            .env("HOME", self.dir.path())
            .env("KYANITE_NODES", "0")
            .env("KUBECONFIG", self.path("kubeconfig"));
        Finished::run(&mut command, "")
    }

    /// `kyanite up` on any free port.
    #[track_caller]
    fn up(&self) -> Finished {
        self.kyanite("up --port 0").ok()
    }

    fn status(&self) -> Value {
        self.kyanite("status -o json").ok().json()
    }

    fn pid(&self) -> u64 {
        let status = self.status();
        status["pid"]
            .as_u64()
            .unwrap_or_else(|| panic!("no pid in {status}"))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.kyanite("down --purge");
        self.kyanite("down --purge --name second");
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .permissions()
        .mode()
        & 0o777
}

fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie has ended; its new parent has only not looked yet.
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}

#[test]
fn up_returns_when_the_server_answers_and_down_ends_it() {
    let home = Home::new();
    let up = home.up();
    let said = format!("{}{}", up.stdout, up.stderr);
    assert!(
        said.contains("https://127.0.0.1:"),
        "up says where the server is: {up}"
    );
    let pid = home.pid();
    assert!(runs(pid));
    home.kyanite("down").ok();
    assert!(!runs(pid), "down returns when the server has ended");
    assert!(home.path(".kyanite").exists(), "down keeps the data");
}

#[test]
fn a_second_up_says_that_it_runs_already() {
    let home = Home::new();
    home.up();
    let pid = home.pid();
    let second = home.up();
    let said = format!("{}{}", second.stdout, second.stderr).to_lowercase();
    assert!(said.contains("already"), "{second}");
    assert_eq!(home.pid(), pid, "the first server still runs, and no other");
}

#[test]
fn status_tells_programs_and_people() {
    let home = Home::new();
    home.kyanite("status").exits_with(6);
    home.up();
    let status = home.status();
    assert!(
        status["server"]
            .as_str()
            .is_some_and(|url| url.starts_with("https://127.0.0.1:")),
        "{status}"
    );
    assert_eq!(status["running"], true, "{status}");
    home.kyanite("status").ok().prints("https://127.0.0.1:");
    home.kyanite("down").ok();
    home.kyanite("status -o json").exits_with(6);
}

#[test]
fn data_survives_down_and_up() {
    let home = Home::new();
    home.up();
    let id = cluster_id(&home);
    home.kyanite("down").ok();
    home.up();
    assert_eq!(cluster_id(&home), id, "the same cluster came back");
}

/// The uid of the namespace kube-system, by custom the identity of a cluster.
fn cluster_id(home: &Home) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let kubeconfig =
            kube::config::Kubeconfig::read_from(home.path(".kyanite/kubeconfig")).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
            .await
            .unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client);
        namespaces
            .get("kube-system")
            .await
            .unwrap()
            .metadata
            .uid
            .unwrap()
    })
}

#[test]
fn purge_leaves_nothing_behind() {
    let home = Home::new();
    home.up();
    let pid = home.pid();
    home.kyanite("down --purge").ok();
    assert!(!runs(pid));
    assert!(!home.path(".kyanite").exists(), "the data is gone");
    let merged = std::fs::read_to_string(home.path("kubeconfig")).unwrap_or_default();
    assert!(!merged.contains("kyanite"), "the context is gone: {merged}");
}

#[test]
fn down_without_a_server_is_no_failure() {
    let home = Home::new();
    home.kyanite("down").ok();
    home.kyanite("down --purge").ok();
}

#[test]
fn secrets_on_disk_are_for_their_owner_only() {
    let home = Home::new();
    home.up();
    let data = home.path(".kyanite");
    assert_eq!(mode(&data), 0o700);
    assert_eq!(mode(&data.join("kubeconfig")), 0o600);
    assert_eq!(mode(&home.path("kubeconfig")), 0o600);
    for file in files_below(&data) {
        let text = std::fs::read(&file).unwrap();
        if text.windows(11).any(|window| window == b"PRIVATE KEY") {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| {
        if path.is_dir() {
            files_below(&path)
        } else {
            vec![path]
        }
    };
    // Sockets have no content to read.
    entries
        .flat_map(below)
        .filter(|path| path.is_file())
        .collect()
}

const OTHER_CONTEXT: &str = r#"
apiVersion: v1
kind: Config
current-context: work
clusters:
- name: work
  cluster: {server: "https://work.example"}
contexts:
- name: work
  context: {cluster: work, user: me}
users:
- name: me
  user: {token: secret-of-work}
preferences: {}
"#;

#[test]
fn the_users_kubeconfig_gains_a_context_and_keeps_its_own() {
    let home = Home::new();
    std::fs::write(home.path("kubeconfig"), OTHER_CONTEXT).unwrap();
    home.up();
    let names = |merged: &Value, kind: &str| -> Vec<String> {
        let items = merged[kind].as_array().cloned().unwrap_or_default();
        items
            .iter()
            .map(|item| item["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let read = || -> Value {
        serde_saphyr::from_str(&std::fs::read_to_string(home.path("kubeconfig")).unwrap()).unwrap()
    };
    let merged = read();
    assert_eq!(names(&merged, "contexts"), ["work", "kyanite"]);
    assert_eq!(merged["users"][0]["user"]["token"], "secret-of-work");
    assert_eq!(
        merged["current-context"], "kyanite",
        "up makes kubectl talk to Kyanite"
    );
    home.up();
    let again = names(&read(), "contexts");
    assert_eq!(again, ["work", "kyanite"], "a second up adds nothing twice");
    home.kyanite("down").ok();
    let left = read();
    for kind in ["contexts", "clusters"] {
        assert_eq!(
            names(&left, kind),
            ["work"],
            "down takes out what up put in"
        );
    }
    assert_eq!(
        left["current-context"], "work",
        "kubectl talks to what it did before"
    );
}

#[test]
fn a_damaged_kubeconfig_is_not_overwritten() {
    let home = Home::new();
    std::fs::write(home.path("kubeconfig"), "contexts: [: not yaml").unwrap();
    home.kyanite("up --port 0");
    assert_eq!(
        std::fs::read_to_string(home.path("kubeconfig")).unwrap(),
        "contexts: [: not yaml"
    );
}

#[test]
fn wrong_usage_exits_with_two() {
    let home = Home::new();
    for words in [
        "",
        "fly",
        "up --no-such-flag",
        "up --port many",
        "status -o poetry",
    ] {
        let refusal = home.kyanite(words).exits_with(2);
        assert!(
            refusal.stderr.contains("Usage") || refusal.stderr.contains("invalid value"),
            "{refusal}"
        );
    }
    home.kyanite("--help")
        .ok()
        .prints("up")
        .prints("down")
        .prints("status")
        .prints("apiserver")
        .prints("store");
    home.kyanite("--version").ok().prints("kyanite");
}

#[test]
fn a_taken_port_is_a_conflict() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let refusal = home.kyanite(&format!("up --port {port}")).exits_with(4);
    refusal.complains(&port.to_string());
    home.kyanite("status").exits_with(6);
}

#[test]
fn a_data_directory_in_use_is_a_conflict() {
    let home = Home::new();
    home.up();
    let data = home.path(".kyanite");
    let second = home.kyanite(&format!(
        "up --foreground --port 0 --data-dir {}",
        data.display()
    ));
    let said = format!("{}{}", second.stdout, second.stderr).to_lowercase();
    assert!(said.contains("already"), "{second}");
}

#[test]
fn a_data_directory_that_cannot_be_made_is_named() {
    let home = Home::new();
    std::fs::write(home.path("file"), "in the way").unwrap();
    let refusal = home.kyanite(&format!(
        "up --port 0 --data-dir {}/below",
        home.path("file").display()
    ));
    assert!(matches!(refusal.code, Some(1 | 5)), "{refusal}");
    refusal.complains("file/below");
}

/// Sends a signal to the server and waits until `status` says that nothing runs.
fn end_with(home: &Home, signal: &str) {
    let pid = home.pid().to_string();
    Finished::run(Command::new("kill").args([signal, &pid]), "").ok();
    eventually("status says that nothing runs", || {
        let status = home.kyanite("status");
        if status.code == Some(6) {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
}

#[test]
fn the_server_ends_cleanly_on_sigterm() {
    let home = Home::new();
    home.up();
    end_with(&home, "-TERM");
    let log = std::fs::read_to_string(home.path(".kyanite/log")).unwrap();
    assert!(!log.contains("panicked"), "{log}");
    home.up();
}

#[tokio::test]
async fn agents_may_have_tokens_once_it_is_up() {
    const ACCOUNT: &str = "/api/v1/namespaces/kube-system/serviceaccounts/konnectivity-agent";
    let home = Home::new();
    home.kyanite("up --port 0 --konnectivity-agent-port 0").ok();
    // Killed as soon as it has said so, it has made nothing after that; without the port it makes no account.
    let state = std::fs::read_to_string(home.path(".kyanite/state.json")).unwrap();
    let pid = serde_json::from_str::<Value>(&state).unwrap()["pid"].to_string();
    Finished::run(Command::new("kill").args(["-KILL", &pid]), "").ok();
    home.up();
    let kubeconfig = kube::config::Kubeconfig::read_from(home.path("kubeconfig")).unwrap();
    let client = client_of(&kubeconfig).await;
    let request = http::Request::get(ACCOUNT).body(Vec::new()).unwrap();
    let (code, body) = exchange(&client, request).await.unwrap();
    assert_eq!(code, 200, "{body}");
}

#[test]
fn a_killed_server_is_noticed_and_replaced() {
    let home = Home::new();
    home.up();
    let pid = home.pid();
    end_with(&home, "-KILL");
    home.up();
    assert_ne!(home.pid(), pid);
}

#[test]
fn the_context_from_before_a_crash_comes_back() {
    let home = Home::new();
    std::fs::write(home.path("kubeconfig"), OTHER_CONTEXT).unwrap();
    home.up();
    end_with(&home, "-KILL");
    home.up();
    home.kyanite("down").ok();
    let left = std::fs::read_to_string(home.path("kubeconfig")).unwrap();
    assert!(left.contains("current-context: work"), "{left}");
}

#[test]
fn down_cleans_up_after_a_crash() {
    let home = Home::new();
    std::fs::write(home.path("kubeconfig"), OTHER_CONTEXT).unwrap();
    home.up();
    end_with(&home, "-KILL");
    home.kyanite("down").ok();
    let left = std::fs::read_to_string(home.path("kubeconfig")).unwrap();
    assert!(
        left.contains("current-context: work") && !left.contains("kyanite"),
        "{left}"
    );
}

#[test]
fn a_backup_can_be_restored_into_a_new_home() {
    let home = Home::new();
    home.up();
    let id = cluster_id(&home);
    home.kyanite("down").ok();
    let (data, backup) = (home.path(".kyanite"), home.path("backup"));
    home.kyanite(&format!("store check --data-dir {}", data.display()))
        .ok();
    home.kyanite(&format!(
        "store backup --keys --data-dir {} {}",
        data.display(),
        backup.display()
    ))
    .ok();
    let keys = home.path("backup.keys");
    assert_eq!((mode(&backup), mode(&keys)), (0o600, 0o600));
    let authority = std::fs::read(data.join("pki/ca.crt")).unwrap();
    home.kyanite("down --purge").ok();
    let restored = home.kyanite(&format!(
        "store restore --data-dir {} {}",
        data.display(),
        backup.display()
    ));
    restored.ok().prints("its keys are back");
    home.up();
    assert_eq!(cluster_id(&home), id);
    assert_eq!(std::fs::read(data.join("pki/ca.crt")).unwrap(), authority);
    // Without the keys a restore says that nobody will trust the new cluster.
    let elsewhere = home.path("elsewhere");
    std::fs::remove_file(&keys).unwrap();
    let restored = home.kyanite(&format!(
        "store restore --data-dir {} {}",
        elsewhere.display(),
        backup.display()
    ));
    restored.ok().prints("no keys came with the backup");
}

#[test]
fn a_directory_of_somebody_elses_is_neither_adopted_nor_removed() {
    let home = Home::new();
    let foreign = home.path("photos");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("cat.jpg"), "meow").unwrap();
    for words in ["up --port 0", "down --purge"] {
        let refusal = home
            .kyanite(&format!("{words} --data-dir {}", foreign.display()))
            .exits_with(4);
        assert!(refusal.stderr.contains("not Kyanite's"), "{refusal}");
    }
    let entries = std::fs::read_dir(&foreign).unwrap().count();
    assert_eq!(entries, 1, "nothing was added or taken");
}

#[test]
fn two_clusters_live_side_by_side_under_their_names() {
    let home = Home::new();
    home.up();
    home.kyanite("up --name second")
        .ok()
        .prints("context `second`");
    assert!(home.path(".kyanite-second/pki/ca.crt").exists());
    let config = || std::fs::read_to_string(home.path("kubeconfig")).unwrap();
    for line in ["current-context: second", "name: kyanite", "name: second"] {
        assert!(config().contains(line), "{}", config());
    }
    let other: Value = home.kyanite("status --name second -o json").ok().json();
    assert_ne!(other["server"], home.status()["server"]);
    // It comes back where it was.
    home.kyanite("down --name second").ok();
    assert!(
        config().contains("current-context: kyanite"),
        "{}",
        config()
    );
    home.kyanite("up --name second").ok();
    let again: Value = home.kyanite("status --name second -o json").ok().json();
    assert_eq!(again["server"], other["server"]);
    home.kyanite("down --purge --name second").ok();
    assert!(!home.path(".kyanite-second").exists());
    let left = config();
    assert!(
        left.contains("name: kyanite") && !left.contains("second"),
        "{left}"
    );
    assert_eq!(home.status()["running"], true);
}

#[test]
fn a_name_that_a_living_cluster_has_is_not_taken_from_it() {
    let home = Home::new();
    home.up();
    let before = std::fs::read_to_string(home.path("kubeconfig")).unwrap();
    let other = home.path("other");
    let refused = home.kyanite(&format!("up --port 0 --data-dir {}", other.display()));
    refused.exits_with(4).complains("--name");
    let after = std::fs::read_to_string(home.path("kubeconfig")).unwrap();
    assert_eq!(before, after);
    home.kyanite("up --name Second").exits_with(2);
}

/// Who listens everywhere is reached from elsewhere: the kubeconfig says by which address, and the certificate covers it.
#[test]
fn a_server_for_others_tells_them_an_address_of_this_machine() {
    let home = Home::new();
    home.kyanite("up --port 0 --bind-address 0.0.0.0").ok();
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // A machine without a way out has only itself to tell of.
    let outward = match probe.connect("192.0.2.1:9") {
        Ok(()) => probe.local_addr().unwrap().ip().to_string(),
        Err(_) => "127.0.0.1".to_owned(),
    };
    let status = home.status();
    let server = status["server"].as_str().unwrap();
    assert!(
        server.starts_with(&format!("https://{outward}:")),
        "{server}"
    );
    let config = std::fs::read_to_string(home.path("kubeconfig")).unwrap();
    assert!(config.contains(server), "{config}");
    assert!(!cluster_id(&home).is_empty());
    let log = std::fs::read_to_string(home.path(".kyanite/log")).unwrap();
    assert!(
        log.contains("0.0.0.0:"),
        "the log says where it listens: {log}"
    );
}
