//! The real az against the cloud that `kyanite up` runs, with real things behind it: the cluster itself, clusters and
//! machines that az makes. Needs root, containerd, kubectl and az; skipped, loudly, without.

mod machines;

use std::path::PathBuf;
use std::process::Command;

use harness::{eventually, said, skip};
use serde_json::{Value, json};

use crate::cluster::Home;

pub(crate) const IMAGE: &str = "Canonical:ubuntu-24_04-lts:server:latest";
pub(crate) const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEjvPPXlsZNkX5CbBBWyNzPYhvMqSvvZ3aWfCmYwbhhM test";

/// A person with az, in the environment that `kyanite az-env` prints.
pub(crate) struct Person {
    pub(crate) home: Home,
    az: PathBuf,
}

impl Person {
    pub(crate) fn new() -> Option<Person> {
        let Some(az) = std::env::var_os("AZ").map(PathBuf::from) else {
            skip("AZ is not set (scripts/setup --for interop, scripts/env)");
            return None;
        };
        Home::in_a_world().map(|home| Person { home, az })
    }

    pub(crate) fn az(&self, words: &str) -> Result<Value, String> {
        let words: Vec<&str> = words.split_whitespace().collect();
        self.az_of(&words)
    }

    /// The same for words that may be empty.
    pub(crate) fn az_of(&self, words: &[&str]) -> Result<Value, String> {
        let text = self.printed(words)?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// What az prints.
    fn az_text(&self, words: &str) -> Result<String, String> {
        let words: Vec<&str> = words.split_whitespace().collect();
        self.printed(&words)
    }

    fn printed(&self, words: &[&str]) -> Result<String, String> {
        let exports = self.home.kyanite("az-env").expect("how az is connected");
        let mut command = self.home.command(&self.az);
        command.args(words).args(["-o", "json"]);
        command.env("HOME", self.home.path());
        for line in exports.lines() {
            let (name, value) = line
                .trim_start_matches("export ")
                .split_once('=')
                .expect("a variable");
            command.env(name, value.trim_matches('\''));
        }
        said(&mut command)
    }

    pub(crate) fn ok(&self, words: &str) -> Value {
        self.az(words)
            .unwrap_or_else(|said| panic!("az {words}: {said}"))
    }

    /// What kubectl says of the cluster whose credentials az gives.
    fn kubectl(&self, group: &str, cluster: &str, words: &str) -> Result<String, String> {
        let file = self.home.path().join(format!("{cluster}.kubeconfig"));
        let file = file.to_string_lossy().into_owned();
        self.az(&format!(
            "aks get-credentials -g {group} -n {cluster} -f {file} --overwrite-existing"
        ))?;
        self.home.kubectl(&format!("--kubeconfig {file} {words}"))
    }

    fn nodes(&self, group: &str, cluster: &str) -> usize {
        let nodes = self.kubectl(group, cluster, "get nodes -o name");
        nodes.expect("nodes").lines().count()
    }
}

#[test]
fn az_sees_the_cluster_that_up_started_and_makes_scales_stops_and_deletes_another() {
    let Some(person) = Person::new() else { return };
    let up = person
        .home
        .kyanite("up --port 0 --nodes 1")
        .expect("it comes up");
    assert!(up.contains("az-env"), "{up}");
    let list = person.ok("aks list --query [].[name,provisioningState]");
    assert_eq!(list, json!([["kyanite", "Succeeded"]]));
    assert_eq!(person.nodes("kyanite", "kyanite"), 1);
    let refused = person
        .az("aks delete -g kyanite -n kyanite -y")
        .unwrap_err();
    assert!(refused.contains("kyanite down"), "{refused}");

    person.ok("group create -n g -l eastus");
    let made = person.ok("aks create -g g -n c --no-ssh-key -c 1 -s Standard_D2s_v5");
    assert_eq!(made["provisioningState"], "Succeeded");
    assert_eq!(made["tags"], Value::Null, "its nodes are no paper");
    person
        .kubectl("g", "c", "run p --image=kyanite.local/demo:1")
        .expect("a pod");
    person
        .kubectl("g", "c", "wait --for=condition=Ready pod/p --timeout=240s")
        .expect("it runs");
    person.ok("aks nodepool scale -g g --cluster-name c -n nodepool1 -c 2");
    assert_eq!(person.nodes("g", "c"), 2);
    let expose = "expose pod p --type=LoadBalancer --port=80 --target-port=8080";
    person.kubectl("g", "c", expose).expect("a service");
    let address = eventually("it has an address", || {
        let shown = person.kubectl(
            "g",
            "c",
            "get service p -o jsonpath={.status.loadBalancer.ingress[0].ip}",
        )?;
        shown.trim().parse().map_err(|e| format!("{shown}: {e}"))
    });
    let world = person.home.world();
    eventually("it answers this host", || world.gets(address, "/"));

    // Whoever kills the cloud does not kill its clusters; the next one finds them.
    let status = person.home.kyanite("status -o json").expect("a status");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    said(Command::new("kill").args(["-9", &status["pid"].to_string()])).expect("it is killed");
    assert!(person.home.kyanite("up --port 0").is_ok());
    assert_eq!(person.nodes("g", "c"), 2);
    assert_eq!(person.nodes("kyanite", "kyanite"), 1);

    person.ok("aks stop -g g -n c");
    assert!(person.kubectl("g", "c", "get nodes").is_err());
    person.ok("aks start -g g -n c");
    assert_eq!(
        person.ok("aks show -g g -n c --query powerState.code"),
        "Running"
    );
    person
        .kubectl("g", "c", "get pod p")
        .expect("its objects are still there");
    person.ok("aks delete -g g -n c -y");
    assert_eq!(person.home.entries("clusters"), Vec::<String>::new());
    person.home.kyanite("down --purge").expect("it goes down");
    assert_eq!(person.home.mounts(), Vec::<String>::new());
}

#[test]
fn az_makes_a_machine_that_boots_with_its_custom_data_and_knows_itself() {
    let Some(person) = Person::new() else { return };
    person
        .home
        .kyanite("up --port 0 --nodes 0")
        .expect("it comes up");
    let place = |name: &str| person.home.path().join(name).to_string_lossy().into_owned();
    let (custom, key) = (place("custom.yaml"), place("key.pub"));
    let data = "#cloud-config\nwrite_files:\n  - path: /etc/landed\n    content: here\n";
    std::fs::write(&custom, data).expect("a file");
    std::fs::write(&key, KEY).expect("a file");
    person.ok("group create -n g -l eastus");
    let made = person.ok(&format!(
        "vm create -g g -n m --image {IMAGE} --size Standard_D2s_v3 --admin-username somebody \
         --ssh-key-values {key} --custom-data {custom}"
    ));
    assert_eq!(made["powerState"], "VM running", "{made}");
    let address = made["publicIpAddress"].as_str().expect("an address");
    let address = address.parse().expect("an address");
    eventually("its public address leads to it", || {
        person.home.world().reaches(address, 22)
    });
    let closed = person.home.world().reaches(address, 9);
    assert!(closed.is_err(), "az opens one port only: {closed:?}");
    let run = |script: &str| {
        let script = place(script);
        let ran = person.ok(&format!(
            "vm run-command invoke -g g -n m --command-id RunShellScript --scripts @{script}"
        ));
        ran["value"][0]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let ask = "cat /etc/landed; curl -s -m 20 -H Metadata:true \
        'http://169.254.169.254/metadata/instance/compute/name?api-version=2021-02-01&format=text'\n";
    std::fs::write(place("ask.sh"), ask).expect("a file");
    eventually("it has its custom data and its metadata", || {
        match run("ask.sh") {
            text if text.contains("[stdout]\nherem") => Ok(()),
            text => Err(text),
        }
    });
    let power = || {
        let view =
            person.ok("vm get-instance-view -g g -n m --query instanceView.statuses[1].code");
        view.as_str().unwrap_or_default().to_owned()
    };
    for (verb, state, machine) in [
        ("restart", "PowerState/running", "running"),
        ("stop", "PowerState/stopped", "off"),
        ("deallocate", "PowerState/deallocated", "off"),
        ("start", "PowerState/running", "running"),
    ] {
        person.ok(&format!("vm {verb} -g g -n m"));
        assert_eq!(
            (power().as_str(), person.home.vm("m").as_str()),
            (state, machine),
            "{verb}"
        );
    }
    person.home.kyanite("fault crash m").expect("it crashes");
    assert_eq!(person.home.vm("m"), "off");
    person.home.kyanite("fault clear").expect("it is mended");
    assert_eq!(person.home.vm("m"), "running");
    person.ok("vm delete -g g -n m -y");
    person.home.kyanite("down --purge").expect("it goes down");
    assert_eq!(person.home.mounts(), Vec::<String>::new());
}
