//! Packets: who reaches whom, and whose address they see.

use std::time::Duration;

use serde_json::json;

use crate::lab::{Lab, Node, PLUGIN, conf};

const MODES: [&str; 2] = ["overlay", "kubenet"];
const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:244:0:1::/64"];

#[test]
fn pods_of_a_node_reach_each_other_their_node_and_are_reached_by_it() {
    let Some(lab) = Lab::new() else { return };
    for mode in MODES {
        let outside = lab.outside();
        let node = lab.node(&outside, 1, conf(mode, &BOTH));
        let (one, two) = (lab.space("one"), lab.space("two"));
        let (first, second) = (node.add(&one), node.add(&two));
        let _web = [two.serve("0.0.0.0:80"), two.serve("[::]:81")];
        let _node = [
            node.space.serve("192.0.2.1:90"),
            node.space.serve("[2001:db8::1]:90"),
        ];
        let asked = one.ask(&format!("{}:80", second[0])).expect(mode);
        assert_eq!(asked, first[0].to_string(), "{mode}");
        let asked = one.ask(&format!("[{}]:81", second[1])).expect(mode);
        assert_eq!(asked, first[1].to_string(), "{mode}");
        assert!(
            node.space.ask(&format!("{}:80", second[0])).is_ok(),
            "{mode}"
        );
        assert!(
            node.space.ask(&format!("[{}]:81", second[1])).is_ok(),
            "{mode}"
        );
        assert!(one.ask("192.0.2.1:90").is_ok(), "{mode}: the node");
        assert!(
            one.ask("[2001:db8::1]:90").is_ok(),
            "{mode}: the node by IPv6"
        );
        node.del(&one);
        node.del(&two);
        assert_eq!(node.remains(), Vec::<String>::new());
    }
}

#[test]
fn pods_of_two_nodes_see_each_other_and_the_world_sees_their_nodes() {
    let Some(lab) = Lab::new() else { return };
    for mode in MODES {
        let outside = lab.outside();
        let one = lab.node(&outside, 1, conf(mode, &BOTH));
        let two = lab.node(
            &outside,
            2,
            conf(mode, &["10.244.2.0/24", "fd00:244:0:2::/64"]),
        );
        for (node, n) in [(&one, 2), (&two, 1)] {
            node.space
                .ip(&format!("route add 10.244.{n}.0/24 via 192.0.2.{n}"));
            node.space
                .ip(&format!("route add fd00:244:0:{n}::/64 via 2001:db8::{n}"));
        }
        let (here, there) = (lab.space("here"), lab.space("there"));
        let (first, second) = (one.add(&here), two.add(&there));
        let _web = there.serve("[::]:80");
        let _world = [
            outside.serve("192.0.2.254:80"),
            outside.serve("[2001:db8::ff]:80"),
        ];
        let asked = here.ask(&format!("{}:80", second[0])).expect(mode);
        assert_eq!(asked, format!("::ffff:{}", first[0]), "{mode}");
        let asked = here.ask(&format!("[{}]:80", second[1])).expect(mode);
        assert_eq!(asked, first[1].to_string(), "{mode}");
        assert_eq!(here.ask("192.0.2.254:80").expect(mode), "192.0.2.1");
        assert_eq!(here.ask("[2001:db8::ff]:80").expect(mode), "2001:db8::1");
    }
}

