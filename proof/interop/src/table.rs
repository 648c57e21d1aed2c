//! The table of swaps: one row per contract, one column per pair of sides.

use std::time::Instant;

use anyhow::Result;

use crate::cluster::{Cluster, Plan, Whose};
use crate::interruption::INTERRUPTION;
use crate::outcome::{Missing, Outcome};
use crate::programs::Programs;
use crate::scenarios::{
    azure, changing_hands, clients, cloud_controllers, controllers, definitions, helm, kubectl,
    kubelet as nodes, placements, store, workloads,
};

/// Whose program is on the left of the contract, and whose on its right.
pub(crate) type Sides = (Whose, Whose);

pub(crate) const COLUMNS: [Sides; 4] = [
    (Whose::Ours, Whose::Ours),
    (Whose::Ours, Whose::Theirs),
    (Whose::Theirs, Whose::Ours),
    (Whose::Theirs, Whose::Theirs),
];

/// The name of a column.
pub(crate) fn cell_name((left, right): Sides) -> String {
    let name = |whose| match whose {
        Whose::Ours => "ours",
        Whose::Theirs => "theirs",
    };
    format!("{}/{}", name(left), name(right))
}

/// A contract and how it is tried.
pub(crate) struct Row {
    pub(crate) contract: &'static str,
    /// What the scenario does, for the report.
    pub(crate) about: &'static str,
    /// What to start; nothing where the two sides do not exist.
    plan: fn(Sides) -> Result<Option<Plan>>,
    /// Takes the right side too: some rows swap it while the scenario runs.
    scenario: fn(&mut Cluster<'_>, Sides) -> Result<()>,
}

pub(crate) const ROWS: [Row; 19] = [
    Row {
        contract: "API server ← kubectl",
        about: "create, get, watch, explain, three kinds of patch, diff, apply (from the client and from the server, \
                with a conflict), dry run, scale, wait, delete; who may do what",
        plan: their_client,
        scenario: |cluster, _| kubectl::run(cluster),
    },
    Row {
        contract: "API server ← helm",
        about: "a chart of ours: install, upgrade, a second upgrade that is refused, rollback, history, uninstall",
        plan: their_client,
        scenario: |cluster, _| helm::run(cluster),
    },
    Row {
        contract: "API server ← fabric8 (Java)",
        about: "list, watch and informer over WebSockets, patch, apply, leader election; with the keys of a kubeconfig",
        plan: their_client,
        scenario: |cluster, _| clients::run(cluster, &clients::JAVA),
    },
    Row {
        contract: "API server ← Python's client",
        about: "list, watch, a store that follows, patches, leader election",
        plan: their_client,
        scenario: |cluster, _| clients::run(cluster, &clients::PYTHON),
    },
    Row {
        contract: "API server ← JavaScript's client",
        about: "list, watch, informer, patch, a lease that is taken, renewed and refused",
        plan: their_client,
        scenario: |cluster, _| clients::run(cluster, &clients::JAVASCRIPT),
    },
    Row {
        contract: "API server ← controller manager",
        about: "what both managers do: accounts and the root certificate of a new namespace, token secrets, quotas, \
                aggregated roles, certificates for joining nodes, the signed cluster-info",
        plan: |(server, manager)| {
            Ok(Some(Plan {
                manager: Some(manager),
                ..Plan::server(server)
            }))
        },
        scenario: |cluster, _| controllers::run(cluster),
    },
    Row {
        contract: "API server ← controller manager and scheduler",
        about: "over protobuf: a Deployment becomes pods that are bound to a node, rolls out, scales and is collected \
                as garbage; Jobs, a CronJob, a StatefulSet, a DaemonSet and a ReplicationController; endpoints of a Service; a disruption budget; a namespace ends",
        plan: manager_and_scheduler,
        scenario: |cluster, _| workloads::run(cluster),
    },
    Row {
        contract: "API server ← scheduler, choosing",
        about: "eleven pods on five nodes, each with one best node: free room, selectors, preferences, taints of spot pools, pods \
                together and apart, spread over zones; and two that fit nowhere, with the reason",
        plan: manager_and_scheduler,
        scenario: |cluster, _| placements::run(cluster),
    },
    Row {
        contract: "API server ← kubelet, joining",
        about: "a kubelet that has only a bootstrap token gets its certificate (our controllers or theirs sign it)",
        plan: kubelet,
        scenario: |cluster, _| nodes::joins(cluster),
    },
    Row {
        contract: "API server ← kubelet, running a pod",
        about: "the same kubelet registers its node and runs a pod to its end; a second pod is looked into: logs, exec (with input, \
                errors and exit codes) and port-forward, over WebSockets and over SPDY; the kubelet through nodes/proxy",
        plan: kubelet,
        scenario: |cluster, _| nodes::runs_a_pod(cluster),
    },
    Row {
        contract: "API server → konnectivity",
        about: "the same, with a konnectivity server and agent between the API server and the kubelet (gRPC over a Unix \
                socket): logs, exec, port-forward, nodes/proxy; nothing once the agent has gone",
        plan: |(server, tunnel)| {
            Ok(Some(Plan {
                manager: Some(server),
                tunnel: Some(tunnel),
                ..Plan::server(server)
            }))
        },
        scenario: |cluster, _| nodes::is_reached_by_tunnel(cluster),
    },
    Row {
        contract: "store ← API server",
        about: "objects, versions and pages are the same after a restart of the server and of the store; a watch tells \
                every change in order, goes on when the store comes back, and resumes from an old version or says that \
                it is too old; theirs is etcd",
        plan: |sides| match sides {
            (Whose::Ours, Whose::Theirs) => Ok(None),
            (store, api_server) => Ok(Some(Plan {
                store,
                ..Plan::server(api_server)
            })),
        },
        scenario: |cluster, (_, server)| store::run(cluster, server),
    },
    Row {
        contract: "API server ← its successor on the same etcd",
        about: "the left server writes, the right one takes over its etcd: everything is there, can be changed, and \
                the left one can take it back",
        plan: |(first, _)| {
            Ok(Some(Plan {
                store: Whose::Theirs,
                ..Plan::server(first)
            }))
        },
        scenario: changing_hands::run,
    },
    Row {
        contract: "API server beside API server: custom resources",
        about: "2,000 random objects of 400 random definitions, given to both sides: the same are refused for the same \
                causes, and the same come back",
        plan: |sides| match sides {
            (Whose::Ours, Whose::Theirs) => Ok(Some(Plan::server(Whose::Ours))),
            _ => Ok(None),
        },
        scenario: definitions::run,
    },
    Row {
        contract: "cloud ← az",
        about: "what people do with az, command by command (clients/azure/az.tbl): sign in with a secret, a certificate \
                and another's token; groups, locks, networks, machines, scale sets, disks, identities, roles, vaults with \
                what is in them, registries, deployments, moves, clusters from creation to deletion",
        plan: their_cloud_client,
        scenario: |cluster, _| azure::az(cluster),
    },
    Row {
        contract: "cloud ← Azure's SDK for Python",
        about: "azure-identity's chain, a device code and a federated token; creation, long-running operations, two \
                writers with one ETag, pages, types of errors",
        plan: their_cloud_client,
        scenario: |cluster, _| azure::sdk(cluster, &azure::PYTHON),
    },
    Row {
        contract: "cloud ← Azure's SDK for JavaScript",
        about: "the same, with a secret",
        plan: their_cloud_client,
        scenario: |cluster, _| azure::sdk(cluster, &azure::JAVASCRIPT),
    },
    Row {
        contract: "cloud ← Azure's SDK for Go",
        about: "the same, with a secret",
        plan: their_cloud_client,
        scenario: |cluster, _| azure::sdk(cluster, &azure::GO),
    },
    Row {
        contract: "cloud ← cloud-controller-manager",
        about: "nodes are initialised and routed; five services (external, internal, Local, with source ranges, of two \
                protocols) get load balancers and leave nothing; with upstream's, what Azure shows in between is \
                compared with ours",
        plan: |(cloud, _)| Ok((cloud == Whose::Ours).then(|| Plan::server(Whose::Ours))),
        scenario: cloud_controllers::run,
    },
];

// The cloud is ours; there is no other here.
fn their_cloud_client(sides: Sides) -> Result<Option<Plan>> {
    Ok((sides == (Whose::Ours, Whose::Theirs)).then(|| Plan::server(Whose::Ours)))
}

// kubectl and helm are upstream's; there is none of ours.
fn their_client((server, client): Sides) -> Result<Option<Plan>> {
    Ok((client == Whose::Theirs).then(|| Plan::server(server)))
}

fn manager_and_scheduler((server, clients): Sides) -> Result<Option<Plan>> {
    let (manager, scheduler) = (Some(clients), Some(clients));
    Ok(Some(Plan {
        manager,
        scheduler,
        ..Plan::server(server)
    }))
}

fn kubelet((server, kubelet): Sides) -> Result<Option<Plan>> {
    Ok(Some(Plan {
        manager: Some(server),
        kubelet,
        ..Plan::server(server)
    }))
}

impl Row {
    /// Runs one cell in a directory of its own.
    pub(crate) fn run(&self, sides: Sides, programs: &Programs, keep: bool) -> Outcome {
        let start = Instant::now();
        match (self.plan)(sides) {
            Ok(None) => Outcome::NoSuchSwap,
            Ok(Some(plan)) => Outcome::of(self.play(plan, sides, programs, keep), start.elapsed()),
            Err(error) => Outcome::of(Err(error), start.elapsed()),
        }
    }

