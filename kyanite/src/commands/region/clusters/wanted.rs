//! What an order says of a cluster's machines, and what is said of it afterwards. Pure.

use ::cloud::{Done, Order};
use serde_json::{Value, json};

use super::{HOLLOW, ROTATING, take_machines};
use crate::pools::{Made, Pool, Pools};

/// A cluster's pools as its process is told them; every machine is made of what its pool says.
pub(super) fn pools(order: &Order) -> Pools {
    let properties = &order.body["properties"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut pools = Pools {
        location: text(&order.body["location"]),
        group: text(&properties["nodeResourceGroup"]),
        subnet: order
            .nodes
            .iter()
            .find_map(|node| node.subnet)
            .unwrap_or(Pools::SUBNET),
        pools: profiles(order)
            .map(|profile| pool(order, profile))
            .collect(),
    };
    take_machines(&mut pools, &order.nodes);
    for (pool, profile) in pools.pools.iter_mut().zip(profiles(order)) {
        let made = Made {
            version: text(&profile["orchestratorVersion"]),
            image: text(&profile["nodeImageVersion"]),
            rotation: rotations(order),
        };
        for machine in &mut pool.machines {
            machine.made = Some(made.clone());
        }
    }
    pools
}

pub(super) fn profiles(order: &Order) -> impl Iterator<Item = &Value> {
    let all = order.body["properties"]["agentPoolProfiles"].as_array();
    all.into_iter().flatten()
}

/// How often the cluster's certificates will have been rotated.
pub(super) fn rotations(order: &Order) -> u64 {
    let before = order.hidden["rotations"].as_u64().unwrap_or(0);
    before + u64::from(order.body["properties"]["provisioningState"] == ROTATING)
}

fn pool(order: &Order, profile: &Value) -> Pool {
    let text = |field: &str| profile[field].as_str().unwrap_or_default().to_owned();
    let list = |field: &str| -> Vec<String> {
        let all = profile[field].as_array().into_iter().flatten();
        all.filter_map(|one| one.as_str().map(str::to_owned))
            .collect()
    };
    let name = text("name");
    let labels = profile["nodeLabels"].as_object().into_iter().flatten();
    Pool {
        id: order.hidden["sets"][&name]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        vm_size: text("vmSize"),
        zones: list("availabilityZones"),
        mode: text("mode").to_lowercase(),
        labels: labels
            .filter_map(|(label, value)| Some((label.clone(), value.as_str()?.to_owned())))
            .collect(),
        taints: list("nodeTaints"),
        max_pods: profile["maxPods"]
            .as_u64()
            .and_then(|n| u16::try_from(n).ok())
            .unwrap_or(110),
        machines: Vec::new(),
        name,
    }
}

/// Machines that are there are made of what they were made of, until somebody makes them anew.
pub(super) fn remember(pools: &mut Pools, before: Option<&Pools>) {
    let Some(before) = before else { return };
    for (name, machine) in pools.each_mut() {
        let known = before.find(&name).and_then(|own| own.made.clone());
        machine.made = known.or_else(|| machine.made.take());
    }
}

/// What became of a cluster: how it is reached, which version it really has, and whether its nodes are on paper.
pub(super) fn done(order: &Order, access: Value, hollow: Option<String>) -> Done {
    let mut pools = order.body["properties"]["agentPoolProfiles"].clone();
    for pool in pools.as_array_mut().into_iter().flatten() {
        pool["currentOrchestratorVersion"] = json!(::apiserver::RELEASE);
    }
    let mut done = Done {
        body: json!({"properties": {"currentKubernetesVersion": ::apiserver::RELEASE, "agentPoolProfiles": pools}}),
        hidden: json!({"access": access}),
        output: Value::Null,
    };
    if let Some(why) = hollow {
        done.body["tags"] = json!({ HOLLOW: why });
        done.hidden["hollow"] = json!(order.nodes.len());
    }
    done
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use ::cloud::{Node, Task};

    use super::*;

    pub(crate) fn order(pool: Value) -> Order {
        let id = "/subscriptions/s/resourcegroups/g/providers/Microsoft.ContainerService/managedClusters/Blue";
        let node = |number: u8| Node {
            id: format!("/x/virtualMachineScaleSets/aks-p-11112222-vmss/virtualMachines/{number}"),
            name: format!("aks-p-11112222-vmss00000{number}"),
            pool: "p".into(),
            address: Some([10, 224, 0, 4 + number].into()),
            subnet: Some("10.224.0.0/16".parse().unwrap()),
            network: None,
            zone: None,
        };
        Order {
            id: id.into(),
            kind: super::super::super::CLUSTER,
            task: Task::Bring,
            body: json!({"location": "eastus", "properties": {"nodeResourceGroup": "MC_g_Blue_eastus",
                "agentPoolProfiles": [pool]}}),
            hidden: json!({"suffix": "12345678", "sets": {"p": "11112222"}}),
            nodes: vec![node(0), node(3)],
            disks: Vec::new(),
        }
    }

    pub(crate) fn profile() -> Value {
        json!({"name": "p", "type": "VirtualMachineScaleSets", "osType": "Linux", "mode": "System", "vmSize": "Standard_D2s_v5",
            "maxPods": 250, "availabilityZones": ["1", "2"], "nodeLabels": {"team": "blue"}, "nodeTaints": ["a=b:NoSchedule"],
            "orchestratorVersion": "1.36", "nodeImageVersion": "i"})
    }

    #[test]
    fn the_nodes_of_a_cluster_have_the_names_that_its_scale_sets_have() {
        let order = order(profile());
        let pools = pools(&order);
        let names: Vec<String> = order.nodes.iter().map(|node| node.name.clone()).collect();
        assert_eq!(pools.names(), names);
        assert_eq!(pools.group, "MC_g_Blue_eastus");
        let pool = &pools.pools[0];
        assert_eq!((pool.mode.as_str(), pool.max_pods), ("system", 250));
        assert_eq!(pool.labels["team"], "blue");
        assert_eq!(pool.taints, ["a=b:NoSchedule"]);
    }

    #[test]
    fn machines_are_what_they_were_until_they_are_made_anew() {
        let before = pools(&order(profile()));
        let mut newer = profile();
        newer["nodeImageVersion"] = json!("j");
        let mut after = pools(&order(newer));
        after.pools[0].machines[1].number = 4;
        let goal = after.pools[0].machines[0].clone();
        remember(&mut after, Some(&before));
        let machines = &after.pools[0].machines;
        assert!(machines[0].is_stale(&goal));
        assert!(!machines[1].is_stale(&goal), "it is new");
        let mut rotated = order(profile());
        rotated.body["properties"]["provisioningState"] = json!(ROTATING);
        let rotated = pools(&rotated);
        assert!(before.pools[0].machines[0].is_stale(&rotated.pools[0].machines[0]));
    }

    #[test]
    fn nodes_on_paper_are_said_to_be_and_versions_are_those_that_run() {
        let done = done(&order(profile()), json!({}), Some("no root".into()));
        assert_eq!(done.body["tags"][HOLLOW], "no root");
        assert_eq!(done.hidden["hollow"], 2);
        let pool = &done.body["properties"]["agentPoolProfiles"][0];
        assert_eq!(pool["currentOrchestratorVersion"], ::apiserver::RELEASE);
    }
}
