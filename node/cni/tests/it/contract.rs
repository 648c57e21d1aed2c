//! The specification: verbs, versions, answers and codes.

use std::process::Command;

use serde_json::json;

use crate::lab::{Lab, Node, PLUGIN, addresses, conf};

#[test]
fn every_version_gets_an_answer_in_its_shape() {
    let Some(lab) = Lab::new() else { return };
    let node = lab.lone_node(conf("overlay", &["10.244.1.0/24"]));
    for version in [
        "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
    ] {
        let pod = lab.space("pod");
        let as_asked = |verb| node.about(verb, &pod).with("cniVersion", json!(version));
        let result = as_asked("ADD").run().ok();
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result.get("ip4").is_some(), version < "0.3.0", "{version}");
        if version >= "0.4.0" {
            as_asked("CHECK").with("prevResult", result).run().ok();
        }
        let gone = as_asked("DEL").run();
        assert!(gone.output.stdout.is_empty() && gone.output.status.success());
        as_asked("DEL").run().ok();
    }
}

#[test]
fn mistakes_have_the_codes_of_the_specification() {
    let Some(lab) = Lab::new() else { return };
    let node = lab.lone_node(conf("overlay", &["10.244.1.0/24"]));
    let pod = lab.space("pod");
    let add = || node.about("ADD", &pod);
    for (what, code, call) in [
        (
            "a version of the future",
            1,
            add().with("cniVersion", json!("9.0.0")),
        ),
        ("a mode nobody knows", 2, add().with("mode", json!("magic"))),
        ("a verb nobody knows", 4, node.about("MOVE", &pod)),
        ("no variables", 4, node.call("ADD")),
        ("a bad interface name", 4, add().set("CNI_IFNAME", "a/b")),
        ("a bad network name", 7, add().with("name", json!("../x"))),
        ("no ranges", 7, add().with("ipam", json!({}))),
        (
            "a subnet with host bits",
            7,
            add().with("ipam", json!({"subnet": "10.0.0.1/24"})),
        ),
        ("no namespace there", 8, add().set("CNI_NETNS", "/nowhere")),
        (
            "a file that is no namespace",
            8,
            add().set("CNI_NETNS", "/dev/null"),
        ),
        (
            "the node's own namespace",
            8,
            add().set("CNI_NETNS", node.space.path.display()),
        ),
        (
            "GC in an old version",
            1,
            node.call("GC").with("cniVersion", json!("1.0.0")),
        ),
        ("CHECK without a result", 7, node.about("CHECK", &pod)),
    ] {
        let answer = call.run();
        assert_eq!(answer.value["code"], code, "{what}: {answer:?}");
        assert!(answer.value["msg"].as_str().is_some_and(|m| !m.is_empty()));
        assert_eq!(answer.output.status.code(), Some(1), "{what}");
    }
    let garbage = Node {
        space: lab.space("other"),
        conf: json!("no object"),
    };
    assert_eq!(garbage.about("ADD", &pod).run().code(), 6);
    assert_eq!(node.remains(), Vec::<String>::new());
}

#[test]
fn a_second_add_is_refused_and_a_del_of_nothing_is_fine() {
    let Some(lab) = Lab::new() else { return };
    let node = lab.lone_node(conf("kubenet", &["10.244.1.0/24"]));
    let pod = lab.space("pod");
    node.add(&pod);
    assert_eq!(node.about("ADD", &pod).run().code(), 101);
    let taken = lab.space("taken");
    taken.ip("link add eth0 type veth peer name other");
    assert_eq!(node.about("ADD", &taken).run().code(), 100, "eth0 is there");
    node.about("DEL", &pod).set("CNI_NETNS", "").run().ok();
    node.about("DEL", &pod)
        .set("CNI_NETNS", "/nowhere")
        .run()
        .ok();
    assert_eq!(node.remains(), Vec::<String>::new());
}

#[test]
fn check_finds_what_was_changed_behind_its_back() {
    let Some(lab) = Lab::new() else { return };
    for mode in ["overlay", "kubenet"] {
        for damage in [
            "address flush dev eth0",
            "link set eth0 down",
            "route del default",
            "link del eth0",
        ] {
            let node = lab.lone_node(conf(mode, &["10.244.1.0/24"]));
            let pod = lab.space("pod");
            let result = node.about("ADD", &pod).run().ok();
            let check = || {
                node.about("CHECK", &pod)
                    .with("prevResult", result.clone())
                    .run()
            };
            check().ok();
            pod.ip(damage);
            assert_eq!(check().code(), 102, "{mode}: {damage}");
            node.del(&pod);
            assert_eq!(check().code(), 3, "{mode}: after DEL");
        }
    }
}

#[test]
fn gc_takes_what_is_not_on_the_list_and_leaves_the_rest() {
    let Some(lab) = Lab::new() else { return };
    let node = lab.lone_node(conf("kubenet", &["10.244.1.0/24"]));
    let (stays, goes) = (lab.space("stays"), lab.space("goes"));
    let result = node.about("ADD", &stays).run().ok();
    node.add(&goes);
    let valid = json!([{"containerID": "stays", "ifname": "eth0"}]);
    node.call("GC")
        .with("cni.dev/valid-attachments", valid)
        .run()
        .ok();
    assert_eq!(node.remains().len(), 2, "cable and entry of one pod");
    node.about("CHECK", &stays)
        .with("prevResult", result)
        .run()
        .ok();
    assert_eq!(
        node.call("GC").run().code(),
        7,
        "no list is not an empty list"
    );
}

#[test]
fn what_a_runtime_asks_for_is_given() {
    let Some(lab) = Lab::new() else { return };
    let node = lab.lone_node(conf("overlay", &["10.244.1.0/24"]));
    let pod = lab.space("pod");
    let wishes = json!({
        "ips": ["10.244.1.77"], "mac": "02:00:00:00:00:07",
        "bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 4_000_000, "egressBurst": 800_000},
    });
    let add = node
        .about("ADD", &pod)
        .with("runtimeConfig", wishes)
        .with("mtu", json!(1400));
    let result = add.run().ok();
    assert_eq!(addresses(&result)[0].to_string(), "10.244.1.77");
    assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:07");
    assert!(pod.ip("link show eth0").contains("mtu 1400 qdisc tbf"));
    assert!(node.space.ip("link").contains("mtu 1400 qdisc tbf"));
    let asked = node
        .about("ADD", &lab.space("b"))
        .set("CNI_ARGS", "IgnoreUnknown=1;IP=10.9.9.9")
        .run();
    assert_eq!(asked.code(), 7, "an address of no range");
}

#[test]
fn called_by_a_person_it_says_what_it_is_and_writes_configurations() {
    let run = |arguments: &[&str]| {
        let mut plugin = Command::new(PLUGIN);
        plugin
            .args(arguments)
            .env_remove("CNI_COMMAND")
            .output()
            .expect("it runs")
    };
    let about = run(&[]);
    assert!(about.status.success() && about.stdout.is_empty());
    assert!(String::from_utf8_lossy(&about.stderr).contains("1.1.0"));
    let template = run(&["conf", "--template", "--inside", "10.244.0.0/16"]);
    assert!(String::from_utf8_lossy(&template.stdout).contains(".PodCIDRRanges"));
    let list = run(&[
        "conf",
        "--kubenet",
        "--pod-cidr",
        "10.244.3.0/24",
        "--pod-cidr",
        "fd00::/64",
    ]);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).expect("JSON");
    assert_eq!(
        list["plugins"][0]["ipam"]["ranges"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    assert_eq!(run(&["conf"]).status.code(), Some(2));
}
