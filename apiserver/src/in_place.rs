//! Requests that can be answered at once are answered where they arrive.
//!
//! A task of its own for each request means waking another thread, which costs more than most reads do. So a
//! request is begun in its connection's task; what must wait (a write for the disk, a large list for its turn)
//! goes on in a task of its own, beside the connection.

use std::pin::Pin;
use std::task::{Context, Waker};

use hyper::rt::Executor;

/// Runs a future as far as it goes without waiting, and spawns the rest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InPlace;

impl<F> Executor<F> for InPlace
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let mut future: Pin<Box<F>> = Box::pin(future);
        // Nobody need wake this first attempt: the task polls again at once, and its own waker replaces this one.
        let mut context = Context::from_waker(Waker::noop());
        if future.as_mut().poll(&mut context).is_pending() {
            tokio::spawn(future);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn what_need_not_wait_is_done_on_return() {
        let done = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&done);
        InPlace.execute(async move {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_waits_goes_on_by_itself() {
        let (go, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (waited, told) = (Arc::clone(&go), Arc::clone(&gone));
        InPlace.execute(async move {
            waited.notified().await;
            tokio::task::yield_now().await;
            told.notify_one();
        });
        go.notify_one();
        gone.notified().await;
    }
}
