//! A machine is a machine of its own, and not the host.

use std::fs;

use machines::{Bind, Driver as _, Error, File, Spec, State};

use crate::host::Host;

fn spec(name: &str) -> Spec {
    Spec {
        name: name.to_owned(),
        ..Spec::default()
    }
}

#[test]
fn a_machine_boots_systemd_and_is_not_the_host() {
    let Some(host) = Host::new() else { return };
    host.boot(&spec("itself"));
    assert_eq!(
        host.driver.state("itself").expect("a state"),
        State::Running
    );
    assert_eq!(
        host.must("itself", "cat /proc/1/comm; hostname; cat /etc/hostname"),
        "systemd\nitself\nitself\n"
    );
    for own in ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"] {
        let inside = host.must("itself", &format!("cat {own}"));
        assert!(inside.trim().len() >= 32, "{own}: {inside}");
        assert_ne!(inside, fs::read_to_string(own).unwrap_or_default(), "{own}");
    }
    let disks = host.must("itself", "find /dev -type b");
    assert_eq!(disks, "", "the host's disks are not the machine's");
    let links = host.must("itself", "ls /sys/class/net");
    assert_eq!(links, "lo\n");
    let list = "systemctl list-units --type=service --state=running --no-legend --plain --no-pager";
    let services = host.must("itself", list);
    let own = |line: &str| line.starts_with("systemd-") || line.starts_with("dbus");
    let others: Vec<&str> = services.lines().filter(|line| !own(line)).collect();
    assert!(others.is_empty(), "services of the host: {others:?}");
    let stopped = host.run("itself", "exit 7").expect_err("an exit code");
    assert_eq!(stopped, "", "the exit code comes through without a word");
}

#[test]
fn settings_of_the_kernel_are_the_machines_own() {
    let Some(host) = Host::new() else { return };
    host.boot(&spec("settings"));
    let before = fs::read_to_string("/proc/sys/vm/swappiness").expect("a setting");
    let inside = host.must(
        "settings",
        "echo 17 > /proc/sys/vm/swappiness; cat /proc/sys/vm/swappiness",
    );
    assert_eq!(inside, "17\n");
    assert_eq!(
        fs::read_to_string("/proc/sys/vm/swappiness").expect("a setting"),
        before
    );
    host.must(
        "settings",
        "hostname another; test $(cat /proc/sys/kernel/hostname) = another",
    );
}

#[test]
fn files_and_binds_are_where_they_were_asked_for_and_leave_the_host_alone() {
    let Some(host) = Host::new() else { return };
    let shown = host.path().join("shown");
    fs::write(&shown, "from the host").expect("a file");
    host.boot(&Spec {
        files: vec![File::new("/opt/machine/laid", "laid")],
        binds: vec![Bind {
            source: shown.clone(),
            target: "/opt/machine/shown".into(),
        }],
        ..spec("files")
    });
    assert_eq!(
        host.must("files", "cat /opt/machine/laid /opt/machine/shown"),
        "laidfrom the host"
    );
    host.run("files", "echo x > /opt/machine/shown")
        .expect_err("it is read-only");
    host.must("files", "touch /etc/only-here");
    assert!(!std::path::Path::new("/etc/only-here").exists());
    assert!(!std::path::Path::new("/opt/machine").exists());
    let others = format!("ls {}", host.path().display());
    assert!(
        !host
            .run("files", &others)
            .unwrap_or_default()
            .contains("machines"),
        "disks of machines are hidden"
    );
}

#[test]
fn what_cannot_be_is_said_in_words() {
    let Some(host) = Host::new() else { return };
    let said = |spec: &Spec| {
        host.driver
            .boot(spec)
            .expect_err("it cannot start")
            .to_string()
    };
    assert!(said(&spec("a/b")).starts_with("`a/b` is not a name"));
    let unknown = Spec {
        custom_data: b"what?".to_vec(),
        ..spec("unknown")
    };
    assert!(said(&unknown).starts_with("custom data: it starts with `what?`"));
    let attachment = machines::Attachment {
        network: "nowhere".to_owned(),
        address: [10, 0, 0, 4].into(),
        name_servers: Vec::new(),
    };
    let nowhere = Spec {
        attachment: Some(attachment),
        ..spec("nowhere")
    };
    assert_eq!(
        said(&nowhere),
        "the machine `nowhere` did not start: there is no network called `nowhere`"
    );
    let bind = |source: &str, target: &str| Bind {
        source: source.into(),
        target: target.into(),
    };
    let binds = vec![bind("/no/such/file", "/x")];
    let unbound = said(&Spec {
        binds,
        ..spec("unbound")
    });
    assert!(
        unbound.contains("cannot show in a machine `/no/such/file`"),
        "{unbound}"
    );
    let binds = vec![bind("/bin/true", "/etc/hostname/x")];
    let misplaced = said(&Spec {
        binds,
        ..spec("misplaced")
    });
    assert!(
        misplaced.contains("cannot make the directory `/etc/hostname`"),
        "{misplaced}"
    );
    assert_eq!(host.driver.state("misplaced").expect("a state"), State::Off);
    assert!(matches!(
        host.driver.state("nobody"),
        Err(Error::NotFound(_))
    ));
}

#[test]
fn a_host_with_cgroup2_alone_has_machines_with_cgroup2_alone() {
    let Some(host) = Host::with_cgroup2_alone() else {
        return;
    };
    host.boot(&spec("unified"));
    let groups = host.must(
        "unified",
        "stat -f -c %T /sys/fs/cgroup; cat /proc/self/cgroup",
    );
    assert!(groups.starts_with("cgroup2fs\n"), "{groups}");
    assert!(groups.ends_with("0::/init.scope\n"), "{groups}");
    let slice = host.must(
        "unified",
        "systemctl show --property=ControlGroup dbus.service",
    );
    assert_eq!(slice, "ControlGroup=/system.slice/dbus.service\n");
    host.must(
        "unified",
        "test -d /sys/fs/cgroup/system.slice/dbus.service",
    );
}
