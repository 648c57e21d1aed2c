//! What happens to a node and its pods when something breaks.

use harness::eventually;
use serde_json::{Value, json};

use super::Home;

fn name(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .expect("a name")
        .to_owned()
}

fn condition(home: &Home, node: &str, kind: &str) -> String {
    let node = home.get(&format!("node {node}"));
    let conditions = node["status"]["conditions"].as_array().expect("conditions");
    let found = conditions.iter().find(|c| c["type"] == kind);
    found.map_or_else(String::new, |c| {
        c["status"].as_str().unwrap_or_default().to_owned()
    })
}

fn until_it_is(home: &Home, node: &str, kind: &str, wanted: &str) {
    eventually(
        &format!("the node is {kind}={wanted}"),
        || match condition(home, node, kind) {
            found if found == wanted => Ok(()),
            found => Err(found),
        },
    );
}

fn until_ready_is(home: &Home, node: &str, wanted: &str) {
    until_it_is(home, node, "Ready", wanted);
}

/// The pods of an application, and the node of each.
fn placed(home: &Home, app: &str) -> Vec<(String, String)> {
    let pods = home.get(&format!("pods -l app={app}"));
    let pods = pods["items"].as_array().expect("a list").iter();
    let lives = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let node = |pod: &Value| {
        pod["spec"]["nodeName"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    lives.map(|pod| (name(pod), node(pod))).collect()
}

/// Four pods that tolerate a node that nobody hears of for so many seconds.
fn application(home: &Home, app: &str, seconds: u32) {
    let tolerations = json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": seconds}]);
    home.apply(
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app},
        "spec": {"replicas": 4, "selector": {"matchLabels": {"app": app}},
            "template": {"metadata": {"labels": {"app": app}}, "spec": {"tolerations": tolerations,
                "containers": [{"name": "demo", "image": "kyanite.local/demo:1"}]}}}}),
    );
    home.kubectl(&format!("rollout status deployment {app} --timeout=240s"))
        .expect("it runs");
}

#[test]
fn pods_of_a_lost_node_run_elsewhere_and_nothing_moves_for_less() {
    let Some(home) = Home::new() else { return };
    home.kyanite("up --port 0 --nodes 2 --node-monitor-grace-period=15s --node-monitor-period=1s")
        .expect("it comes up");
    application(&home, "web", 600);
    let nodes = home.get("nodes");
    let node = name(&nodes["items"][0]);
    containers_outlive_their_containerd(&home, &node);
    a_short_stop_moves_nothing(&home, &node);
    a_reboot_moves_nothing(&home, &node);
    a_zone_goes_down_and_comes_back(&home);
    a_node_that_is_cut_off_is_replaced_and_comes_back_clean(&home, &node);
    a_node_without_room_sends_pods_away(&home, &node);
}

fn stays(home: &Home, before: &[(String, String)], node: &str) {
    until_ready_is(home, node, "True");
    home.kubectl("rollout status deployment web --timeout=240s")
        .expect("it runs");
    assert_eq!(placed(home, "web"), before);
}

fn containers_outlive_their_containerd(home: &Home, node: &str) {
    let before = placed(home, "web");
    let containers = "ctr -n k8s.io tasks list | grep RUNNING | sort";
    let ran = home.on_node(node, containers).expect("containers");
    home.on_node(node, "kill -9 $(systemctl show -P MainPID containerd)")
        .expect("containerd dies");
    eventually("containerd is started again", || {
        home.on_node(node, "ctr version")
    });
    stays(home, &before, node);
    assert_eq!(home.on_node(node, containers).expect("containers"), ran);
}

fn a_short_stop_moves_nothing(home: &Home, node: &str) {
    let before = placed(home, "web");
    home.kyanite(&format!("fault freeze {node} --for 3s"))
        .expect("it is frozen for a while");
    assert!(!home.kyanite("fault list").expect("a list").contains(node));
    stays(home, &before, node);
}

