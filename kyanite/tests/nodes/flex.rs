//! A machine of its own, no virtual machine of any cloud, joins a cluster with aks-flex-node, runs a pod, and leaves as it
//! came. Needs root, containerd and kubectl; skipped, loudly, without.

mod arc;
mod mirror;
mod site;
mod upstream;

use std::time::Instant;

use harness::eventually;
use serde_json::{Value, json};

use site::{IMAGE, IMAGE_ARCHIVE, Site};

const MACHINE: &str = "edge";
const AGENT: &str = "/usr/local/bin/aks-flex-node";

/// What this machine is: every path with its kind, mode, owner and target, the content of what anybody configures, units,
/// kernel settings, links, rules and mounts. What a running system writes by itself is left out, and so is this checkout
/// (`CHECKOUT`), where builds write.
const STATE: &str = r#"
prune='-path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /dev -o -path /var/log -o -path /var/tmp -o -path CHECKOUT
  -o -path /var/lib/systemd -o -path /usr/share -o -path /home -o -path /root -o -path /data'
find / /var/lib/kubelet /var/lib/containerd -xdev \( $prune \) -prune -o -printf '%y %m %U %G %p %l\n' | sort -u
find /etc /opt /usr/local/bin /usr/local/sbin -xdev -type f -size -4096k -exec sha256sum {} + | sort
systemctl list-unit-files --no-legend --no-pager --state=enabled,disabled,masked | sort
for name in net.ipv4.ip_forward vm.overcommit_memory kernel.panic kernel.panic_on_oops; do sysctl "$name"; done
ip -o link | sed 's/^[0-9]*: //' | sort
nft list tables | sort
awk '{ print $2, $3 }' /proc/self/mounts | sort -u
true
"#;

fn config(site: &Site) -> Value {
    json!({
        "azure": {"bootstrapToken": {"token": site.token()}},
        "containerd": {"pauseImage": IMAGE},
        "node": {
            "labels": {"site": "edge"},
            "taints": ["example.com/edge=yes:PreferNoSchedule"],
            "kubelet": {
                "serverURL": site.server(), "caCertData": site.authority(),
                // Other people's files on this disk are no reason to evict pods.
                "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
                "imageGCHighThreshold": 99, "imageGCLowThreshold": 98,
            },
        },
    })
}

// Bound to its node: other pods of a new cluster may keep the scheduler busy.
fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "once", "labels": {"app": "once"}},
        "spec": {"nodeName": MACHINE, "restartPolicy": "Never", "automountServiceAccountToken": false,
            "containers": [{"name": "once", "image": IMAGE, "imagePullPolicy": "Never",
                "command": ["/busybox", "sh", "-c", "/busybox ip -o -4 addr show eth0 && /busybox sleep 3600"]}]},
    })
}

#[test]
fn a_machine_joins_with_a_token_runs_a_pod_and_leaves_as_it_came() {
    let Some(site) = Site::open() else { return };
    site.boot(MACHINE, &config(&site));
    let before = site.state(STATE);

    let refused = site
        .run(&format!("{AGENT} status"))
        .expect_err("no node yet");
    assert!(refused.contains("this machine is no node"), "{refused}");
    let plan = site.run(&format!("{AGENT} plan")).expect("a plan");
    assert!(
        plan.contains("/etc/systemd/system/kubelet.service"),
        "{plan}"
    );
    assert!(!plan.contains("0123456789"), "{plan}");
    site.run(&format!("{AGENT} preflight"))
        .expect("nothing is in the way");
    assert_eq!(
        site.differences(&before, &site.state(STATE)),
        [""; 0],
        "looking changes nothing"
    );

    let started = Instant::now();
    let joined = site
        .run(&format!("{AGENT} bootstrap -o json"))
        .expect("it joins");
    let took = started.elapsed();
    let joined: Value = serde_json::from_str(&joined).expect("JSON");
    assert_eq!(
        (&joined["success"], &joined["code"]),
        (&json!(true), &json!(0)),
        "{joined:#}"
    );
    site.note(&format!(
        "bootstrap took {took:?}; phases {}",
        joined["phases"]
    ));
    is_a_node(&site);
    runs_a_pod(&site);
    a_second_bootstrap_changes_nothing(&site);
    the_agent_mends_it(&site);

    leaves(&site, &before);
}

fn is_a_node(site: &Site) {
    let node: Value = serde_json::from_str(
        &site
            .kubectl(&["get", "node", MACHINE, "-o", "json"])
            .expect("a node"),
    )
    .expect("JSON");
    let labels = &node["metadata"]["labels"];
    assert_eq!(
        (&labels["site"], &labels["kubernetes.azure.com/managed"]),
        (&json!("edge"), &json!("false")),
        "{labels}"
    );
    let taints = node["spec"]["taints"].to_string();
    assert!(taints.contains("example.com/edge"), "{taints}");
    let ready = site.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "node",
        MACHINE,
        "--timeout=5s",
    ]);
    ready.expect("bootstrap ends when the node is Ready");
    let status = site.run(&format!("{AGENT} status")).expect("a node");
    assert!(
        status.contains("Ready") && status.contains("bootstrap token"),
        "{status}"
    );
}

