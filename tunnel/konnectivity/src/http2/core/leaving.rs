//! GOAWAY (RFC 9113, 6.8): no new streams here; those that are there go on.

use tokio::sync::oneshot;

use super::{Core, fault};
use crate::http2::frame::Code;
use crate::http2::stream::{Shared, Stream, lock};

/// Tells a connection's peer to look for another one.
pub(crate) struct Leaver {
    shared: Shared,
}

impl Leaver {
    /// Says so, once.
    pub(crate) fn leave(&self) {
        lock(&self.shared).leave();
    }
}

impl Stream {
    /// What tells the peer of this stream's connection to look for another one.
    pub(crate) fn leaver(&self) -> Leaver {
        let shared = self.shared.clone();
        Leaver { shared }
    }

    /// Hears of it when the peer says so; never, if the connection just ends.
    pub(crate) fn peer_leaves(&self) -> oneshot::Receiver<()> {
        let (told, hears) = oneshot::channel();
        let mut core = lock(&self.shared);
        core.leaving = Some(told);
        core.tell_leaving();
        hears
    }
}

impl Core {
    /// Says that nothing new is taken, once.
    pub(super) fn leave(&mut self) {
        if self.refusing || self.lost.is_some() {
            return;
        }
        self.refusing = true;
        self.say_goodbye(&fault(Code::NoError, ""));
        self.nudge();
    }

    /// Tells whoever wants to know that the peer takes nothing new.
    pub(super) fn tell_leaving(&mut self) {
        if self.going_away
            && let Some(told) = self.leaving.take()
        {
            // Nobody may listen any more.
            let _ = told.send(());
        }
    }
}
