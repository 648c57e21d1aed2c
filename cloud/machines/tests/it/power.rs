//! On, off, and on again.

use std::time::Duration;

use harness::eventually;
use machines::{Driver as _, Error, PowerOff, Spec, State};

use crate::host::Host;

fn booted(name: &str) -> Option<(Host, Spec)> {
    let host = Host::new()?;
    let spec = Spec {
        name: name.to_owned(),
        ..Spec::default()
    };
    host.boot(&spec);
    Some((host, spec))
}

fn boot_id(host: &Host, name: &str) -> Result<String, String> {
    host.run(name, "cat /proc/sys/kernel/random/boot_id")
}

#[test]
fn the_button_shuts_down_in_order_and_the_disk_stays() {
    let Some((host, spec)) = booted("button") else {
        return;
    };
    let id = host.must("button", "cat /etc/machine-id");
    host.must(
        "button",
        "echo kept > /root/kept; echo '# own' >> /etc/fstab; mkdir /run/gone",
    );
    let long = PowerOff::Button(Duration::from_secs(60));
    host.driver
        .power_off("button", long)
        .expect("it shuts down");
    assert_eq!(host.driver.state("button").expect("a state"), State::Off);
    assert_eq!(host.remains(), Vec::<String>::new());
    let console = host.driver.console_log("button").expect("a console");
    let console = std::fs::read_to_string(console).expect("a log");
    assert!(console.contains("Powering off."), "{console}");
    let journal = host
        .driver
        .journal("button")
        .expect("a journal")
        .output()
        .expect("journalctl runs");
    let journal = String::from_utf8_lossy(&journal.stdout).into_owned();
    assert!(
        journal.contains("Reached target kyanite-machine.target"),
        "{journal}"
    );
    host.driver
        .power_off("button", long)
        .expect("off stays off");

    host.boot(&spec);
    assert_eq!(
        host.must("button", "cat /root/kept; ls -d /run/gone || true"),
        "kept\n"
    );
    assert_eq!(host.must("button", "cat /etc/fstab"), "# own\n");
    assert_eq!(host.must("button", "cat /etc/machine-id"), id);
}

#[test]
fn the_plug_ends_everything_at_once() {
    let Some((host, _)) = booted("plug") else {
        return;
    };
    host.must("plug", "systemd-run --unit=endless /bin/sleep 100000");
    host.driver
        .power_off("plug", PowerOff::Plug)
        .expect("it dies");
    assert_eq!(host.remains(), Vec::<String>::new());
    assert!(matches!(
        host.driver.command("plug", ["true"]),
        Err(Error::Off(_))
    ));
}

#[test]
fn a_machine_that_reboots_comes_back() {
    let Some((host, _)) = booted("again") else {
        return;
    };
    let before = boot_id(&host, "again").expect("a boot id");
    let unit =
        "[Service]\\nExecStart=/bin/sleep 100000\\n[Install]\\nWantedBy=multi-user.target\\n";
    let enable = format!("printf '{unit}' > /etc/systemd/system/own.service; systemctl enable own");
    host.must("again", &enable);
    host.must("again", "systemctl reboot");
    eventually("another start", || match boot_id(&host, "again") {
        Ok(now) if now != before => Ok(()),
        other => Err(format!("{other:?}")),
    });
    host.up("again");
    assert_eq!(
        host.must("again", "systemctl is-active own"),
        "active\n",
        "what it enabled itself"
    );
}

#[test]
fn a_machine_is_booted_once() {
    let Some((host, spec)) = booted("once") else {
        return;
    };
    let again = host.driver.boot(&spec).expect_err("it runs");
    assert_eq!(again.to_string(), "the machine `once` is running already");
    let all = host.driver.list().expect("a list");
    assert_eq!(all.len(), 1);
    assert_eq!(
        (all[0].name.as_str(), all[0].state),
        ("once", State::Running)
    );
}
