//! containerd as a service of a machine, and a container in it.

use std::path::PathBuf;

use harness::{Image, skip};
use machines::{Bind, Driver as _, File, PowerOff, Spec};

use crate::host::Host;

const IMAGE: &str = "machines.test/busybox:1";

// As in containerd's own unit, without what needs a right that not every root has.
const UNIT: &str = "[Unit]
Description=containerd
[Service]
Type=notify
Delegate=yes
KillMode=process
Environment=PATH=/opt/containerd:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/opt/containerd/containerd
";

#[test]
fn containerd_runs_under_systemd_and_a_container_in_it() {
    let Some(host) = Host::new() else { return };
    let Some(programs) = std::env::var_os("CONTAINERD_BIN").map(PathBuf::from) else {
        return skip(
            "no containerd: CONTAINERD_BIN is not set (scripts/setup --for test, scripts/env)",
        );
    };
    let image = Image {
        name: IMAGE,
        links: &[],
    };
    let image = image.archive(host.path(), &programs.join("busybox"));
    host.boot(&Spec {
        name: "containers".to_owned(),
        files: vec![File::new("/etc/systemd/system/containerd.service", UNIT)],
        binds: vec![
            Bind {
                source: programs,
                target: "/opt/containerd".into(),
            },
            Bind {
                source: image,
                target: "/opt/image.tar".into(),
            },
        ],
        units: vec!["containerd.service".to_owned()],
        ..Spec::default()
    });
    let ctr = |line: &str| {
        host.must(
            "containers",
            &format!("PATH=/opt/containerd:$PATH ctr {line}"),
        )
    };
    ctr("images import /opt/image.tar");
    assert_eq!(
        ctr(&format!(
            "run --rm {IMAGE} once /busybox echo from a container"
        )),
        "from a container\n"
    );
    ctr(&format!("run --detach {IMAGE} long /busybox sleep 100000"));
    let tasks = ctr("tasks list");
    assert!(tasks.contains("RUNNING"), "{tasks}");
    let snapshots = host.must(
        "containers",
        "findmnt --noheadings --output FSTYPE --list | grep -c overlay",
    );
    assert_ne!(
        snapshots, "1\n",
        "the container's root is an overlay on a plain directory"
    );
    host.driver
        .power_off("containers", PowerOff::Plug)
        .expect("it dies");
    assert_eq!(
        host.remains(),
        Vec::<String>::new(),
        "containers die with their machine"
    );
}
