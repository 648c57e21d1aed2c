//! A range that is handed out in parts of equal size.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Which parts of a range are taken.
#[derive(Debug)]
pub(super) struct CidrSet {
    range: IpNet,
    mask: u8,
    taken: Vec<bool>,
    /// Where the search goes on, so that a part that was given back rests for a while.
    next: usize,
}

impl CidrSet {
    /// The parts of a range; the mask size of a part has been checked.
    pub(super) fn new(range: IpNet, mask: u8) -> CidrSet {
        let bits = u32::from(mask.saturating_sub(range.prefix_len()));
        CidrSet {
            range: range.trunc(),
            mask,
            taken: vec![false; 1 << bits],
            next: 0,
        }
    }

    /// Takes the next free part.
    pub(super) fn allocate(&mut self) -> Option<IpNet> {
        let size = self.taken.len();
        let index = (0..size)
            .map(|step| (self.next + step) % size)
            .find(|index| !self.taken[*index])?;
        self.taken[index] = true;
        self.next = (index + 1) % size;
        self.part(index)
    }

    /// Takes the parts that a range touches. Gives whether it touches any.
    pub(super) fn occupy(&mut self, net: &IpNet) -> bool {
        self.mark(net, true)
    }

    /// Gives the parts back that a range touches.
    pub(super) fn release(&mut self, net: &IpNet) -> bool {
        self.mark(net, false)
    }

    fn mark(&mut self, net: &IpNet, taken: bool) -> bool {
        let Some(indexes) = self.indexes(net) else {
            return false;
        };
        self.taken[indexes].fill(taken);
        true
    }

    fn indexes(&self, net: &IpNet) -> Option<std::ops::RangeInclusive<usize>> {
        let is_of_family = net.addr().is_ipv4() == self.range.addr().is_ipv4();
        if !is_of_family || !(self.range.contains(net) || net.contains(&self.range)) {
            return None;
        }
        let index = |address: IpAddr| {
            let offset = number(address).checked_sub(number(self.range.network()))?;
            usize::try_from(offset >> (self.range.max_prefix_len() - self.mask)).ok()
        };
        let last = self.taken.len() - 1;
        let first_index = index(net.network()).unwrap_or(0);
        let last_index = index(net.broadcast()).unwrap_or(last).min(last);
        Some(first_index..=last_index)
    }

    fn part(&self, index: usize) -> Option<IpNet> {
        let step = (index as u128) << (self.range.max_prefix_len() - self.mask);
        let first = number(self.range.network()) + step;
        let address = match self.range {
            IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(first).ok()?)),
            IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from(first)),
        };
        IpNet::new(address, self.mask).ok()
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn all(set: &mut CidrSet) -> Vec<String> {
        std::iter::from_fn(|| set.allocate())
            .map(|net| net.to_string())
            .collect()
    }

    #[test]
    fn parts_are_given_out_in_order_and_a_returned_one_rests() {
        let mut set = CidrSet::new(net("10.244.0.0/22"), 24);
        assert_eq!(set.allocate(), Some(net("10.244.0.0/24")));
        assert_eq!(set.allocate(), Some(net("10.244.1.0/24")));
        assert!(set.release(&net("10.244.0.0/24")));
        assert_eq!(
            all(&mut set),
            ["10.244.2.0/24", "10.244.3.0/24", "10.244.0.0/24"]
        );
        assert_eq!(set.allocate(), None);
    }

    #[test]
    fn six_works_as_four() {
        let mut set = CidrSet::new(net("fd00:1234::/62"), 64);
        assert!(set.occupy(&net("fd00:1234:0:1::/64")));
        assert_eq!(
            all(&mut set),
            ["fd00:1234::/64", "fd00:1234:0:2::/64", "fd00:1234:0:3::/64"]
        );
    }

    #[test]
    fn what_is_taken_may_be_larger_or_smaller_than_a_part() {
        for (occupied, left) in [
            ("10.244.0.0/23", 2),
            ("10.244.3.128/25", 3),
            ("10.0.0.0/8", 0),
        ] {
            let mut set = CidrSet::new(net("10.244.0.0/22"), 24);
            assert!(set.occupy(&net(occupied)), "{occupied}");
            assert_eq!(all(&mut set).len(), left, "{occupied}");
        }
        let mut set = CidrSet::new(net("10.244.0.0/22"), 24);
        assert!(!set.occupy(&net("10.245.0.0/24")) && !set.occupy(&net("fd00::/64")));
        assert_eq!(all(&mut set).len(), 4);
    }
}
