//! What a strict decoder would complain about: unknown and duplicate fields.

use std::collections::HashSet;

use crate::path::Path;

/// Upstream stops collecting here, so that a hostile body cannot grow the answer.
const MAX_ERRORS: usize = 100;

/// Complaints in the order found, without repetitions, in upstream's words.
#[derive(Debug, Default)]
pub(crate) struct StrictErrors {
    found: Vec<String>,
    seen: HashSet<String>,
}

impl StrictErrors {
    pub(crate) fn unknown(&mut self, at: &Path<'_>) {
        self.push(|| format!("unknown field {:?}", at.strict()));
    }

    pub(crate) fn duplicate(&mut self, at: &Path<'_>) {
        self.push(|| format!("duplicate field {:?}", at.strict()));
    }

    fn push(&mut self, message: impl FnOnce() -> String) {
        if self.found.len() >= MAX_ERRORS {
            return;
        }
        let message = message();
        if self.seen.insert(message.clone()) {
            self.found.push(message);
        }
    }

    pub(crate) fn into_messages(self) -> Vec<String> {
        self.found
    }
}
