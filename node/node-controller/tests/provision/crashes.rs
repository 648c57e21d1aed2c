//! Whole provisions that are killed at every point: the next one completes, and the machine is as after an undisturbed
//! one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ::steps::host::{Entry, Fault};
use node_controller::steps::steps;

use crate::cases::{CASES, Case};
use crate::machines::{Image, Machine, STATE, engine};

type Tree = BTreeMap<PathBuf, (Entry, Vec<u8>)>;

/// Everything but the journal and the serving key, of which no two are alike.
fn tree(machine: &Machine) -> Tree {
    let mut tree = machine.host.tree().unwrap();
    tree.retain(|path, _| !path.starts_with(STATE));
    for (path, (entry, content)) in &mut tree {
        if path.starts_with("/etc/kubernetes/certs")
            && path.to_string_lossy().contains("kubeletserver")
        {
            entry.size = 0;
            content.clear();
        }
    }
    tree
}

/// Kills a provision of `case` at every `stride`-th point, each on a machine of its own.
fn kill(case: &Case, stride: usize) {
    let steps = steps(&case.configuration());
    let undisturbed = case.machine();
    assert_eq!(engine(&undisturbed.host).run(&steps).code(), 0);
    let (expected, points) = (tree(&undisturbed), undisturbed.host.points());
    assert!(points > 100, "only {points} points");
    for point in (1..=points).step_by(stride) {
        let about = format!("{}, point {point}", case.name);
        let machine = case.machine();
        machine.host.fault(Fault::CrashAt(point));
        assert_ne!(engine(&machine.host).run(&steps).code(), 0, "{about}");
        machine.host.repair();
        let report = engine(&machine.host).run(&steps);
        assert_eq!(report.code(), 0, "{about}: {:?}", report.failure);
        let got = tree(&machine);
        let differs = |path: &&PathBuf| got.get(*path) != expected.get(*path);
        let wrong: Vec<_> = got.keys().chain(expected.keys()).filter(differs).collect();
        assert!(wrong.is_empty(), "{about}: {wrong:?}");
    }
}

#[test]
fn killed_at_any_point_the_next_provision_ends_where_an_undisturbed_one_does() {
    kill(&CASES[0], 1);
}

#[test]
fn that_holds_on_machines_where_nothing_is_installed_too() {
    let bare = CASES.iter().find(|case| case.image == Image::Bare);
    kill(bare.expect("a case on a bare machine"), 3);
}
