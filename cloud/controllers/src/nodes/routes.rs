//! Routes to pods: every node's ranges lead to its address, in the table of the nodes' subnet.
//!
//! All nodes are one decision and one write. A change is waited for only so long that its neighbours come along.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use azure::models::{Part, Resource, RouteTable};
use azure::{Arm, CloudConfig, Error};
use client_runtime::{Actor, Cache, End, Queue, Recorder, Severity, SyncError, Synced};
use ipnet::IpNet;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{NodeView, set_condition};
use crate::Manager;
use crate::parts::settle;

/// How long changes wait for each other.
const TOGETHER: Duration = Duration::from_millis(200);
/// How often a table is read anew that somebody else wrote meanwhile.
const TRIES: usize = 5;

/// The name of a route; the node's comes before four underscores.
fn route_name(node: &str, cidr: &str) -> String {
    let flat: String = cidr.chars().filter(|c| !".:/".contains(*c)).collect();
    format!("{node}____{flat}")
}

/// The routes that nodes should have.
pub(crate) fn wanted(nodes: &[Arc<NodeView>]) -> Vec<Part> {
    let managed = nodes.iter().filter(|node| node.is_managed());
    managed.flat_map(|node| of_node(node)).collect()
}

fn of_node(node: &NodeView) -> Vec<Part> {
    let hop = |net: &IpNet| {
        let same = |ip: &IpAddr| ip.is_ipv4() == net.addr().is_ipv4();
        node.internal_ips().find(same)
    };
    let route = |cidr: &String| {
        let net: IpNet = cidr.parse().ok()?;
        let hop = hop(&net)?;
        let properties = json!({"addressPrefix": cidr, "nextHopType": "VirtualAppliance",
            "nextHopIpAddress": hop.to_string()});
        Some(Part::new(route_name(&node.name, cidr), properties))
    };
    node.pod_cidrs.iter().filter_map(route).collect()
}

/// Whether a route is one of ours: into the cluster's range, or named as ours are where nobody says what that is.
fn is_ours(route: &Part, cluster: &[IpNet]) -> bool {
    let prefix = route.text("/addressPrefix").parse::<IpNet>();
    match (prefix, cluster) {
        (Ok(_), []) => route.name.contains("____"),
        (Ok(net), cluster) => cluster.iter().any(|range| range.contains(&net)),
        (Err(_), _) => false,
    }
}

/// Brings a table to what it should be; whether that changes anything.
pub(crate) fn plan(table: &mut RouteTable, wanted: Vec<Part>, cluster: &[IpNet]) -> bool {
    settle(&mut table.routes, wanted, |route| is_ours(route, cluster))
}

/// What a node's condition should say once these routes are there; nothing for nodes that have no ranges yet.
fn condition(
    node: &NodeView,
    is_written: bool,
) -> Option<(&'static str, &'static str, &'static str)> {
    if node.pod_cidrs.is_empty() {
        return None;
    }
    let has_all = !node.is_managed() || (is_written && of_node(node).len() == node.pod_cidrs.len());
    Some(match has_all {
        true => ("False", "RouteCreated", "RouteController created a route"),
        false => (
            "True",
            "NoRouteCreated",
            "RouteController failed to create a route",
        ),
    })
}

