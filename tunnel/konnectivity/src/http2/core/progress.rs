//! Whether a peer takes what is sent.

use crate::http2::stream::{Stream, lock};

/// How far a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Something waits because the peer's windows are closed.
    pub(crate) shut_out: bool,
    /// How often the peer has opened them.
    pub(crate) openings: u64,
    /// How often it has answered a ping.
    pub(crate) pongs: u64,
}

impl Stream {
    pub(crate) fn progress(&self) -> Progress {
        let core = lock(&self.shared);
        let stream = core.streams.get(&self.id);
        let shut_out = |window: i64| window <= 0 || core.send_window <= 0;
        Progress {
            shut_out: stream.is_some_and(|s| s.pending_bytes > 0 && shut_out(s.send_window)),
            openings: core.openings,
            pongs: core.pongs,
        }
    }

    /// Asks whether the peer is there; the answer counts as progress.
    pub(crate) fn ping(&self) {
        let mut core = lock(&self.shared);
        core.ping();
        core.nudge();
    }
}
