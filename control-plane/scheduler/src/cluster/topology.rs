//! Labels as places: for each label that anybody spreads or gathers by, which domain each node is in.

use std::collections::HashMap;

use super::{Node, Row};
use crate::symbols::{Labels, Sym};

/// A node without the label is in no domain.
pub const NOWHERE: u32 = u32::MAX;

/// One label.
#[derive(Debug)]
pub struct Place {
    /// Which.
    pub key: Sym,
    /// The domain of each node, or [`NOWHERE`].
    pub domains: Vec<u32>,
    numbers: HashMap<Sym, u32>,
}

impl Place {
    fn domain(&mut self, labels: &Labels) -> u32 {
        let Some(value) = labels.get(self.key) else {
            return NOWHERE;
        };
        let next = u32::try_from(self.numbers.len()).expect("fewer domains than texts");
        *self.numbers.entry(value).or_insert(next)
    }

    /// How many domains there ever were.
    pub fn domain_count(&self) -> usize {
        self.numbers.len()
    }
}

/// Every label that matters.
#[derive(Debug, Default)]
pub struct Topology {
    /// By number.
    pub places: Vec<Place>,
    rows: usize,
}

impl Topology {
    pub(super) fn grow(&mut self, rows: usize) {
        self.rows = rows;
        for place in &mut self.places {
            place.domains.resize(rows, NOWHERE);
        }
    }

    pub(super) fn place(&mut self, row: Row, labels: &Labels) {
        for place in &mut self.places {
            let domain = place.domain(labels);
            place.domains[row] = domain;
        }
    }

    /// The number of a label; it gets one, and every node its place, if it has none.
    pub fn number(&mut self, key: Sym, nodes: &[Node]) -> usize {
        if let Some(known) = self.places.iter().position(|place| place.key == key) {
            return known;
        }
        let mut place = Place {
            key,
            domains: Vec::with_capacity(nodes.len()),
            numbers: HashMap::new(),
        };
        for node in nodes {
            let domain = place.domain(&node.labels);
            place.domains.push(domain);
        }
        place.domains.resize(self.rows, NOWHERE);
        self.places.push(place);
        self.places.len() - 1
    }
}