    fn play(&self, plan: Plan, sides: Sides, programs: &Programs, keep: bool) -> Result<()> {
        INTERRUPTION.check()?;
        let dir = tempfile::Builder::new()
            .prefix("kyanite-interop-")
            .tempdir()?;
        let result = Cluster::start(plan, programs, dir.path()).and_then(|mut cluster| {
            (self.scenario)(&mut cluster, sides)?;
            cluster.check()
        });
        let failed = result.as_ref().is_err_and(|error| !error.is::<Missing>());
        if keep && failed {
            crate::say(&format!("logs: {}", dir.keep().display()));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn columns_are_named_left_side_first() {
        let names = COLUMNS.map(cell_name);
        assert_eq!(
            names,
            ["ours/ours", "ours/theirs", "theirs/ours", "theirs/theirs"]
        );
    }

    #[test]
    fn our_store_has_no_door_for_their_server() {
        let row = ROWS
            .iter()
            .find(|row| row.contract == "store ← API server")
            .unwrap();
        assert!((row.plan)((Whose::Ours, Whose::Theirs)).unwrap().is_none());
        let plan = (row.plan)((Whose::Theirs, Whose::Ours)).unwrap().unwrap();
        assert_eq!((plan.store, plan.api_server), (Whose::Theirs, Whose::Ours));
    }
}