/// Starts the controller, where routes are ours to write.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let config = Arc::clone(&manager.config);
    let Some(table) = config.cloud.route_table().filter(|_| config.routes) else {
        tracing::info!(controller = name, "off: routes are not to be written");
        return;
    };
    let nodes = manager.shared::<NodeView>();
    let actor = manager.act_as("route-controller");
    let shell = Arc::new(Shell {
        arm: config.instances().arm.clone(),
        cloud: Arc::clone(&config.cloud),
        table,
        cluster: config.cluster_cidrs.clone(),
        period: config.route_reconciliation_period,
        recorder: manager.recorder("route_controller", actor.clone()),
        actor,
        nodes: nodes.clone(),
        known: Mutex::new(None),
    });
    let queue = Arc::new(Queue::new());
    let noticed = Arc::clone(&queue);
    nodes.on_change(move |change| {
        let routed =
            |node: Option<&NodeView>| node.map(|n| (n.pod_cidrs.clone(), n.addresses.clone()));
        if routed(change.before) != routed(change.after) {
            noticed.add_after(&(), TOGETHER);
        }
    });
    let first = Arc::clone(&queue);
    manager.when_complete(&nodes, move || first.add(()));
    manager.start_work(name, queue, 1, [nodes.completion()], move |()| {
        let shell = Arc::clone(&shell);
        async move { shell.sync().await }
    });
}

type Table = Resource<RouteTable>;

struct Shell {
    actor: Actor,
    recorder: Recorder,
    arm: Arm,
    cloud: Arc<CloudConfig>,
    table: String,
    cluster: Vec<IpNet>,
    period: Duration,
    nodes: Cache<NodeView>,
    /// The table as it was last seen, and when.
    known: Mutex<Option<(Instant, Table)>>,
}

impl Shell {
    async fn sync(&self) -> Synced {
        let nodes: Vec<Arc<NodeView>> =
            self.nodes.all().into_iter().map(|(_, node)| node).collect();
        let written = self.write(&nodes).await;
        if let Err(error) = &written {
            for node in nodes
                .iter()
                .filter(|node| node.network_unavailable_is("True"))
            {
                let message = format!("Could not create route: {error}");
                self.recorder.event(
                    node.reference(),
                    Severity::Warning,
                    "FailedToCreateRoute",
                    message,
                );
            }
        }
        for node in &nodes {
            // Routes that are there stay there when a write fails: only those without are told so.
            let is_known = written.is_ok() || node.network_unavailable_is("False");
            let Some((status, reason, message)) = condition(node, is_known) else {
                continue;
            };
            let is_so = (status.to_owned(), reason.to_owned());
            if node.network_unavailable.as_ref() != Some(&is_so) {
                set_condition(&self.actor, &node.name, status, reason, message).await?;
            }
        }
        match written {
            Ok(()) => Ok(End::After(self.period)),
            Err(error) => Err(SyncError::Other(error.to_string())),
        }
    }

    async fn write(&self, nodes: &[Arc<NodeView>]) -> Result<(), Error> {
        let mut known = self.known.lock().await;
        for _ in 0..TRIES {
            let mut table = self.current(&mut known).await?;
            if !plan(&mut table.properties, wanted(nodes), &self.cluster) && !table.etag.is_empty()
            {
                return Ok(());
            }
            let count = table.properties.routes.len();
            match self
                .arm
                .put::<_, Table>(&self.table, &table, &table.etag)
                .await
            {
                Ok(now) => {
                    tracing::info!(routes = count, "the table of routes is written");
                    *known = Some((Instant::now(), now));
                    return Ok(());
                }
                Err(error) => {
                    *known = None;
                    if !error.is_outdated() {
                        return Err(error);
                    }
                }
            }
        }
        Err(Error::Config(format!(
            "{} is written by others all the time",
            self.table
        )))
    }

    /// The table as it is known, read anew when that is too long ago; one that is not there is made.
    async fn current(&self, known: &mut Option<(Instant, Table)>) -> Result<Table, Error> {
        let oldest = Duration::from_secs(self.cloud.route_table_cache_ttl_in_seconds);
        let is_fresh = |at: &Instant| at.elapsed() < oldest && !self.cloud.disable_api_call_cache;
        if let Some((_, table)) = known.as_ref().filter(|(at, _)| is_fresh(at)) {
            return Ok(table.clone());
        }
        let asked = Instant::now();
        let table = match self.arm.get::<Table>(&self.table, "").await? {
            Some(table) => table,
            None => Table {
                location: self.cloud.location.clone(),
                tags: self.cloud.all_tags(),
                ..Table::default()
            },
        };
        *known = Some((asked, table.clone()));
        Ok(table)
    }
}

