//! The kernel's settings, its modules, and swap.

/// Modules that pods' networks and containers' file systems take.
pub const MODULES: [&str; 2] = ["overlay", "br_netfilter"];

/// Name and value. Era A's six, and the three that the kubelet insists on with `protectKernelDefaults`.
pub const SYSCTLS: [(&str, &str); 9] = [
    ("net.bridge.bridge-nf-call-iptables", "1"),
    ("net.bridge.bridge-nf-call-ip6tables", "1"),
    ("net.ipv4.ip_forward", "1"),
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.keys.root_maxbytes", "25000000"),
];

/// The file of settings for the next boot.
pub fn sysctl_file() -> String {
    let lines = SYSCTLS.map(|(name, value)| format!("{name}={value}\n"));
    lines.concat()
}

/// The file of modules for the next boot.
pub fn modules_file() -> String {
    MODULES.map(|name| format!("{name}\n")).concat()
}

/// Devices and files that swap is on now, as `/proc/swaps` has them.
pub fn swaps(proc_swaps: &str) -> Vec<String> {
    let lines = proc_swaps.lines().skip(1);
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// `/etc/fstab` with its swap lines commented out, and nothing else changed; none where it has none.
pub fn without_swap(fstab: &str) -> Option<String> {
    let is_swap = |line: &str| {
        let line = line.trim_start();
        !line.starts_with('#') && line.split_whitespace().nth(2) == Some("swap")
    };
    if !fstab.lines().any(is_swap) {
        return None;
    }
    let changed = fstab.split_inclusive('\n').map(|line| match is_swap(line) {
        true => format!("# off for Kubernetes: {line}"),
        false => line.to_owned(),
    });
    Some(changed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_swap_lines_of_fstab_are_commented_out() {
        let fstab = "# /swap none swap sw 0 0\nUUID=1 / ext4 defaults 0 1\n/swap.img\tnone\tswap\tsw\t0\t0\n/dev/swap /mnt ext4 x 0 0";
        let expected = "# /swap none swap sw 0 0\nUUID=1 / ext4 defaults 0 1\n# off for Kubernetes: /swap.img\tnone\tswap\tsw\t0\t0\n/dev/swap /mnt ext4 x 0 0";
        assert_eq!(without_swap(fstab).as_deref(), Some(expected));
        assert_eq!(without_swap(expected), None);
        assert_eq!(without_swap(""), None);
    }

    #[test]
    fn swaps_are_listed_without_their_header() {
        let text = "Filename Type Size Used Priority\n/swap.img file 2097148 0 -2\n/dev/sda5 partition 1 0 -3\n";
        assert_eq!(swaps(text), ["/swap.img", "/dev/sda5"]);
        assert_eq!(swaps("Filename\n"), [""; 0]);
    }
}
