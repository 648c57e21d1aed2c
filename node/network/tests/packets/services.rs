//! Every way to a Service.

use std::collections::BTreeSet;

use network::Family;
use network::nft::Nft;
use network::services::layout::{LocalTraffic, NodePortAddresses, Settings};
use network::services::model::{Service, ServiceName, Slice};
use network::services::{Place, Proxy, full, incremental};
use serde_json::{Value, json};

use crate::lab::{CLIENT, Lab, NODE, PODS};

struct Cluster {
    lab: Lab,
    proxy: Proxy,
    nft: Nft,
    settings: Settings,
    runtime: tokio::runtime::Runtime,
}

impl Cluster {
    fn new() -> Option<Cluster> {
        let lab = Lab::new()?;
        let nft = Nft::by(["ip", "netns", "exec", &lab.ns("node"), "nft"]);
        let settings = Settings {
            local_traffic: LocalTraffic::Nets(vec![
                "10.244.0.0/16".parse().unwrap(),
                "fd00:244::/48".parse().unwrap(),
            ]),
            node_ports: NodePortAddresses::Some(NODE.map(|ip| ip.parse().unwrap()).into()),
            ..Settings::default()
        };
        let place = Place {
            node: "n1".into(),
            zone: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut cluster = Cluster {
            lab,
            proxy: Proxy::new(place),
            nft,
            settings,
            runtime,
        };
        cluster.full();
        for (name, _) in PODS {
            cluster.lab.serve(name, 8080);
        }
        // Node programs need a way to Services, as by the default route of a real node.
        cluster
            .lab
            .in_node("ip route add 10.0.0.0/16 via 192.168.77.2");
        cluster
            .lab
            .in_node("ip route add fd00:10::/64 via fd00:77::2");
        Some(cluster)
    }

    fn full(&mut self) {
        self.proxy.changes();
        for family in Family::BOTH {
            let name = if family == Family::V4 { "ip" } else { "ip6" };
            let chains = self
                .runtime
                .block_on(self.nft.chains(name, "kyanite-services"))
                .unwrap();
            let content = self.proxy.content(family);
            let script = full(family, &self.settings, &content, &chains);
            self.runtime.block_on(self.nft.apply(&script)).unwrap();
        }
    }

    fn sync(&mut self) {
        let changes = self.proxy.changes();
        for (family, changes) in Family::BOTH.into_iter().zip(changes) {
            let script = incremental(family, &self.settings, &changes);
            if let Err(error) = self.runtime.block_on(self.nft.apply(&script)) {
                panic!("{error}\n{script}");
            }
        }
    }

    /// A Service `web` with both cluster addresses, port 80, and what else is said of it.
    fn service(&mut self, spec: &Value, status: &Value) {
        let mut whole = json!({
            "type": "ClusterIP", "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00:10::5"],
            "ports": [
                { "name": "tcp", "port": 80, "protocol": "TCP", "nodePort": spec["nodePort"] },
                { "name": "udp", "port": 80, "protocol": "UDP", "nodePort": spec["nodePort"] },
            ],
        });
        for (field, value) in spec.as_object().unwrap() {
            whole[field] = value.clone();
        }
        let service = json!({ "metadata": { "name": "web" }, "spec": whole, "status": status });
        let service = Service::of(&serde_json::from_value(service).unwrap());
        self.proxy
            .service(&ServiceName::new("default", "web"), service);
        self.sync();
    }

    /// Slices of its endpoints: pods by name, each with conditions.
    fn slices(&self, pods: &[(&str, Value)]) -> Vec<(ServiceName, Option<Slice>)> {
        let slice = |(i, family): (usize, &str)| {
            let endpoint = |(pod, conditions): &(&str, Value)| {
                let address = PODS.iter().find(|(name, _)| name == pod).unwrap().1[i];
                let node = if *pod == "r1" { "n2" } else { "n1" };
                json!({ "addresses": [address], "conditions": conditions, "nodeName": node })
            };
            let slice = json!({
                "metadata": { "name": format!("web-{i}"), "namespace": "default",
                    "labels": { "kubernetes.io/service-name": "web" } },
                "addressType": family,
                "endpoints": pods.iter().map(endpoint).collect::<Vec<Value>>(),
                "ports": [{ "name": "tcp", "port": 8080, "protocol": "TCP" },
                          { "name": "udp", "port": 8080, "protocol": "UDP" }],
            });
            let slice = Slice::of(&serde_json::from_value(slice).unwrap());
            (ServiceName::new("default", &format!("web-{i}")), slice)
        };
        ["IPv4", "IPv6"]
            .into_iter()
            .enumerate()
            .map(slice)
            .collect()
    }

