//! Units and scripts for machines whose image brings none. What an image brought is left alone.

use super::kubeconfig::{CA_FILE, KUBECONFIG};
use super::kubelet::RESERVED_SLICE;
use super::tls_bootstrap::CLIENT;

/// Where our units go.
pub const DIRECTORY: &str = "/etc/systemd/system";
/// The first line of every unit of ours: such a unit we may replace.
pub const MARK: &str = "# Written by the node controller.";

/// The kubelet. Flags come from its environment file and the drop-ins.
pub fn kubelet() -> String {
    format!(
        "{MARK}\n\
         [Unit]\n\
         Description=Kubelet\n\
         ConditionPathExists=/opt/bin/kubelet\n\
         Wants=network-online.target containerd.service\n\
         After=network-online.target containerd.service\n\
         \n\
         [Service]\n\
         Restart=always\n\
         RestartSec=2\n\
         SuccessExitStatus=143\n\
         EnvironmentFile=/etc/default/kubelet\n\
         ExecStartPre=/bin/sh /opt/azure/containers/kubelet.sh\n\
         ExecStartPre=/bin/sh /opt/azure/containers/ensure_imds_restriction.sh\n\
         ExecStartPre=/bin/mkdir -p /var/lib/kubelet /var/lib/cni\n\
         ExecStartPre=/bin/sh -c 'mountpoint -q /var/lib/kubelet || mount --bind /var/lib/kubelet /var/lib/kubelet'\n\
         ExecStartPre=/bin/mount --make-shared /var/lib/kubelet\n\
         ExecStartPre=/bin/sh -c 'until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done'\n\
         ExecStart=/opt/bin/kubelet --enable-server --node-labels=${{KUBELET_NODE_LABELS}} --v=2 \
         --volume-plugin-dir=/etc/kubernetes/volumeplugins $KUBELET_TLS_BOOTSTRAP_FLAGS \
         $KUBELET_CONFIG_FILE_FLAGS $KUBELET_CONTAINERD_FLAGS $KUBELET_CONTAINER_RUNTIME_FLAG \
         $KUBELET_CGROUP_FLAGS $KUBELET_FLAGS\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// containerd, where it came as an archive without a unit.
pub fn containerd() -> String {
    format!(
        "{MARK}\n\
         [Unit]\n\
         Description=containerd container runtime\n\
         After=network.target local-fs.target\n\
         \n\
         [Service]\n\
         Type=notify\n\
         ExecStartPre=-/sbin/modprobe overlay\n\
         ExecStart=/usr/bin/containerd\n\
         Delegate=yes\n\
         KillMode=process\n\
         Restart=always\n\
         RestartSec=5\n\
         OOMScoreAdjust=-999\n\
         LimitNPROC=infinity\n\
         LimitCORE=infinity\n\
         TasksMax=infinity\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// The client of secure TLS bootstrapping, once before the kubelet.
pub fn secure_tls_bootstrap() -> String {
    format!(
        "{MARK}\n\
         [Unit]\n\
         Description=Secure TLS bootstrap of the kubelet\n\
         ConditionPathExists={CLIENT}\n\
         Wants=network-online.target\n\
         After=network-online.target\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={CLIENT} --verbose --ensure-authorized --next-proto=aks-tls-bootstrap \
         --kubeconfig={KUBECONFIG} --cert-dir=/var/lib/kubelet/pki --cluster-ca-file={CA_FILE} \
         --log-file=/var/log/azure/aks/secure-tls-bootstrap.log $BOOTSTRAP_FLAGS\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// The swap file after a reboot, once its disk is there.
pub fn swap(file: &str, directory: &str) -> String {
    format!(
        "{MARK}\n\
         [Unit]\n\
         Description=Swap file of the node\n\
         RequiresMountsFor={directory}\n\
         ConditionPathExists={file}\n\
         After=local-fs.target\n\
         Before=kubelet.service\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart=/bin/sh -c 'grep -q \"^{file} \" /proc/swaps || swapon {file}'\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// The kubelet's data on the temporary disk.
pub fn bind_mount() -> String {
    format!(
        "{MARK}\n\
         [Unit]\n\
         Description=Kubelet data on the temporary disk\n\
         RequiresMountsFor=/mnt\n\
         Before=kubelet.service\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart=/bin/sh /opt/azure/containers/bind-mount.sh\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// What that unit does. The marker lies on the OS disk: a new OS disk means that what the
/// temporary disk still holds is another node's.
pub const BIND_MOUNT_SCRIPT: &str = "\
#!/bin/sh
set -eu
data=/mnt/aks/kubelet
marker=/opt/azure/containers/bind-sentinel
mkdir -p /mnt/aks /var/lib/kubelet
if [ ! -e \"$marker\" ]; then
    rm -rf --one-file-system \"$data\"
    cp -a /var/lib/kubelet \"$data\"
    touch \"$marker\"
fi
mountpoint -q /var/lib/kubelet || mount --bind \"$data\" /var/lib/kubelet
";

/// The slice of a hardened node.
pub fn reserved_slice() -> String {
    format!(
        "{MARK}\n[Unit]\nDescription=What Kubernetes itself may use\nDefaultDependencies=no\n\
         Before=slices.target\n\n[Slice]\n\n[Install]\nWantedBy=slices.target\n"
    )
}

/// The drop-in that puts a unit into that slice.
pub fn in_reserved_slice() -> String {
    format!(
        "[Unit]\nWants={RESERVED_SLICE}\nAfter={RESERVED_SLICE}\n\n[Service]\nSlice={RESERVED_SLICE}\n"
    )
}

/// The kubenet bridge hears its own pods twice; this drops the second copy.
pub fn no_duplicates() -> String {
    format!(
        "{MARK}\n\
         [Unit]\n\
         Description=No duplicate packets from the kubenet bridge\n\
         After=containerd.service kubelet.service\n\
         \n\
         [Service]\n\
         Restart=on-failure\n\
         RestartSec=2\n\
         ExecStart=/bin/sh /opt/azure/containers/ensure-no-dup.sh\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// What that unit does; it fails, and is started again, until the bridge is there.
pub const NO_DUPLICATES_SCRIPT: &str = "\
#!/bin/sh
set -eu
chain=AKS-DEDUP-PROMISC
ebtables -t filter -L $chain >/dev/null 2>&1 && exit 0
mac=$(cat /sys/class/net/cbr0/address)
subnet=$(ip -o -4 addr show dev cbr0 | awk '{print $4; exit}')
[ -n \"$subnet\" ]
ebtables -t filter -N $chain
ebtables -t filter -A $chain -p IPv4 -s \"$mac\" -o veth+ --ip-src \"${subnet%/*}\" -j ACCEPT
ebtables -t filter -A $chain -p IPv4 -s \"$mac\" -o veth+ --ip-src \"$subnet\" -j DROP
ebtables -t filter -A OUTPUT -j $chain
";
