//! Answers on their way: whose turn it is, and an end for those that nobody reads.
//!
//! HTTP/2 asks a body for its next piece when the peer has room for it, and not before, so a body cannot tell by
//! itself that its peer has stopped reading. Whoever polls the request can: [`Watched`] shares a [`Flow`] with the
//! answer, and gives the request up when the peer had its turn for [`STALLED`] and took nothing. Giving up a stream
//! of HTTP/2 resets it and frees what was queued for it; with HTTP/1 it is the connection that ends.
//!
//! What is queued belongs to the stream for as long as its request lives. So an answer of any size ends only once its
//! last piece has been taken: otherwise the last pieces of all unread answers would stay with nobody to drop them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::connection::response_body::Body;

/// A peer that takes nothing for this long is not reading.
const STALLED: Duration = Duration::from_secs(30);
/// Pieces smaller than this are not followed: most answers are, and are sent in one go.
const FOLLOWED: usize = 4 * 1024;

tokio::task_local! {
    static FLOW: Arc<Flow>;
}

/// Where an answer stands; shared by its body, its pieces and whoever polls the request.
#[derive(Debug, Default)]
struct Flow {
    is_peers_turn: AtomicBool,
    /// Counts what the peer took.
    taken: AtomicU64,
    /// Pieces that are on their way.
    out: AtomicUsize,
    ending: AtomicWaker,
}

/// A request, or a connection of one request at a time, that is given up when its answer is not read.
pub(crate) struct Watched<T> {
    work: BoxFuture<'static, T>,
    flow: Arc<Flow>,
    patience: Option<Pin<Box<Sleep>>>,
    /// What had been taken when patience began.
    seen: u64,
}

impl<T> Watched<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Watched<T> {
        Watched {
            work: Box::pin(work),
            flow: Arc::default(),
            patience: None,
            seen: 0,
        }
    }

    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.flow.is_peers_turn.load(Ordering::Acquire) {
            self.patience = None;
            return Poll::Pending;
        }
        let taken = self.flow.taken.load(Ordering::Acquire);
        let patience = match &mut self.patience {
            Some(patience) => {
                if taken != self.seen {
                    patience.as_mut().reset(Instant::now() + STALLED);
                }
                patience
            }
            None => self.patience.insert(Box::pin(tokio::time::sleep(STALLED))),
        };
        self.seen = taken;
        patience.as_mut().poll(context)
    }
}

impl<T> Future for Watched<T> {
    /// Nothing if it was given up.
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = self.get_mut();
        let flow = Arc::clone(&this.flow);
        let work = &mut this.work;
        if let Poll::Ready(done) = FLOW.sync_scope(flow, || work.as_mut().poll(context)) {
            return Poll::Ready(Some(done));
        }
        ready!(this.poll_patience(context));
        tracing::debug!("an answer that nobody reads is given up");
        Poll::Ready(None)
    }
}

/// A body as the peer gets it.
#[derive(Debug)]
pub(crate) struct Answer {
    body: Body,
    flow: Arc<Flow>,
    /// Whether it ends with its last piece, without waiting until that is taken.
    is_small: bool,
    /// Whether there is no further piece.
    is_over: bool,
}

impl Answer {
    /// The answer of the request that is being polled.
    pub(crate) fn new(body: Body) -> Answer {
        Answer {
            is_small: body.is_at_most(FOLLOWED),
            is_over: false,
            body,
            flow: FLOW.try_with(Arc::clone).unwrap_or_default(),
        }
    }

