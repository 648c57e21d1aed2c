//! As a newcomer: `kyanite up` ends with nodes that are Ready, an application runs on them and answers, `down` leaves
//! nothing behind. Needs root, containerd and kubectl; skipped, loudly, without.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use machines::{Launcher, Namespaces};

use crate::site::{KYANITE, eventually, said, skip};

struct Home {
    dir: tempfile::TempDir,
    kubectl: PathBuf,
}

impl Home {
    fn new() -> Option<Home> {
        let Some(kubectl) = std::env::var_os("KUBECTL").map(PathBuf::from) else {
            skip("KUBECTL is not set (scripts/setup --for test, scripts/env)");
            return None;
        };
        if std::env::var_os("CONTAINERD_BIN").is_none() {
            skip("CONTAINERD_BIN is not set (scripts/setup --for test, scripts/env)");
            return None;
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let launcher = Launcher::new(KYANITE, &["machine-launcher"]);
        let driver = Namespaces::new(&dir.path().join("trial"), launcher).expect("a driver");
        if let Some(missing) = driver.missing().first() {
            skip(&missing.to_string());
            return None;
        }
        Some(Home { dir, kubectl })
    }

    fn kyanite(&self, words: &str) -> Result<String, String> {
        let mut command = Command::new(KYANITE);
        command
            .args(words.split_whitespace())
            .env("HOME", self.dir.path())
            .env("KYANITE_DATA_DIR", self.dir.path().join("data"))
            .env("KUBECONFIG", self.dir.path().join("config"))
            .env_remove("KYANITE_NODES");
        said(&mut command)
    }

    fn kubectl(&self, words: &str) -> Result<String, String> {
        let mut command = Command::new(&self.kubectl);
        command
            .args(words.split_whitespace())
            .env("HOME", self.dir.path())
            .env("KUBECONFIG", self.dir.path().join("config"));
        said(&mut command)
    }

    /// Mounts that mention this home, wherever they are.
    fn mounts(&self) -> Vec<String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let place = self.dir.path().to_string_lossy().into_owned();
        let ours = mounts.lines().filter(|line| line.contains(&place));
        ours.map(str::to_owned).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // After a failure too: machines outlive their test otherwise.
        let down = self.kyanite("down --purge");
        assert!(down.is_ok() || std::thread::panicking(), "{down:?}");
    }
}

#[test]
fn up_gives_nodes_that_run_an_application_and_down_leaves_nothing() {
    let Some(home) = Home::new() else { return };
    let up = home.kyanite("up --port 0 --nodes 2").expect("it comes up");
    assert!(up.contains("kyanite is up"), "{up}");
    let nodes = home.kubectl("get nodes -o name").expect("nodes");
    assert_eq!(nodes.lines().count(), 2, "{nodes}");
    runs_an_application(&home);
    survives_a_restart(&home);
    home.kyanite("down --purge").expect("it goes down");
    assert_eq!(home.mounts(), Vec::<String>::new());
    assert!(!home.dir.path().join("data").exists());
}

fn runs_an_application(home: &Home) {
    let create = "create deployment web --image=kyanite.local/demo:1 --port=8080 --replicas=3";
    home.kubectl(create).expect("a deployment");
    home.kubectl("expose deployment web --port=80 --target-port=8080")
        .expect("a service");
    home.kubectl("rollout status deployment web --timeout=240s")
        .expect("it rolls out");
    let log = home.kubectl("logs deployment/web").expect("logs");
    assert!(log.contains("listening"), "{log}");
    // Through the API server, the network of the machines and the pods' own.
    eventually("the application answers", || {
        let path = "/api/v1/namespaces/default/services/web:80/proxy/";
        let answer = home.kubectl(&format!("get --raw {path}"))?;
        match answer.contains("version 1") {
            true => Ok(()),
            false => Err(answer),
        }
    });
    home.kubectl("rollout status deployment coredns -n kube-system --timeout=240s")
        .expect("the cluster's DNS runs");
}

// Machines keep their disks, and the cluster its pods.
fn survives_a_restart(home: &Home) {
    let names = "get pods -l app=web -o name";
    let before = home.kubectl(names).expect("pods");
    home.kyanite("down").expect("it goes down");
    assert_eq!(home.mounts(), Vec::<String>::new());
    home.kyanite("up --port 0 --nodes 2")
        .expect("it comes back");
    assert_eq!(home.kubectl(names).expect("pods"), before);
    home.kubectl("rollout status deployment web --timeout=240s")
        .expect("its pods run again");
}
