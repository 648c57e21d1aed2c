//! A connection and its requests are one task.
//!
//! With a task for each request, an answer wakes the connection's task to be sent, and a request that waited is
//! woken to wake it: two turns of the runtime where one does, often with a second thread woken to share the
//! work, which costs more than most requests do. So the connection's task polls its requests itself. HTTP/2
//! then wakes the very task that runs, which the runtime takes for a yield; such a wake is another round here.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use futures::task::AtomicWaker;
use hyper::rt::Executor;

/// After so many rounds other tasks have their turn.
const ROUNDS: u32 = 8;

const RESTING: u8 = 0;
const POLLED: u8 = 1;
const WOKEN: u8 = 2;

/// Where a connection puts the requests it has read; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Vec<BoxFuture<'static, ()>>>>);

impl Requests {
    fn take(&self) -> Vec<BoxFuture<'static, ()>> {
        // Nothing can panic while it is held.
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<F> Executor<F> for Requests
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        let mut requests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(Box::pin(request));
    }
}

/// Serves a connection that gives its requests to `requests`. Those still open when it ends go on to their own
/// end: a write that nobody waits for must not stop halfway.
pub(crate) async fn serve<C: Future>(connection: C, requests: Requests) -> C::Output {
    let mut open = FuturesUnordered::new();
    let mut connection = pin!(connection);
    let both = std::future::poll_fn(|context| {
        let ended = connection.as_mut().poll(context);
        open.extend(requests.take());
        while let Poll::Ready(Some(())) = open.poll_next_unpin(context) {}
        ended
    });
    let ended = in_rounds(both).await;
    open.extend(requests.take());
    if !open.is_empty() {
        tokio::spawn(open.collect::<()>());
    }
    ended
}

/// Runs a future to its end; a wake that comes while it is polled polls it again instead of queueing it.
async fn in_rounds<F: Future>(future: F) -> F::Output {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut future = pin!(future);
    std::future::poll_fn(move |context| {
        bell.task.register(context.waker());
        bell.rounds(future.as_mut(), &waker)
    })
    .await
}

/// Wakes the task, unless it is being polled and will look again by itself.
#[derive(Debug, Default)]
struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Bell {
    fn rounds<F: Future>(&self, mut future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
        for _ in 0..ROUNDS {
            self.state.store(POLLED, Ordering::SeqCst);
            let polled = future.as_mut().poll(&mut Context::from_waker(waker));
            let is_woken = self.state.swap(RESTING, Ordering::SeqCst) == WOKEN;
            if polled.is_ready() || !is_woken {
                return polled;
            }
        }
        self.task.wake();
        Poll::Pending
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let noted = |state| (state != RESTING).then_some(WOKEN);
        let noted = self
            .state
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, noted);
        if noted.is_err() {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use tokio::sync::Notify;

    use super::*;

    /// Counts the wakes that reach the task.
    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    // Wakes itself so many times before it ends.
    fn restless(times: u32) -> impl Future<Output = u32> {
        let mut polls = 0;
        std::future::poll_fn(move |context| {
            polls += 1;
            if polls > times {
                return Poll::Ready(polls);
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn a_wake_of_its_own_does_not_reach_the_task() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut future = pin!(in_rounds(restless(3)));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!(polled, Poll::Ready(4));
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_future_without_rest_lets_the_others_have_their_turn() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(in_rounds(restless(ROUNDS + 1)));
        assert_eq!(future.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(ROUNDS + 2));
    }

    #[tokio::test]
    async fn requests_are_served_beside_their_connection() {
        let (requests, asked) = (Requests::default(), Arc::new(Notify::new()));
        let answered = Arc::new(Notify::new());
        let (exec, told, heard) = (requests.clone(), Arc::clone(&asked), Arc::clone(&answered));
        let connection = async move {
            exec.execute(async move {
                asked.notified().await;
                tokio::task::yield_now().await;
                answered.notify_one();
            });
            told.notify_one();
            heard.notified().await;
            "ended"
        };
        assert_eq!(serve(connection, requests).await, "ended");
    }

    #[tokio::test]
    async fn a_request_outlives_its_connection() {
        let (requests, go) = (Requests::default(), Arc::new(Notify::new()));
        let done = Arc::new(Notify::new());
        let (waited, told) = (Arc::clone(&go), Arc::clone(&done));
        requests.execute(async move {
            waited.notified().await;
            told.notify_one();
        });
        serve(async {}, requests).await;
        go.notify_one();
        done.notified().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn wakes_from_other_threads_are_never_lost() {
        let (ping, pong) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (pinged, ponged) = (Arc::clone(&ping), Arc::clone(&pong));
        tokio::spawn(in_rounds(async move {
            loop {
                pinged.notified().await;
                ponged.notify_one();
            }
        }));
        for _ in 0..20_000 {
            ping.notify_one();
            pong.notified().await;
        }
    }
}
