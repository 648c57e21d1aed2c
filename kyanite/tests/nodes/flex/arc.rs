//! The same through Azure Arc, against the cloud beside the cluster: the machine gets an identity, the identity a role, and the kubelet
//! tokens of it.

use std::time::Instant;

use harness::eventually;
use serde_json::{Value, json};

use super::mirror::{self, Files};
use super::site::{IMAGE, Site};
use super::{AGENT, MACHINE, STATE, runs_a_pod};

/// kubectl's library renews a token a minute before its end.
const LIFETIME: i64 = 75;

/// What says that it is another version, and is the same; and a kubelet that never becomes one.
fn mirrored() -> Files {
    let runc = "#!/bin/sh\ncase \"$1\" in --version) echo 'runc version 9.9.9';; *) exec /usr/sbin/runc \"$@\";; esac\n";
    let kubelet =
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'Kubernetes v9.9.9' && exit 0\nexit 1\n";
    let name = format!("runc.{}", mirror::architecture());
    vec![(name, runc.into()), ("kubelet".to_owned(), kubelet.into())]
}

fn config(site: &Site) -> Value {
    let place = format!("http://{}", mirror::open(site, mirrored()));
    let known = site.cloud();
    let own = &known["credentials"];
    json!({
        "azure": {
            "subscriptionId": own["subscription"], "tenantId": own["tenant"], "resourceManagerEndpoint": known["origin"],
            "certificateAuthorities": "/etc/aks-flex-node/cloud.crt",
            "servicePrincipal": {"clientId": own["client_id"], "clientSecret": own["client_secret"]},
            "arc": {"enabled": true, "machineName": "edge-arc", "location": "local", "tags": {"site": "lab"}},
            "targetCluster": {"resourceId": cluster(&known), "location": "local"},
        },
        "containerd": {"pauseImage": IMAGE}, "mirrors": {"runc": place, "kubelet": place},
        "node": {"labels": {"site": "edge"}, "kubelet": {
            "serverTLSBootstrap": true,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThreshold": 99, "imageGCLowThreshold": 98,
        }},
    })
}

fn group(known: &Value) -> String {
    let subscription = known["credentials"]["subscription"].as_str();
    let subscription = subscription.expect("a subscription");
    format!("/subscriptions/{subscription}/resourceGroups/kyanite")
}

fn cluster(known: &Value) -> String {
    let group = group(known);
    format!("{group}/providers/Microsoft.ContainerService/managedClusters/kyanite")
}

#[test]
fn a_machine_joins_through_arc_outlives_its_first_token_and_leaves_as_it_came() {
    let lifetime = format!("--cloud-token-lifetime={LIFETIME}");
    let Some(site) = Site::with(&[&lifetime]) else {
        return;
    };
    let known = site.cloud();
    eventually("the cloud knows the cluster", || {
        match site.arm(&cluster(&known))?.is_null() {
            true => Err("not yet".to_owned()),
            false => Ok(()),
        }
    });
    site.boot(MACHINE, &config(&site));
    let before = site.state(STATE);

    let started = Instant::now();
    let joined = site.run(&format!("{AGENT} bootstrap -o json"));
    let joined = joined.expect("it joins");
    let took = started.elapsed();
    let joined: Value = serde_json::from_str(&joined).expect("JSON");
    site.note(&format!(
        "bootstrap took {took:?}; phases {}",
        joined["phases"]
    ));
    assert_eq!(joined["success"], true, "{joined:#}");

    let machine = format!(
        "{}/providers/Microsoft.HybridCompute/machines/edge-arc",
        group(&known)
    );
    let connected = site.arm(&machine).expect("Azure answers");
    let principal = connected["identity"]["principalId"]
        .as_str()
        .expect("an identity")
        .to_owned();
    assert_eq!(
        roles(&site, &known, &principal).len(),
        1,
        "one role, at the cluster"
    );
    let ready = [
        "wait",
        "--for=condition=Ready",
        "node",
        MACHINE,
        "--timeout=10s",
    ];
    site.kubectl(&ready)
        .expect("bootstrap ends when the node is Ready");
    let labels = site.kubectl(&["get", "node", MACHINE, "-o", "jsonpath={.metadata.labels}"]);
    let labels: Value = serde_json::from_str(&labels.expect("a node")).expect("JSON");
    assert_eq!(
        (&labels["site"], &labels["kubernetes.azure.com/managed"]),
        (&json!("edge"), &json!("false")),
        "{labels}"
    );
    assert!(
        site.run("grep -rl client-key /var/lib/kubelet /var/lib/aks-flex-node /etc/kubernetes")
            .is_err(),
        "nobody's key is on disk"
    );
    runs_a_pod(&site);
    outlives_its_first_token(&site);
    says_how_it_is(&site);
    is_upgraded(&site);
    leaves(&site, &before, &known, &machine, &principal);
}

