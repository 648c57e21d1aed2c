//! Network policies, by real packets.

use network::Family;
use network::nft::Nft;
use network::policy::compile::Rules;
use network::policy::model::{Labels, Pod, Policy, World};
use network::policy::transition;
use serde_json::{Value, json};

use crate::lab::{Lab, NODE, PODS};

struct Guarded {
    lab: Lab,
    world: World,
    written: [Option<Rules>; 2],
    nft: Nft,
    runtime: tokio::runtime::Runtime,
}

impl Guarded {
    fn new() -> Option<Guarded> {
        let lab = Lab::new()?;
        let nft = Nft::by(["ip", "netns", "exec", &lab.ns("node"), "nft"]);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut world = World::default();
        for namespace in ["a", "b"] {
            let labels = [("team".to_owned(), namespace.to_owned())].into();
            world.namespaces.insert(namespace.into(), labels);
        }
        let mut guarded = Guarded {
            lab,
            world,
            written: [None, None],
            nft,
            runtime,
        };
        for (name, addresses) in PODS {
            // r1 is the pod of another namespace and another node.
            let (namespace, node) = if name == "r1" {
                ("b", "n2")
            } else {
                ("a", "n1")
            };
            let pod = json!({
                "metadata": { "labels": { "app": name } },
                "spec": { "nodeName": node, "containers": [{ "name": "c", "ports": [{ "name": "web", "containerPort": 8080 }] }] },
                "status": { "podIPs": addresses.map(|ip| json!({ "ip": ip })) },
            });
            let pod = Pod::of(&serde_json::from_value(pod).unwrap());
            guarded
                .world
                .pods
                .insert((namespace.into(), name.into()), pod);
            guarded.lab.serve(name, 8080);
            guarded.lab.serve(name, 9090);
        }
        guarded.write();
        Some(guarded)
    }

    fn write(&mut self) {
        for (family, before) in Family::BOTH.into_iter().zip(&mut self.written) {
            let after = self.world.compile("n1", family);
            let script = transition(family, before.as_ref(), &after);
            if let Err(error) = self.runtime.block_on(self.nft.apply(&script)) {
                panic!("{error}\n{script}");
            }
            *before = Some(after);
        }
    }

    /// Replaces all policies of namespace a.
    fn policies(&mut self, specs: &[Value]) {
        self.world.policies.clear();
        for (i, spec) in specs.iter().enumerate() {
            let policy = Policy::of(&serde_json::from_value(json!({ "spec": spec })).unwrap());
            self.world
                .policies
                .insert(("a".into(), format!("q{i}")), policy);
        }
        self.write();
    }

    /// Whether one may connect to another's port, by both families alike.
    fn may(&self, from: &str, to: &str, port: u16) -> bool {
        let addresses = PODS.iter().find(|(name, _)| *name == to).unwrap().1;
        let [v4, v6] = addresses.map(|ip| !self.lab.is_silent(from, ip, port));
        assert_eq!(v4, v6, "{from} to {to}");
        v4
    }
}

fn all() -> Value {
    json!({ "podSelector": {}, "policyTypes": ["Ingress"] })
}

#[test]
fn policies_hold_for_real_packets() {
    let Some(mut guarded) = Guarded::new() else {
        return;
    };
    assert!(
        guarded.may("p1", "p2", 8080) && guarded.may("r1", "p2", 8080),
        "without policies everybody may"
    );

    guarded.policies(&[all()]);
    assert!(!guarded.may("p1", "p2", 8080) && !guarded.may("r1", "p2", 8080));
    assert!(
        guarded.may("p2", "r1", 8080),
        "egress is free, and so are the answers to it"
    );
    assert!(
        guarded.may("node", "p2", 8080),
        "a node reaches its own pods"
    );
    assert!(
        !guarded.lab.is_silent("p2", NODE[0], 1),
        "a pod reaches its own node"
    );

    let from_p1 = json!({ "podSelector": {}, "ingress": [{
        "from": [{ "podSelector": { "matchLabels": { "app": "p1" } } }], "ports": [{ "port": "web" }],
    }] });
    guarded.policies(&[all(), from_p1]);
    assert!(
        guarded.may("p1", "p2", 8080)
            && !guarded.may("p1", "p2", 9090)
            && !guarded.may("r1", "p2", 8080)
    );

    let from_b = json!({ "podSelector": { "matchLabels": { "app": "p2" } }, "ingress": [{
        "from": [{ "namespaceSelector": { "matchLabels": { "team": "b" } } }], "ports": [{ "port": 9000, "endPort": 9100 }],
    }] });
    guarded.policies(&[from_b]);
    assert!(
        guarded.may("r1", "p2", 9090)
            && !guarded.may("r1", "p2", 8080)
            && !guarded.may("p1", "p2", 9090)
    );
    assert!(guarded.may("p2", "p1", 8080), "p1 is not selected");
    guarded.world.namespaces.insert("b".into(), Labels::new());
    guarded.write();
    assert!(
        !guarded.may("r1", "p2", 9090),
        "the namespace is no longer of that team"
    );

    let out = json!({ "podSelector": { "matchLabels": { "app": "p1" } }, "policyTypes": ["Egress"], "egress": [{
        "to": [{ "ipBlock": { "cidr": "10.244.0.0/16", "except": ["10.244.1.0/24"] } },
               { "ipBlock": { "cidr": "fd00:244::/48", "except": ["fd00:244:0:1::/64"] } }],
    }] });
    guarded.policies(&[out]);
    assert!(
        guarded.may("p1", "p2", 8080)
            && !guarded.may("p1", "r1", 8080)
            && guarded.may("p2", "r1", 8080)
    );

    guarded.policies(&[]);
    assert!(guarded.may("p1", "r1", 8080));
}
