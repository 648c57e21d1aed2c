//! What goes wrong around the managers: killed, frozen, or not alone.

use std::collections::BTreeMap;

use super::*;

const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager";

impl Stage {
    /// Kills the manager after each write that it made, until something is as it should be.
    fn dies_after_every_write(&mut self, what: &str, is_done: impl Fn(&Stage) -> bool) -> usize {
        let mut deaths = 0;
        while !is_done(self) {
            let before = self.azure.writes().len();
            self.run_manager(json!({}));
            eventually(what, || {
                let wrote = self.azure.writes().len() > before;
                match wrote || is_done(self) {
                    true => Ok(()),
                    false => Err(self.log()),
                }
            });
            self.manager = None;
            deaths += 1;
            assert!(deaths < 60, "it does not get on: {}", self.log());
        }
        deaths
    }

    fn has_address(&self, name: &str) -> bool {
        let service = self.read(&format!("{SERVICES}/{name}"));
        service["status"]["loadBalancer"]["ingress"][0]["ip"].is_string()
    }
}

#[test]
fn a_manager_that_dies_after_every_write_gets_there_and_orphans_nothing() {
    let mut stage = Stage::new();
    stage.azure.make_set("aks-np-vmss", 2);
    stage.add_node("aks-np-vmss000000", "10.244.0.0/24", "True");
    stage.add_node("aks-np-vmss000001", "10.244.1.0/24", "True");
    stage.add_service("web", json!({}), json!({}));
    stage.add_service(
        "inside",
        json!({"azure-load-balancer-internal": "true"}),
        json!({}),
    );
    let deaths = stage.dies_after_every_write("something is written", |stage| {
        stage.has_address("web") && stage.has_address("inside")
    });
    assert!(deaths > 1, "it died {deaths} times");
    assert_eq!(stage.public_addresses().len(), 1);
    for name in ["web", "inside"] {
        stage.delete_service(name);
    }
    stage.dies_after_every_write("something is removed", |stage| {
        let gone = |name: &&str| stage.read(&format!("{SERVICES}/{name}"))["reason"] == "NotFound";
        ["web", "inside"].iter().all(gone)
    });
    assert_eq!(
        stage.azure.list("Microsoft.Network/loadBalancers"),
        Vec::<Value>::new()
    );
    assert_eq!(stage.public_addresses(), Vec::<Value>::new());
    assert_eq!(stage.security_rules(), Vec::<Value>::new());
}

#[test]
fn who_else_writes_is_heeded() {
    let stage = Stage::with_nodes(json!({}));
    stage.add_service("first", json!({}), json!({}));
    stage.address_of("first");
    let rule = |priority: usize| {
        json!({"properties": {"priority": priority, "direction": "Inbound", "access": "Allow", "protocol": "Tcp",
            "sourcePortRange": "*", "destinationPortRange": "22", "sourceAddressPrefix": "*", "destinationAddressPrefix": "*"}})
    };
    // Each write of theirs makes what the manager remembers stale.
    for number in 0..6 {
        stage.add_service(
            &format!("s{number}"),
            json!({}),
            json!({"ports": [{"port": 8000 + number}]}),
        );
        let path =
            format!("Microsoft.Network/networkSecurityGroups/nsg/securityRules/foreign{number}");
        stage.azure.put(&path, rule(3000 + number));
        let path = "Microsoft.Network/loadBalancers/kubernetes/inboundNatRules";
        assert!(stage.azure.list(path).is_empty());
    }
    let addresses: BTreeMap<String, usize> = (0..6)
        .map(|number| (stage.address_of(&format!("s{number}")), number))
        .collect();
    assert_eq!(addresses.len(), 6, "each has its own: {addresses:?}");
    let rules = stage.security_rules();
    let foreign = |rule: &&Value| {
        rule["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("foreign"))
    };
    assert_eq!(rules.iter().filter(foreign).count(), 6, "{rules:?}");
    assert_eq!(
        list(&stage.balancer("kubernetes")["loadBalancingRules"]).len(),
        7
    );
    let mut priorities: Vec<u64> = rules
        .iter()
        .filter_map(|r| r["properties"]["priority"].as_u64())
        .collect();
    priorities.sort_unstable();
    priorities.dedup();
    assert_eq!(priorities.len(), rules.len(), "no two have one priority");
}

fn candidate(stage: &Stage) -> Process {
    let file = stage.azure.cloud_config(json!({}));
    let mut command = Command::new(KYANITE);
    command
        .arg("cloud-controller-manager")
        .arg("--cloud-config")
        .arg(file);
    command.args([
        "--cluster-cidr=10.244.0.0/16",
        "--allocate-node-cidrs=true",
        "--cloud-provider=azure",
    ]);
    command.args(["--leader-elect=true", "--leader-elect-lease-duration=6s"]);
    command.args([
        "--leader-elect-renew-deadline=4s",
        "--leader-elect-retry-period=1s",
    ]);
    stage.spawn(&mut command)
}

fn signal(process: &mut Process, name: &str) {
    let pid = process.child().id().to_string();
    let told = Command::new("kill").args([name, &pid]).status();
    assert!(told.is_ok_and(|status| status.success()), "{name} {pid}");
}

#[test]
fn a_leader_that_was_frozen_finds_another_one_and_leaves() {
    let mut stage = Stage::new();
    stage.azure.make_set("aks-np-vmss", 1);
    stage.add_node("aks-np-vmss000000", "10.244.0.0/24", "True");
    let mut first = candidate(&stage);
    let holder = |lease: &Value| {
        lease["spec"]["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let led = stage.becomes(LEASE, "somebody leads", |lease| !holder(lease).is_empty());
    let leader = holder(&led);
    stage.add_service("before", json!({}), json!({}));
    stage.address_of("before");
    stage.manager = Some(candidate(&stage));
    signal(&mut first, "-STOP");
    stage.becomes(LEASE, "another one leads", |lease| {
        let now = holder(lease);
        !now.is_empty() && now != leader
    });
    stage.add_service("after", json!({}), json!({"ports": [{"port": 81}]}));
    stage.address_of("after");
    let writes = stage.azure.writes().len();
    signal(&mut first, "-CONT");
    let ended = eventually("the old one leaves", || {
        let status = first.child().try_wait().map_err(|e| e.to_string())?;
        status.ok_or_else(|| "it runs".to_owned())
    });
    assert!(!ended.success(), "{ended}");
    assert_eq!(
        stage.azure.writes().len(),
        writes,
        "the old one wrote nothing more"
    );
}
