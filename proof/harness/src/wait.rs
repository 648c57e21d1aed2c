//! Waiting for a condition, always with a deadline and with the last thing seen in the message.

use std::time::{Duration, Instant};

/// Generous, because two busy cores are slow; no passing test waits that long.
const DEADLINE: Duration = Duration::from_secs(240);
/// For a whole test that talks to others.
const WHOLE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(20);

/// What one look at a condition may say.
pub trait Look {
    /// What is there once the condition holds.
    type Found;

    /// That, or what was seen instead.
    fn judged(self) -> Result<Self::Found, String>;
}

impl Look for bool {
    type Found = ();

    fn judged(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "it is not so".to_owned())
    }
}

impl<T> Look for Option<T> {
    type Found = T;

    fn judged(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: std::fmt::Display> Look for Result<T, E> {
    type Found = T;

    fn judged(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// Looks until there is something; panics with what was seen last after the deadline.
#[track_caller]
pub fn eventually<L: Look>(what: &str, mut look: impl FnMut() -> L) -> L::Found {
    let start = Instant::now();
    loop {
        match look().judged() {
            Ok(found) => return found,
            Err(seen) => check(what, start.elapsed(), &seen),
        }
        pause();
    }
}

/// As [`eventually`], for conditions that are asked asynchronously. With a paused clock the pauses take no time.
pub async fn eventually_async<L: Look>(what: &str, mut look: impl AsyncFnMut() -> L) -> L::Found {
    let start = tokio::time::Instant::now();
    loop {
        match look().await.judged() {
            Ok(found) => return found,
            Err(seen) => check(what, start.elapsed(), &seen),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Work that waits for others without a limit of its own: a test that would hang fails.
pub async fn in_time<T>(work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WHOLE, work).await {
        Ok(done) => done,
        Err(_) => panic!("it hangs: not done within {WHOLE:?}"),
    }
}

#[track_caller]
fn check(what: &str, waited: Duration, seen: &str) {
    assert!(
        waited < DEADLINE,
        "{what}: not within {DEADLINE:?}; last: {seen}"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one pause between two looks at another process"
)]
fn pause() {
    std::thread::sleep(PAUSE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_at_a_later_look_is_found() {
        let mut looks = 0;
        let found = eventually("the third look", || {
            looks += 1;
            (looks == 3).then_some("it")
        });
        assert_eq!((looks, found), (3, "it"));
        let mut looks = 0;
        eventually("the second look", || {
            looks += 1;
            looks == 2
        });
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "it hangs: not done within 600s")]
    async fn what_hangs_is_a_failure() {
        in_time(std::future::pending::<()>()).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "a miracle: not within 240s; last: still nothing")]
    async fn what_never_comes_is_a_failure_that_says_what_was_seen() {
        eventually_async("a miracle", async || Err::<(), _>("still nothing")).await;
    }
}
