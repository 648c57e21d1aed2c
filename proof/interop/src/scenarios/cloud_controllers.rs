//! The cloud's controllers on a cloud of ours: nodes learn what their machines are, routes and load balancers follow, and
//! nothing is left. With upstream's on the right, ours do the same before, and what Azure shows in the end is compared.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::cluster::{Cluster, Whose};
use crate::process::Process;
use crate::table::Sides;
use crate::wait::eventually;

/// What may differ between ours and upstream's, and why: a part of the path, and the reason.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "/privateIPAddressVersion",
        "ours says what theirs leaves to Azure's default",
    ),
    (
        "/subnet/name",
        "theirs sends the whole subnet, ours its id; to Azure the id counts",
    ),
    (
        "/destinationAddressPrefix",
        "one address is a list of one with ours and a single prefix with theirs: the same rule",
    ),
    ("/sourceAddressPrefix", "the same"),
    (
        "/priority",
        "given in the order in which services are looked at, which is nobody's promise",
    ),
];

const NODES: [&str; 2] = ["aks-np-vmss000000", "aks-np-vmss000001"];

/// Services, with what is special about each: (name, annotations, specification).
fn services() -> Vec<(&'static str, Value, Value)> {
    let port =
        |port: u16, node: u16| json!({"name": format!("p{port}"), "port": port, "nodePort": node});
    vec![
        (
            "web",
            json!({"azure-dns-label-name": "web"}),
            json!({"ports": [port(80, 30080)]}),
        ),
        (
            "inside",
            json!({"azure-load-balancer-internal": "true"}),
            json!({"ports": [port(80, 30081)]}),
        ),
        (
            "local",
            json!({}),
            json!({"ports": [port(81, 30082)], "externalTrafficPolicy": "Local", "healthCheckNodePort": 30100}),
        ),
        (
            "ranged",
            json!({"azure-load-balancer-tcp-idle-timeout": "10"}),
            json!({"ports": [port(82, 30083)], "loadBalancerSourceRanges": ["203.0.113.0/24"]}),
        ),
        (
            "both",
            json!({}),
            json!({"ports": [port(443, 30084), {"name": "dns", "port": 53, "nodePort": 30085, "protocol": "UDP"}],
                "sessionAffinity": "ClientIP"}),
        ),
    ]
}

pub(crate) fn run(cluster: &mut Cluster<'_>, (_, right): Sides) -> Result<()> {
    let ours = end_state(cluster, Whose::Ours).context("ours")?;
    if right == Whose::Ours {
        return Ok(());
    }
    let theirs = end_state(cluster, Whose::Theirs).context("theirs")?;
    let mut found = Vec::new();
    differences(&ours, &theirs, "", &mut found);
    found.retain(|one| !DIFFERENCES.iter().any(|(part, _)| one.contains(part)));
    ensure!(found.is_empty(), "{}", found.join("; "));
    Ok(())
}

/// What Azure shows once everything is as it should be; afterwards everything is gone.
fn end_state(cluster: &Cluster<'_>, whose: Whose) -> Result<Value> {
    let name = match whose {
        Whose::Ours => "cloud-ours",
        Whose::Theirs => "cloud-theirs",
    };
    let mut cloud = Cloud::start_in(cluster, name)?;
    prepare(cluster, &cloud)?;
    let mut manager = manager(cluster, &cloud, whose)?;
    let _on_nodes = NODES
        .iter()
        .map(|node| node_manager(cluster, &cloud, node))
        .collect::<Result<Vec<Process>>>()?;
    for node in NODES {
        eventually("the node is initialised and routed", || {
            manager.check()?;
            is_known(cluster, node)
        })?;
    }
    for (name, annotations, spec) in services() {
        let made = service(name, &annotations, &spec);
        cluster
            .kubectl
            .with_input("apply -f -", &made.to_string())?;
    }
    for (name, ..) in services() {
        eventually("the service has an address", || {
            manager.check()?;
            let path = "{.status.loadBalancer.ingress[0].ip}";
            let ip = cluster
                .kubectl
                .run(&format!("get service {name} -o jsonpath={path}"))?;
            ensure!(!ip.is_empty(), "{name} has none");
            Ok(())
        })?;
    }
    let state = snapshot(cluster, &cloud)?;
    let names: Vec<&str> = services().iter().map(|(name, ..)| *name).collect();
    cluster
        .kubectl
        .run(&format!("delete service {} --timeout=50s", names.join(" ")))?;
    eventually("nothing is left in Azure", || {
        manager.check()?;
        let left = [
            cloud.list("Microsoft.Network/loadBalancers")?,
            cloud.list("Microsoft.Network/publicIPAddresses")?,
        ]
        .concat();
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })?;
    cluster
        .kubectl
        .run(&format!("delete node {}", NODES.join(" ")))?;
    cloud.check()?;
    Ok(state)
}

