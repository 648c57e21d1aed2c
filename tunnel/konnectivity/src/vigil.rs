//! Waits awake for what is about to come.
//!
//! Where both ends of a tunnel are on one machine, the next small piece of data is there sooner than a CPU that was
//! sent to sleep for it is awake again. So the thread looks for it a little while before it sleeps, gives its place
//! to whoever else wants to run meanwhile, and does so less and less often where it was in vain.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Data of at least this size is bulk, where nobody waits for the single piece.
const BULK: usize = 4 << 10;
/// How often in a row it may be in vain until it is tried least often: every 64th time.
const MOST_IN_VAIN: u32 = 6;

thread_local! {
    static BELL: RefCell<Bell> = const { RefCell::new(Bell { rung: false, sleeper: None }) };
}

/// What the tunnels of a thread tell its vigil. Where there is none, nobody hears it.
struct Bell {
    rung: bool,
    sleeper: Option<Waker>,
}

/// Some data has moved.
pub(crate) fn moved(bytes: usize) {
    if bytes < BULK {
        BELL.with_borrow_mut(|bell| {
            bell.rung = true;
            if let Some(sleeper) = bell.sleeper.take() {
                sleeper.wake();
            }
        });
    }
}

fn rung() -> bool {
    BELL.with_borrow_mut(|bell| std::mem::take(&mut bell.rung))
}

fn poll_rung(cx: &mut Context<'_>) -> Poll<()> {
    if rung() {
        return Poll::Ready(());
    }
    BELL.with_borrow_mut(|bell| bell.sleeper = Some(cx.waker().clone()));
    Poll::Pending
}

/// Does the work, and keeps this thread awake for so long after each small piece of data of a tunnel. For a runtime
/// with one thread.
pub async fn awake<T>(work: impl Future<Output = T>, time: Duration) -> T {
    tokio::select! {
        biased;
        done = work => done,
        never = keep(time) => match never {},
    }
}

async fn keep(time: Duration) -> Infallible {
    if time.is_zero() {
        return std::future::pending().await;
    }
    let mut patience = Patience::default();
    loop {
        std::future::poll_fn(poll_rung).await;
        if !patience.asks() {
            continue;
        }
        let mut until = Instant::now() + time;
        let mut came = false;
        while Instant::now() < until {
            std::thread::yield_now();
            // The runtime looks at its sockets before it comes back.
            tokio::task::yield_now().await;
            if rung() {
                came = true;
                until = Instant::now() + time;
            }
        }
        patience.learn(came);
    }
}

/// Whether it is worth while.
#[derive(Debug, Default)]
struct Patience {
    in_vain: u32,
    skip: u32,
}

impl Patience {
    /// Whether to stay awake this time.
    fn asks(&mut self) -> bool {
        match self.skip.checked_sub(1) {
            Some(left) => {
                self.skip = left;
                false
            }
            None => true,
        }
    }

    /// Whether something came while it was.
    fn learn(&mut self, came: bool) {
        self.in_vain = match came {
            true => 0,
            false => (self.in_vain + 1).min(MOST_IN_VAIN),
        };
        self.skip = (1 << self.in_vain) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // How often of so many times somebody stays awake, if something comes then or not.
    fn awake_of(times: u32, came: bool) -> usize {
        let mut patience = Patience::default();
        let stays = (0..times).filter(|_| {
            let asked = patience.asks();
            if asked {
                patience.learn(came);
            }
            asked
        });
        stays.count()
    }

    #[test]
    fn patience_ends_where_it_is_in_vain_and_comes_back() {
        assert_eq!(awake_of(1000, true), 1000);
        assert!(awake_of(6400, false) < 110, "{}", awake_of(6400, false));
        let mut patience = Patience::default();
        for _ in 0..100 {
            patience.learn(false);
        }
        assert!((0..64).any(|_| patience.asks()), "it is tried again");
        patience.learn(true);
        assert!(patience.asks());
    }

    #[tokio::test]
    async fn only_small_pieces_keep_a_thread_awake() {
        moved(BULK);
        assert!(!rung());
        moved(1);
        assert!(rung());
        assert!(!rung());
    }

    #[tokio::test]
    async fn work_ends_the_vigil_and_its_wait() {
        for time in [Duration::ZERO, Duration::from_micros(50)] {
            let work = async {
                moved(1);
                tokio::task::yield_now().await;
                7
            };
            assert_eq!(awake(work, time).await, 7);
        }
    }
}
