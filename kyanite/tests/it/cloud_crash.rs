//! The cloud is killed at any instant: what it had begun goes on or fails, and nothing hangs for ever.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use serde_json::{Value, json};

use super::harness::{Azure, eventually};

const ROUNDS: usize = 6;
const WRITERS: usize = 4;

fn network(number: usize) -> (String, Value) {
    let path = format!("Microsoft.Network/virtualNetworks/v{number}");
    let subnet = json!({"name": "s", "properties": {"addressPrefix": "10.0.0.0/24"}});
    let body = json!({"location": "eastus", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
        "subnets": [subnet]}});
    (path, body)
}

fn disk(number: usize) -> (String, Value) {
    let path = format!("Microsoft.Compute/disks/d{number}");
    let properties = json!({"creationData": {"createOption": "Empty"}, "diskSizeGB": 4});
    (
        path,
        json!({"location": "eastus", "properties": properties}),
    )
}

fn cluster(number: usize) -> (String, Value) {
    let path = format!("Microsoft.ContainerService/managedClusters/c{number}");
    let pools = json!([{"name": "p", "count": 1, "mode": "System", "vmSize": "Standard_D2s_v5"}]);
    let body = json!({"location": "eastus", "identity": {"type": "SystemAssigned"},
        "properties": {"dnsPrefix": "c", "agentPoolProfiles": pools}});
    (path, body)
}

fn deployment(number: usize) -> (String, Value) {
    let path = format!("Microsoft.Resources/deployments/t{number}");
    let table = json!({"type": "Microsoft.Network/routeTables", "apiVersion": "2024-01-01", "location": "eastus",
        "name": format!("[format('r{number}-{{0}}', copyIndex())]"), "copy": {"name": "all", "count": 20}, "properties": {}});
    let template = json!({"resources": [table]});
    (
        path,
        json!({"properties": {"mode": "Incremental", "template": template}}),
    )
}

/// One after the other until the cloud is gone; those that were answered are counted.
fn write_until_it_dies(azure: &Azure, writer: usize, round: usize, answered: &AtomicUsize) {
    let kinds = [network, disk, cluster, deployment];
    for step in 0.. {
        let number = (round * 1000 + step) * WRITERS + writer;
        let (path, body) = kinds[(writer + step) % kinds.len()](number);
        match azure.try_put(&path, &body) {
            Ok(_) => answered.fetch_add(1, SeqCst),
            Err(_) => return,
        };
    }
}

#[test]
fn whatever_it_was_doing_comes_to_an_end_after_a_crash() {
    let azure = Azure::start();
    for round in 0..ROUNDS {
        let answered = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (azure, answered, done) = (&azure, &answered, &done);
                scope.spawn(move || {
                    write_until_it_dies(azure, writer, round, answered);
                    done.fetch_add(1, SeqCst);
                });
            }
            // Each round dies a little later.
            eventually("some are answered", || {
                match answered.load(SeqCst) > round || done.load(SeqCst) == WRITERS {
                    true => Ok(()),
                    false => Err(format!("{answered:?} answered")),
                }
            });
            azure.kill();
        });
        azure.start_again();
        let all = eventually("everything has come to its end", || {
            let all = azure.states()?;
            let hangs = |state: &str| !["Succeeded", "Failed", "Canceled", ""].contains(&state);
            let mut under_way = all.iter().filter(|(_, state)| hangs(state));
            match under_way.next() {
                None => Ok(all),
                Some(hangs) => Err(format!("{hangs:?}")),
            }
        });
        assert!(all.len() > round, "{all:?}");
        // A template is made as a whole or not at all.
        for number in all
            .iter()
            .filter_map(|(id, _)| id.rsplit_once("/routeTables/r")?.1.split('-').next())
        {
            let of_one = format!("/routeTables/r{number}-");
            let count = all.iter().filter(|(id, _)| id.contains(&of_one)).count();
            assert_eq!(count, 20, "{of_one}");
        }
    }
}
