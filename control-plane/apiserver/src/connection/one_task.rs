//! A connection and its requests are one task.
//!
//! With a task for each request, an answer wakes the connection's task to be sent, and a request that waited is
//! woken to wake it: two turns of the runtime where one does, often with a second thread woken to share the
//! work, which costs more than most requests do. So the connection's task polls its requests itself. HTTP/2
//! then wakes the very task that runs, which the runtime takes for a yield; such a wake is another round here,
//! in which only those are polled who were woken.

use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::stream::{FuturesUnordered, StreamExt as _};
use futures::task::AtomicWaker;
use hyper::rt::Executor;

use crate::connection::gather::Owed;
use crate::connection::sending::Watched;

/// After so many rounds other tasks have their turn.
const ROUNDS: u32 = 8;

/// Who is to be polled, and that it will be.
const CONNECTION: u8 = 1;
const REQUESTS: u8 = 2;
const POLLED: u8 = 4;

/// Where a connection puts the requests it has read; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Vec<Watched<()>>>>);

impl Requests {
    fn take(&self) -> Vec<Watched<()>> {
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
        requests.push(Watched::new(request));
    }
}

/// Serves a connection that gives its requests to `requests` and may owe a flush. Those still open when it ends go
/// on to their own end: a write that nobody waits for must not stop halfway.
pub(crate) async fn serve<C: Future>(connection: C, requests: Requests, owed: Owed) -> C::Output {
    let mut open = FuturesUnordered::new();
    let mut connection = pin!(connection);
    let bell = Arc::new(Bell::default());
    let [of_connection, of_requests] = [CONNECTION, REQUESTS].map(|whose| bell.waker(whose));
    let ended = std::future::poll_fn(|context| {
        bell.task.register(context.waker());
        bell.set(POLLED);
        for _ in 0..ROUNDS {
            if bell.take(REQUESTS) {
                let mut context = Context::from_waker(&of_requests);
                while let Poll::Ready(Some(_)) = open.poll_next_unpin(&mut context) {}
            }
            if bell.take(CONNECTION) {
                let ended = connection
                    .as_mut()
                    .poll(&mut Context::from_waker(&of_connection));
                if ended.is_ready() {
                    return ended;
                }
                if owed.take() {
                    bell.set(CONNECTION);
                }
                let read = requests.take();
                if !read.is_empty() {
                    open.extend(read);
                    bell.set(REQUESTS);
                }
            }
            if bell.rests() {
                return Poll::Pending;
            }
        }
        bell.take(POLLED);
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    open.extend(requests.take());
    if !open.is_empty() {
        tokio::spawn(open.for_each(|_| std::future::ready(())));
    }
    ended
}

/// Notes who is to be polled; wakes the task, unless it is being polled and will look again by itself.
#[derive(Debug)]
struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Default for Bell {
    fn default() -> Bell {
        Bell {
            state: AtomicU8::new(CONNECTION),
            task: AtomicWaker::new(),
        }
    }
}

impl Bell {
    fn waker(self: &Arc<Self>, whose: u8) -> Waker {
        let bell = Arc::clone(self);
        Waker::from(Arc::new(Cord { bell, whose }))
    }

    fn set(&self, bit: u8) -> u8 {
        self.state.fetch_or(bit, Ordering::SeqCst)
    }

    fn take(&self, bit: u8) -> bool {
        self.state.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Whether nobody is to be polled: the next wake then reaches the task.
    fn rests(&self) -> bool {
        self.state
            .compare_exchange(POLLED, 0, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

/// What the connection, or its requests, ring the bell with.
#[derive(Debug)]
struct Cord {
    bell: Arc<Bell>,
    whose: u8,
}

impl Wake for Cord {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.bell.set(self.whose) == 0 {
            self.bell.task.wake();
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

    // What is lost never comes: that is a failure, not a test without end.
    async fn in_time<T>(work: impl Future<Output = T>) -> T {
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, work).await.expect("in time")
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
        let mut future = pin!(serve(restless(3), Requests::default(), Owed::default()));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!(polled, Poll::Ready(4));
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_connection_that_owes_a_flush_has_another_turn() {
        let owed = Owed::default();
        let mut turns = 0;
        let connection = std::future::poll_fn(|_| -> Poll<()> {
            turns += 1;
            owed.set(turns == 1);
            Poll::Pending
        });
        {
            let mut future = pin!(serve(connection, Requests::default(), owed.clone()));
            let mut context = Context::from_waker(Waker::noop());
            assert!(future.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(turns, 2);
    }

    #[test]
    fn a_future_without_rest_lets_the_others_have_their_turn() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(serve(
            restless(ROUNDS + 1),
            Requests::default(),
            Owed::default()
        ));
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
        let served = in_time(serve(connection, requests, Owed::default()));
        assert_eq!(served.await, "ended");
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
        in_time(serve(async {}, requests, Owed::default())).await;
        go.notify_one();
        in_time(done.notified()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn wakes_from_other_threads_are_never_lost() {
        for asks in [false, true] {
            let (ping, pong) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let (pinged, ponged) = (Arc::clone(&ping), Arc::clone(&pong));
            let answering = async move {
                loop {
                    pinged.notified().await;
                    ponged.notify_one();
                }
            };
            let requests = Requests::default();
            let served = if asks {
                requests.execute(answering);
                tokio::spawn(serve(std::future::pending(), requests, Owed::default()))
            } else {
                tokio::spawn(serve(answering, requests, Owed::default()))
            };
            for _ in 0..20_000 {
                ping.notify_one();
                in_time(pong.notified()).await;
            }
            served.abort();
        }
    }
}
