//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::interruption::INTERRUPTION;

/// Long enough for a leader election, a rate limit and a slow machine together.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// Tries until it succeeds; after the deadline the last error is the reason. Gives up when we are told to end.
pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() > deadline => {
                return Err(error)
                    .with_context(|| format!("waited {} s until {what}", PATIENCE.as_secs()));
            }
            Err(_) => {
                INTERRUPTION.check()?;
                pause(PAUSE);
            }
        }
    }
}

/// Between two looks at a condition that has a deadline.
#[expect(
    clippy::disallowed_methods,
    reason = "the caller has a deadline and looks again"
)]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
