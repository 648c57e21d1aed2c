//! The bounded queue between callers and the writer thread.
//!
//! Callers wait for room without blocking their thread; the writer takes all that is there at once,
//! and under load waits a little for more, which is what makes commits grow with it and stay single
//! without it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{Change, Error, Expect, Result, Revision, Written};

/// A batch is ended when it has this many bytes, so that no commit takes very long.
const BATCH_BYTES: usize = 4 << 20;

/// As many requests are worth a commit, whoever else may come; fewer than the other are not waited for.
const CROWD: usize = 32;
const FEW: usize = 8;
/// How long the others are waited for at a time, as long as some come, and in all.
const NAP: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(2);

/// A caller's wish and the way to answer it.
#[derive(Debug)]
pub(crate) enum Request {
    Write(Write),
    Compact {
        revision: Revision,
        reply: oneshot::Sender<Result<()>>,
    },
}

/// A conditional write waiting to be committed.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) key: Arc<str>,
    pub(crate) expect: Expect,
    pub(crate) change: Change,
    pub(crate) reply: oneshot::Sender<Result<Written>>,
}

impl Write {
    /// The bytes of key and value.
    pub(crate) fn bytes(&self) -> usize {
        let value = match &self.change {
            Change::Put { value, .. } => value.len(),
            Change::Delete => 0,
        };
        self.key.len() + value
    }
}

/// What the writer takes in one go.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) writes: Vec<Write>,
    pub(crate) compactions: Vec<(Revision, oneshot::Sender<Result<()>>)>,
    /// The queue is closed and empty: nothing will ever come again.
    pub(crate) ended: bool,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    room: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<(Request, OwnedSemaphorePermit)>,
    closed: bool,
}

impl Queue {
    /// A queue that holds this many requests.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            state: Mutex::default(),
            arrived: Condvar::new(),
            room: Arc::new(Semaphore::new(capacity)),
        }
    }

    /// Adds a request, waiting for room.
    pub(crate) async fn push(&self, request: Request) -> Result<()> {
        let permit = Arc::clone(&self.room).acquire_owned().await;
        let permit = permit.map_err(|_| closed())?;
        let mut state = self.lock();
        if state.closed {
            return Err(closed());
        }
        let first = state.requests.is_empty();
        state.requests.push_back((request, permit));
        drop(state);
        // The writer sleeps only while there is nothing; waking nobody would be a call to the system all the same.
        if first {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().requests.len()
    }

    /// Takes the requests of one batch, waiting for the first at most this long (`None`: for ever), and a little
    /// while for as many as the last time.
    pub(crate) fn take(&self, patience: Option<Duration>, crowd: usize) -> Taken {
        let mut state = self.gather(self.wait(patience), crowd.min(CROWD));
        let mut taken = Taken::default();
        let mut bytes = 0;
        while bytes < BATCH_BYTES {
            match state.requests.pop_front() {
                Some((Request::Write(write), _)) => {
                    bytes += write.bytes();
                    taken.writes.push(write);
                }
                Some((Request::Compact { revision, reply }, _)) => {
                    taken.compactions.push((revision, reply));
                }
                None => {
                    taken.ended = state.closed;
                    break;
                }
            }
        }
        taken
    }

    fn wait(&self, patience: Option<Duration>) -> MutexGuard<'_, State> {
        let idle = |state: &mut State| state.requests.is_empty() && !state.closed;
        let state = self.lock();
        match patience {
            None => self
                .arrived
                .wait_while(state, idle)
                .unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                self.arrived
                    .wait_timeout_while(state, patience, idle)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        }
    }

    // Whoever was answered together comes back together, if the machine is quick enough: one commit for all of them
    // costs as much as for the first. Nobody waits for those who do not come, and a few never wait.
    fn gather<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        crowd: usize,
    ) -> MutexGuard<'a, State> {
        let until = Instant::now() + LONGEST;
        let mut seen = 0;
        while more_may_come(seen, state.requests.len(), crowd)
            && !state.closed
            && Instant::now() < until
        {
            seen = state.requests.len();
            // Who comes to others wakes nobody.
            let waited = self.arrived.wait_timeout(state, NAP);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// Refuses new requests; the ones inside are still served.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        self.arrived.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn more_may_come(seen: usize, here: usize, crowd: usize) -> bool {
    crowd >= FEW && here > seen && here < crowd
}

/// What callers of a store that was closed get.
pub(crate) fn closed() -> Error {
    Error::Unavailable {
        cause: "it was closed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{CROWD, FEW, more_may_come};

    #[test]
    fn others_are_waited_for_as_long_as_they_come() {
        for (seen, here, crowd, waits) in [
            (0, 1, 0, false),
            (0, 1, 1, false),
            (0, 1, FEW - 1, false),
            (0, 1, FEW, true),
            (1, 1, FEW, false),
            (3, 5, FEW, true),
            (5, FEW, FEW, false),
            (5, 30, CROWD, true),
        ] {
            assert_eq!(
                more_may_come(seen, here, crowd),
                waits,
                "{seen} {here} {crowd}"
            );
        }
    }
}