fn runs_a_pod(site: &Site) {
    site.run(&format!(
        "ctr --namespace k8s.io images import {IMAGE_ARCHIVE}"
    ))
    .expect("an image");
    eventually("a pod can be made", || site.create(&pod()));
    eventually("the pod runs", || {
        match site.kubectl(&["get", "pod", "once", "-o", "jsonpath={.status.phase}"])? {
            phase if phase == "Running" => Ok(()),
            _ => Err(site.kubectl(&["describe", "pod", "once"])?),
        }
    });
    let range = site
        .kubectl(&["get", "node", MACHINE, "-o", "jsonpath={.spec.podCIDR}"])
        .expect("a range");
    let prefix = range
        .rsplit_once('.')
        .map(|(prefix, _)| prefix.to_owned())
        .expect("a range");
    let address = site
        .kubectl(&["get", "pod", "once", "-o", "jsonpath={.status.podIP}"])
        .expect("an address");
    assert!(address.starts_with(&prefix), "{address} is not of {range}");
    let said = eventually("kubectl execs into it", || {
        site.kubectl(&["exec", "once", "--", "/busybox", "hostname"])
    });
    assert_eq!(said.trim(), "once");
}

fn a_second_bootstrap_changes_nothing(site: &Site) {
    let pid = "systemctl show -p MainPID kubelet containerd";
    let before = site.run(pid);
    let again = site
        .run(&format!("{AGENT} bootstrap -o json"))
        .expect("it is one already");
    let again: Value = serde_json::from_str(&again).expect("JSON");
    let changed: Vec<&Value> = again["step_results"]
        .as_array()
        .expect("steps")
        .iter()
        .filter(|step| step["outcome"] == "Changed")
        .collect();
    assert!(changed.is_empty(), "{changed:#?}");
    assert_eq!(site.run(pid), before, "nothing was restarted");
}

// One look at a time, so that nothing waits for a minute to pass.
fn the_agent_mends_it(site: &Site) {
    assert_eq!(
        site.run("systemctl is-active aks-flex-node-agent")
            .as_deref(),
        Ok("active\n")
    );
    site.run("systemctl stop aks-flex-node-agent")
        .expect("stopped");
    let look = format!("{AGENT} agent --looks 1 2>&1");
    eventually("it finds nothing to mend", || match site.run(&look)? {
        said if said.is_empty() => Ok(()),
        said => Err(said),
    });
    site.run("systemctl stop kubelet").expect("stopped");
    let said = site.run(&look).expect("a look");
    assert!(said.contains("restarting kubelet.service"), "{said}");
    assert_eq!(
        site.run("systemctl is-active kubelet").as_deref(),
        Ok("active\n")
    );
    site.run("cp /etc/default/kubelet /tmp/before && echo '# by hand' >> /etc/default/kubelet")
        .expect("changed");
    let said = site.run(&look).expect("a look");
    assert!(said.contains("/etc/default/kubelet differs"), "{said}");
    site.run("cmp /tmp/before /etc/default/kubelet && rm /tmp/before")
        .expect("as it was");
    let status = site
        .run("cat /run/aks-flex-node/status.json")
        .expect("a status");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(
        (&status["containerdRunning"], &status["nodeName"]),
        (&json!(true), &json!(MACHINE)),
        "{status}"
    );
}

fn leaves(site: &Site, before: &[String]) {
    // A node may not delete itself: without somebody who may, that is said, and the rest is done all the same.
    let left = site
        .run(&format!("{AGENT} unbootstrap"))
        .expect_err("the node is left");
    assert!(
        left.contains("node edge is still in the cluster")
            && left.contains("kubectl delete node edge"),
        "{left}"
    );
    site.kubectl(&["delete", "node", MACHINE])
        .expect("as the hint says");
    let now = site.state(STATE);
    let only: Vec<String> = site
        .differences(before, &now)
        .into_iter()
        .filter(|line| !line.contains("/var/lib/aks-flex-node"))
        .collect();
    assert_eq!(only, [""; 0], "but for what is remembered of the node");
    let kubeconfig = site.admin_in_machine();
    let gone = site.run(&format!("{AGENT} unbootstrap --kubeconfig {kubeconfig}"));
    assert!(
        gone.as_ref()
            .is_ok_and(|text| text.contains("this machine is as it was")),
        "{gone:?}"
    );
    assert_eq!(
        site.differences(before, &site.state(STATE)),
        [""; 0],
        "nothing is left"
    );
    let nothing = site
        .run(&format!("{AGENT} unbootstrap"))
        .expect("it may be repeated");
    assert!(nothing.contains("never bootstrapped"), "{nothing}");
}
