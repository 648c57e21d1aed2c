//! Supervisors can be killed at any time; what they leave behind is found and taken away.

use harness::eventually;
use machines::{Driver as _, Spec, State};
use rustix::process::{Pid, Signal, kill_process};

use crate::host::{Host, groups_of, processes};

fn kill_supervisor(host: &Host, name: &str) -> usize {
    let home = format!("supervise\0{}/machines/{name}\0", host.path().display());
    let supervisors = processes(&home);
    for pid in &supervisors {
        // One that has just ended needs no killing.
        let _ = kill_process(Pid::from_raw(*pid).expect("a pid"), Signal::KILL);
    }
    supervisors.len()
}

#[test]
fn a_machine_outlives_its_supervisor_until_it_is_swept() {
    let Some(host) = Host::new() else { return };
    let network = host
        .driver
        .create_network("orphans", "10.77.0.0/24".parse().expect("a subnet"));
    let attachment = machines::Attachment {
        network: "orphans".to_owned(),
        address: network.expect("a network").gateway(),
        name_servers: Vec::new(),
    };
    let spec = Spec {
        name: "orphan".to_owned(),
        attachment: Some(attachment),
        ..Spec::default()
    };
    host.boot(&spec);
    assert_eq!(kill_supervisor(&host, "orphan"), 1);
    eventually("nobody watches it", || match host.driver.state("orphan") {
        Ok(State::Orphaned) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(
        host.must("orphan", "hostname"),
        "orphan\n",
        "it still works"
    );
    assert!(host.driver.boot(&spec).is_err(), "it still runs");

    let swept = host.driver.sweep().expect("a sweep");
    assert_eq!(swept.machines, ["orphan"]);
    assert_eq!(host.driver.state("orphan").expect("a state"), State::Off);
    assert_eq!(groups_of("orphan"), Vec::<String>::new());
    assert_eq!(
        host.driver.sweep().expect("a sweep").machines,
        Vec::<String>::new()
    );
    host.driver.remove("orphan").expect("it goes");
    assert_eq!(host.driver.sweep().expect("a sweep").networks, ["orphans"]);
    assert_eq!(host.remains(), Vec::<String>::new());
}

#[test]
fn a_supervisor_killed_at_any_instant_of_a_start_leaves_nothing_after_a_sweep() {
    let Some(host) = Host::new() else { return };
    let spec = Spec {
        name: "instant".to_owned(),
        ..Spec::default()
    };
    for patience in 0..12_u32 {
        std::thread::scope(|scope| {
            let boot = scope.spawn(|| host.driver.boot(&spec));
            let mut looks = 0;
            // Each round it is killed a little later: after one more look at the process table.
            while !boot.is_finished() {
                if looks < patience {
                    looks += u32::from(!processes("instant\0").is_empty());
                } else if kill_supervisor(&host, "instant") > 0 {
                    break;
                }
            }
            let _ = boot.join().expect("the driver does not panic");
        });
        kill_supervisor(&host, "instant");
        eventually("the kill has arrived", || {
            match host.driver.state("instant") {
                Ok(State::Running) => Err("it is still watched".to_owned()),
                _ => Ok(()),
            }
        });
        host.driver.sweep().expect("a sweep");
        assert_eq!(host.driver.state("instant").expect("a state"), State::Off);
        assert_eq!(
            groups_of("instant"),
            Vec::<String>::new(),
            "round {patience}"
        );
    }
    host.boot(&spec);
}
