//! Killed anywhere, called at once, called a thousand times: nothing leaks and nothing is given twice.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use harness::eventually;
use serde_json::json;

use crate::lab::{Lab, Node, Space, conf};

const ADD_STEPS: [&str; 6] = [
    "reserved",
    "connected",
    "furnished",
    "routed",
    "ruled",
    "completed",
];
const DEL_STEPS: [&str; 3] = ["disconnected", "unruled", "released"];

fn killed(node: &Node, verb: &str, pod: &Space, step: &str) {
    let ports = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80}]});
    let answer = node
        .about(verb, pod)
        .with("runtimeConfig", ports)
        .set("KYANITE_CNI_KILLED_AT", step)
        .run();
    assert_eq!(
        answer.output.status.code(),
        None,
        "{verb} dies at {step}: {answer:?}"
    );
    assert!(answer.output.stdout.is_empty());
}

fn rules(node: &Node) -> bool {
    let list = || {
        std::process::Command::new("nft")
            .args(["list", "ruleset"])
            .output()
    };
    let listed = node.space.inside(list).ok();
    listed.is_some_and(|l| String::from_utf8_lossy(&l.stdout).contains("8080"))
}

#[test]
fn whatever_a_killed_call_leaves_the_next_call_repairs() {
    let Some(lab) = Lab::new() else { return };
    for mode in ["overlay", "kubenet"] {
        let outside = lab.outside();
        let node = lab.node(
            &outside,
            1,
            conf(mode, &["10.244.1.0/28", "fd00:244:0:1::/64"]),
        );
        for step in ADD_STEPS {
            let pod = lab.space("pod");
            killed(&node, "ADD", &pod, step);
            if step == "completed" {
                assert_eq!(node.about("ADD", &pod).run().code(), 101, "it is attached");
            } else {
                let address = node.add(&pod)[0];
                let _web = pod.serve("0.0.0.0:80");
                assert!(
                    node.space.ask(&format!("{address}:80")).is_ok(),
                    "{mode} {step}"
                );
            }
            node.del(&pod);
            assert_eq!(
                node.remains(),
                Vec::<String>::new(),
                "{mode} {step}: DEL after a second ADD"
            );
            killed(&node, "ADD", &pod, step);
            node.del(&pod);
            assert_eq!(node.remains(), Vec::<String>::new(), "{mode} {step}: DEL");
            killed(&node, "ADD", &pod, step);
            node.call("GC")
                .with("cni.dev/valid-attachments", json!([]))
                .run()
                .ok();
            assert_eq!(node.remains(), Vec::<String>::new(), "{mode} {step}: GC");
            assert!(!rules(&node), "{mode} {step}: rules of ports");
        }
        for step in DEL_STEPS {
            let pod = lab.space("pod");
            node.add(&pod);
            killed(&node, "DEL", &pod, step);
            node.del(&pod);
            assert_eq!(node.remains(), Vec::<String>::new(), "{mode} {step}");
        }
    }
}

#[test]
fn pods_whose_del_never_comes_give_their_addresses_back_when_they_are_needed() {
    let Some(lab) = Lab::new() else { return };
    let node = lab.lone_node(conf("overlay", &["10.244.1.0/29"]));
    let pods: Vec<Space> = (0..5).map(|n| lab.space(&format!("pod{n}"))).collect();
    for pod in &pods[..4] {
        node.add(pod);
    }
    killed(&node, "ADD", &pods[4], "reserved");
    let late = lab.space("late");
    assert_eq!(
        node.about("ADD", &late).run().code(),
        11,
        "all five are taken"
    );
    assert_eq!(node.call("STATUS").run().code(), 50);
    drop(pods);
    // The kernel takes each namespace apart in its own time: the first address back may be the one that is taken here.
    eventually("an address comes back", || {
        node.about("ADD", &late).run().output.status.success()
    });
    eventually("another comes back", || {
        node.call("STATUS").run().output.status.success()
    });
    node.del(&late);
}

#[test]
fn calls_at_once_get_different_addresses() {
    let Some(lab) = Lab::new() else { return };
    for mode in ["overlay", "kubenet"] {
        let node = lab.lone_node(conf(mode, &["10.244.1.0/26", "fd00:244:0:1::/64"]));
        let pods: Vec<Space> = (0..48).map(|n| lab.space(&format!("pod{n}"))).collect();
        let given: Vec<Vec<IpAddr>> = std::thread::scope(|scope| {
            let calls: Vec<_> = pods
                .iter()
                .map(|pod| scope.spawn(|| node.add(pod)))
                .collect();
            calls
                .into_iter()
                .map(|call| call.join().expect("added"))
                .collect()
        });
        let different: BTreeSet<IpAddr> = given.iter().flatten().copied().collect();
        assert_eq!(different.len(), 96, "{mode}");
        std::thread::scope(|scope| {
            for pod in &pods {
                scope.spawn(|| node.del(pod));
            }
        });
        assert_eq!(node.remains(), Vec::<String>::new());
    }
}

#[test]
fn a_thousand_pods_come_and_go_and_leave_nothing() {
    let Some(lab) = Lab::new() else { return };
    // Two runtimes that call at once, each with a pod at a time; one pod lives through it all.
    let outside = lab.outside();
    let node = lab.node(&outside, 1, conf("overlay", &["10.244.1.0/27"]));
    let survivor = lab.space("survivor");
    let lasting = node.add(&survivor)[0];
    let before = (node.space.ip("-o link"), node.space.ip("route"));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (lab, node) = (&lab, &node);
            scope.spawn(move || {
                let pod = lab.space(&format!("worker{worker}"));
                for _ in 0..250 {
                    assert_ne!(node.add(&pod)[0], lasting);
                    node.del(&pod);
                }
            });
        }
    });
    assert_eq!(before, (node.space.ip("-o link"), node.space.ip("route")));
    assert_eq!(node.remains().len(), 2, "the survivor's cable and entry");
    let _web = survivor.serve("0.0.0.0:80");
    let asked = node
        .space
        .ask_within(&format!("{lasting}:80"), Duration::from_secs(10));
    assert!(asked.is_ok());
    node.del(&survivor);
}

#[test]
fn lost_books_are_written_anew_from_the_cables() {
    let Some(lab) = Lab::new() else { return };
    for mode in ["overlay", "kubenet"] {
        let node = lab.lone_node(conf(mode, &["10.244.1.0/24"]));
        let (one, two) = (lab.space("one"), lab.space("two"));
        let first = node.add(&one)[0];
        std::fs::remove_dir_all(lab.path().join("books")).expect("lost");
        assert_ne!(node.add(&two)[0], first, "{mode}");
        node.del(&one);
        node.del(&two);
        assert_eq!(node.remains(), Vec::<String>::new());
    }
}
