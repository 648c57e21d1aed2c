//! The same run with upstream's kubelet in ours' place, fetched from a mirror in the machine's network and verified.

use std::path::PathBuf;
use std::process::Command;

use harness::{said, skip};
use serde_json::{Value, json};

use super::site::Site;
use super::{AGENT, MACHINE, STATE, config, mirror, runs_a_pod};

fn upstream_kubelet() -> Option<(PathBuf, String)> {
    let kubelet = PathBuf::from(std::env::var_os("UPSTREAM_BIN")?).join("kubelet");
    let version = said(Command::new(&kubelet).arg("--version")).ok()?;
    let version = version.trim().strip_prefix("Kubernetes v")?.to_owned();
    Some((kubelet, version))
}

#[test]
fn upstreams_kubelet_in_ours_place_joins_runs_a_pod_and_leaves() {
    let Some((kubelet, version)) = upstream_kubelet() else {
        return skip("UPSTREAM_BIN has no kubelet (scripts/upstream builds one)");
    };
    let Some(site) = Site::open() else { return };
    let program = std::fs::read(&kubelet).expect("a kubelet");
    let address = mirror::open(&site, vec![("kubelet".to_owned(), program)]);
    let mut config = config(&site);
    config["kubernetes"] = json!({"kubelet": "upstream", "version": version});
    config["mirrors"] = json!({"kubelet": format!("http://{address}")});
    config["node"]["kubelet"]["serverTLSBootstrap"] = json!(true);
    site.boot(MACHINE, &config);
    let before = site.state(STATE);
    let joined = site
        .run(&format!("{AGENT} bootstrap -o json"))
        .expect("it joins");
    let joined: Value = serde_json::from_str(&joined).expect("JSON");
    assert_eq!(joined["success"], true, "{joined:#}");
    let says = site
        .run("/usr/local/bin/kubelet --version")
        .expect("a kubelet");
    assert!(says.contains(&version), "{says}");
    runs_a_pod(&site);
    let gone = site.run(&format!(
        "{AGENT} unbootstrap --kubeconfig {}",
        site.admin_in_machine()
    ));
    assert!(gone.is_ok(), "{gone:?}");
    assert_eq!(
        site.differences(&before, &site.state(STATE)),
        [""; 0],
        "nothing is left"
    );
}
