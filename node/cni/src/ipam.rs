//! Which addresses there are and whose turn it is: each range is walked in a circle, so that an address rests as
//! long as it can before somebody else gets it.

use std::net::IpAddr;

use ipnet::IpNet;

/// A range of addresses that pods get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The network.
    pub subnet: IpNet,
    first: u128,
    last: u128,
    /// The address that is the way out, never a pod's.
    pub gateway: IpAddr,
}

impl Range {
    /// A range of a subnet, by the rules of the reference plugin: without network, gateway and broadcast address.
    pub fn new(
        subnet: IpNet,
        start: Option<IpAddr>,
        end: Option<IpAddr>,
        gateway: Option<IpAddr>,
    ) -> Result<Range, String> {
        let room = subnet.max_prefix_len() - subnet.prefix_len();
        if subnet.trunc() != subnet {
            let network = subnet.trunc();
            return Err(format!(
                "the subnet {subnet} has host bits set; hint: {network}"
            ));
        }
        if room < 2 {
            return Err(format!("the subnet {subnet} is too small for pods"));
        }
        let base = bits(subnet.network());
        let highest = bits(subnet.broadcast()) - u128::from(subnet.addr().is_ipv4());
        let inside = |address: Option<IpAddr>, otherwise: u128| match address {
            Some(address) if !subnet.contains(&address) => {
                Err(format!("{address} is not in {subnet}"))
            }
            Some(address) => Ok(bits(address)),
            None => Ok(otherwise),
        };
        let gateway = inside(gateway, base + 1)?;
        let (first, last) = (inside(start, base + 1)?, inside(end, highest)?);
        if first > last {
            return Err(format!("the range of {subnet} ends before it begins"));
        }
        Ok(Range {
            subnet,
            first,
            last,
            gateway: address(gateway, subnet),
        })
    }

    /// Whether pods may have this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = address.is_ipv4() == self.gateway.is_ipv4();
        same && (self.first..=self.last).contains(&bits(address)) && address != self.gateway
    }

    /// Whether two ranges have addresses in common.
    pub fn overlaps(&self, other: &Range) -> bool {
        let same = self.gateway.is_ipv4() == other.gateway.is_ipv4();
        same && self.first <= other.last && other.first <= self.last
    }

    /// How many pods it has addresses for.
    pub fn size(&self) -> u128 {
        let gateway = (self.first..=self.last).contains(&bits(self.gateway));
        self.last - self.first + 1 - u128::from(gateway)
    }

    // Its addresses, beginning after this one.
    fn circle(&self, after: Option<IpAddr>) -> impl Iterator<Item = IpAddr> {
        let start = match after.map(bits) {
            Some(after) if (self.first..self.last).contains(&after) => after + 1,
            _ => self.first,
        };
        let all = (start..=self.last).chain(self.first..start);
        all.map(|bits| address(bits, self.subnet))
            .filter(|address| *address != self.gateway)
    }
}

/// A pod's address and the range it is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pick {
    /// The address.
    pub address: IpAddr,
    /// Its network.
    pub subnet: IpNet,
    /// The way out.
    pub gateway: IpAddr,
}

