//! What a journey does, and what it refuses to do.

use ::steps::engine::Outcome;
use ::steps::host::{Answer, Fault, Finished, Host as _, UnitRecord};
use flex_node::codes;
use serde_json::json;

use crate::machines::{AGENT, Machine, differing, put, wish};

#[test]
fn a_bootstrap_does_what_it_says_and_a_second_one_nothing() {
    let machine = Machine::new();
    let wish = wish(json!({}));
    assert_eq!(machine.bootstrap(&wish).code, 0);
    let files = machine.host.files();
    let text = |path: &str| files.text(path).unwrap().unwrap_or_default();
    assert_eq!(text("/proc/sys/net/ipv4/ip_forward").trim(), "1");
    assert!(!text("/proc/swaps").contains("/swap.img"));
    assert!(text("/etc/fstab").contains("# off for Kubernetes: /swap.img"));
    assert!(text("/var/lib/kubelet/bootstrap-kubeconfig").contains("abcdef.0123456789abcdef"));
    assert!(text("/etc/containerd/config.toml").contains("/etc/containerd/kubenet_template.conf"));
    // The distribution's unit is left alone.
    assert!(!files.exists("/etc/systemd/system/containerd.service"));
    for unit in ["containerd.service", "kubelet.service"] {
        let unit = machine.host.unit(unit).unwrap();
        assert!(unit.enabled && unit.active && unit.starts == 1, "{unit:?}");
    }
    let again = machine.bootstrap(&wish);
    let changed = again
        .report
        .steps
        .iter()
        .filter(|s| s.outcome == Outcome::Changed);
    assert_eq!(
        changed.map(|s| s.name.as_str()).collect::<Vec<_>>(),
        [""; 0]
    );
    assert_eq!(machine.host.unit("kubelet.service").unwrap().starts, 1);
}

#[test]
fn no_secret_is_in_an_argument_nor_in_a_plan() {
    let machine = Machine::new();
    machine.bootstrap(&wish(json!({})));
    let commands = machine.host.commands().join("\n");
    assert!(!commands.contains("0123456789abcdef"), "{commands}");
}

#[test]
fn kept_tokens_go_too() {
    let machine = Machine::new();
    machine.bootstrap(&wish(json!({})));
    put(
        machine.host.files(),
        "/run/aks-flex-node/tokens/x.json",
        "{}",
        0o600,
    );
    let departure = machine.unbootstrap();
    assert_eq!(departure.code, 0, "{:?}", departure.left);
    assert!(!machine.host.files().exists("/run/aks-flex-node/tokens"));
}

#[test]
fn units_end_in_the_order_that_lets_pods_go() {
    let machine = Machine::new();
    machine.bootstrap(&wish(json!({})));
    let begin = machine.host.commands().len();
    assert_eq!(machine.unbootstrap().code, 0);
    let commands = machine.host.commands()[begin..].to_vec();
    let at = |line: &str| {
        commands
            .iter()
            .position(|c| c.starts_with(line))
            .unwrap_or_else(|| panic!("{line}: {commands:#?}"))
    };
    let order = [
        at("systemctl stop aks-flex-node-agent.service kubelet.service"),
        at(&format!("{AGENT} node remove --name edge")),
        at(&format!("{AGENT} pods stop")),
        at("swapon /swap.img"),
    ];
    assert!(order.is_sorted(), "{order:?}: {commands:#?}");
    // It ran before, with a configuration of its own, and does again.
    assert!(
        !commands
            .iter()
            .any(|c| c == "systemctl restart kubelet.service")
    );
}

#[test]
fn a_containerd_that_ran_before_runs_again_with_its_own_configuration() {
    let running = UnitRecord {
        enabled: true,
        active: true,
        ..UnitRecord::default()
    };
    let machine = Machine::with(|host| host.with_unit("containerd.service", running), true);
    assert_eq!(machine.bootstrap(&wish(json!({}))).code, 0);
    assert_eq!(machine.unbootstrap().code, 0);
    let unit = machine.host.unit("containerd.service").unwrap();
    assert!(unit.active && unit.enabled, "{unit:?}");
    let config = machine
        .host
        .files()
        .text("/etc/containerd/config.toml")
        .unwrap()
        .unwrap();
    assert_eq!(config, "# somebody's\n");
}

#[test]
fn somebody_elses_kubelet_is_not_touched() {
    let machine = Machine::new();
    put(
        machine.host.files(),
        "/etc/systemd/system/kubelet.service",
        "[Service]\nExecStart=/usr/bin/kubelet\n",
        0o644,
    );
    let before = machine.node_tree();
    let arrival = machine.bootstrap(&wish(json!({})));
    assert_eq!(arrival.code, codes::PREFLIGHT);
    let failure = arrival.failure.unwrap();
    assert!(
        failure.cause.contains("somebody else's kubelet"),
        "{failure:?}"
    );
    assert!(
        failure.remedy.contains("systemctl disable --now kubelet"),
        "{failure:?}"
    );
    assert_eq!(differing(&machine.node_tree(), &before), [""; 0]);
}

