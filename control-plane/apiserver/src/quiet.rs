//! Log lines that strangers can cause: a few, and then how many there would have been.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So many lines are written at once, and one more each [`EVERY`].
const BURST: u32 = 10;
const EVERY: Duration = Duration::from_secs(1);

/// How often one kind of line is written.
#[derive(Debug, Default)]
pub(crate) struct Quiet(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Lines that were written since `since`, less those that time has forgiven.
    spoken: u32,
    since: Option<Instant>,
    held_back: u64,
}

impl Quiet {
    /// Whether to write a line now; then with how many were held back before it.
    pub(crate) fn may_speak(&self) -> Option<u64> {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *state.since.get_or_insert(now);
        let forgiven = now.saturating_duration_since(since).as_secs() / EVERY.as_secs();
        if forgiven > 0 {
            let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
            state.spoken = state.spoken.saturating_sub(forgiven);
            state.since = Some(now);
        }
        if state.spoken >= BURST {
            state.held_back += 1;
            return None;
        }
        state.spoken += 1;
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_becomes_a_trickle_that_says_what_it_leaves_out() {
        let (quiet, start) = (Quiet::default(), Instant::now());
        let flood = |from: u64, to: u64| -> Vec<u64> {
            (from..to)
                .filter_map(|millis| quiet.at(start + Duration::from_millis(millis)))
                .collect()
        };
        assert_eq!(flood(0, 1_000), [0; 10]);
        assert_eq!(flood(1_000, 4_000), [990, 999, 999]);
        assert_eq!(flood(60_000, 60_100), [999, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
