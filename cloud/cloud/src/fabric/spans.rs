//! Sets of numbers: addresses or ports, as ranges beside each other. Pure.

use ipnet::Ipv4Net;

/// Ranges of numbers, both ends in them, in their order and with something between them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Spans(Vec<(u32, u32)>);

impl Spans {
    /// Every address.
    pub fn all_addresses() -> Spans {
        Spans(vec![(0, u32::MAX)])
    }

    /// Every port.
    pub fn all_ports() -> Spans {
        Spans(vec![(0, u32::from(u16::MAX))])
    }

    /// What is in any of these.
    pub fn of(mut all: Vec<(u32, u32)>) -> Spans {
        all.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::new();
        for (from, to) in all.into_iter().filter(|(from, to)| from <= to) {
            match joined.last_mut() {
                Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
                _ => joined.push((from, to)),
            }
        }
        Spans(joined)
    }

    /// The addresses of these networks.
    pub fn of_nets<'n>(nets: impl IntoIterator<Item = &'n Ipv4Net>) -> Spans {
        let ends = |net: &Ipv4Net| (u32::from(net.network()), u32::from(net.broadcast()));
        Spans::of(nets.into_iter().map(ends).collect())
    }

    /// The ranges.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a number is in it.
    pub fn contains(&self, number: u32) -> bool {
        let after = self.0.partition_point(|(from, _)| *from <= number);
        after > 0 && number <= self.0[after - 1].1
    }

    /// Every address that is not in it.
    pub fn other_addresses(&self) -> Spans {
        let mut others = Vec::new();
        let mut next = Some(0);
        for (from, to) in &self.0 {
            if let Some(start) = next.filter(|start| start < from) {
                others.push((start, from - 1));
            }
            next = to.checked_add(1);
        }
        others.extend(next.map(|start| (start, u32::MAX)));
        Spans(others)
    }

    /// What is in this or in the other.
    #[must_use]
    pub fn and(&self, other: &Spans) -> Spans {
        Spans::of(self.0.iter().chain(&other.0).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one_and_the_rest_is_the_rest() {
        let spans = Spans::of(vec![(10, 20), (0, 4), (21, 30), (5, 5), (40, 39)]);
        assert_eq!(spans.ranges(), [(0, 5), (10, 30)]);
        for (number, is_in) in [(0, true), (5, true), (6, false), (30, true), (31, false)] {
            assert_eq!(spans.contains(number), is_in, "{number}");
            assert_eq!(spans.other_addresses().contains(number), !is_in, "{number}");
        }
        assert_eq!(spans.and(&spans.other_addresses()), Spans::all_addresses());
        assert!(Spans::all_addresses().other_addresses().is_empty());
        assert_eq!(Spans::default().other_addresses(), Spans::all_addresses());
    }
}