fn prepare(cluster: &Cluster<'_>, cloud: &Cloud) -> Result<()> {
    cloud.put_group()?;
    let east = json!({"location": "eastus"});
    cloud.put("Microsoft.Network/networkSecurityGroups/nsg", &east)?;
    cloud.put("Microsoft.Network/routeTables/routes", &east)?;
    let subnet = json!({"name": "nodes", "properties": {"addressPrefix": "10.0.0.0/24"}});
    let network = json!({"location": "eastus", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
        "subnets": [subnet]}});
    cloud.put("Microsoft.Network/virtualNetworks/net", &network)?;
    let subnet = cloud.id("Microsoft.Network/virtualNetworks/net/subnets/nodes");
    let address =
        json!([{"name": "ip", "properties": {"primary": true, "subnet": {"id": subnet}}}]);
    let card =
        json!({"name": "card", "properties": {"primary": true, "ipConfigurations": address}});
    let set = json!({"location": "eastus", "zones": ["1", "2"], "sku": {"name": "Standard_D2s_v5", "capacity": 2},
        "properties": {"orchestrationMode": "Uniform", "upgradePolicy": {"mode": "Manual"},
            "virtualMachineProfile": {"osProfile": {"computerNamePrefix": "aks-np-vmss", "adminUsername": "u"},
                "networkProfile": {"networkInterfaceConfigurations": [card]}}}});
    cloud.put(
        "Microsoft.Compute/virtualMachineScaleSets/aks-np-vmss",
        &set,
    )?;
    for (number, name) in NODES.iter().enumerate() {
        add_node(cluster, name, &format!("10.244.{number}.0/24"))?;
    }
    Ok(())
}

fn add_node(cluster: &Cluster<'_>, name: &str, pods: &str) -> Result<()> {
    let taint = json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"taints": [taint], "podCIDR": pods, "podCIDRs": [pods]}});
    cluster
        .kubectl
        .with_input("create -f -", &node.to_string())?;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}});
    let patch = ready.to_string();
    cluster.kubectl.args(&[
        "patch",
        "node",
        name,
        "--subresource=status",
        "--type=strategic",
        "-p",
        &patch,
    ])?;
    Ok(())
}

fn is_known(cluster: &Cluster<'_>, name: &str) -> Result<()> {
    let node = cluster.kubectl.json(&format!("get node {name}"))?;
    let id = node["spec"]["providerID"].as_str().unwrap_or_default();
    ensure!(
        id.starts_with("azure:///subscriptions/"),
        "its providerID is {id:?}"
    );
    let all = |path: &str| {
        node.pointer(path)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let taints = all("/spec/taints");
    ensure!(
        !taints
            .iter()
            .any(|taint| taint["key"] == "node.cloudprovider.kubernetes.io/uninitialized"),
        "it is tainted"
    );
    let conditions = all("/status/conditions");
    let routed = conditions
        .iter()
        .any(|one| one["type"] == "NetworkUnavailable" && one["status"] == "False");
    ensure!(routed, "it has no route: {conditions:?}");
    Ok(())
}

fn service(name: &str, annotations: &Value, spec: &Value) -> Value {
    let annotations = annotations.as_object().into_iter().flatten();
    let annotations: serde_json::Map<String, Value> = annotations
        .map(|(key, value)| (format!("service.beta.kubernetes.io/{key}"), value.clone()))
        .collect();
    let mut whole = json!({"type": "LoadBalancer", "selector": {"app": name}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "annotations": annotations}, "spec": whole})
}

fn manager(cluster: &Cluster<'_>, cloud: &Cloud, whose: Whose) -> Result<Process> {
    let mut command = prepared(cluster, cloud, whose, "cloud-controller-manager")?;
    command
        .args([
            "--cloud-provider=azure",
            "--allocate-node-cidrs=true",
            "--configure-cloud-routes=true",
        ])
        .args([
            "--cluster-cidr=10.244.0.0/16",
            "--cluster-name=kubernetes",
            "--leader-elect=false",
        ])
        .args([
            "--route-reconciliation-period=1s",
            "--bind-address=127.0.0.1",
            "--v=2",
        ])
        .arg(format!("--secure-port={}", cluster.ports.other));
    Process::start(
        &format!("cloud-controllers-{whose:?}"),
        cluster.dir,
        &mut command,
    )
}

