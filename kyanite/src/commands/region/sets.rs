//! Scale sets that are nobody's pool of nodes: a machine for each instance.

use ::cloud::{Done, Node, Order, Task, Trouble};
use futures::future::join_all;
use machines::{Driver as _, Namespaces};

use super::vms::{Place, Vms, act, blocking, spec};
use super::{INSTANCE, SET};

/// How many digits a computer name has after the prefix of its set.
const DIGITS: usize = 6;

/// Whether a set, or one of its machines, is a cluster's pool; the cluster has its machines itself.
pub(super) fn is_of_cluster(order: &Order) -> bool {
    order.body["tags"]["aks-managed-poolName"].is_string()
}

/// The machines that an action on a set names; all of them where it names none or `*`.
pub(super) fn chosen(order: &Order) -> Vec<&Node> {
    let input = match &order.task {
        Task::Act { input, .. } if order.kind == SET => &input["instanceIds"],
        _ => &serde_json::Value::Null,
    };
    let names = input.as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|id| id.as_str()).collect();
    let is_chosen = |node: &&Node| {
        names.is_empty() || names.contains(&"*") || names.contains(&super::last(&node.id))
    };
    order.nodes.iter().filter(is_chosen).collect()
}

impl Vms {
    /// Carries out an order for a scale set, or for one of its machines.
    pub(super) async fn carry_out_set(&self, order: &Order) -> Result<Done, Trouble> {
        match &order.task {
            Task::Remove => {
                let all = order.nodes.iter().map(|node| self.remove(order, node));
                join_all(all)
                    .await
                    .into_iter()
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(Done::default())
            }
            Task::Bring if order.kind == INSTANCE => self.bring_instance(order).await,
            Task::Bring => self.bring_set(order).await,
            // Those that go are not in the set any more.
            Task::Act { word, .. } if word == "delete" => self.bring_set(order).await,
            Task::Act { word, input } => {
                let mut done = Done::default();
                for node in chosen(order) {
                    done = act(self.instance(order, node).await?, word, input).await?;
                    self.watch(&node.id, node)?;
                    self.speak_for(node)?;
                }
                Ok(done)
            }
        }
    }

    // One that was made before: it is started as it was.
    async fn instance(&self, order: &Order, node: &Node) -> Result<Place, Trouble> {
        let place = Place::of(self.driver(node)?, &node.name)
            .in_turn(self.turn(&node.id))
            .on(node.subnet);
        Ok(match order.kind == INSTANCE {
            true => place.with_disks(self.disks().ready(&order.disks).await?),
            false => place,
        })
    }

    async fn bring_instance(&self, order: &Order) -> Result<Done, Trouble> {
        let Some(node) = order.nodes.first() else {
            return Ok(Done::default());
        };
        // Its set makes it.
        if self.started(node).is_none() {
            return Ok(Done::default());
        }
        let place = self.instance(order, node).await?;
        let done = match order.hidden["power"] == "running" {
            true => place.work(Place::start).await,
            false => place.work(Place::plug).await,
        };
        self.watch(&order.id, node)?;
        self.speak_for(node)?;
        done
    }

    /// Makes the machines that are not there, and takes away those that are too many.
    async fn bring_set(&self, order: &Order) -> Result<Done, Trouble> {
        let system = &order.body["properties"]["virtualMachineProfile"]["osProfile"];
        let new = order
            .nodes
            .iter()
            .filter(|node| self.started(node).is_none());
        let new = new.map(|node| async move {
            let place = Place::of(self.driver(node)?, &node.name)
                .in_turn(self.turn(&node.id))
                .on(node.subnet)
                .with_spec(spec(&order.hidden, system, node, Vec::new()));
            let done = place.work(Place::start).await;
            self.watch(&node.id, node)?;
            self.speak_for(node)?;
            done
        });
        join_all(new)
            .await
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        let prefix = system["computerNamePrefix"]
            .as_str()
            .unwrap_or(order.name());
        let (prefix, kept) = (prefix.to_owned(), order.nodes.clone());
        if let Some(driver) = self.driver_of_network(&network(order)) {
            blocking(move || remove_others(&driver, &prefix, &kept)).await?;
        }
        Ok(Done::default())
    }
}

// Of its first card; a set without machines has no other.
fn network(order: &Order) -> String {
    let profile = &order.body["properties"]["virtualMachineProfile"]["networkProfile"];
    let card = &profile["networkInterfaceConfigurations"][0]["properties"];
    let subnet = &card["ipConfigurations"][0]["properties"]["subnet"]["id"];
    let subnet = subnet.as_str().unwrap_or_default().to_lowercase();
    let network = subnet.split_once("/subnets/").map(|(network, _)| network);
    network.unwrap_or_default().to_owned()
}

fn remove_others(driver: &Namespaces, prefix: &str, kept: &[Node]) -> Result<(), machines::Error> {
    for machine in driver.list()? {
        if is_instance(&machine.name, prefix) && !kept.iter().any(|node| node.name == machine.name)
        {
            driver.remove(&machine.name)?;
        }
    }
    Ok(())
}

fn is_instance(name: &str, prefix: &str) -> bool {
    let digits = name.strip_prefix(prefix).unwrap_or_default();
    digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_a_set_are_known_by_their_names() {
        for (name, expected) in [
            ("web000000", true),
            ("web00001z", true),
            ("web", false),
            ("webfront000000", false),
            ("other000000", false),
        ] {
            assert_eq!(is_instance(name, "web"), expected, "{name}");
        }
    }
}