impl NodeView {
    fn network_unavailable_is(&self, status: &str) -> bool {
        let condition = self.network_unavailable.as_ref();
        condition.map_or(status == "True", |(now, _)| now == status)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn node(name: &str, cidrs: &[&str], ips: &[&str]) -> Arc<NodeView> {
        let internal = |ip: &&str| ("InternalIP".to_owned(), (*ip).to_owned());
        Arc::new(NodeView {
            name: name.into(),
            pod_cidrs: cidrs.iter().map(|c| (*c).to_owned()).collect(),
            addresses: ips.iter().map(internal).collect(),
            ..NodeView::default()
        })
    }

    fn cluster() -> Vec<IpNet> {
        ["10.244.0.0/16", "fd00::/56"]
            .map(|c| c.parse().unwrap())
            .to_vec()
    }

    fn shown(table: &RouteTable) -> Vec<String> {
        let row = |r: &Part| {
            format!(
                "{} {} {}",
                r.name,
                r.text("/addressPrefix"),
                r.text("/nextHopIpAddress")
            )
        };
        table.routes.iter().map(row).collect()
    }

    #[test]
    fn nodes_come_and_go_and_others_routes_stay() {
        let mut table = RouteTable::default();
        let theirs = json!({"addressPrefix": "0.0.0.0/0", "nextHopType": "Internet"});
        table.routes.push(Part::new("default", theirs));
        let stale = json!({"addressPrefix": "10.244.9.0/24", "nextHopIpAddress": "10.0.0.99"});
        table.routes.push(Part::new("gone", stale));
        let nodes = [
            node(
                "a",
                &["10.244.0.0/24", "fd00::/64"],
                &["10.0.0.4", "fd01::4"],
            ),
            node("b", &["10.244.1.0/24"], &["10.0.0.5"]),
            node("c", &["10.244.2.0/24"], &[]),
        ];
        assert!(plan(&mut table, wanted(&nodes), &cluster()));
        let expected = [
            "default 0.0.0.0/0 ",
            "a____102440024 10.244.0.0/24 10.0.0.4",
            "a____fd0064 fd00::/64 fd01::4",
            "b____102441024 10.244.1.0/24 10.0.0.5",
        ];
        assert_eq!(shown(&table), expected);
        assert!(
            !plan(&mut table, wanted(&nodes), &cluster()),
            "a second time"
        );
        let moved = [node("b", &["10.244.1.0/24"], &["10.0.0.7"])];
        assert!(plan(&mut table, wanted(&moved), &cluster()));
        assert_eq!(shown(&table)[1], "b____102441024 10.244.1.0/24 10.0.0.7");
        assert!(plan(&mut table, wanted(&[]), &cluster()));
        assert_eq!(shown(&table), ["default 0.0.0.0/0 "]);
    }

    #[test]
    fn conditions_say_whether_all_routes_are_there() {
        let whole = node("a", &["10.244.0.0/24"], &["10.0.0.4"]);
        assert_eq!(condition(&whole, true).unwrap().0, "False");
        assert_eq!(condition(&whole, false).unwrap().0, "True");
        let half = node("a", &["10.244.0.0/24", "fd00::/64"], &["10.0.0.4"]);
        assert_eq!(condition(&half, true).unwrap().1, "NoRouteCreated");
        assert_eq!(condition(&node("a", &[], &[]), true), None);
        let mut unmanaged = (*node("a", &["10.244.0.0/24"], &[])).clone();
        unmanaged
            .labels
            .insert(super::super::MANAGED.into(), "False".into());
        assert_eq!(condition(&unmanaged, false).unwrap().0, "False");
        assert!(wanted(&[Arc::new(unmanaged)]).is_empty());
    }
}
