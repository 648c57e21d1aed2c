//! Gives every node a part of the cluster's address range for its pods (upstream's range allocator).

mod cidr_set;
mod shell;

use std::collections::HashMap;

use ipnet::IpNet;

use super::settings::NodeIpam;
use cidr_set::CidrSet;
pub(crate) use shell::start;

/// Who has which part.
#[derive(Debug)]
pub(crate) struct Allocator {
    /// One per family.
    sets: Vec<CidrSet>,
    held: HashMap<String, Vec<IpNet>>,
}

/// No part is left for a node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl Allocator {
    pub(crate) fn new(settings: &NodeIpam) -> Allocator {
        let ranges = settings.cluster_cidrs.iter();
        let part = |range: &IpNet| {
            let mut set = CidrSet::new(*range, settings.mask_size(range));
            for reserved in &settings.reserved {
                set.occupy(reserved);
            }
            set
        };
        Allocator {
            sets: ranges.map(part).collect(),
            held: HashMap::new(),
        }
    }

    /// A node has these ranges already, from us or from somebody else: nobody else may get them. Gives those that
    /// are no part of ours.
    pub(crate) fn occupy(&mut self, node: &str, cidrs: &[String]) -> Vec<String> {
        let parsed = |text: &String| text.parse::<IpNet>().ok();
        let theirs: Vec<IpNet> = cidrs.iter().filter_map(parsed).collect();
        if self.held.get(node) != Some(&theirs) {
            self.release(node);
        }
        let foreign = cidrs.iter().filter(|text| {
            !parsed(text).is_some_and(|net| self.sets.iter_mut().any(|set| set.occupy(&net)))
        });
        let foreign = foreign.cloned().collect();
        self.held.insert(node.to_owned(), theirs);
        foreign
    }

    /// The ranges of a node: those that were set aside for it before, or new ones.
    pub(crate) fn allocate(&mut self, node: &str) -> Result<Vec<IpNet>, Exhausted> {
        if let Some(held) = self.held.get(node) {
            return Ok(held.clone());
        }
        let mut parts = Vec::new();
        for set in &mut self.sets {
            parts.extend(set.allocate());
        }
        if parts.len() < self.sets.len() {
            self.give_back(&parts);
            return Err(Exhausted);
        }
        self.held.insert(node.to_owned(), parts.clone());
        Ok(parts)
    }

    /// A node has gone. Gives whether it had anything.
    pub(crate) fn release(&mut self, node: &str) -> bool {
        let held = self.held.remove(node);
        if let Some(parts) = &held {
            self.give_back(parts);
        }
        held.is_some()
    }

    fn give_back(&mut self, parts: &[IpNet]) {
        for part in parts {
            self.sets.iter_mut().for_each(|set| {
                set.release(part);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn allocator(ranges: &[&str], reserved: &[&str]) -> Allocator {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let mut settings = NodeIpam::new(nets(ranges));
        settings.reserved = nets(reserved);
        Allocator::new(&settings)
    }

    fn texts(parts: Result<Vec<IpNet>, Exhausted>) -> Vec<String> {
        parts.unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_node_gets_a_part_of_each_family_once() {
        let mut allocator = allocator(&["10.244.0.0/16", "fd00::/56"], &[]);
        let parts = ["10.244.0.0/24", "fd00::/64"];
        assert_eq!(texts(allocator.allocate("a")), parts);
        assert_eq!(texts(allocator.allocate("a")), parts, "asked again");
        assert_eq!(
            texts(allocator.allocate("b")),
            ["10.244.1.0/24", "fd00:0:0:1::/64"]
        );
    }

    #[test]
    fn after_a_restart_nobody_gets_what_a_node_has() {
        let mut allocator = allocator(&["10.244.0.0/22"], &["10.244.3.0/24"]);
        assert!(allocator.occupy("a", &["10.244.0.0/24".into()]).is_empty());
        assert_eq!(
            allocator.occupy("b", &["192.168.0.0/24".into()]),
            ["192.168.0.0/24"]
        );
        assert_eq!(texts(allocator.allocate("c")), ["10.244.1.0/24"]);
        assert_eq!(texts(allocator.allocate("d")), ["10.244.2.0/24"]);
        assert_eq!(
            allocator.allocate("e"),
            Err(Exhausted),
            "the services' range is not for nodes"
        );
        assert!(allocator.release("a") && !allocator.release("a"));
        assert_eq!(texts(allocator.allocate("e")), ["10.244.0.0/24"]);
    }

    #[test]
    fn what_somebody_else_wrote_counts_and_ours_is_given_back() {
        let mut allocator = allocator(&["10.244.0.0/23"], &[]);
        assert_eq!(texts(allocator.allocate("a")), ["10.244.0.0/24"]);
        allocator.occupy("a", &["10.244.1.0/24".into()]);
        assert_eq!(texts(allocator.allocate("b")), ["10.244.0.0/24"]);
        assert_eq!(allocator.allocate("c"), Err(Exhausted));
    }

    #[test]
    fn one_exhausted_family_leaves_the_other_untouched() {
        let mut allocator = allocator(&["10.244.0.0/24", "fd00::/63"], &[]);
        allocator.allocate("a").unwrap();
        assert_eq!(allocator.allocate("b"), Err(Exhausted));
        allocator.release("a");
        assert_eq!(
            texts(allocator.allocate("b")),
            ["10.244.0.0/24", "fd00::/64"]
        );
    }
}
