//! Which pod has which address of its node's range.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use client_runtime::ObjectKey;
use ipnet::IpNet;

/// The addresses that pods have.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    taken: HashSet<IpAddr>,
    of_pod: HashMap<ObjectKey, Vec<IpAddr>>,
    /// Where the search of a range goes on, so that an address rests after its use.
    next: HashMap<IpNet, u128>,
}

impl Addresses {
    /// The addresses of a pod, one of each range: those it has, or new ones.
    pub(crate) fn give(&mut self, pod: &ObjectKey, ranges: &[String]) -> Vec<IpAddr> {
        if let Some(known) = self.of_pod.get(pod) {
            return known.clone();
        }
        let ranges = ranges.iter().filter_map(|range| range.parse().ok());
        let given: Vec<IpAddr> = ranges.filter_map(|range| self.pick(range)).collect();
        // Nothing is not kept: the node may get its ranges, or others may leave.
        self.note(pod, &given);
        given
    }

    /// A pod has these already.
    pub(crate) fn note(&mut self, pod: &ObjectKey, addresses: &[IpAddr]) {
        if !addresses.is_empty() && !self.of_pod.contains_key(pod) {
            self.taken.extend(addresses);
            self.of_pod.insert(pod.clone(), addresses.to_vec());
        }
    }

    /// A pod has gone.
    pub(crate) fn take_back(&mut self, pod: &ObjectKey) {
        for address in self.of_pod.remove(pod).into_iter().flatten() {
            self.taken.remove(&address);
        }
    }

    // The first address is the bridge's, as containernetworking's host-local has it.
    fn pick(&mut self, range: IpNet) -> Option<IpAddr> {
        let bits = u32::from(range.max_prefix_len() - range.prefix_len()).min(16);
        let usable = (1_u128 << bits)
            .checked_sub(3)
            .filter(|usable| *usable > 0)?;
        let start = *self.next.get(&range).unwrap_or(&0);
        let offset = (0..usable)
            .map(|step| (start + step) % usable)
            .find(|offset| !self.taken.contains(&at(range, offset + 2)))?;
        self.next.insert(range, offset + 1);
        Some(at(range, offset + 2))
    }
}

fn at(range: IpNet, offset: u128) -> IpAddr {
    match range.network() {
        IpAddr::V4(first) => {
            let offset = u32::try_from(offset).unwrap_or_default();
            IpAddr::V4(Ipv4Addr::from(u32::from(first).wrapping_add(offset)))
        }
        IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from(u128::from(first).wrapping_add(offset))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    #[test]
    fn a_pod_keeps_its_address_and_another_gets_another() {
        let ranges = ["10.244.3.0/24".to_owned(), "fd00:3::/64".to_owned()];
        let mut addresses = Addresses::default();
        let first = addresses.give(&pod("a"), &ranges);
        let texts: Vec<String> = first.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.244.3.2", "fd00:3::2"]);
        assert_eq!(addresses.give(&pod("a"), &ranges), first);
        let second = addresses.give(&pod("b"), &ranges);
        assert_eq!(second[0].to_string(), "10.244.3.3");
        addresses.take_back(&pod("a"));
        let third = addresses.give(&pod("c"), &ranges);
        assert_eq!(third[0].to_string(), "10.244.3.4", "an address rests");
    }

    #[test]
    fn a_pod_that_came_before_its_nodes_range_gets_an_address_with_it() {
        let mut addresses = Addresses::default();
        assert!(addresses.give(&pod("a"), &[]).is_empty());
        let ranges = ["10.244.3.0/24".to_owned()];
        let given = addresses.give(&pod("a"), &ranges);
        assert_eq!(given.len(), 1);
    }

    #[test]
    fn a_full_range_gives_nothing_and_what_is_noted_is_taken() {
        let ranges = ["10.0.0.0/29".to_owned()];
        let mut addresses = Addresses::default();
        addresses.note(
            &pod("old"),
            &["10.0.0.2".parse().unwrap_or(IpAddr::from([0; 4]))],
        );
        let given: Vec<String> = (0..6)
            .flat_map(|n| addresses.give(&pod(&n.to_string()), &ranges))
            .map(|address| address.to_string())
            .collect();
        assert_eq!(given, ["10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
    }
}
