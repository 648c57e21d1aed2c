//! Through Arc, with an Azure that lets one wait: this program's own commands are scripted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ::steps::host::{Answer, Command, Files, Finished, Host as _, SimulatedHost};
use flex_node::codes;
use flex_node::steps::Wish;
use serde_json::json;

use crate::machines::{AGENT, Machine, differing, wish};

const CLUSTER: &str = "/subscriptions/11111111-2222-4333-8444-555555555555/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c";

fn arc() -> Wish {
    let azure = json!({"subscriptionId": "s", "tenantId": "t", "resourceManagerEndpoint": "https://cloud.example",
        "servicePrincipal": {"clientId": "c", "clientSecret": "x"}, "arc": {"enabled": true},
        "targetCluster": {"resourceId": CLUSTER, "location": "l"}});
    wish(json!({"azure": azure, "node": {}}))
}

/// What is not there yet is not there; the rest of Azure is as it should be.
fn scripted(host: SimulatedHost, refusals: u32) -> SimulatedHost {
    let asked = AtomicU32::new(0);
    let credential = move |files: &Files, _: &Command| {
        if asked.fetch_add(1, Ordering::SeqCst) < refusals {
            return Finished::failed(1, "cannot ask c for a credential: 403 AuthorizationFailed");
        }
        let known = json!({"server": "https://api.example", "authority": "PEM", "name": "c"});
        let place = files.locate(Path::new("/var/lib/aks-flex-node/cluster.json"));
        std::fs::write(place, known.to_string()).unwrap();
        Finished::default()
    };
    let absent = || Answer::Ends(Finished::failed(1, "is not there"));
    let mut host = host.answering(
        &format!("{AGENT} azure cluster make"),
        Answer::Does(Arc::new(credential)),
    );
    for what in ["arc", "role", "access", "serving"] {
        host = host.answering(&format!("{AGENT} azure {what} check"), absent());
    }
    let forget = |files: &Files, _: &Command| {
        let _ =
            std::fs::remove_file(files.locate(Path::new("/var/lib/aks-flex-node/cluster.json")));
        Finished::default()
    };
    host.answering(
        "rm -f /var/lib/aks-flex-node/cluster.json",
        Answer::Does(Arc::new(forget)),
    )
}

#[test]
fn a_role_that_takes_a_minute_to_arrive_is_waited_for_by_using_it() {
    let machine = Machine::with(|host| scripted(host, 24), true);
    let original = Machine::with(|host| host, true).tree();
    let begin = machine.host.elapsed();
    let arrival = machine.bootstrap(&arc());
    assert_eq!(arrival.code, 0, "{:?}", arrival.failure);
    assert!(machine.host.elapsed() - begin >= Duration::from_secs(60));
    let files = machine.host.files();
    assert!(files.exists("/etc/systemd/system/aks-flex-node-himds.service"));
    let kubeconfig = files.text("/var/lib/kubelet/kubeconfig").unwrap().unwrap();
    assert!(
        kubeconfig.contains("token") && !kubeconfig.contains("client-key"),
        "{kubeconfig}"
    );
    let departure = machine.unbootstrap();
    assert_eq!(departure.code, 0, "{:?}", departure.left);
    let commands = machine.host.commands();
    let at = |line: &str| {
        let line = format!("{AGENT} {line}");
        let found = commands
            .iter()
            .position(|command| command.starts_with(&line));
        found.unwrap_or_else(|| panic!("{line}: {commands:#?}"))
    };
    let order = [
        at("node remove --name edge --config"),
        at("azure access remove"),
        at("azure role remove"),
        at("azure arc remove"),
    ];
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(differing(&machine.tree(), &original), [""; 0]);
}

#[test]
fn an_identity_that_gives_no_tokens_is_said_with_what_to_look_at() {
    let down = |host: SimulatedHost| {
        let refused = Finished::failed(
            1,
            "127.0.0.1:40342 cannot be reached; hint: check `systemctl status himdsd`",
        );
        scripted(host, 0).answering(&format!("{AGENT} token"), Answer::Ends(refused))
    };
    let machine = Machine::with(down, true);
    let original = Machine::with(|host| host, true).tree();
    let arrival = machine.bootstrap(&arc());
    assert_eq!(arrival.code, codes::AUTH, "{:?}", arrival.failure);
    let failure = arrival.failure.unwrap();
    assert!(failure.cause.contains("40342"), "{failure:?}");
    assert_eq!(machine.unbootstrap().code, 0);
    assert_eq!(differing(&machine.tree(), &original), [""; 0]);
}

#[test]
fn where_azures_own_agent_is_installed_it_serves_the_identity() {
    let installed = |host: SimulatedHost| {
        crate::machines::put(
            host.files(),
            "/opt/azcmagent/bin/azcmagent",
            "azcmagent",
            0o755,
        );
        scripted(host, 0)
    };
    let machine = Machine::with(installed, true);
    assert_eq!(machine.bootstrap(&arc()).code, 0);
    assert!(
        !machine
            .host
            .files()
            .exists("/etc/systemd/system/aks-flex-node-himds.service")
    );
}

#[test]
fn a_package_whose_containerd_is_too_old_starts_the_one_that_was_fetched() {
    let wanted = json!({"containerd": {"version": "2.0.4"}});
    let arch = if cfg!(target_arch = "x86_64") {
        "amd64"
    } else {
        "arm64"
    };
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"archive");
    let digest: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let name = format!("containerd-2.0.4-linux-{arch}.tar.gz");
    let url = format!("https://github.com/containerd/containerd/releases/download/v2.0.4/{name}");
    let serving = |host: SimulatedHost| {
        host.serving(&url, Ok((200, b"archive".to_vec()))).serving(
            &format!("{url}.sha256sum"),
            Ok((200, format!("{digest}  {name}").into_bytes())),
        )
    };
    let machine = Machine::with(serving, true);
    let original = Machine::with(|host| host, true).tree();
    let arrival = machine.bootstrap(&wish(wanted));
    assert_eq!(arrival.code, 0, "{:?}", arrival.failure);
    let files = machine.host.files();
    let text = files
        .text("/etc/systemd/system/containerd.service.d/10-aks-flex-node.conf")
        .unwrap()
        .unwrap();
    assert!(
        text.contains("ExecStart=\nExecStart=/usr/local/bin/containerd\n"),
        "{text}"
    );
    assert_eq!(machine.unbootstrap().code, 0);
    assert_eq!(differing(&machine.tree(), &original), [""; 0]);
}
