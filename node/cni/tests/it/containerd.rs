//! containerd as the runtime: it calls the plugin as it calls any, and `loopback` under that name before it.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::skip;
use images::{Layer, Settings, archive};

use crate::lab::{Lab, PLUGIN};

const IMAGE: &str = "cni.test/busybox:1";

// In namespaces of its own, so that nothing of the machine changes: its processes, its mounts, its network.
const SCRIPT: &str = r#"
set -euo pipefail
exec 2>&1
mount --make-rprivate /
mkdir "$DIR/scratch"
mount -t tmpfs tmpfs "$DIR/scratch"
for place in etc opt; do
    mkdir "$DIR/scratch/$place" "$DIR/scratch/$place-work"
    mount -t overlay overlay -o "lowerdir=/$place,upperdir=$DIR/scratch/$place,workdir=$DIR/scratch/$place-work" "/$place"
done
mount -t tmpfs tmpfs /run
ip link set lo up
ip address add 192.0.2.1/32 dev lo
mkdir -p /opt/cni/bin /etc/cni/net.d
rm -f /etc/cni/net.d/*
cp "$PLUGIN" /opt/cni/bin/kyanite-cni
ln -sf kyanite-cni /opt/cni/bin/loopback
/opt/cni/bin/kyanite-cni conf --pod-cidr 10.244.7.0/24 --inside 10.244.0.0/16 --to
cat > "$DIR/config.toml" <<EOF
version = 2
root = "$DIR/scratch/root"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "/run/containerd.sock"
EOF
export PATH="$BIN:$PATH"
containerd --config "$DIR/config.toml" > "$DIR/log" 2>&1 &
ctr() { "$BIN/ctr" --address /run/containerd.sock "$@"; }
for attempt in $(seq 600); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
ctr images import "$DIR/image.tar" >/dev/null
ctr run --detach --cni "$IMAGE" web /busybox httpd -f -p 80 -h /www
for attempt in $(seq 600); do "$BIN/busybox" wget -q -O - http://10.244.7.2/hello && break; sleep 0.1; done
ctr run --rm --cni "$IMAGE" client /busybox wget -q -O - http://10.244.7.2/hello
ctr run --rm --cni "$IMAGE" loopback /busybox ip address show lo | grep 127.0.0.1
echo "entries: $(grep -o '"container":' /run/kyanite-cni/kyanite/ledger.json | wc -l)"
ctr tasks kill --signal KILL web
for attempt in $(seq 600); do ctr tasks delete web >/dev/null 2>&1 && break; sleep 0.1; done
ctr containers delete web
"#;

#[test]
fn containerd_attaches_containers_and_they_reach_each_other() {
    let Some(lab) = Lab::new() else { return };
    let bin = std::env::var_os("CONTAINERD_BIN").map(PathBuf::from);
    let Some(bin) = bin.filter(|bin| bin.join("containerd").exists()) else {
        return skip(
            "no containerd: CONTAINERD_BIN is not set (scripts/setup --for test, scripts/env)",
        );
    };
    make_image(&lab.path().join("image.tar"), &bin.join("busybox"));
    let mut unshare = Command::new("unshare");
    unshare
        .args([
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .args(["/bin/bash", "-c", SCRIPT])
        .env("DIR", lab.path())
        .env("PLUGIN", PLUGIN)
        .env("BIN", &bin)
        .env("IMAGE", IMAGE);
    let output = unshare.output().expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let log = std::fs::read_to_string(lab.path().join("log")).unwrap_or_default();
    assert!(output.status.success(), "{said}\n{log}");
    assert_eq!(
        said.matches("from a pod").count(),
        2,
        "node and pod: {said}"
    );
    assert!(said.contains("127.0.0.1"), "the loopback: {said}");
    assert!(
        said.contains("entries: 1\n"),
        "only the first is left: {said}"
    );
}

fn make_image(to: &Path, busybox: &Path) {
    let mut layer = Layer::default();
    layer.add_program(busybox, "/busybox").expect("busybox");
    layer.add_file("/www/hello", 0o644, "from a pod\n");
    let image = archive::build(&[IMAGE.to_owned()], &Settings::default(), &[layer.to_tar()]);
    std::fs::write(to, image.bytes).expect("written");
}
