//! Other versions on a node: there, back when it does not come back Ready, and killed at every point on the way.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::steps::host::{Answer, Command, Fault, Files, Finished, Host as _, SimulatedHost};
use flex_node::codes;
use flex_node::journey::upgrade::{Manner, Upgraded};
use flex_node::steps::Wish;
use flex_node::versions::Versions;
use serde_json::json;

use crate::machines::{AGENT, Machine, differing, wish};

const KUBELET: &str = "/usr/local/bin/kubelet";
const CORDONED: &str = "/run/aks-flex-node/cordoned";
/// A version that never gets Ready.
const BROKEN: &str = "1.37.0";

const MANNER: Manner = Manner {
    drain: Duration::from_secs(60),
    patience: Duration::from_secs(120),
    force: false,
};

fn base() -> Wish {
    wish(json!({"kubernetes": {"version": "1.35.0"}}))
}

fn to(version: &str) -> Versions {
    Versions {
        kubernetes: Some(version.to_owned()),
        ..Versions::default()
    }
}

fn kubelet(files: &Files) -> String {
    std::fs::read_to_string(files.locate(Path::new(KUBELET))).unwrap_or_default()
}

fn version(files: &Files, _: &Command) -> Finished {
    Finished::ok(format!("Kubernetes v{}", kubelet(files)))
}

// Past the gate of faults: what the cluster knows does not end with the machine.
fn cordon(files: &Files, _: &Command) -> Finished {
    let place = files.locate(Path::new(CORDONED));
    let was = place.exists();
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::write(place, "").unwrap();
    Finished::ok(if was {
        "was cordoned"
    } else {
        "is cordoned now"
    })
}

fn uncordon(files: &Files, _: &Command) -> Finished {
    let _ = std::fs::remove_file(files.locate(Path::new(CORDONED)));
    Finished::default()
}

fn wait(files: &Files, _: &Command) -> Finished {
    match kubelet(files).as_str() {
        BROKEN => Finished::failed(1, "the kubelet stopped posting status"),
        _ => Finished::default(),
    }
}

fn scripted(mut host: SimulatedHost) -> SimulatedHost {
    for version in ["1.35.0", "1.36.0", BROKEN] {
        let arch = if cfg!(target_arch = "x86_64") {
            "amd64"
        } else {
            "arm64"
        };
        let url = format!("https://dl.k8s.io/v{version}/bin/linux/{arch}/kubelet");
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, version.as_bytes());
        let digest: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        host = host
            .serving(&url, Ok((200, version.as_bytes().to_vec())))
            .serving(&format!("{url}.sha256"), Ok((200, digest.into_bytes())));
    }
    let does = |deed: fn(&Files, &Command) -> Finished| Answer::Does(Arc::new(deed));
    host.answering(&format!("{KUBELET} --version"), does(version))
        .answering(&format!("{AGENT} node cordon"), does(cordon))
        .answering(&format!("{AGENT} node uncordon"), does(uncordon))
        .answering(&format!("{AGENT} node wait"), does(wait))
}

fn node() -> Machine {
    let machine = Machine::with(scripted, true);
    let arrival = machine.bootstrap(&base());
    assert_eq!(arrival.code, 0, "{:?}", arrival.failure);
    machine
}

fn upgrade(machine: &Machine, version: &str) -> Upgraded {
    machine.journey().upgrade(&base(), &to(version), MANNER)
}

fn is_settled(machine: &Machine) -> bool {
    let files = machine.host.files();
    !files.exists(CORDONED) && !machine.journey().is_upgrading()
}

#[test]
fn a_node_is_emptied_before_its_kubelet_is_swapped_and_takes_pods_after() {
    let machine = node();
    let begin = machine.host.commands().len();
    let upgraded = upgrade(&machine, "1.36.0");
    assert_eq!(upgraded.code, 0, "{:?}", upgraded.failure);
    assert_eq!(kubelet(machine.host.files()), "1.36.0");
    let commands = machine.host.commands()[begin..].to_vec();
    let at = |line: &str| {
        let found = commands
            .iter()
            .position(|command| command.starts_with(line));
        found.unwrap_or_else(|| panic!("{line}: {commands:#?}"))
    };
    let order = [
        at(&format!("{AGENT} node cordon")),
        at(&format!("{AGENT} node drain")),
        at("systemctl restart --no-block kubelet.service"),
        at(&format!("{AGENT} node uncordon")),
    ];
    assert!(order.is_sorted(), "{order:?}: {commands:#?}");
    let drains = |machine: &Machine| {
        let all = machine.host.commands();
        all.iter()
            .filter(|c| c.starts_with(&format!("{AGENT} node drain")))
            .count()
    };
    let before = drains(&machine);
    assert_eq!(upgrade(&machine, "1.36.0").code, 0);
    assert_eq!(
        drains(&machine),
        before,
        "what it runs already needs no emptied node"
    );
    // Whoever looks for drift finds none, and what was there before everything comes back.
    let wish = Versions::read(machine.host.files()).applied(&base());
    assert_eq!(machine.journey().plan(&wish).unwrap().changes(), 0);
    let original = Machine::with(scripted, true).tree();
    assert_eq!(machine.unbootstrap().code, 0);
    assert_eq!(differing(&machine.tree(), &original), [""; 0]);
}

