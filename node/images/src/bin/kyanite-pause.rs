//! Holds a pod's namespaces and does nothing: it sleeps until it is told to end, and buries orphans of the pod when
//! it is their first process.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

fn main() {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGCHLD] {
        signals.add(signal);
    }
    // Blocked signals wait until they are asked for, so that none is missed.
    if signals.thread_block().is_err() {
        std::process::exit(1);
    }
    while let Ok(signal) = signals.wait() {
        match signal {
            Signal::SIGCHLD => bury(),
            _ => return,
        }
    }
}

fn bury() {
    let anybody = || waitpid(None, Some(WaitPidFlag::WNOHANG));
    while !matches!(anybody(), Err(_) | Ok(WaitStatus::StillAlive)) {}
}
