//! Now, by a clock that never jumps and by the one on the wall.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Since some fixed moment.
    pub(crate) at: SignedDuration,
    /// What is written into objects, and what ages are reckoned by.
    pub(crate) wall: Timestamp,
}

/// Counts from the moment it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn now(self) -> Moment {
        Moment {
            at: SignedDuration::try_from(self.0.elapsed()).unwrap_or(SignedDuration::MAX),
            wall: Timestamp::now(),
        }
    }

    /// When a moment comes, for sleeping.
    pub(crate) fn instant(self, at: SignedDuration) -> Instant {
        self.0 + Duration::try_from(at).unwrap_or_default()
    }
}