fn boot_id(home: &Home, node: &str) -> String {
    let node = home.get(&format!("node {node}"));
    node["status"]["nodeInfo"]["bootID"].to_string()
}

fn until_booted_anew(home: &Home, node: &str, before: &str) {
    eventually("it has booted", || match boot_id(home, node) {
        now if now != before => Ok(()),
        now => Err(now),
    });
    until_ready_is(home, node, "True");
}

fn a_reboot_moves_nothing(home: &Home, node: &str) {
    let (before, boot) = (placed(home, "web"), boot_id(home, node));
    // Whoever asks is cut off by the answer.
    let _ = home.on_node(node, "systemctl reboot");
    until_booted_anew(home, node, &boot);
    stays(home, &before, node);
}

fn a_zone_goes_down_and_comes_back(home: &Home) {
    let nodes = home.get("nodes -l topology.kubernetes.io/zone=local-2");
    let node = name(&nodes["items"][0]);
    let boot = boot_id(home, &node);
    home.kyanite("fault zone-down 2").expect("it goes down");
    let list = home.kyanite("fault list").expect("a list");
    assert!(list.contains("zone-down") && list.contains(&node), "{list}");
    assert!(home.on_node(&node, "true").is_err());
    home.kyanite("fault zone-up 2").expect("it comes back");
    until_booted_anew(home, &node, &boot);
    home.kubectl("rollout status deployment web --timeout=240s")
        .expect("it runs");
    let refused = home
        .kyanite("fault zone-down 9")
        .expect_err("there is none");
    assert!(refused.contains("no node is in zone 9"), "{refused}");
}

fn a_node_that_is_cut_off_is_replaced_and_comes_back_clean(home: &Home, node: &str) {
    application(home, "quick", 1);
    home.kyanite(&format!("fault cut {node}")).expect("cut off");
    until_ready_is(home, node, "Unknown");
    eventually("its pods run elsewhere", || {
        let pods = placed(home, "quick");
        match pods.len() == 4 && pods.iter().all(|(_, on)| *on != node) {
            true => home.kubectl("rollout status deployment quick --timeout=1s"),
            false => Err(format!("{pods:?}")),
        }
    });
    // It does not know, and goes on.
    let its = "ctr -n k8s.io containers list -q 'labels.\"io.kubernetes.pod.name\"~=^quick'";
    let running = home.on_node(node, its).expect("containers");
    assert_ne!(running.trim(), "");
    home.kyanite("fault clear").expect("it is back");
    until_ready_is(home, node, "True");
    eventually("what it ran meanwhile is gone", || {
        let pods = home.get("pods -l app=quick");
        let objects = pods["items"].as_array().map(Vec::len);
        match (objects, home.on_node(node, its)?.trim()) {
            (Some(4), "") => Ok(()),
            found => Err(format!("{found:?}")),
        }
    });
}

// Its kubelet is told that much more of the disk must be free than is: to it the disk is full.
fn a_node_without_room_sends_pods_away(home: &Home, node: &str) {
    let must_be_free = |from: &str, to: &str| {
        let word = "nodefs.available<";
        let change = format!("sed -i 's/{word}{from}/{word}{to}/' /etc/default/kubelet");
        let line = format!("{change} && grep -q '{word}{to}' /etc/default/kubelet");
        home.on_node(node, &format!("{line} && systemctl restart kubelet"))
            .expect("another threshold");
    };
    must_be_free("1%", "100%");
    until_it_is(home, node, "DiskPressure", "True");
    eventually("a pod is evicted", || {
        let pods = home.get("pods -l app=web");
        let mut pods = pods["items"].as_array().into_iter().flatten();
        let evicted = pods.any(|pod| pod["status"]["reason"] == "Evicted");
        if evicted { Ok(()) } else { Err("none yet") }
    });
    must_be_free("100%", "1%");
    until_it_is(home, node, "DiskPressure", "False");
    home.kubectl("rollout status deployment web --timeout=240s")
        .expect("its pods run, here or elsewhere");
}