    fn follow(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        self.flow.taken.fetch_add(1, Ordering::AcqRel);
        // Another server's bytes are few at a time, and whoever follows a log may pause to read it.
        if matches!(self.body, Body::Passed(_) | Body::Held(..)) {
            return frame;
        }
        self.flow.is_peers_turn.store(true, Ordering::Release);
        if self.is_small {
            return frame;
        }
        frame.map_data(|bytes| match bytes.len() < FOLLOWED {
            true => bytes,
            false => Bytes::from_owner(Piece::new(bytes, &self.flow)),
        })
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if !this.is_over {
            let Poll::Ready(next) = Pin::new(&mut this.body).poll_frame(context)? else {
                this.flow.is_peers_turn.store(false, Ordering::Release);
                return Poll::Pending;
            };
            if let Some(frame) = next {
                return Poll::Ready(Some(Ok(this.follow(frame))));
            }
            this.is_over = true;
        }
        this.flow.ending.register(context.waker());
        match this.flow.out.load(Ordering::Acquire) {
            0 => Poll::Ready(None),
            _ => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_all_taken = self.is_small || self.flow.out.load(Ordering::Acquire) == 0;
        is_all_taken && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes on their way; dropped when they have been sent.
struct Piece {
    bytes: Bytes,
    flow: Arc<Flow>,
}

impl Piece {
    fn new(bytes: Bytes, flow: &Arc<Flow>) -> Piece {
        flow.out.fetch_add(1, Ordering::AcqRel);
        let flow = Arc::clone(flow);
        Piece { bytes, flow }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.flow.taken.fetch_add(1, Ordering::AcqRel);
        if self.flow.out.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.flow.ending.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Empty};
    use hyper::client::conn::http2::SendRequest;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use std::convert::Infallible;

    use crate::connection::gather::Owed;
    use crate::connection::one_task::{self, Requests};

    /// A server whose every answer is this one, and a client with so small a window.
    async fn connected(
        window: u32,
        answer: impl Fn() -> Body + Send + Sync + 'static,
    ) -> SendRequest<Empty<Bytes>> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let requests = Requests::default();
        let answer = Arc::new(answer);
        let service = hyper::service::service_fn(move |_| {
            let answer = Arc::clone(&answer);
            async move { Ok::<_, Infallible>(Response::new(Answer::new(answer()))) }
        });
        let served = hyper::server::conn::http2::Builder::new(requests.clone())
            .serve_connection(TokioIo::new(near), service);
        tokio::spawn(one_task::serve(served, requests, Owed::default()));
        let (client, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .handshake(TokioIo::new(far))
            .await
            .unwrap();
        tokio::spawn(connection);
        client
    }

    fn get() -> Request<Empty<Bytes>> {
        Request::get("http://server/").body(Empty::new()).unwrap()
    }

    async fn is_reset_in_time(window: u32, answer: impl Fn() -> Body + Send + Sync + 'static) {
        let mut client = connected(window, answer).await;
        let unread = client.send_request(get()).await.unwrap();
        // Held, and not looked at until later.
        tokio::time::sleep(STALLED + Duration::from_secs(1)).await;
        let read = unread.into_body().collect().await;
        assert!(read.is_err(), "the stream was reset");
        let other = client.send_request(get()).await;
        assert!(other.is_ok(), "the connection goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_is_given_up_and_freed() {
        for (window, bytes) in [(0, 100), (1, 10_000), (1_000, 500_000)] {
            let text = Arc::new(Bytes::from(vec![b'x'; bytes]));
            let held = Arc::downgrade(&text);
            is_reset_in_time(window, move || {
                Body::from(Bytes::from_owner(Held(Arc::clone(&text))))
            })
            .await;
            // The connection's task has let go of it, and of the function that made it.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!(held.strong_count(), 0, "{bytes} bytes");
        }
    }

    struct Held(Arc<Bytes>);

    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_nobody_reads_is_given_up_too() {
        is_reset_in_time(1_000, || {
            let chunks = (0..9).map(|_| Bytes::from(vec![b'x'; 60_000]));
            Body::Chunks(Box::new(chunks))
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_us_has_all_the_time_and_slow_readers_have_enough() {
        let mut client = connected(100_000, || {
            let slow = futures::stream::unfold(0_u8, |n| async move {
                tokio::time::sleep(3 * STALLED).await;
                (n < 3).then(|| (Bytes::from(vec![n; 50_000]), n + 1))
            });
            Body::Stream(Box::pin(slow))
        })
        .await;
        let answer = client.send_request(get()).await.unwrap();
        let read = answer.into_body().collect().await.unwrap();
        assert_eq!(read.to_bytes().len(), 150_000);
        let mut client = connected(1_000, || Body::from(vec![b'x'; 300_000])).await;
        let mut body = client.send_request(get()).await.unwrap().into_body();
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            read += frame.unwrap().into_data().unwrap().len();
            tokio::time::sleep(STALLED / 1000).await;
        }
        assert_eq!(read, 300_000);
    }
}
