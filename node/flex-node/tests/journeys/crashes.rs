//! Killed at every point, there and back: the next run ends where an undisturbed one does.

use ::steps::host::Fault;
use serde_json::json;

use crate::machines::{Machine, differing, wish};

#[test]
fn a_bootstrap_killed_at_any_point_is_completed_by_the_next() {
    let wish = wish(json!({}));
    let undisturbed = Machine::new();
    let arrival = undisturbed.bootstrap(&wish);
    assert_eq!(arrival.code, 0, "{:?}", arrival.failure);
    let (expected, points) = (undisturbed.node_tree(), undisturbed.host.points());
    assert!(points > 60, "only {points} points");
    for point in 1..=points {
        let machine = Machine::new();
        machine.host.fault(Fault::CrashAt(point));
        machine.bootstrap(&wish);
        machine.host.repair();
        let arrival = machine.bootstrap(&wish);
        assert_eq!(arrival.code, 0, "point {point}: {:?}", arrival.failure);
        assert_eq!(
            differing(&machine.node_tree(), &expected),
            [""; 0],
            "point {point}"
        );
    }
}

#[test]
fn a_bootstrap_killed_at_any_point_can_be_taken_back_at_once() {
    let wish = wish(json!({}));
    let original = Machine::new().tree();
    let counted = Machine::new();
    counted.bootstrap(&wish);
    for point in (1..=counted.host.points()).step_by(2) {
        let machine = Machine::new();
        machine.host.fault(Fault::CrashAt(point));
        machine.bootstrap(&wish);
        machine.host.repair();
        let departure = machine.unbootstrap();
        assert_eq!(departure.code, 0, "point {point}: {:?}", departure.left);
        assert_eq!(
            differing(&machine.tree(), &original),
            [""; 0],
            "point {point}"
        );
    }
}

#[test]
fn an_unbootstrap_killed_at_any_point_is_completed_by_the_next() {
    let wish = wish(json!({}));
    let original = Machine::new().tree();
    let counted = Machine::new();
    counted.bootstrap(&wish);
    let before = counted.host.points();
    let departure = counted.unbootstrap();
    assert_eq!(departure.code, 0, "{:?}", departure.left);
    assert_eq!(differing(&counted.tree(), &original), [""; 0]);
    let points = counted.host.points() - before;
    assert!(points > 40, "only {points} points");
    for point in 1..=points {
        let machine = Machine::new();
        machine.bootstrap(&wish);
        let begin = machine.host.points();
        machine.host.fault(Fault::CrashAt(begin + point));
        machine.unbootstrap();
        machine.host.repair();
        let departure = machine.unbootstrap();
        assert_eq!(departure.code, 0, "point {point}: {:?}", departure.left);
        assert_eq!(
            differing(&machine.tree(), &original),
            [""; 0],
            "point {point}"
        );
    }
}
