//! Real packets: between pods, nodes, Services and the world outside.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener};

use harness::{eventually, said};
use serde_json::{Value, json};

use super::Home;

/// An address that nobody in the cluster has.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

struct Pod {
    name: String,
    ip: String,
    node: String,
    node_ip: String,
}

fn pods(home: &Home, label: &str) -> Vec<Pod> {
    let list = home.get(&format!("pods -l {label}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = list["items"].as_array().expect("a list").iter();
    pods.map(|pod| Pod {
        name: text(&pod["metadata"]["name"]),
        ip: text(&pod["status"]["podIP"]),
        node: text(&pod["spec"]["nodeName"]),
        node_ip: text(&pod["status"]["hostIP"]),
    })
    .collect()
}

impl Pod {
    /// What a server answers this pod.
    fn gets(&self, home: &Home, url: &str) -> Result<String, String> {
        let answer = home.kubectl(&format!("exec {} -- /demo get {url}", self.name))?;
        Ok(answer.trim().to_owned())
    }
}

/// What a server answers a node.
fn node_gets(home: &Home, node: &str, place: &str, path: &str) -> Result<String, String> {
    let (host, port) = place.rsplit_once(':').expect("a port");
    let line = format!(
        "exec 3<>/dev/tcp/{host}/{port} && printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3 && tail -n 1 <&3"
    );
    Ok(home.on_node(node, &line)?.trim().to_owned())
}

fn is<T: PartialEq + std::fmt::Debug>(found: T, wanted: &T) -> Result<(), String> {
    match found == *wanted {
        true => Ok(()),
        false => Err(format!("{found:?} instead of {wanted:?}")),
    }
}

/// One pod on each node.
fn pair(home: &Home) -> (Pod, Pod) {
    let mut all = pods(home, "app=web");
    let first = all.remove(0);
    let second = all.into_iter().find(|pod| pod.node != first.node);
    (first, second.expect("pods are spread over the nodes"))
}

pub(crate) fn goes_where_it_should(home: &Home) {
    let (here, there) = pair(home);
    let peer = |pod: &Pod| format!("http://{}:8080/peer", pod.ip);
    eventually("a pod is seen with its own address on another node", || {
        is(here.gets(home, &peer(&there))?, &here.ip)
    });
    eventually("a pod reaches nodes", || {
        for node in [&here.node_ip, &there.node_ip] {
            here.gets(home, &format!("http://{node}:10256/healthz"))?;
        }
        Ok::<(), String>(())
    });
    for node in [&here, &there] {
        eventually("a node reaches pods of both", || {
            let place = format!("{}:8080", here.ip);
            is(node_gets(home, &node.node, &place, "/peer")?, &node.node_ip)
        });
    }
    ports_of_nodes(home, &here, &there);
    a_pod_reaches_itself_by_its_service(home);
    what_leaves_has_the_nodes_address(home, &here);
}

fn ports_of_nodes(home: &Home, here: &Pod, there: &Pod) {
    home.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone", "labels": {"app": "alone"}},
        "spec": {"nodeName": here.node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "demo",
            "image": "kyanite.local/demo:1", "ports": [{"containerPort": 8080, "hostPort": 8081}]}]}}));
    home.kubectl("wait --for=condition=Ready pod/alone --timeout=240s")
        .expect("it runs");
    let place = format!("{}:8081", here.node_ip);
    eventually(
        "a port of the node leads to its pod, from another node",
        || {
            node_gets(home, &there.node, &place, "/healthz")
                .and_then(|said| is(said, &"ok".to_owned()))
        },
    );
    eventually("and from a pod", || {
        there.gets(home, &format!("http://{place}/healthz"))
    });
}

fn a_pod_reaches_itself_by_its_service(home: &Home) {
    home.kubectl("expose pod alone --port=80 --target-port=8080")
        .expect("a service");
    let alone = &pods(home, "app=alone")[0];
    eventually("a pod that is its Service's only one reaches it", || {
        alone.gets(home, "http://alone.default.svc.cluster.local/healthz")
    });
}

// Who answers outside the cluster has no way back to a pod.
fn what_leaves_has_the_nodes_address(home: &Home, pod: &Pod) {
    let network = home.driver().network("cluster").expect("the network");
    let own_address = || {
        let mut command = std::process::Command::new("ip");
        said(command.args(["address", "add", &format!("{OUTSIDE}/32"), "dev", "lo"]))
    };
    network
        .inside(own_address)
        .expect("the network is there")
        .expect("an address");
    let listener = network
        .inside(|| TcpListener::bind((OUTSIDE, 0)))
        .expect("the network is there")
        .expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let served = std::thread::spawn(move || -> std::io::Result<IpAddr> {
        let (mut stream, peer) = listener.accept()?;
        let _ = stream.read(&mut [0; 1024])?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\noutside")?;
        Ok(peer.ip())
    });
    let answer = pod.gets(home, &format!("http://{OUTSIDE}:{port}/"));
    assert_eq!(answer.as_deref(), Ok("outside"));
    let peer = served.join().expect("a thread").expect("a connection");
    assert_eq!(peer.to_string(), pod.node_ip);
}

pub(crate) fn policies_hold_while_their_add_on_is_enabled(home: &Home) {
    let (here, _) = pair(home);
    let target = format!("http://{}:8080/healthz", pods(home, "app=alone")[0].ip);
    home.apply(&json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "nobody"},
        "spec": {"podSelector": {"matchLabels": {"app": "alone"}}, "policyTypes": ["Ingress"]}}));
    here.gets(home, &target).expect("nobody keeps it yet");
    home.kyanite("addon enable network-policy")
        .expect("it is enabled");
    eventually("the policy holds", || match here.gets(home, &target) {
        Ok(answer) => Err(answer),
        Err(_) => Ok(()),
    });
    // Also while the one who keeps it is replaced.
    let agents = "daemonset azure-npm -n kube-system";
    home.kubectl(&format!("rollout restart {agents}"))
        .expect("new pods");
    let rollout = format!("rollout status {agents} --timeout=1s");
    loop {
        let passed = here.gets(home, &target);
        assert!(passed.is_err(), "a forbidden packet passed: {passed:?}");
        if home.kubectl(&rollout).is_ok() {
            break;
        }
    }
    let explained = home.kyanite(&format!("policy explain {} alone:8080", here.name));
    let explained = explained.expect("a verdict");
    assert!(
        explained.contains("denied") && explained.contains("nobody"),
        "{explained}"
    );
    home.kyanite("addon disable network-policy")
        .expect("it is disabled");
    eventually("its rules are gone with it", || here.gets(home, &target));
    eventually("and its pods", || {
        let left = home.kubectl("get pods -n kube-system -l k8s-app=azure-npm -o name")?;
        is(left, &String::new())
    });
}
