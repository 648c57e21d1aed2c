//! Memory that callers share: what they hold of it, each and together.
//!
//! The bound of each is a part of what is free, so one caller can have much while nobody else wants any, and a crowd
//! that fills it cannot keep out somebody who holds nothing yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One caller may hold this part of what is free.
const PART: usize = 4;
/// What a caller may hold whatever the others do.
const FLOOR: usize = 1 << 20;

/// So many bytes for everybody.
#[derive(Debug)]
pub(crate) struct Budget {
    all: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    together: usize,
    by: HashMap<Arc<str>, usize>,
}

impl Budget {
    /// A budget of so many bytes.
    pub(crate) fn new(all: usize) -> Arc<Budget> {
        let held = Mutex::default();
        Arc::new(Budget { all, held })
    }

    /// Whether a caller may take more, whatever it is they have in mind.
    pub(crate) fn has_room(&self, caller: &str) -> bool {
        let held = lock(&self.held);
        let own = held.by.get(caller).copied().unwrap_or(0);
        let free = self.all.saturating_sub(held.together);
        own <= (free / PART).max(FLOOR)
    }

    /// Takes so much of it: what is there already can only be counted.
    pub(crate) fn charge(self: &Arc<Self>, caller: &str, bytes: usize) -> Share {
        let mut held = lock(&self.held);
        held.together += bytes;
        let caller = match held.by.get_key_value(caller) {
            Some((known, _)) => Arc::clone(known),
            None => caller.into(),
        };
        *held.by.entry(Arc::clone(&caller)).or_default() += bytes;
        let budget = Arc::clone(self);
        Share {
            budget,
            caller,
            bytes,
        }
    }
}

/// A part of the budget, until dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    caller: Arc<str>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = lock(&self.budget.held);
        held.together -= self.bytes;
        if let Some(own) = held.by.get_mut(&self.caller) {
            *own -= self.bytes;
            if *own == 0 {
                held.by.remove(&self.caller);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn one_caller_has_a_part_of_what_is_free_and_no_more() {
        let budget = Budget::new(100 * MIB);
        let mut shares = Vec::new();
        while budget.has_room("a") {
            shares.push(budget.charge("a", MIB));
        }
        assert_eq!(shares.len(), 21, "x <= (100 - x) / 4 ends past 20");
        assert!(budget.has_room("b"));
        shares.clear();
        assert!(budget.has_room("a"));
        assert!(lock(&budget.held).by.is_empty());
    }

    #[test]
    fn a_crowd_that_holds_all_keeps_nobody_out_who_holds_little() {
        let budget = Budget::new(10 * MIB);
        let crowd: Vec<Share> = (0..100)
            .map(|n| budget.charge(&format!("caller {n}"), 2 * MIB))
            .collect();
        assert!(!budget.has_room("caller 0"));
        assert!(budget.has_room("somebody"));
        drop(crowd);
        assert_eq!(lock(&budget.held).together, 0);
    }
}
