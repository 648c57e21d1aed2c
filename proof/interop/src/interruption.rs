//! Being told to end (SIGINT, SIGTERM): the program that is waited for is ended, every wait gives up, and
//! so the scenario returns and takes with it what it has started. Whatever is started has a process group of
//! its own: an interrupt from the terminal is for us, who end the rest in order.

use std::process::Child;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

/// Ours.
pub(crate) static INTERRUPTION: Interruption = Interruption::new();

/// Whether we were told, and which programs are waited for.
pub(crate) struct Interruption {
    told: AtomicBool,
    waited_for: Mutex<Vec<Pid>>,
}

impl Interruption {
    const fn new() -> Interruption {
        Interruption {
            told: AtomicBool::new(false),
            waited_for: Mutex::new(Vec::new()),
        }
    }

    /// From now on signals are heard, in a thread of their own that lives as long as we do.
    pub(crate) fn listen(&'static self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("cannot listen to signals")?;
        let [mut interrupt, mut terminate] = {
            let _inside = runtime.enter();
            [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
            ]
        };
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            self.tell();
            // Goes on holding the signals: a second one must not end us halfway.
            runtime.block_on(std::future::pending::<()>());
        });
        Ok(())
    }

    /// An error once we were told to end.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(!self.told(), "interrupted");
        Ok(())
    }

    pub(crate) fn told(&self) -> bool {
        self.told.load(SeqCst)
    }

    /// To be held while a program is waited for.
    pub(crate) fn wait_for(&self, child: &Child) -> Waited<'_> {
        let pid = Pid::from_raw(child.id().cast_signed()).expect("a process has a number");
        self.pids().push(pid);
        Waited(self, pid)
    }

    fn tell(&self) {
        let pids = self.pids();
        self.told.store(true, SeqCst);
        for pid in pids.iter() {
            // Gone already is as good.
            let _ = kill_process(*pid, Signal::TERM);
        }
    }

    fn pids(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.waited_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A program that is waited for.
pub(crate) struct Waited<'a>(&'a Interruption, Pid);

impl Drop for Waited<'_> {
    fn drop(&mut self) {
        self.0.pids().retain(|pid| *pid != self.1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    #[test]
    fn only_what_is_waited_for_is_ended() {
        let interruption = Interruption::new();
        let sleep = || Command::new("sleep").arg("600").spawn().unwrap();
        let (mut waited, mut other) = (sleep(), sleep());
        drop(interruption.wait_for(&other));
        let held = interruption.wait_for(&waited);
        interruption.check().unwrap();
        interruption.tell();
        assert_eq!(waited.wait().unwrap().signal(), Some(15));
        drop(held);
        assert!(other.try_wait().unwrap().is_none(), "still there");
        other.kill().unwrap();
        other.wait().unwrap();
        let error = interruption.check().unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
    }
}
