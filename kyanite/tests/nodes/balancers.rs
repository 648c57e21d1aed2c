//! A Service of type LoadBalancer in `kyanite up`: an address, packets that arrive, and nothing left of either.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ::azure::{Arm, CloudConfig};
use harness::{eventually, said};
use machines::{Attachment, Driver as _, Spec};
use serde_json::{Value, json};

use crate::cluster::{Home, traces};

/// How many requests in a row must be answered before nobody is believed to be left out.
const MANY: usize = 25;

impl Home {
    /// The address that a Service shows, once it does.
    fn address_of(&self, service: &str) -> Ipv4Addr {
        eventually("the Service has an address", || {
            let shown = self.get(&format!("service {service}"));
            let ip = shown["status"]["loadBalancer"]["ingress"][0]["ip"].as_str();
            ip.and_then(|ip| ip.parse().ok()).ok_or(shown.to_string())
        })
    }

    /// The nodes that the pods of `web` are on which answer at an address, asked many times.
    fn who_answers(&self, address: Ipv4Addr) -> Result<BTreeSet<String>, String> {
        let pods = self.get("pods -l app=web");
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let node_of = |answer: &str| {
            let name =
                |pod: &&Value| answer.contains(pod["metadata"]["name"].as_str().unwrap_or("?"));
            let pod = pods.iter().find(name)?;
            pod["spec"]["nodeName"].as_str().map(str::to_owned)
        };
        let world = self.world();
        (0..MANY)
            .map(|_| {
                world
                    .gets(address, "/")
                    .and_then(|answer| node_of(&answer).ok_or(answer))
            })
            .collect()
    }

    /// What nftables has in the machines' network.
    fn rules(&self) -> String {
        let network = self.driver().network("cluster").expect("the network");
        let list = || said(std::process::Command::new("nft").args(["list", "ruleset"]));
        network
            .inside(list)
            .expect("the network is there")
            .expect("rules")
    }

    /// Every resource of a type in the nodes' group, as the owner of the subscription sees it.
    fn resources(&self, kind: &str) -> Vec<Value> {
        let data = self.path().join("data");
        let known = std::fs::read_to_string(data.join("azure/kyanite.json")).expect("a cloud");
        let known: Value = serde_json::from_str(&known).expect("JSON");
        let own = &known["credentials"];
        let settings = json!({"resourceManagerEndpoint": known["origin"], "tenantId": own["tenant"],
            "aadClientId": own["client_id"], "aadClientSecret": own["client_secret"]});
        let config = CloudConfig::parse(&settings.to_string(), |_| None).expect("settings");
        let authority = std::fs::read(data.join("pki/ca.crt")).expect("the cloud's CA");
        let place = format!(
            "/subscriptions/{}/resourceGroups/MC_kyanite_kyanite_local/providers/{kind}",
            own["subscription"].as_str().unwrap_or_default()
        );
        self.world().inside(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                let tls = wire::https::tls(Some(&authority)).expect("a client");
                let client = Arc::new(wire::client::Client::new(tls, Duration::from_secs(60)));
                let arm = Arm::connect(&config, client, |_| None)
                    .await
                    .expect("the cloud");
                arm.list(&place, "").await.expect("a list")
            })
        })
    }
}

