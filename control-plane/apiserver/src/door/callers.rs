//! Who may knock at all: addresses that are refused before TLS and HTTP, so that they learn nothing.

use std::net::IpAddr;

use crate::settings::Callers;

impl Callers {
    /// Whether a connection from this address is let in. This machine itself always is: the other parts
    /// of the control plane come from there.
    pub fn may_knock(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_loopback()
            || match self {
                Callers::Anybody => true,
                Callers::Ranges(ranges) => ranges.iter().any(|range| range.contains(&address)),
                Callers::PrivateNetworks => is_private(address),
            }
    }
}

// Addresses that no route of the internet leads to.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_may_are_let_in() {
        let range = |text: &str| text.parse().expect("a range");
        let ranges = Callers::Ranges(vec![range("203.0.113.0/24"), range("2001:db8::/32")]);
        let cases = [
            // address, with ranges, in a private cluster
            ("203.0.113.9", true, false),
            ("::ffff:203.0.113.9", true, false),
            ("203.0.114.9", false, false),
            ("2001:db8::1", true, false),
            ("10.1.2.3", false, true),
            ("172.32.0.1", false, false),
            ("fd00::1", false, true),
            ("127.0.0.1", true, true),
            ("::1", true, true),
            ("::ffff:127.0.0.1", true, true),
        ];
        for (address, in_ranges, in_private) in cases {
            let ip: IpAddr = address.parse().expect("an address");
            assert!(Callers::Anybody.may_knock(ip), "{address}");
            assert_eq!(ranges.may_knock(ip), in_ranges, "{address}");
            assert_eq!(
                Callers::PrivateNetworks.may_knock(ip),
                in_private,
                "{address}"
            );
        }
    }
}