    fn endpoints(&mut self, pods: &[(&str, Value)]) {
        for (name, slice) in self.slices(pods) {
            self.proxy.slice(&name, slice);
        }
        self.sync();
    }

    fn ready(&mut self, pods: &[&str]) {
        let pods: Vec<(&str, Value)> = pods.iter().map(|pod| (*pod, json!({}))).collect();
        self.endpoints(&pods);
    }

    /// Everybody who answers a client that asks often, with the source they see.
    fn answers(&self, from: &str, to: &str, port: u16) -> BTreeSet<String> {
        (0..24).map(|_| self.lab.tcp(from, to, port)).collect()
    }
}

fn set(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(ToString::to_string).collect()
}

const VIP: [&str; 2] = ["10.0.0.5", "fd00:10::5"];

#[test]
fn a_pod_reaches_a_service_and_keeps_its_address() {
    let Some(mut cluster) = Cluster::new() else {
        return;
    };
    cluster.service(&json!({}), &json!({}));
    cluster.ready(&["p2", "r1"]);
    for (vip, p1) in VIP.into_iter().zip(PODS[0].1) {
        let expected = set(&[&format!("p2 {p1}"), &format!("r1 {p1}")]);
        let found = cluster.answers("p1", vip, 80);
        assert_eq!(
            found,
            expected,
            "{}",
            cluster.lab.in_node("nft list ruleset")
        );
        let by_udp: BTreeSet<String> = (0..24).map(|_| cluster.lab.udp("p1", vip, 80, 0)).collect();
        assert_eq!(by_udp, expected);
        assert_eq!(
            cluster.lab.tcp("p1", vip, 81),
            "refused",
            "a port the Service does not have"
        );
    }
}

#[test]
fn a_pod_reaches_itself_through_its_service() {
    let Some(mut cluster) = Cluster::new() else {
        return;
    };
    cluster.service(&json!({}), &json!({}));
    cluster.ready(&["p1"]);
    for (vip, p1) in VIP.into_iter().zip(PODS[0].1) {
        let answer = cluster.lab.tcp("p1", vip, 80);
        assert!(answer.starts_with("p1 "), "{answer}");
        assert_ne!(
            answer,
            format!("p1 {p1}"),
            "its own address as the source would confuse it"
        );
    }
}

#[test]
fn programs_of_the_node_and_strangers_reach_a_cluster_address_by_the_nodes_address() {
    let Some(mut cluster) = Cluster::new() else {
        return;
    };
    cluster.service(&json!({}), &json!({}));
    cluster.ready(&["p2"]);
    for (i, vip) in VIP.into_iter().enumerate() {
        for from in ["node", "client"] {
            let answer = cluster.lab.tcp(from, vip, 80);
            assert!(answer.starts_with("p2 "), "{from}: {answer}");
            assert_ne!(answer, format!("p2 {}", CLIENT[i]));
        }
    }
}

#[test]
fn a_service_without_endpoints_refuses() {
    let Some(mut cluster) = Cluster::new() else {
        return;
    };
    cluster.service(
        &json!({ "type": "NodePort", "nodePort": 30080 }),
        &json!({}),
    );
    cluster.ready(&[]);
    for i in 0..2 {
        assert_eq!(cluster.lab.tcp("p1", VIP[i], 80), "refused");
        assert_eq!(cluster.lab.tcp("client", NODE[i], 30080), "refused");
        assert_eq!(cluster.lab.udp("client", NODE[i], 30080, 0), "refused");
    }
    cluster.ready(&["p2"]);
    assert!(cluster.lab.tcp("client", NODE[0], 30080).starts_with("p2"));
    cluster.endpoints(&[("p2", json!({ "ready": false }))]);
    assert_eq!(cluster.lab.tcp("p1", VIP[0], 80), "refused");
}