#[test]
fn a_node_that_does_not_come_back_goes_back_to_what_worked() {
    let machine = node();
    let upgraded = upgrade(&machine, BROKEN);
    assert!(upgraded.rolled_back, "{upgraded:?}");
    assert_ne!(upgraded.code, 0);
    let failure = upgraded.failure.unwrap();
    assert!(failure.cause.contains("back to what worked"), "{failure:?}");
    assert_eq!(kubelet(machine.host.files()), "1.35.0");
    assert!(is_settled(&machine));
    assert_eq!(Versions::read(machine.host.files()), Versions::default());
}

#[test]
fn pods_that_do_not_go_keep_the_node_as_it_is() {
    let refuse = |host: SimulatedHost| {
        let budget = Answer::Ends(Finished::failed(
            1,
            "web/web-0 stays: the budget allows no disruption",
        ));
        scripted(host).answering(&format!("{AGENT} node drain"), budget)
    };
    let machine = Machine::with(refuse, true);
    assert_eq!(machine.bootstrap(&base()).code, 0);
    let upgraded = upgrade(&machine, "1.36.0");
    assert_eq!(upgraded.code, codes::CLUSTER);
    assert!(
        upgraded
            .failure
            .unwrap()
            .cause
            .contains("the budget allows no disruption")
    );
    assert_eq!(kubelet(machine.host.files()), "1.35.0");
    assert!(is_settled(&machine));
    let forced = Manner {
        force: true,
        ..MANNER
    };
    assert_eq!(
        machine
            .journey()
            .upgrade(&base(), &to("1.36.0"), forced)
            .code,
        0
    );
    assert_eq!(kubelet(machine.host.files()), "1.36.0");
}

#[test]
fn a_node_that_somebody_cordoned_stays_so() {
    let machine = node();
    cordon(machine.host.files(), &Command::new("x", &[]));
    assert_eq!(upgrade(&machine, "1.36.0").code, 0);
    assert!(machine.host.files().exists(CORDONED));
}

#[test]
fn an_upgrade_killed_at_any_point_is_taken_back_or_ended_by_who_comes_next() {
    let counted = node();
    let before = counted.host.points();
    assert_eq!(upgrade(&counted, "1.36.0").code, 0);
    let points = counted.host.points() - before;
    assert!(points > 40, "only {points} points");
    for point in 1..=points {
        let machine = node();
        machine
            .host
            .fault(Fault::CrashAt(machine.host.points() + point));
        upgrade(&machine, "1.36.0");
        machine.host.repair();
        let recovered = machine.journey().recover(&base(), MANNER);
        assert_eq!(recovered.code, 0, "point {point}: {:?}", recovered.failure);
        assert!(is_settled(&machine), "point {point}");
        let (files, now) = (machine.host.files(), kubelet(machine.host.files()));
        let meant = Versions::read(files)
            .kubernetes
            .unwrap_or_else(|| "1.35.0".to_owned());
        assert_eq!(now, meant, "point {point}: what runs is what is meant");
        let again = upgrade(&machine, "1.36.0");
        assert_eq!(again.code, 0, "point {point}: {:?}", again.failure);
        assert_eq!(kubelet(files), "1.36.0", "point {point}");
        assert!(is_settled(&machine), "point {point}");
    }
}

#[test]
fn a_rollback_killed_at_any_point_is_ended_by_who_comes_next() {
    let counted = node();
    let before = counted.host.points();
    upgrade(&counted, BROKEN);
    let points = counted.host.points() - before;
    for point in (1..=points).step_by(3) {
        let machine = node();
        machine
            .host
            .fault(Fault::CrashAt(machine.host.points() + point));
        upgrade(&machine, BROKEN);
        machine.host.repair();
        let recovered = machine.journey().recover(&base(), MANNER);
        assert_eq!(recovered.code, 0, "point {point}: {:?}", recovered.failure);
        assert_eq!(kubelet(machine.host.files()), "1.35.0", "point {point}");
        assert!(is_settled(&machine), "point {point}");
    }
}

#[test]
fn this_program_itself_is_upgraded_and_comes_back_as_it_was() {
    let another = "/opt/another/aks-flex-node";
    let with = |host: SimulatedHost| {
        crate::machines::put(host.files(), another, "another agent", 0o755);
        let says = Answer::Ends(Finished::ok("AKS Flex Node Agent\nVersion: 2"));
        host.answering(&format!("{another} version"), says)
    };
    let machine = Machine::with(with, true);
    let base = wish(json!({}));
    assert_eq!(machine.bootstrap(&base).code, 0);
    let agent = Versions {
        agent: Some(another.to_owned()),
        ..Versions::default()
    };
    let starts = || {
        machine
            .host
            .unit("aks-flex-node-agent.service")
            .unwrap()
            .starts
    };
    let before = starts();
    let upgraded = machine.journey().upgrade(&base, &agent, MANNER);
    assert_eq!(upgraded.code, 0, "{:?}", upgraded.failure);
    assert_eq!(machine.host.files().read(AGENT).unwrap(), b"another agent");
    assert!(starts() > before, "it was started again");
    assert_eq!(machine.unbootstrap().code, 0);
    assert_eq!(machine.host.files().read(AGENT).unwrap(), b"agent");
}
