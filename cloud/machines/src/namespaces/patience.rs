//! Waiting for what nobody announces: the kernel letting go of something, a process of somebody else's ending.

use std::time::{Duration, Instant};

use crate::Error;

/// Looks until it is so; false when it is not so within this time.
#[expect(
    clippy::disallowed_methods,
    reason = "there is nothing to wait on but looking again, and it has an end"
)]
pub(super) fn wait_until(
    patience: Duration,
    mut is_so: impl FnMut() -> Result<bool, Error>,
) -> Result<bool, Error> {
    let deadline = Instant::now() + patience;
    loop {
        if is_so()? {
            return Ok(true);
        }
        if Instant::now() > deadline {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