#[test]
fn a_secret_that_others_can_read_is_refused() {
    let machine = Machine::new();
    let path = machine
        .host
        .files()
        .locate("/etc/aks-flex-node/config.json".as_ref());
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let failure = machine.bootstrap(&wish(json!({}))).failure.unwrap();
    assert!(failure.remedy.contains("chmod 600"), "{failure:?}");
}

#[test]
fn what_is_missing_is_fetched_and_verified_and_goes_again() {
    let bare = |list: String| {
        Machine::with(
            |host| {
                host.serving("https://github.com/", Ok((200, b"archive".to_vec())))
                    .serving("https://github.com/opencontainers/runc/releases/download/v1.1.0/runc.sha256sum", Ok((200, list.clone().into_bytes())))
                    .serving(
                        &format!("https://github.com/containerd/containerd/releases/download/v2.0.4/containerd-2.0.4-linux-{}.tar.gz.sha256sum", arch()),
                        Ok((200, list.into_bytes())),
                    )
            },
            false,
        )
    };
    let wish = wish(json!({"containerd": {"version": "2.0.4"}}));
    let refused = bare(format!("not-a-digest  runc.{}\n", arch())).bootstrap(&wish);
    assert_eq!(refused.code, codes::INTEGRITY, "{:?}", refused.failure);
    let sha = sha256(b"archive");
    let machine = bare(format!(
        "{sha}  runc.{a}\n{sha}  containerd-2.0.4-linux-{a}.tar.gz\n",
        a = arch()
    ));
    let original = machine.tree();
    let arrival = machine.bootstrap(&wish);
    assert_eq!(arrival.code, 0, "{:?}", arrival.failure);
    let files = machine.host.files();
    assert_eq!(files.read("/usr/local/sbin/runc").unwrap(), b"archive");
    assert_eq!(
        files.read("/usr/local/bin/containerd").unwrap(),
        b"bin/containerd"
    );
    assert!(
        files
            .text("/etc/systemd/system/containerd.service")
            .unwrap()
            .unwrap()
            .contains("/usr/local/bin/containerd")
    );
    let departure = machine.unbootstrap();
    assert_eq!(departure.code, 0, "{:?}", departure.left);
    assert_eq!(differing(&machine.tree(), &original), [""; 0]);
}

fn sha256(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

fn arch() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        "amd64"
    } else {
        "arm64"
    }
}

#[test]
fn what_could_not_be_taken_back_is_said_and_the_rest_is() {
    let machine = Machine::with(
        |host| {
            host.answering(
                &format!("{AGENT} node remove"),
                Answer::Ends(Finished::failed(1, "nodes \"edge\" is forbidden")),
            )
        },
        true,
    );
    machine.bootstrap(&wish(json!({})));
    let departure = machine.unbootstrap();
    assert_eq!(departure.code, codes::LEFT);
    assert_eq!(departure.left.len(), 1, "{:?}", departure.left);
    assert!(departure.left[0].what.contains("is forbidden"));
    assert!(
        departure.left[0]
            .remedy
            .contains("kubectl delete node edge")
    );
    assert!(
        !machine
            .host
            .files()
            .exists("/etc/systemd/system/kubelet.service")
    );
    assert!(
        machine
            .host
            .files()
            .text("/proc/swaps")
            .unwrap()
            .unwrap()
            .contains("/swap.img")
    );
}

#[test]
fn a_full_disk_is_a_failure_with_a_remedy_and_leaves_a_way_back() {
    let original = Machine::new().tree();
    let machine = Machine::new();
    machine.host.fault(Fault::NoSpaceFrom(40));
    let arrival = machine.bootstrap(&wish(json!({})));
    assert_ne!(arrival.code, 0);
    machine.host.repair();
    assert_eq!(machine.unbootstrap().code, 0);
    assert_eq!(differing(&machine.tree(), &original), [""; 0]);
}

#[test]
fn two_at_once_are_one_too_many() {
    let machine = Machine::new();
    let files = machine.host.files();
    files
        .ensure_directory("/run/aks-flex-node".as_ref(), 0o755)
        .unwrap();
    let path = files.locate("/run/aks-flex-node/lock".as_ref());
    let held = std::fs::File::create(path).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(machine.bootstrap(&wish(json!({}))).code, codes::BUSY);
    assert_eq!(machine.unbootstrap().code, codes::BUSY);
}

#[test]
fn a_bare_machine_without_a_network_says_what_it_could_not_reach() {
    let machine = Machine::bare();
    machine.host.fault(Fault::NoResolver);
    let arrival = machine.bootstrap(&wish(json!({})));
    let failure = arrival.failure.unwrap();
    assert!(
        failure.cause.contains("name resolution") && failure.remedy.contains("DNS"),
        "{failure:?}"
    );
}
