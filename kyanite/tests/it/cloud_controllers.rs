//! The cloud controllers, against an API server and an Azure of the test's own: what ends up in either.

mod faults;
mod scenarios;

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::harness::{Azure, KYANITE, Process, Server, ServerOptions, eventually};

/// A cluster in an Azure, and the manager that keeps them together.
struct Stage {
    server: Server,
    azure: Azure,
    manager: Option<Process>,
}

impl Stage {
    fn new() -> Stage {
        let flags = vec!["--controllers=", "--cloud=false"];
        let server = Server::start_with(ServerOptions { flags });
        let azure = Azure::start();
        azure.make_network();
        Stage {
            server,
            azure,
            manager: None,
        }
    }

    fn run_manager(&mut self, config: Value) {
        let file = self.azure.cloud_config(config);
        self.manager = Some(
            self.spawn(
                Command::new(KYANITE)
                    .arg("cloud-controller-manager")
                    .arg("--cloud-config")
                    .arg(file)
                    .args(["--cluster-cidr=10.244.0.0/16", "--allocate-node-cidrs=true"])
                    .args([
                        "--node-monitor-period=200ms",
                        "--cloud-provider=azure",
                        "--v=2",
                    ]),
            ),
        );
    }

    fn spawn(&self, command: &mut Command) -> Process {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.azure.home().join("manager.log"))
            .expect("a log file");
        command
            .arg("--kubeconfig")
            .arg(self.server.kubeconfig())
            .env("SSL_CERT_FILE", self.azure.authority())
            .stdout(Stdio::null())
            .stderr(log);
        Process::spawn(command)
    }

    fn add_node(&self, name: &str, pods: &str, ready: &str) {
        let taint = json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"taints": [taint], "podCIDR": pods, "podCIDRs": [pods]}});
        let (status, body) = self.server.post("/api/v1/nodes", node.to_string());
        assert_eq!(status, 201, "{body}");
        self.set_ready(name, ready);
    }

    fn set_ready(&self, name: &str, ready: &str) {
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let request = http::Request::patch(format!("/api/v1/nodes/{name}/status"))
            .header("content-type", "application/strategic-merge-patch+json")
            .body(patch.to_string().into_bytes())
            .unwrap();
        let (status, body) = self.server.send(request);
        assert_eq!(status, 200, "{body}");
    }

    fn read(&self, path: &str) -> Value {
        let (_, body) = self.server.get(path);
        serde_json::from_str(&body).unwrap_or_default()
    }

    /// Waits until what is at a path is as it should be.
    #[track_caller]
    fn becomes(&self, path: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || {
            let now = self.read(path);
            match is(&now) {
                true => Ok(now),
                false => Err(format!("{now}\n{}", self.log())),
            }
        })
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.azure.home().join("manager.log")).unwrap_or_default()
    }

    fn node_becomes(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        self.becomes(&format!("/api/v1/nodes/{name}"), what, is)
    }
}

fn has_taint(node: &Value, key: &str) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|all| all.iter().any(|taint| taint["key"] == key))
}

