//! What evaluations may cost.

use crate::error::{Error, Result};

/// What one evaluation may cost (upstream's `PerCallLimit`).
pub const PER_CALL: u64 = 1_000_000;
/// What all rules of an object, or one binding of a policy, may cost together.
pub const PER_OBJECT: u64 = 10_000_000;
/// What all match conditions of one webhook or policy may cost together.
pub const MATCH_CONDITIONS: u64 = 2_500_000;

/// What is left for a group of evaluations.
#[derive(Debug, Clone)]
pub struct Budget {
    left: u64,
    per_call: u64,
}

impl Budget {
    /// So much for all, upstream's limit for each.
    pub fn new(total: u64) -> Budget {
        Budget {
            left: total,
            per_call: PER_CALL,
        }
    }

    /// What is left.
    pub fn left(&self) -> u64 {
        self.left
    }

    pub(crate) fn meter(&self) -> Meter {
        Meter {
            spent: 0,
            limit: self.per_call.min(self.left),
        }
    }

    pub(crate) fn charge(&mut self, meter: &Meter) {
        self.left = self.left.saturating_sub(meter.spent);
    }
}

/// What one evaluation has cost so far.
#[derive(Debug)]
pub struct Meter {
    spent: u64,
    limit: u64,
}

impl Meter {
    pub(crate) fn charge(&mut self, cost: u64) -> Result<()> {
        self.spent = self.spent.saturating_add(cost);
        match self.spent > self.limit {
            true => Err(Error::too_costly()),
            false => Ok(()),
        }
    }

    /// What was spent.
    pub fn spent(&self) -> u64 {
        self.spent
    }
}
