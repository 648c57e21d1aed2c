//! Amounts of resources, one array for each resource.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Row;
use crate::ask::{Requests, amount, nanos};
use crate::symbols::{Sym, Symbols};

/// The column of CPU, in thousandths.
pub const CPU: usize = 0;
/// The column of memory, in bytes.
pub const MEMORY: usize = 1;
const EPHEMERAL: usize = 2;

/// One resource on every node.
#[derive(Debug)]
pub struct Column {
    /// Its name.
    pub name: Sym,
    /// What can be had.
    pub allocatable: Vec<i64>,
    /// What pods have asked for.
    pub requested: Vec<i64>,
}

/// Every resource on every node.
#[derive(Debug, Default)]
pub struct Columns {
    /// CPU, memory and ephemeral storage, then others as they are met.
    pub all: Vec<Column>,
    /// How many pods a node takes.
    pub pods_allowed: Vec<i64>,
    /// How many it has.
    pub pods: Vec<i64>,
    /// CPU and memory as they are scored.
    pub scored: [Vec<i64>; 2],
    rows: usize,
}

impl Columns {
    pub(super) fn new(symbols: &mut Symbols) -> Columns {
        let mut columns = Columns::default();
        for name in ["cpu", "memory", "ephemeral-storage"] {
            columns.column(symbols.of(name));
        }
        columns
    }

    pub(super) fn grow(&mut self, rows: usize) {
        self.rows = rows;
        for column in &mut self.all {
            column.allocatable.resize(rows, 0);
            column.requested.resize(rows, 0);
        }
        self.pods_allowed.resize(rows, 0);
        self.pods.resize(rows, 0);
        self.scored.iter_mut().for_each(|c| c.resize(rows, 0));
    }

    /// Which column a resource has; it gets one if it has none.
    pub fn column(&mut self, name: Sym) -> usize {
        if let Some(known) = self.known(name) {
            return known;
        }
        self.all.push(Column {
            name,
            allocatable: vec![0; self.rows],
            requested: vec![0; self.rows],
        });
        self.all.len() - 1
    }

    /// Which column a resource has, if any.
    pub fn known(&self, name: Sym) -> Option<usize> {
        self.all.iter().position(|column| column.name == name)
    }

    /// A node has this to give; tells whether that is news.
    pub(super) fn allocate(
        &mut self,
        symbols: &mut Symbols,
        row: Row,
        allocatable: Option<&BTreeMap<String, Quantity>>,
    ) -> bool {
        let mut amounts = vec![0; self.all.len()];
        let mut pods = 0;
        for (name, quantity) in allocatable.into_iter().flatten() {
            if name == "pods" {
                pods = amount(nanos(quantity), false);
                continue;
            }
            let column = self.column(symbols.of(name));
            amounts.resize(self.all.len(), 0);
            amounts[column] = amount(nanos(quantity), column == CPU);
        }
        let mut is_news = std::mem::replace(&mut self.pods_allowed[row], pods) != pods;
        for (column, amount) in self.all.iter_mut().zip(amounts) {
            is_news |= std::mem::replace(&mut column.allocatable[row], amount) != amount;
        }
        is_news
    }

    /// A pod takes what it asks for, or gives it back.
    pub(super) fn take(&mut self, row: Row, requests: &Requests, sign: i64) {
        self.pods[row] += sign;
        for (scored, amount) in self.scored.iter_mut().zip(requests.scored) {
            scored[row] += sign * amount;
        }
        for &(name, amount) in &requests.amounts {
            let column = self.column(name);
            self.all[column].requested[row] += sign * amount;
        }
    }

    /// Whether a resource is one that only some nodes have: those are scored only where they are asked for.
    pub fn is_scalar(column: usize) -> bool {
        column > EPHEMERAL
    }
}
