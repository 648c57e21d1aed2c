//! Whose turn it is with something. An order that a newer one takes the place of is not waited for, but what it has
//! begun goes on to its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The turn with one thing.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn(Arc<Mutex<()>>);

impl Turn {
    /// Waits for it.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody has it.
    pub(super) fn is_taken(&self) -> bool {
        self.0.try_lock().is_err()
    }
}

/// The turns with all things, by their resource ids.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<String, Turn>>);

impl Turns {
    pub(super) fn of(&self, id: &str) -> Turn {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.entry(id.to_lowercase()).or_default().clone()
    }
}