#[test]
fn node_ports_hide_the_client_or_keep_it_as_the_policy_says() {
    let Some(mut cluster) = Cluster::new() else {
        return;
    };
    cluster.ready(&["p2", "r1"]);
    cluster.service(
        &json!({ "type": "NodePort", "nodePort": 30080 }),
        &json!({}),
    );
    for i in 0..2 {
        let answers = cluster.answers("client", NODE[i], 30080);
        let names: BTreeSet<&str> = answers.iter().map(|a| &a[..2]).collect();
        assert_eq!(names, BTreeSet::from(["p2", "r1"]));
        assert!(
            answers.iter().all(|answer| !answer.contains(CLIENT[i])),
            "{answers:?}"
        );
    }
    let local = json!({ "type": "NodePort", "nodePort": 30080, "externalTrafficPolicy": "Local" });
    cluster.service(&local, &json!({}));
    for i in 0..2 {
        assert_eq!(
            cluster.answers("client", NODE[i], 30080),
            set(&[&format!("p2 {}", CLIENT[i])])
        );
        // Pods may still go anywhere, as themselves.
        let p1 = PODS[0].1[i];
        let anywhere = set(&[&format!("p2 {p1}"), &format!("r1 {p1}")]);
        assert_eq!(cluster.answers("p1", NODE[i], 30080), anywhere);
        let own = cluster.answers("node", NODE[i], 30080);
        assert_eq!(own.len(), 2, "{own:?}");
    }
    cluster.ready(&["r1"]);
    for (i, node) in NODE.into_iter().enumerate() {
        assert!(cluster.lab.is_silent("client", node, 30080));
        assert!(cluster.lab.tcp("p1", node, 30080).starts_with("r1"), "{i}");
    }
}

#[test]
fn internal_traffic_may_have_to_stay_on_the_node() {
    let Some(mut cluster) = Cluster::new() else {
        return;
    };
    cluster.ready(&["p2", "r1"]);
    cluster.service(&json!({ "internalTrafficPolicy": "Local" }), &json!({}));
    for (vip, p1) in VIP.into_iter().zip(PODS[0].1) {
        assert_eq!(cluster.answers("p1", vip, 80), set(&[&format!("p2 {p1}")]));
    }
    cluster.ready(&["r1"]);
    for vip in VIP {
        assert!(cluster.lab.is_silent("p1", vip, 80));
    }
}

#[test]
fn external_and_load_balancer_addresses_are_served() {
    let Some(mut cluster) = Cluster::new() else {
        return;
    };
    cluster.ready(&["p2"]);
    let spec = json!({ "type": "LoadBalancer", "externalIPs": ["203.0.113.7", "2001:db8::7"] });
    let status = json!({ "loadBalancer": { "ingress": [
        { "ip": "203.0.113.8" }, { "ip": "2001:db8::8", "ipMode": "VIP" }, { "ip": "203.0.113.9", "ipMode": "Proxy" },
    ] } });
    cluster.service(&spec, &status);
    for to in ["203.0.113.7", "2001:db8::7", "203.0.113.8", "2001:db8::8"] {
        assert!(cluster.lab.tcp("client", to, 80).starts_with("p2"), "{to}");
    }
    let through = cluster.lab.in_node("nft list ruleset");
    assert!(
        !through.contains("203.0.113.9"),
        "a proxying load balancer is not taken over"
    );
}

#[test]
fn source_ranges_are_for_load_balancer_addresses_only() {
    let Some(mut cluster) = Cluster::new() else {
        return;
    };
    cluster.ready(&["p2"]);
    let status = json!({ "loadBalancer": { "ingress": [{ "ip": "203.0.113.8" }, { "ip": "2001:db8::8" }] } });
    for (ranges, admitted) in [
        (
            json!(["192.168.77.0/24", "192.168.0.0/16", "fd00:77::/64"]),
            true,
        ),
        (json!(["198.51.100.0/24", "2001:db8:1::/48"]), false),
    ] {
        let spec = json!({ "type": "LoadBalancer", "loadBalancerSourceRanges": ranges });
        cluster.service(&spec, &status);
        for to in ["203.0.113.8", "2001:db8::8"] {
            assert_eq!(
                cluster.lab.is_silent("client", to, 80),
                !admitted,
                "{ranges}"
            );
        }
        assert!(cluster.lab.tcp("client", VIP[0], 80).starts_with("p2"));
    }
}