#[test]
fn a_port_of_the_node_leads_to_a_pod_from_everywhere_and_no_longer_than_the_pod() {
    let Some(lab) = Lab::new() else { return };
    for mode in MODES {
        let outside = lab.outside();
        let node = lab.node(&outside, 1, conf(mode, &BOTH));
        let (pod, other) = (lab.space("pod"), lab.space("other"));
        let ports = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": ""}]});
        let add = node.about("ADD", &pod).with("runtimeConfig", ports);
        add.run().ok();
        node.add(&other);
        let _web = pod.serve("[::]:80");
        for (who, from) in [
            ("the world", &outside),
            ("another pod", &other),
            ("itself", &pod),
            ("the node", &node.space),
        ] {
            assert!(from.ask("192.0.2.1:8080").is_ok(), "{mode}: {who}");
            assert!(
                from.ask("[2001:db8::1]:8080").is_ok(),
                "{mode}: {who} by IPv6"
            );
        }
        assert!(
            node.space.ask("127.0.0.1:8080").is_ok(),
            "{mode}: the node's loopback"
        );
        // What lets the loopback be routed is not for pods, whatever they do to themselves.
        let private = node.space.serve("127.0.0.1:7000");
        pod.ip("address del 127.0.0.1/8 dev lo");
        let setting = "/proc/sys/net/ipv4/conf/all/route_localnet";
        pod.inside(|| std::fs::write(setting, "1").expect("set"));
        let reached = pod.ask_within("127.0.0.1:7000", Duration::from_millis(500));
        assert!(reached.is_err(), "{mode}: the node's loopback");
        drop(private);
        node.del(&pod);
        let closed = outside.ask_within("192.0.2.1:8080", Duration::from_secs(5));
        assert!(closed.is_err(), "{mode}: the port of a pod that has gone");
        node.del(&other);
        assert_eq!(node.remains(), Vec::<String>::new());
    }
}

// What AKS' ip-masq-agent does on its nodes.
fn masquerade(node: &Node, arguments: &[&str]) {
    let mut plugin = std::process::Command::new(PLUGIN);
    plugin.arg("masquerade").args(arguments);
    let run = || plugin.env_remove("CNI_COMMAND").status().expect("it runs");
    assert!(node.space.inside(run).success());
}

#[test]
fn names_of_reference_plugins_are_served_as_well() {
    let Some(lab) = Lab::new() else { return };
    let outside = lab.outside();
    // As AKS' kubenet has it.
    let kubenet = json!({
        "cniVersion": "0.3.1", "name": "kubenet", "type": "bridge", "bridge": "cbr0", "mtu": 1500,
        "addIf": "eth0", "isGateway": true, "ipMasq": false, "promiscMode": true, "hairpinMode": false,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    });
    let node = lab.node(&outside, 1, kubenet);
    outside.ip("route add 10.244.1.0/24 via 192.0.2.1");
    let pod = lab.space("pod");
    let lo = node
        .about("ADD", &pod)
        .with("type", json!("loopback"))
        .run()
        .ok();
    assert_eq!(lo["ips"][0]["address"], "127.0.0.1/8");
    let added = node.about("ADD", &pod).run().ok();
    assert_eq!(added["cniVersion"], "0.3.1");
    assert_eq!(added["interfaces"].as_array().map(Vec::len), Some(3));
    assert_eq!(added["ips"][0]["version"], "4");
    let ports =
        json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
    let mapped = node
        .about("ADD", &pod)
        .with("type", json!("portmap"))
        .with("prevResult", added.clone())
        .with("runtimeConfig", ports)
        .run()
        .ok();
    assert_eq!(mapped["ips"], added["ips"]);
    let _web = pod.serve("0.0.0.0:80");
    assert!(outside.ask("192.0.2.1:8080").is_ok());
    let _world = outside.serve("192.0.2.254:80");
    let seen = pod.ask("192.0.2.254:80").expect("the world");
    assert_eq!(seen, "10.244.1.2", "not masqueraded unless asked");
    masquerade(&node, &["--pod-cidr", "10.244.0.0/16"]);
    assert_eq!(pod.ask("192.0.2.254:80").expect("the world"), "192.0.2.1");
    masquerade(
        &node,
        &["--pod-cidr", "10.244.0.0/16", "--inside", "192.0.2.0/24"],
    );
    assert_eq!(pod.ask("192.0.2.254:80").expect("the world"), "10.244.1.2");
    masquerade(&node, &[]);
    node.about("DEL", &pod)
        .with("type", json!("portmap"))
        .run()
        .ok();
    assert!(
        outside
            .ask_within("192.0.2.1:8080", Duration::from_secs(5))
            .is_err()
    );
    node.del(&pod);
    assert_eq!(node.remains(), Vec::<String>::new());
}
