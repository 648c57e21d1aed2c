//! As a newcomer: `kyanite up` ends with nodes that are Ready, an application runs on them and answers, `down` leaves
//! nothing behind. Needs root, containerd and kubectl; skipped, loudly, without.

mod faults;
pub(crate) mod traces;
mod traffic;
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{eventually, said, skip};
use machines::{Driver as _, Launcher, Namespaces};
use serde_json::Value;

use self::world::World;
use crate::site::KYANITE;

pub(crate) struct Home {
    dir: tempfile::TempDir,
    kubectl: PathBuf,
    /// Where programs run, if not in this host's own network.
    world: Option<World>,
}

impl Home {
    pub(crate) fn new() -> Option<Home> {
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
        Some(Home {
            dir,
            kubectl,
            world: None,
        })
    }

    /// One whose programs have this host's network for themselves: for tests in which it changes.
    pub(crate) fn in_a_world() -> Option<Home> {
        let mut home = Home::new()?;
        home.world = Some(World::make()?);
        Some(home)
    }

    /// The network of this home's own.
    pub(crate) fn world(&self) -> &World {
        self.world.as_ref().expect("it has a network of its own")
    }

    /// A program, where this home's programs run.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match &self.world {
            Some(world) => world.command(program),
            None => Command::new(program),
        }
    }

    pub(crate) fn kyanite(&self, words: &str) -> Result<String, String> {
        let mut command = self.command(KYANITE);
        command
            .args(words.split_whitespace())
            .env("HOME", self.dir.path())
            .env("KYANITE_DATA_DIR", self.dir.path().join("data"))
            .env("KUBECONFIG", self.dir.path().join("config"))
            .env_remove("KYANITE_NODES");
        said(&mut command)
    }

    pub(crate) fn kubectl(&self, words: &str) -> Result<String, String> {
        let mut command = self.command(&self.kubectl);
        command
            .args(words.split_whitespace())
            .env("HOME", self.dir.path())
            .env("KUBECONFIG", self.dir.path().join("config"));
        said(&mut command)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// What is in a directory of the data directory.
    pub(crate) fn entries(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join("data").join(directory));
        let entries = entries.into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.collect()
    }

    /// How a virtual machine of the cloud is, as this host sees it.
    pub(crate) fn vm(&self, name: &str) -> String {
        let state = self.driver_of(name).and_then(|d| d.state(name).ok());
        state.map_or("gone".to_owned(), |state| {
            format!("{state:?}").to_lowercase()
        })
    }

    /// Whoever has a virtual machine of the cloud.
    pub(crate) fn driver_of(&self, vm: &str) -> Option<Namespaces> {
        let networks = self.entries("vms").into_iter();
        let mut drivers = networks.map(|network| {
            let place = self.dir.path().join("data/vms").join(network);
            let launcher = Launcher::new(KYANITE, &["machine-launcher"]);
            Namespaces::new(&place, launcher).expect("a driver")
        });
        drivers.find(|driver| driver.state(vm).is_ok())
    }

    /// Runs a line of a shell on a virtual machine of the cloud.
    pub(crate) fn on_vm(&self, vm: &str, line: &str) -> Result<String, String> {
        let driver = self.driver_of(vm).ok_or("there is none")?;
        let command = driver.command(vm, ["/bin/bash", "-c", line]);
        said(&mut command.map_err(|e| e.to_string())?)
    }

    /// Mounts that mention this home, wherever they are.
    pub(crate) fn mounts(&self) -> Vec<String> {
        traces::mounts(self.dir.path())
    }

    /// Makes an object.
    pub(crate) fn apply(&self, object: &Value) {
        let file = self.dir.path().join("object.json");
        fs::write(&file, object.to_string()).expect("a file");
        self.kubectl(&format!("apply -f {}", file.display()))
            .expect("the object is taken");
    }

    /// An object or a list.
    pub(crate) fn get(&self, what: &str) -> Value {
        let text = self
            .kubectl(&format!("get {what} -o json"))
            .expect("an object");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Runs a line of a shell on a node.
    pub(crate) fn on_node(&self, node: &str, line: &str) -> Result<String, String> {
        let driver = self.driver();
        let command = driver.command(node, ["/bin/bash", "-c", line]);
        said(&mut command.map_err(|e| e.to_string())?)
    }

    /// The machines of the cluster.
    pub(crate) fn driver(&self) -> Namespaces {
        let launcher = Launcher::new(KYANITE, &["machine-launcher"]);
        Namespaces::new(&self.dir.path().join("data/machines"), launcher).expect("a driver")
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
    let before = traces::of(home.dir.path());
    let up = home.kyanite("up --port 0 --nodes 2").expect("it comes up");
    assert!(up.contains("kyanite is up") && up.contains("Try:"), "{up}");
    assert_eq!(
        up.lines().filter(|line| line.contains(" Ready ")).count(),
        2,
        "{up}"
    );
    let nodes = home.kubectl("get nodes -o name").expect("nodes");
    assert_eq!(nodes.lines().count(), 2, "{nodes}");
    runs_an_application(&home);
    traffic::goes_where_it_should(&home);
    add_ons_are_kept_and_chosen(&home);
    the_demo_shows_it(&home);
    another_up_brings_back_what_was_lost(&home);
    survives_a_restart(&home);
    home.kyanite("down --purge").expect("it goes down");
    assert!(!home.dir.path().join("data").exists());
    eventually("nothing is left", || match traces::of(home.dir.path()) {
        after if after == before => Ok(()),
        after => Err(format!("{after:#?} instead of {before:#?}")),
    });
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

fn add_ons_are_kept_and_chosen(home: &Home) {
    let list = home.kyanite("addon list").expect("add-ons");
    for line in [
        "kube-proxy       enabled    2/2",
        "konnectivity     enabled    2/2",
        "network-policy   disabled   -",
    ] {
        assert!(list.contains(line), "{list}");
    }
    let find = |kind: &str| home.kubectl(&format!("get {kind} -n kube-system"));
    home.kubectl("delete deployment/coredns service/kube-dns -n kube-system")
        .expect("deleted");
    eventually("what was deleted comes back", || {
        find("deployment/coredns service/kube-dns")
    });
    home.kubectl("scale deployment coredns -n kube-system --replicas=1")
        .expect("scaled");
    eventually("what was changed is changed back", || {
        match home.get("deployment/coredns -n kube-system")["spec"]["replicas"].as_u64() {
            Some(2) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    traffic::policies_hold_while_their_add_on_is_enabled(home);
    let gone = "daemonset/azure-npm serviceaccount/azure-npm clusterrole/kyanite:azure-npm";
    assert!(find(gone).is_err(), "nothing of it is left");
    let refused = home
        .kyanite("addon enable istio")
        .expect_err("there is none");
    assert!(refused.contains("there are kube-proxy"), "{refused}");
}

// But for the loss of a node, which takes its minute; `faults` has it.
fn the_demo_shows_it(home: &Home) {
    let shown = home
        .kyanite("demo --yes --skip node-loss -o json")
        .expect("every step works");
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let done = ["app", "logs", "exec", "scale", "update", "clean-up"];
    assert_eq!(shown["done"], serde_json::json!(done), "{shown}");
}

fn another_up_brings_back_what_was_lost(home: &Home) {
    let nodes = home.get("nodes");
    let name = nodes["items"][1]["metadata"]["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    home.kyanite(&format!("machine off {name} --now"))
        .expect("it is off");
    let found = home.kyanite("doctor").expect_err("something is wrong");
    assert!(found.contains(&format!("machine {name}")), "{found}");
    assert!(found.contains("`kyanite up` boots it again"), "{found}");
    let up = home.kyanite("up").expect("it comes back");
    assert!(up.contains("runs already"), "{up}");
    eventually("nothing is wrong any more", || home.kyanite("doctor"));
}

// Machines keep their disks, and the cluster its pods.
fn survives_a_restart(home: &Home) {
    let names = "get pods -l app=web -o name";
    let before = home.kubectl(names).expect("pods");
    home.kyanite("down").expect("it goes down");
    assert_eq!(traces::mounts(home.dir.path()), Vec::<String>::new());
    // Without tunnels this time: the server is in the nodes' network itself.
    home.kyanite("up --port 0 --nodes 2 --enable-apiserver-vnet-integration")
        .expect("it comes back");
    assert_eq!(home.kubectl(names).expect("pods"), before);
    home.kubectl("rollout status deployment web --timeout=240s")
        .expect("its pods run again");
    eventually("programs run in pods without tunnels", || {
        home.kubectl("exec deployment/web -- /demo get http://web/")
    });
    let list = home.kyanite("addon list").expect("add-ons");
    assert!(list.contains("konnectivity     disabled   -"), "{list}");
}