#[test]
fn a_service_of_type_load_balancer_answers_at_its_address_and_leaves_nothing() {
    let Some(home) = Home::in_a_world() else {
        return;
    };
    let before = traces::of(home.path());
    home.kyanite("up --port 0 --nodes 2").expect("it comes up");
    home.kubectl("create deployment web --image=kyanite.local/demo:1 --port=8080 --replicas=4")
        .expect("a deployment");
    home.kubectl("expose deployment web --type=LoadBalancer --port=80 --target-port=8080")
        .expect("a service");
    home.kubectl("rollout status deployment web --timeout=240s")
        .expect("it rolls out");
    let address = home.address_of("web");
    eventually("it answers this host", || home.world().gets(address, "/"));

    machines_reach_it_too(&home, address);
    only_nodes_with_pods_are_asked(&home, address);
    without_a_floating_address(&home);

    home.kubectl("delete service web rewritten inside")
        .expect("deleted");
    assert_eq!(
        home.resources("Microsoft.Network/publicIPAddresses").len(),
        1,
        "the way out is left"
    );
    let balancers = home.resources("Microsoft.Network/loadBalancers");
    assert_eq!(
        balancers[0]["properties"]["loadBalancingRules"],
        json!([]),
        "{balancers:?}"
    );
    assert_eq!(balancers[0]["properties"]["probes"], json!([]));
    eventually("no rule and no cable is left", || {
        match (home.rules(), home.world().links()) {
            (rules, links) if !rules.contains("kyanite_balancers") && links == ["lo"] => Ok(()),
            (rules, links) => Err(format!("{links:?} {rules}")),
        }
    });

    // The last word of a cluster that ends while it has one.
    home.kubectl(
        "expose deployment web --name=last --type=LoadBalancer --port=80 --target-port=8080",
    )
    .expect("a service");
    let last = home.address_of("last");
    eventually("it answers, too", || home.world().gets(last, "/"));
    home.kyanite("down --purge").expect("it goes down");
    eventually("nothing is left", || {
        match (traces::of(home.path()), home.world().links()) {
            (after, links) if after == before && links == ["lo"] => Ok(()),
            (after, links) => Err(format!("{links:?} {after:#?} instead of {before:#?}")),
        }
    });
}

// A machine that is no node: no kube-proxy of its own catches its packets before they reach the balancer.
fn machines_reach_it_too(home: &Home, address: Ipv4Addr) {
    let network = home.driver().network("cluster").expect("the network");
    let own = Ipv4Addr::from(u32::from(network.gateway()) + 200);
    let spec = Spec {
        name: "client".to_owned(),
        attachment: Some(Attachment {
            network: "cluster".to_owned(),
            address: own,
            name_servers: Vec::new(),
        }),
        ..Spec::default()
    };
    home.driver().boot(&spec).expect("a machine");
    let gets = |address: Ipv4Addr| {
        let line = format!(
            "exec 3<>/dev/tcp/{address}/80 && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 10 tail -n 1 <&3"
        );
        let answer = home.on_node("client", &line)?;
        match answer.contains("Hello from web") {
            true => Ok(()),
            false => Err(answer),
        }
    };
    eventually("a machine reaches a public frontend", || gets(address));
    home.apply(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "inside",
        "annotations": {"service.beta.kubernetes.io/azure-load-balancer-internal": "true"}},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}}));
    let inside = home.address_of("inside");
    assert!(network.subnet.contains(&inside), "{inside}");
    eventually("and an internal one", || gets(inside));
    assert!(
        home.world().gets(inside, "/").is_err(),
        "this host is outside"
    );
}

// With externalTrafficPolicy Local the node that a packet came to answers it, from its own pods, and sees who asked.
fn only_nodes_with_pods_are_asked(home: &Home, address: Ipv4Addr) {
    let local = r#"patch service web -p {"spec":{"externalTrafficPolicy":"Local"}}"#;
    home.kubectl(local).expect("patched");
    eventually("nodes with pods answer, and both do", || {
        match home.who_answers(address)? {
            nodes if nodes.len() == 2 => Ok(()),
            nodes => Err(format!("{nodes:?}")),
        }
    });
    let own = Ipv4Addr::from(u32::from(address) & 0xffff_fc00 | 1);
    assert_eq!(home.world().gets(address, "/peer"), Ok(own.to_string()));
    home.kubectl("scale deployment web --replicas=1")
        .expect("scaled");
    eventually(
        "one pod is left",
        || match home.get("pods -l app=web")["items"].as_array() {
            Some(pods) if pods.len() == 1 => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    // A packet to the node without a pod would be lost.
    eventually("a machine whose probe fails gets no packets", || {
        home.who_answers(address)
    });
    let rules = home.rules();
    assert!(rules.contains("mod 1 map"), "{rules}");
    home.kubectl("scale deployment web --replicas=4")
        .expect("scaled");
}

fn without_a_floating_address(home: &Home) {
    home.apply(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "rewritten",
        "annotations": {"service.beta.kubernetes.io/azure-disable-load-balancer-floating-ip": "true"}},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}}));
    let address = home.address_of("rewritten");
    eventually("packets are led to the nodes' port", || {
        home.who_answers(address)
    });
    assert!(
        home.rules().contains("dnat ip to") || home.rules().contains("dnat ip addr"),
        "{}",
        home.rules()
    );
}