fn routed(node: &Value) -> bool {
    let all = node["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let mut own = all.filter(|c| c["type"] == "NetworkUnavailable");
    own.any(|c| c["status"] == "False" && c["reason"] == "RouteCreated")
}

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

#[test]
fn nodes_follow_their_machines_from_the_first_to_the_last_day() {
    let mut stage = Stage::new();
    stage.azure.make_set("aks-np-vmss", 2);
    stage.azure.make_machine("alone");
    stage.add_node("aks-np-vmss000000", "10.244.0.0/24", "True");
    stage.add_node("aks-np-vmss000001", "10.244.1.0/24", "True");
    stage.add_node("alone", "10.244.2.0/24", "True");
    stage.run_manager(json!({}));

    let first = stage.node_becomes("aks-np-vmss000000", "it is initialised", |node| {
        !has_taint(node, UNINITIALIZED) && routed(node)
    });
    let sub = "/providers/Microsoft.Compute/virtualMachineScaleSets/aks-np-vmss/virtualMachines/0";
    let id = first["spec"]["providerID"].as_str().unwrap();
    assert!(
        id.starts_with("azure:///subscriptions/") && id.ends_with(sub),
        "{id}"
    );
    let labels = &first["metadata"]["labels"];
    assert_eq!(labels["topology.kubernetes.io/zone"], "eastus-1");
    assert_eq!(labels["topology.kubernetes.io/region"], "eastus");
    assert_eq!(
        labels["node.kubernetes.io/instance-type"],
        "Standard_D2s_v5"
    );
    let alone = stage.node_becomes("alone", "it is initialised", routed);
    assert!(!has_taint(&alone, UNINITIALIZED));
    let id = alone["spec"]["providerID"].as_str().unwrap();
    assert!(id.ends_with("/virtualMachines/alone"), "{id}");
    assert_eq!(
        alone["metadata"]["labels"]["topology.kubernetes.io/zone"],
        "eastus-3"
    );
    stage.node_becomes("aks-np-vmss000001", "it is routed", routed);

    let address = &alone["status"]["addresses"][0];
    assert_eq!(address["type"], "InternalIP");
    let routes = stage.azure.get("Microsoft.Network/routeTables/routes");
    let routes = routes["properties"]["routes"].as_array().unwrap().clone();
    assert_eq!(routes.len(), 3, "{routes:?}");
    let own = routes
        .iter()
        .find(|r| r["name"] == "alone____102442024")
        .unwrap();
    assert_eq!(own["properties"]["nextHopIpAddress"], address["address"]);
    assert_eq!(own["properties"]["nextHopType"], "VirtualAppliance");

    // Off and on again.
    stage
        .azure
        .post("Microsoft.Compute/virtualMachines/alone/deallocate");
    stage.set_ready("alone", "Unknown");
    let shutdown = "node.cloudprovider.kubernetes.io/shutdown";
    stage.node_becomes("alone", "it is marked", |node| has_taint(node, shutdown));
    stage
        .azure
        .post("Microsoft.Compute/virtualMachines/alone/start");
    stage.set_ready("alone", "True");
    stage.node_becomes("alone", "it is well", |node| !has_taint(node, shutdown));

    // Gone: the node, and what led to it.
    stage
        .azure
        .delete("Microsoft.Compute/virtualMachines/alone");
    stage.set_ready("alone", "Unknown");
    stage.node_becomes("alone", "it goes", |node| node["reason"] == "NotFound");
    eventually("its route goes", || {
        let table = stage.azure.get("Microsoft.Network/routeTables/routes");
        let left = table["properties"]["routes"].as_array().map_or(0, Vec::len);
        (left == 2).then_some(()).ok_or(table.to_string())
    });
    let others = stage.read("/api/v1/nodes");
    assert_eq!(others["items"].as_array().unwrap().len(), 2);
}

const SERVICES: &str = "/api/v1/namespaces/default/services";

impl Stage {
    /// A cluster of two nodes of a scale set, with its manager.
    fn with_nodes(config: Value) -> Stage {
        let mut stage = Stage::new();
        stage.azure.make_set("aks-np-vmss", 2);
        stage.add_node("aks-np-vmss000000", "10.244.0.0/24", "True");
        stage.add_node("aks-np-vmss000001", "10.244.1.0/24", "True");
        stage.run_manager(config);
        stage
    }

    fn add_service(&self, name: &str, annotations: Value, spec: Value) {
        let annotations = annotations.as_object().into_iter().flatten();
        let annotations: serde_json::Map<String, Value> = annotations
            .map(|(key, value)| (format!("service.beta.kubernetes.io/{key}"), value.clone()))
            .collect();
        let mut whole =
            json!({"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": name}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            whole[field] = value.clone();
        }
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "annotations": annotations}, "spec": whole});
        let (status, body) = self.server.post(SERVICES, service.to_string());
        assert_eq!(status, 201, "{body}");
    }

    /// The address that a Service shows, once it does.
    #[track_caller]
    fn address_of(&self, name: &str) -> String {
        let shown = self.becomes(
            &format!("{SERVICES}/{name}"),
            "it has an address",
            |service| service["status"]["loadBalancer"]["ingress"][0]["ip"].is_string(),
        );
        let ip = shown["status"]["loadBalancer"]["ingress"][0]["ip"].as_str();
        ip.unwrap().to_owned()
    }

    fn delete_service(&self, name: &str) {
        let request = http::Request::delete(format!("{SERVICES}/{name}"));
        let (status, body) = self.server.send(request.body(Vec::new()).unwrap());
        assert!(status == 200 || status == 202, "{body}");
    }

    fn service_goes(&self, name: &str) {
        let path = format!("{SERVICES}/{name}");
        self.becomes(&path, "it goes", |service| service["reason"] == "NotFound");
    }

    fn balancer(&self, name: &str) -> Value {
        self.azure
            .get(&format!("Microsoft.Network/loadBalancers/{name}"))["properties"]
            .clone()
    }

    fn security_rules(&self) -> Vec<Value> {
        let group = self
            .azure
            .get("Microsoft.Network/networkSecurityGroups/nsg");
        group["properties"]["securityRules"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }

    fn public_addresses(&self) -> Vec<Value> {
        self.azure.list("Microsoft.Network/publicIPAddresses")
    }

    /// Waits for an event about a Service.
    #[track_caller]
    fn hears(&self, service: &str, reason: &str) -> String {
        let path = "/api/v1/namespaces/default/events";
        let fits =
            |event: &Value| event["reason"] == reason && event["involvedObject"]["name"] == service;
        let events = self.becomes(path, reason, |list| {
            let mut items = list["items"].as_array().into_iter().flatten();
            items.any(fits)
        });
        let items = events["items"].as_array().unwrap();
        let event = items.iter().find(|event| fits(event)).unwrap();
        event["message"].as_str().unwrap_or_default().to_owned()
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn a_service_gets_a_load_balancer_and_leaves_nothing_behind() {
    let mut stage = Stage::with_nodes(json!({}));
    stage.add_service("web", json!({"azure-dns-label-name": "web"}), json!({}));
    let address = stage.address_of("web");
    stage.hears("web", "EnsuredLoadBalancer");

    let public = stage.public_addresses();
    assert_eq!(public.len(), 1);
    assert_eq!(public[0]["properties"]["ipAddress"], address.as_str());
    assert_eq!(public[0]["tags"]["k8s-azure-service"], "default/web");
    assert_eq!(public[0]["tags"]["k8s-azure-cluster-name"], "kubernetes");
    assert_eq!(
        public[0]["properties"]["dnsSettings"]["domainNameLabel"],
        "web"
    );
    let balancer = stage.balancer("kubernetes");
    let rule = &list(&balancer["loadBalancingRules"])[0]["properties"];
    assert_eq!(
        (&rule["frontendPort"], &rule["enableFloatingIP"]),
        (&json!(80), &json!(true))
    );
    assert_eq!(
        list(&balancer["probes"])[0]["properties"]["protocol"],
        "Tcp"
    );
    let allowed = stage.security_rules();
    assert_eq!(allowed.len(), 1);
    assert_eq!(
        allowed[0]["name"],
        "k8s-azure-lb_allow_IPv4_d39272f7f57ed937951650d93992ad77"
    );
    assert_eq!(
        allowed[0]["properties"]["destinationAddressPrefixes"],
        json!([address])
    );
    // Nodes are in the pool, and new ones will be.
    let pool = format!(
        "{}/backendAddressPools/kubernetes",
        stage.azure.id("Microsoft.Network/loadBalancers/kubernetes")
    );
    let set = "Microsoft.Compute/virtualMachineScaleSets/aks-np-vmss";
    let pooled = |cards: &Value| {
        let pools = &cards[0]["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"];
        list(pools).iter().any(|own| {
            own["id"]
                .as_str()
                .is_some_and(|id| id.eq_ignore_ascii_case(&pool))
        })
    };
    eventually("nodes are in the pool", || {
        let first = stage.azure.get(&format!("{set}/virtualMachines/0"));
        let cards =
            &first["properties"]["networkProfileConfiguration"]["networkInterfaceConfigurations"];
        pooled(cards).then_some(()).ok_or(first.to_string())
    });
    let model = stage.azure.get(set);
    let model = &model["properties"]["virtualMachineProfile"]["networkProfile"]["networkInterfaceConfigurations"];
    assert!(pooled(model), "{model}");

    // Another manager finds everything as it should be, and writes nothing.
    let etag = |stage: &Stage| {
        stage
            .azure
            .get("Microsoft.Network/loadBalancers/kubernetes")["etag"]
            .clone()
    };
    let before = etag(&stage);
    stage.manager = None;
    stage.run_manager(json!({}));
    stage.add_service(
        "ranged",
        json!({"azure-allowed-ip-ranges": "10.0.0.1/8"}),
        json!({"ports": [{"port": 81}]}),
    );
    stage.address_of("ranged");
    assert!(
        stage
            .hears("ranged", "InvalidAllowedIPRanges")
            .contains("10.0.0.1/8")
    );
    let denied = stage.security_rules();
    let deny = denied
        .iter()
        .find(|rule| rule["name"] == "k8s-azure-lb_deny-all_IPv4")
        .unwrap();
    assert_eq!(deny["properties"]["priority"], 4095);
    assert_ne!(etag(&stage), before);
    let after = etag(&stage);
    stage.add_service(
        "never",
        json!({"azure-load-balancer-tcp-idle-timeout": "1"}),
        json!({}),
    );
    let cause = stage.hears("never", "SyncLoadBalancerFailed");
    assert!(cause.contains("tcp-idle-timeout"), "{cause}");
    assert_eq!(
        etag(&stage),
        after,
        "one that cannot be read changes nothing"
    );

    for name in ["web", "ranged", "never"] {
        stage.delete_service(name);
    }
    for name in ["web", "ranged", "never"] {
        stage.service_goes(name);
    }
    assert_eq!(
        stage.azure.list("Microsoft.Network/loadBalancers"),
        Vec::<Value>::new()
    );
    assert_eq!(stage.public_addresses(), Vec::<Value>::new());
    assert_eq!(stage.security_rules(), Vec::<Value>::new());
}

#[test]
fn many_services_are_few_writes_and_flip_between_inside_and_outside() {
    let stage = Stage::with_nodes(json!({"loadBalancerBackendPoolConfigurationType": "nodeIP"}));
    let internal = json!({"azure-load-balancer-internal": "true"});
    for number in 0..40 {
        stage.add_service(&format!("s{number}"), internal.clone(), json!({}));
    }
    let addresses: std::collections::BTreeSet<String> = (0..40)
        .map(|number| stage.address_of(&format!("s{number}")))
        .collect();
    assert_eq!(addresses.len(), 40, "each has its own");
    assert!(
        addresses.iter().all(|ip| ip.starts_with("10.0.0.")),
        "{addresses:?}"
    );
    let balancer = stage.balancer("kubernetes-internal");
    assert_eq!(list(&balancer["loadBalancingRules"]).len(), 40);
    assert_eq!(
        stage.security_rules(),
        Vec::<Value>::new(),
        "the network is let in anyway"
    );
    let members = eventually("nodes are in the pool", || {
        let pool =
            stage.balancer("kubernetes-internal")["backendAddressPools"][0]["properties"].clone();
        let members = list(&pool["loadBalancerBackendAddresses"]).to_vec();
        (members.len() == 2)
            .then_some(members)
            .ok_or(pool.to_string())
    });
    assert_eq!(members[0]["name"], "aks-np-vmss000000");

    let patch = json!({"metadata": {"annotations": {"service.beta.kubernetes.io/azure-load-balancer-internal": null}}});
    let request = http::Request::patch(format!("{SERVICES}/s0"))
        .header("content-type", "application/merge-patch+json")
        .body(patch.to_string().into_bytes())
        .unwrap();
    assert_eq!(stage.server.send(request).0, 200);
    let path = format!("{SERVICES}/s0");
    stage.becomes(&path, "it is seen from outside", |service| {
        let ip = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str();
        ip.is_some_and(|ip| ip.starts_with("198.18."))
    });
    assert_eq!(
        list(&stage.balancer("kubernetes-internal")["loadBalancingRules"]).len(),
        39
    );
    assert_eq!(
        list(&stage.balancer("kubernetes")["loadBalancingRules"]).len(),
        1
    );
    assert_eq!(stage.security_rules().len(), 1);
}

#[test]
fn a_nodes_own_manager_makes_it_known() {
    let stage = Stage::new();
    stage.azure.make_machine("alone");
    stage.add_node("alone", "10.244.2.0/24", "True");
    let mut command = Command::new(KYANITE);
    command.args([
        "cloud-node-manager",
        "--node-name=alone",
        "--wait-routes=true",
    ]);
    command.args(["--use-instance-metadata=false", "--cloud-config"]);
    let _manager = stage.spawn(command.arg(stage.azure.cloud_config(json!({}))));
    let node = stage.node_becomes("alone", "it is initialised", |node| {
        !has_taint(node, UNINITIALIZED)
    });
    assert!(
        node["spec"]["providerID"]
            .as_str()
            .unwrap()
            .ends_with("/virtualMachines/alone")
    );
    assert_eq!(
        node["metadata"]["labels"]["beta.kubernetes.io/instance-type"],
        Value::Null
    );
    let conditions = list(&node["status"]["conditions"]);
    let network = conditions
        .iter()
        .find(|c| c["type"] == "NetworkUnavailable")
        .unwrap();
    assert_eq!(
        (&network["status"], &network["reason"]),
        (&json!("True"), &json!("NodeInitialization"))
    );
}
