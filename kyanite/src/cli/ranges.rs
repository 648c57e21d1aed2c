//! Ranges of service addresses, as upstream's `--service-cluster-ip-range` takes them.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// One range, or one of each family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<IpNet>);

/// Reads a list with commas in between.
pub(super) fn parse(text: &str) -> Result<Ranges, String> {
    let ranges = text.split(',').map(|range| {
        let range = range.trim();
        range
            .parse::<IpNet>()
            .map_err(|e| format!("`{range}` is no range of addresses such as 10.0.0.0/16: {e}"))
    });
    let ranges: Vec<IpNet> = ranges.collect::<Result<_, _>>()?;
    match ranges.as_slice() {
        [_] => Ok(Ranges(ranges)),
        [first, second] if is_v4(*first) != is_v4(*second) => Ok(Ranges(ranges)),
        [_, _] => Err("two ranges must be of two families, one IPv4 and one IPv6".to_owned()),
        _ => Err("there are at most two ranges, one IPv4 and one IPv6".to_owned()),
    }
}

fn is_v4(range: IpNet) -> bool {
    matches!(range, IpNet::V4(_))
}

impl Ranges {
    pub(crate) fn all(&self) -> &[IpNet] {
        &self.0
    }

    /// The n-th address of each range, counted from its network's own.
    pub(crate) fn nth(&self, number: u32) -> impl Iterator<Item = IpAddr> {
        self.0.iter().map(move |range| match range {
            IpNet::V4(range) => {
                let address = u32::from(range.network()).saturating_add(number);
                IpAddr::from(address.to_be_bytes())
            }
            IpNet::V6(range) => {
                let address = u128::from(range.network()).saturating_add(u128::from(number));
                IpAddr::from(address.to_be_bytes())
            }
        })
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(IpNet::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_or_one_of_each_family_is_taken() {
        for text in [
            "10.0.0.0/16",
            "fd00::/108",
            "10.0.0.0/16,fd00::/108",
            "fd00::/108,10.0.0.0/16",
        ] {
            assert_eq!(
                parse(text).map(|ranges| ranges.to_string()),
                Ok(text.to_owned())
            );
        }
        for (text, why) in [
            ("10.0.0.0/16,10.1.0.0/16", "two families"),
            ("10.0.0.0/16,fd00::/108,fd01::/108", "at most two"),
            ("10.0.0.0", "no range"),
            ("", "no range"),
        ] {
            let refused = parse(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn addresses_are_counted_from_the_networks_own() {
        let ranges = parse("10.0.0.0/16,fd00::/108").expect("ranges");
        let tenth: Vec<String> = ranges.nth(10).map(|ip| ip.to_string()).collect();
        assert_eq!(tenth, ["10.0.0.10", "fd00::a"]);
    }
}