#[test]
fn clients_stay_with_their_endpoint() {
    let Some(mut cluster) = Cluster::new() else {
        return;
    };
    cluster.ready(&["p2", "r1"]);
    cluster.service(
        &json!({ "type": "NodePort", "nodePort": 30080, "sessionAffinity": "ClientIP" }),
        &json!({}),
    );
    assert_eq!(cluster.answers("p1", VIP[0], 80).len(), 1);
    assert_eq!(cluster.answers("client", NODE[0], 30080).len(), 1);
    // Another endpoint changes nothing for them.
    let before = cluster.answers("p1", VIP[0], 80);
    cluster.ready(&["p2", "r1", "p1"]);
    assert_eq!(cluster.answers("p1", VIP[0], 80), before);
}

#[test]
fn endpoints_about_to_end_serve_until_others_are_there() {
    let Some(mut cluster) = Cluster::new() else {
        return;
    };
    cluster.service(&json!({}), &json!({}));
    let ending = json!({ "ready": false, "serving": true, "terminating": true });
    cluster.endpoints(&[("p2", ending.clone())]);
    assert!(cluster.lab.tcp("p1", VIP[0], 80).starts_with("p2"));
    cluster.endpoints(&[("p2", ending), ("r1", json!({}))]);
    assert_eq!(cluster.answers("p1", VIP[0], 80).len(), 1);
    assert!(cluster.lab.tcp("p1", VIP[0], 80).starts_with("r1"));
}

#[test]
fn a_load_from_scratch_breaks_no_connection_and_repairs_damage() {
    let Some(mut cluster) = Cluster::new() else {
        return;
    };
    cluster.service(&json!({}), &json!({}));
    cluster.ready(&["p2", "r1"]);
    let before = cluster.lab.in_node("nft list ruleset");
    cluster.full();
    assert_eq!(cluster.lab.in_node("nft list ruleset"), before);
    cluster
        .lab
        .in_node("nft flush map ip kyanite-services service-ips");
    cluster
        .lab
        .in_node("nft add chain ip kyanite-services of-a-stranger");
    assert_eq!(cluster.lab.tcp("p1", VIP[0], 80), "refused");
    cluster.full();
    assert_eq!(cluster.lab.in_node("nft list ruleset"), before);
}

#[test]
fn a_udp_client_that_never_stops_is_led_to_a_new_endpoint() {
    let Some(mut cluster) = Cluster::new() else {
        return;
    };
    cluster.service(&json!({}), &json!({}));
    cluster.ready(&["p2"]);
    let ask = |cluster: &Cluster, i: usize| cluster.lab.udp("p1", VIP[i], 80, 5353);
    for i in 0..2 {
        assert!(ask(&cluster, i).starts_with("p2"));
    }
    // The kernel remembers where the client's packets go.
    let slices = cluster.slices(&[("r1", json!({}))]);
    for (name, slice) in slices {
        cluster.proxy.slice(&name, slice);
    }
    let changes = cluster.proxy.changes();
    for (family, changes) in Family::BOTH.into_iter().zip(changes) {
        let script = incremental(family, &cluster.settings, &changes);
        cluster
            .runtime
            .block_on(cluster.nft.apply(&script))
            .unwrap();
        let fronts = cluster.proxy.udp(family, &changes);
        assert_eq!(fronts.len(), 1);
        let forget = move || network::conntrack::forget(family, &fronts, |_| false);
        let forgotten = cluster.lab.inside("node", forget).join().unwrap();
        assert_eq!(forgotten.unwrap(), 1, "{family:?}");
    }
    for i in 0..2 {
        assert!(ask(&cluster, i).starts_with("r1"));
    }
}
