//! CNI configurations: kubenet's template and Azure's conflist.

/// kubenet: a bridge with the node's own pod range; containerd fills in ranges and routes.
pub const KUBENET_TEMPLATE: &str = include_str!("../../data/kubenet.conflist.tmpl");

/// Azure's conflist as its package ships it, changed for the node: Calico needs the transparent
/// mode.
pub fn azure_conflist(shipped: &str, calico: bool) -> String {
    match calico {
        true => shipped.replace(r#""mode":"bridge""#, r#""mode":"transparent""#),
        false => shipped.to_owned(),
    }
}

/// netplan's description of the n-th interface after the first (from 1): addresses by DHCP, but
/// neither name servers nor the preferred route.
pub fn secondary_interface(n: usize, mac: &str, ipv6: bool) -> String {
    let metric = 100 + 100 * n;
    let family = |v: u8| {
        format!(
            "      dhcp{v}: true\n      dhcp{v}-overrides:\n        route-metric: {metric}\n        \
             use-dns: false\n"
        )
    };
    let sixth = if ipv6 { family(6) } else { String::new() };
    format!(
        "network:\n  ethernets:\n    secondary-nic-{n}:\n      match:\n        \
         macaddress: \"{mac}\"\n{}{sixth}",
        family(4)
    )
}
