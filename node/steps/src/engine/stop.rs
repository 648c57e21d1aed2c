//! The run's one brake: why it ends early, and a way to wake whoever waits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Why a run ends before its last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A step failed: waiting and retrying end, commands that run may finish.
    Failed = 1,
    /// Somebody asked for the end: commands are stopped too.
    Cancelled = 2,
}

/// Shared by everything in a run; clones are the same brake.
#[derive(Debug, Clone)]
pub struct Stop(Arc<Brake>);

#[derive(Debug)]
struct Brake {
    reason: AtomicU8,
    /// Readable once pulled: what sleeps, sleeps in `poll`.
    failed: OwnedFd,
    cancelled: OwnedFd,
    /// Those that are cancelled with it.
    parts: Mutex<Vec<Weak<Brake>>>,
}

impl Stop {
    /// A brake that has not been pulled.
    pub fn new() -> std::io::Result<Stop> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Stop(Arc::new(Brake {
            reason: AtomicU8::new(0),
            failed: event()?,
            cancelled: event()?,
            parts: Mutex::default(),
        })))
    }

    /// A brake for a part: cancelled with this one, while its failures are its own.
    pub fn part(&self) -> std::io::Result<Stop> {
        let part = Stop::new()?;
        {
            let mut parts = self.parts();
            parts.retain(|part| part.strong_count() > 0);
            parts.push(Arc::downgrade(&part.0));
        }
        if self.cancelled() {
            part.pull(Reason::Cancelled);
        }
        Ok(part)
    }

    fn parts(&self) -> MutexGuard<'_, Vec<Weak<Brake>>> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pulls it. A cancellation outranks a failure.
    pub fn pull(&self, reason: Reason) {
        self.0.reason.fetch_max(reason as u8, Ordering::SeqCst);
        let one = 1_u64.to_ne_bytes();
        // A full counter is as readable as a fresh one.
        let _ = rustix::io::write(&self.0.failed, &one);
        if reason == Reason::Cancelled {
            let _ = rustix::io::write(&self.0.cancelled, &one);
            for part in self.parts().iter().filter_map(Weak::upgrade) {
                Stop(part).pull(reason);
            }
        }
    }

    /// Why, if it was pulled.
    pub fn reason(&self) -> Option<Reason> {
        match self.0.reason.load(Ordering::SeqCst) {
            0 => None,
            1 => Some(Reason::Failed),
            _ => Some(Reason::Cancelled),
        }
    }

    /// Whether children must end now.
    pub fn cancelled(&self) -> bool {
        self.reason() == Some(Reason::Cancelled)
    }

    /// Becomes readable on cancellation.
    pub fn cancelled_fd(&self) -> BorrowedFd<'_> {
        self.0.cancelled.as_fd()
    }

    /// Waits, unless and until the brake is pulled.
    pub fn sleep(&self, time: Duration) {
        let limit = Timespec::try_from(time).ok();
        let mut fds = [PollFd::new(&self.0.failed, PollFlags::IN)];
        // An interrupted wait is a shorter one: callers look at the clock.
        let _ = poll(&mut fds, limit.as_ref());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_part_is_cancelled_with_the_whole_and_fails_alone() {
        let whole = Stop::new().unwrap();
        let part = whole.part().unwrap();
        part.pull(Reason::Failed);
        assert_eq!(
            (part.reason(), whole.reason()),
            (Some(Reason::Failed), None)
        );
        whole.pull(Reason::Cancelled);
        assert!(part.cancelled() && whole.part().unwrap().cancelled());
    }
}