/// Picks an address of a set of ranges: the first free one after `last`. Of those `asked` for, if any is of this set,
/// only that will do.
pub fn pick(
    set: &[Range],
    last: Option<IpAddr>,
    asked: &[IpAddr],
    taken: impl Fn(IpAddr) -> bool,
) -> Option<Pick> {
    let picked = |range: &Range, address| Pick {
        address,
        subnet: range.subnet,
        gateway: range.gateway,
    };
    let of = |address| set.iter().find(|range| range.contains(address));
    let wanted = asked
        .iter()
        .find_map(|address| Some((of(*address)?, *address)));
    if let Some((range, address)) = wanted {
        return (!taken(address)).then(|| picked(range, address));
    }
    let turn = last
        .and_then(|last| set.iter().position(|range| range.contains(last)))
        .unwrap_or(0);
    let (before, from) = set.split_at(turn);
    let mut in_turn = from
        .iter()
        .zip(std::iter::once(last).chain(std::iter::repeat(None)));
    let found = in_turn.find_map(|(range, last)| {
        let address = range.circle(last).find(|address| !taken(*address))?;
        Some(picked(range, address))
    });
    found.or_else(|| {
        before.iter().find_map(|range| {
            let address = range.circle(None).find(|address| !taken(*address))?;
            Some(picked(range, address))
        })
    })
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn address(bits: u128, like: IpNet) -> IpAddr {
    match like {
        IpNet::V4(_) => IpAddr::V4(u32::try_from(bits).unwrap_or(u32::MAX).into()),
        IpNet::V6(_) => IpAddr::V6(bits.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn range(subnet: &str) -> Range {
        Range::new(subnet.parse().expect("a subnet"), None, None, None).expect("a range")
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn network_gateway_and_broadcast_are_nobodys() {
        let set = [range("10.244.3.0/29")];
        let mut taken = BTreeSet::new();
        while let Some(pick) = pick(&set, None, &[], |a| taken.contains(&a)) {
            taken.insert(pick.address);
        }
        let expected: BTreeSet<IpAddr> = (2..=6).map(|n| ip(&format!("10.244.3.{n}"))).collect();
        assert_eq!(taken, expected);
        assert_eq!(set[0].size(), 5);
    }

    #[test]
    fn an_address_rests_until_the_circle_is_round() {
        let set = [range("10.0.0.0/29")];
        let next = |last| pick(&set, last, &[], |_| false).map(|p| p.address);
        assert_eq!(next(None), Some(ip("10.0.0.2")));
        assert_eq!(next(Some(ip("10.0.0.2"))), Some(ip("10.0.0.3")));
        assert_eq!(next(Some(ip("10.0.0.6"))), Some(ip("10.0.0.2")));
    }

    #[test]
    fn a_set_goes_on_in_its_next_range() {
        let set = [range("10.0.0.0/30"), range("10.0.1.0/30")];
        let taken = |a| a == ip("10.0.0.2");
        let found = pick(&set, Some(ip("10.0.0.2")), &[], taken).expect("room");
        assert_eq!(found.address, ip("10.0.1.2"));
        assert_eq!(found.gateway, ip("10.0.1.1"));
        let round = pick(&set, Some(ip("10.0.1.2")), &[], |a| a == ip("10.0.1.2"));
        assert_eq!(round.map(|p| p.address), Some(ip("10.0.0.2")));
    }

    #[test]
    fn an_address_that_is_asked_for_is_given_or_none() {
        let set = [range("10.0.0.0/24")];
        let asked = [ip("10.0.0.77")];
        let found = pick(&set, None, &asked, |_| false).map(|p| p.address);
        assert_eq!(found, Some(asked[0]));
        assert_eq!(pick(&set, None, &asked, |a| a == asked[0]), None);
    }

    #[test]
    fn subnets_without_room_or_with_host_bits_are_refused() {
        for subnet in ["10.0.0.0/31", "10.0.0.1/24", "fd00::/127"] {
            let subnet = subnet.parse().expect("a subnet");
            assert!(Range::new(subnet, None, None, None).is_err(), "{subnet}");
        }
        assert_eq!(range("fd00::/64").gateway, ip("fd00::1"));
    }

    proptest! {
        #[test]
        fn no_address_is_given_twice_and_none_is_lost(prefix in 24_u8..=30, churn in proptest::collection::vec(any::<u8>(), 0..300)) {
            let set = [range(&format!("10.9.8.0/{prefix}"))];
            let mut taken: Vec<IpAddr> = Vec::new();
            let mut last = None;
            for dice in churn {
                match dice % 3 {
                    0 if !taken.is_empty() => { taken.remove(usize::from(dice) % taken.len()); }
                    _ => if let Some(found) = pick(&set, last, &[], |a| taken.contains(&a)) {
                        prop_assert!(!taken.contains(&found.address));
                        taken.push(found.address);
                        last = Some(found.address);
                    } else {
                        prop_assert_eq!(taken.len() as u128, set[0].size());
                    }
                }
            }
        }
    }
}
