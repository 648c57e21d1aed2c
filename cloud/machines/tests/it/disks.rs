//! Data disks: block devices at their LUN, whose bytes outlive the machine they are in, and of which nothing stays on the
//! host when no machine has them.

use std::fs;
use std::path::{Path, PathBuf};

use harness::eventually;
use machines::{Disk, Driver as _, PowerOff, Spec, image};
use rustix::process::{Pid, Signal, kill_process};

use crate::host::{Host, processes};

const LUN: &str = "/dev/disk/azure/scsi1/lun7";

/// A host that can have disks.
fn host() -> Option<Host> {
    for program in ["losetup", "mkfs.ext4"] {
        let places = ["/usr/sbin", "/sbin"].map(|place| Path::new(place).join(program));
        if !places.iter().any(|place| place.exists()) {
            harness::skip(&format!("there is no {program} (scripts/setup --for test)"));
            return None;
        }
    }
    if !Path::new("/dev/loop-control").exists() {
        harness::skip("this host has no loop devices");
        return None;
    }
    Host::new()
}

fn loop_devices(file: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").expect("devices").flatten();
    let its = devices.filter(|device| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        backing.is_ok_and(|path| Path::new(path.trim()) == file)
    });
    its.map(|device| device.file_name().to_string_lossy().into_owned())
        .collect()
}

fn no_loop_device(file: &Path) {
    eventually("no loop device is left", || match loop_devices(file) {
        left if left.is_empty() => Ok(()),
        left => Err(left.join(" ")),
    });
}

fn disk(host: &Host) -> (PathBuf, [Disk; 1]) {
    let file = host.path().join("data.img");
    image::make(&file, 64 << 20).expect("a disk");
    let disks = [Disk {
        lun: 7,
        file: file.clone(),
    }];
    (file, disks)
}

fn machine(name: &str, disks: &[Disk]) -> Spec {
    Spec {
        name: name.to_owned(),
        disks: Some(disks.to_vec()),
        ..Spec::default()
    }
}

#[test]
fn a_disk_goes_from_machine_to_machine_with_its_bytes_and_is_seen_by_nobody_else() {
    let Some(host) = host() else { return };
    let (file, disks) = disk(&host);
    host.boot(&machine("one", &disks));
    host.boot(&machine("two", &[]));
    host.must(
        "one",
        &format!("mkfs.ext4 -q {LUN} && mount {LUN} /mnt && echo kept > /mnt/a"),
    );
    assert_eq!(
        host.must("one", &format!("readlink -f {LUN}")),
        "/dev/sdj\n"
    );
    assert!(
        host.run("two", &format!("test -e {LUN} -o -e /dev/sdj"))
            .is_err()
    );
    // Detached while it is mounted and somebody sits in it.
    host.must(
        "one",
        "cd /mnt; (trap '' TERM; sleep 1000) >/dev/null 2>&1 & true",
    );
    host.driver.set_disks("one", &[]).expect("it is unplugged");
    assert!(
        host.run("one", &format!("test -e {LUN} -o -e /dev/sdj"))
            .is_err()
    );
    assert!(host.run("one", "grep -q ' /mnt ' /proc/mounts").is_err());
    no_loop_device(&file);
    host.driver
        .set_disks("two", &disks)
        .expect("it is plugged in");
    let read = format!("mount {LUN} /mnt && cat /mnt/a");
    assert_eq!(host.must("two", &read), "kept\n");

    // A larger disk is larger at once.
    image::make(&file, 128 << 20).expect("it grows");
    let size = host.must("two", &format!("blockdev --getsize64 {LUN}"));
    assert_eq!(size.trim(), (128 << 20).to_string());

    // It is there again after a start, and held by nobody while the machine is off.
    host.driver
        .power_off("two", PowerOff::Plug)
        .expect("it is off");
    no_loop_device(&file);
    host.driver
        .boot(&machine("two", &disks))
        .expect("it starts");
    host.up("two");
    assert_eq!(host.must("two", &read), "kept\n");
    for name in ["one", "two"] {
        host.driver.remove(name).expect("it goes");
    }
    no_loop_device(&file);
    assert_eq!(host.remains(), Vec::<String>::new());
}

#[test]
fn machines_share_one_device_and_a_killed_supervisor_leaves_none() {
    let Some(host) = host() else { return };
    let (file, disks) = disk(&host);
    for name in ["left", "right"] {
        host.boot(&machine(name, &disks));
    }
    assert_eq!(
        loop_devices(&file).len(),
        1,
        "what one writes the other reads"
    );
    host.must("left", &format!("echo shared > {LUN}"));
    assert_eq!(host.must("right", &format!("head -c 6 {LUN}")), "shared");
    host.driver.set_disks("left", &[]).expect("it is unplugged");
    assert_eq!(host.must("right", &format!("head -c 6 {LUN}")), "shared");
    let supervisor = processes(&format!(
        "supervise\0{}/machines/right\0",
        host.path().display()
    ));
    for pid in supervisor {
        let _ = kill_process(Pid::from_raw(pid).expect("a pid"), Signal::KILL);
    }
    host.driver.remove("right").expect("it goes");
    host.driver.remove("left").expect("it goes");
    no_loop_device(&file);
    assert_eq!(host.remains(), Vec::<String>::new());
}

#[test]
fn a_disk_that_is_not_there_keeps_a_machine_from_starting_and_says_so() {
    let Some(host) = host() else { return };
    let absent = [Disk {
        lun: 0,
        file: host.path().join("absent.img"),
    }];
    let said = host
        .driver
        .boot(&machine("bare", &absent))
        .expect_err("it does not start");
    assert!(said.to_string().contains("absent.img"), "{said}");
    host.boot(&machine("bare", &[]));
    let said = host
        .driver
        .set_disks("bare", &absent)
        .expect_err("it is refused");
    assert!(said.to_string().contains("absent.img"), "{said}");
    host.driver.set_disks("bare", &[]).expect("none");
    host.driver.remove("bare").expect("it goes");
}
