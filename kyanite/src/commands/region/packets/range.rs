//! Which public addresses are a cloud's: a part of those that the Internet has for tests of networks (RFC 2544), another
//! part for every data directory, so that clouds of one host do not meet.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use sha2::{Digest as _, Sha256};

use crate::datadir::{DataDir, make_private, write_private};
use crate::exit::Result;

const ALL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15);
/// How long the prefix of a part is: a thousand addresses.
const PART: u8 = 22;
/// What this host routes, as the kernel lists it.
const ROUTES: &str = "/proc/net/route";

/// The range of a data directory; chosen once.
pub(super) fn of(home: &DataDir) -> Result<Ipv4Net> {
    let place = home.path().join("azure");
    let file = place.join("public-addresses");
    let kept = std::fs::read_to_string(&file).ok();
    if let Some(kept) = kept.and_then(|text| text.trim().parse().ok()) {
        return Ok(kept);
    }
    let digest = Sha256::digest(home.path().as_os_str().as_encoded_bytes());
    let first = usize::from(u16::from_be_bytes([digest[0], digest[1]]));
    let routes = std::fs::read_to_string(ROUTES).unwrap_or_default();
    let chosen = choose(first, &destinations(&routes));
    make_private(&place)?;
    write_private(&file, chosen.to_string().as_bytes())?;
    Ok(chosen)
}

/// The first part from here on that this host has no way to; the first of all where it has ways to all.
fn choose(first: usize, routed: &[Ipv4Net]) -> Ipv4Net {
    let parts: Vec<Ipv4Net> = ALL.subnets(PART).into_iter().flatten().collect();
    let first = first % parts.len();
    let in_turn = parts[first..].iter().chain(&parts[..first]);
    let meets = |part: &Ipv4Net, route: &Ipv4Net| {
        part.contains(&route.network()) || route.contains(&part.network())
    };
    let mut free = in_turn.filter(|part| !routed.iter().any(|route| meets(part, route)));
    *free.next().unwrap_or(&parts[first])
}

/// Where a table of routes leads, but for the default.
fn destinations(table: &str) -> Vec<Ipv4Net> {
    let number = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::swap_bytes);
    let route = |line: &str| {
        let mut words = line.split_whitespace();
        let to = number(words.nth(1)?)?;
        let mask = number(words.nth(5)?)?;
        let length = u8::try_from(mask.count_ones())
            .ok()
            .filter(|length| *length > 0)?;
        Ipv4Net::new(to.into(), length).ok()
    };
    table.lines().skip(1).filter_map(route).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const TABLE: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        ky-1\t040812C6\t10813FA8\t0007\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n";

    #[test]
    fn a_part_that_somebody_has_is_not_taken() {
        let routed = destinations(TABLE);
        assert_eq!(routed, ["198.18.8.4/32".parse::<Ipv4Net>().unwrap()]);
        assert_eq!(choose(1, &routed).to_string(), "198.18.4.0/22");
        assert_eq!(choose(2, &routed).to_string(), "198.18.12.0/22");
        assert_eq!(choose(128, &routed).to_string(), "198.18.0.0/22");
        assert_eq!(choose(127, &[]).to_string(), "198.19.252.0/22");
        assert_eq!(choose(3, &[ALL]).to_string(), "198.18.12.0/22");
    }
}
