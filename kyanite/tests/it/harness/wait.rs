//! Waiting for a condition, always with a deadline and with the last thing seen in the message.

use std::time::{Duration, Instant};

/// Generous, because two busy cores are slow; no passing test waits that long.
const DEADLINE: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(20);

/// Calls `look` until it gives a value; panics with its last complaint after the deadline.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(value) => return value,
            Err(seen) => assert!(
                start.elapsed() < DEADLINE,
                "{what}: not within {DEADLINE:?}; last: {seen}"
            ),
        }
        pause();
    }
}

/// As [`eventually`], for conditions that are asked asynchronously.
pub(crate) async fn eventually_async<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let start = Instant::now();
    loop {
        match look().await {
            Ok(value) => return value,
            Err(seen) => assert!(
                start.elapsed() < DEADLINE,
                "{what}: not within {DEADLINE:?}; last: {seen}"
            ),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one pause between two looks at another process"
)]
fn pause() {
    std::thread::sleep(PAUSE);
}