fn roles(site: &Site, known: &Value, principal: &str) -> Vec<Value> {
    let path = format!(
        "{}/providers/Microsoft.Authorization/roleAssignments",
        cluster(known)
    );
    let all = site.arm(&path).expect("Azure answers");
    let all = all["value"].as_array().cloned().unwrap_or_default();
    all.into_iter()
        .filter(|role| role["properties"]["principalId"] == principal)
        .collect()
}

/// The kubelet's first token ends, and its lease is renewed after that.
fn outlives_its_first_token(site: &Site) {
    let lease = || {
        let path = "jsonpath={.spec.renewTime}";
        let text = site.kubectl(&["get", "lease", "-n", "kube-node-lease", MACHINE, "-o", path])?;
        text.parse::<jiff::Timestamp>().map_err(|e| e.to_string())
    };
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(LIFETIME + 5);
    eventually("the lease is renewed", || match lease()? {
        renewed if renewed > until => Ok(()),
        renewed => Err(format!(
            "renewed last at {renewed}, which is before {until}"
        )),
    });
    let ready = [
        "wait",
        "--for=condition=Ready",
        "node",
        MACHINE,
        "--timeout=10s",
    ];
    site.kubectl(&ready)
        .expect("it is Ready with another token");
}

/// To Prometheus; and what it costs to be there.
fn says_how_it_is(site: &Site) {
    let ask =
        "exec 3<>/dev/tcp/127.0.0.1/19101; printf 'GET /metrics HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3";
    let told = eventually("the agent has looked", || match site.run(ask)? {
        told if told.contains("aks_flex_node_ready 1") => Ok(told),
        told => Err(told),
    });
    assert!(
        told.contains("aks_flex_node_component_up{component=\"identity\"} 1"),
        "{told}"
    );
    let costs = "for unit in aks-flex-node-agent aks-flex-node-himds; do pid=$(systemctl show -p MainPID --value $unit); \
        echo $unit; grep -E '^(Rss|Anonymous)' /proc/$pid/smaps_rollup; systemctl show -p CPUUsageNSec $unit; done";
    site.note(&site.run(costs).expect("figures"));
}

fn is_schedulable(site: &Site) -> bool {
    let path = "jsonpath={.spec.unschedulable}";
    let said = site.kubectl(&["get", "node", MACHINE, "-o", path]);
    said.expect("a node").is_empty()
}

/// Not while a budget forbids it; then with its pods evicted; and back from what does not come back Ready.
fn is_upgraded(site: &Site) {
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "once"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "once"}}}});
    site.create(&budget).expect("a budget");
    let upgrade = format!("{AGENT} upgrade --runc 9.9.9");
    let held = site
        .run(&format!("{upgrade} --drain-timeout 3"))
        .expect_err("a budget holds it");
    assert!(held.contains("default/once stays"), "{held}");
    assert!(is_schedulable(site), "nothing was changed");
    site.kubectl(&["delete", "pdb", "once"]).expect("deleted");

    let started = Instant::now();
    let upgraded = site
        .run(&format!("{upgrade} -o json"))
        .expect("it is upgraded");
    site.note(&format!("upgrade took {:?}: {upgraded}", started.elapsed()));
    let says = site
        .run("/usr/local/sbin/runc --version")
        .expect("a program");
    assert!(says.contains("9.9.9"), "{says}");
    assert!(
        site.kubectl(&["get", "pod", "once"]).is_err(),
        "its pods were evicted"
    );
    assert!(is_schedulable(site));
    runs_a_pod(site);

    let broken = site.run(&format!("{AGENT} upgrade --kubernetes 9.9.9 --timeout 30"));
    let broken = broken.expect_err("that is no kubelet");
    assert!(broken.contains("back to what worked"), "{broken}");
    let ready = [
        "wait",
        "--for=condition=Ready",
        "node",
        MACHINE,
        "--timeout=10s",
    ];
    site.kubectl(&ready).expect("it is Ready with what worked");
    assert!(is_schedulable(site));
    runs_a_pod(site);
}

fn leaves(site: &Site, before: &[String], known: &Value, machine: &str, principal: &str) {
    site.kubectl(&[
        "delete",
        "pod",
        "once",
        "--grace-period=1",
        "--ignore-not-found",
    ])
    .expect("deleted");
    let started = Instant::now();
    let gone = site
        .run(&format!("{AGENT} unbootstrap"))
        .expect("nothing is left");
    site.note(&format!("unbootstrap took {:?}", started.elapsed()));
    assert!(gone.contains("this machine is as it was"), "{gone}");
    assert_eq!(
        site.differences(before, &site.state(STATE)),
        [""; 0],
        "nothing is left"
    );
    let node = site
        .kubectl(&["get", "node", MACHINE])
        .expect_err("the node is gone");
    assert!(node.contains("not found"), "{node}");
    let bindings = site
        .kubectl(&["get", "clusterrolebinding", "-o", "name"])
        .expect("bindings");
    assert!(!bindings.contains("aks-flex-node"), "{bindings}");
    assert_eq!(
        site.arm(machine).expect("Azure answers"),
        Value::Null,
        "the machine is gone"
    );
    assert_eq!(roles(site, known, principal).len(), 0, "its role is gone");
}