/// Upstream's manager has a controller that makes nodes known, and nobody who runs it: that is left to a program on each
/// node, which is ours here, whoever the manager is.
fn node_manager(cluster: &Cluster<'_>, cloud: &Cloud, node: &str) -> Result<Process> {
    let mut command = prepared(cluster, cloud, Whose::Ours, "cloud-node-manager")?;
    command.args(["--use-instance-metadata=false", "--wait-routes=true"]);
    command.arg(format!("--node-name={node}"));
    Process::start(node, cluster.dir, &mut command)
}

/// A program with azure.json and a kubeconfig.
fn prepared(cluster: &Cluster<'_>, cloud: &Cloud, whose: Whose, name: &str) -> Result<Command> {
    let config = cluster.subdirectory("config")?.join(format!("{name}.json"));
    let mut settings = cloud.settings();
    // Upstream's libraries ask Microsoft's own host about a tenant, unless it is one of ADFS.
    if whose == Whose::Theirs {
        settings["tenantId"] = json!("adfs");
    }
    std::fs::write(&config, settings.to_string())?;
    let mut command = cluster.role(whose, name, name)?;
    let kubeconfig: PathBuf = cluster.pki.file("admin.kubeconfig");
    command
        .arg(format!("--cloud-config={}", config.display()))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .env("SSL_CERT_FILE", cloud.authority());
    keeps_quiet(&mut command);
    Ok(command)
}

// What `az-env` says to a shell would win over what stands in azure.json.
fn keeps_quiet(command: &mut Command) {
    for name in [
        "AZURE_TENANT_ID",
        "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET",
        "AZURE_AUTHORITY_HOST",
    ] {
        command.env_remove(name);
    }
}

/// What Azure shows, without what differs from run to run: marks, the addresses and names that follow from a UID.
fn snapshot(cluster: &Cluster<'_>, cloud: &Cloud) -> Result<Value> {
    let mut text = json!({
        "balancers": cloud.list("Microsoft.Network/loadBalancers")?,
        "addresses": cloud.list("Microsoft.Network/publicIPAddresses")?,
        "security": cloud.get("Microsoft.Network/networkSecurityGroups/nsg")?["properties"]["securityRules"],
        "routes": cloud.get("Microsoft.Network/routeTables/routes")?["properties"]["routes"],
    })
    .to_string();
    for (name, ..) in services() {
        let service = cluster.kubectl.json(&format!("get service {name}"))?;
        let uid = service["metadata"]["uid"].as_str().unwrap_or_default();
        let base: String = format!("a{}", uid.replace('-', ""))
            .chars()
            .take(32)
            .collect();
        text = text.replace(&base, &format!("<{name}>"));
        if let Some(ip) = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str() {
            text = text.replace(&format!("\"{ip}\""), &format!("\"<address of {name}>\""));
        }
    }
    text = text.replace(cloud.credential("subscription"), "<subscription>");
    let mut value: Value = serde_json::from_str(&text)?;
    plain(&mut value);
    Ok(value)
}

fn plain(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for mark in ["etag", "resourceGuid", "provisioningState"] {
                map.remove(mark);
            }
            map.values_mut().for_each(plain);
        }
        Value::Array(all) => {
            all.iter_mut().for_each(plain);
            let name = |one: &Value| {
                one["name"]
                    .as_str()
                    .map_or_else(|| one.to_string(), str::to_owned)
            };
            all.sort_by_key(name);
        }
        _ => {}
    }
}

fn differences(ours: &Value, theirs: &Value, path: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let none = Value::Null;
                let (a, b) = (a.get(key).unwrap_or(&none), b.get(key).unwrap_or(&none));
                differences(a, b, &format!("{path}/{key}"), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                differences(a, b, &format!("{path}/{at}"), found);
            }
        }
        (ours, theirs) if ours != theirs => {
            found.push(format!("{path}: ours {ours}, theirs {theirs}"))
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told_by_their_paths() {
        let mut found = Vec::new();
        let ours = json!({"a": [{"name": "x", "v": 1}], "b": 2});
        differences(
            &ours,
            &json!({"a": [{"name": "x", "v": 2}]}),
            "",
            &mut found,
        );
        assert_eq!(
            found,
            ["/a/0/v: ours 1, theirs 2", "/b: ours 2, theirs null"]
        );
    }
}
