//! Request bodies: bounded one by one, and all together.
//!
//! Memory is reserved for the whole body before any of it is read, so a body that has begun never waits for more: two
//! that hold a half each cannot wait for each other.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Version};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Incoming};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::status::{ApiError, Result};

/// The largest body, as upstream has it.
const MAX_BODY: usize = 3 * 1024 * 1024;
/// All bodies being held may take this many units of memory together; one of any size takes one at least.
const UNIT: usize = 4 * 1024;
const UNITS: usize = 32 * 1024;
/// How long a body may wait for memory.
const PATIENCE: Duration = Duration::from_secs(15);
/// A body must come within this time, and some more for each so many bytes that came: it holds a seat meanwhile.
const PROMPT: Duration = Duration::from_secs(5);
const BYTES_PER_SECOND: u32 = 16 * 1024;

/// What is read of a body that nobody wanted, so that its connection can be used again; as in Go's server.
const UNWANTED: usize = 256 * 1024;
const UNWANTED_WITHIN: Duration = Duration::from_secs(1);

/// A request's body. Over HTTP/1 it is handed back if it was not read to its end, see [`Rest`].
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// Nothing only while it is being dropped.
    body: Option<Source>,
    rest: Option<Rest>,
}

/// Where a body comes from.
#[derive(Debug)]
enum Source {
    Wire(Incoming),
    /// It was here from the start.
    Here(Full<Bytes>),
}

/// What was not read of a body when the request was answered. HTTP/1 has the next request behind it: it is read and
/// thrown away, or the client must be told to use another connection.
#[derive(Debug, Clone)]
pub(crate) struct Rest(Arc<Mutex<Option<Incoming>>>);

impl RequestBody {
    /// Takes a request's body into care.
    pub(crate) fn of(request: Request<Incoming>) -> (Request<RequestBody>, Option<Rest>) {
        let shared = request.version() < Version::HTTP_2 && !request.body().is_end_stream();
        let rest = shared.then(|| Rest(Arc::default()));
        let kept = rest.clone();
        let request = request.map(|body| RequestBody {
            body: Some(Source::Wire(body)),
            rest,
        });
        (request, kept)
    }

    /// The request of a caller in this process.
    pub(crate) fn here(request: Request<Bytes>) -> Request<RequestBody> {
        request.map(|body| RequestBody {
            body: Some(Source::Here(Full::new(body))),
            rest: None,
        })
    }
}

impl Rest {
    /// Whether the connection is ready for another request. A client that waits to be asked for its body (`Expect`) is
    /// not asked for one that nobody wants.
    pub(crate) async fn is_gone(&self, waits: bool) -> bool {
        let Some(mut body) = self.take() else {
            return true;
        };
        if waits || body.size_hint().lower() > UNWANTED as u64 {
            return false;
        }
        let reading = async {
            let mut thrown_away = 0;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                thrown_away += frame.data_ref().map_or(0, Bytes::len);
                if thrown_away > UNWANTED {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(UNWANTED_WITHIN, reading)
            .await
            .unwrap_or(false)
    }

    fn take(&self) -> Option<Incoming> {
        let mut rest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rest.take()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let (Some(Source::Wire(body)), Some(Rest(rest))) = (self.body.take(), &self.rest)
            && !body.is_end_stream()
        {
            *rest.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.get_mut().body {
            Some(Source::Wire(body)) => Pin::new(body).poll_frame(context),
            Some(Source::Here(body)) => Pin::new(body).poll_frame(context).map_err(|e| match e {}),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(Source::Wire(body)) => body.is_end_stream(),
            Some(Source::Here(body)) => body.is_end_stream(),
            None => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(Source::Wire(body)) => body.size_hint(),
            Some(Source::Here(body)) => body.size_hint(),
            None => SizeHint::default(),
        }
    }
}

/// The memory that request bodies share.
#[derive(Debug)]
pub(crate) struct Bodies(Semaphore);

impl Default for Bodies {
    fn default() -> Bodies {
        Bodies(Semaphore::new(UNITS))
    }
}

/// How long a body says it is; one that does not say may be as long as any.
pub(crate) fn declared(body: &impl Body) -> Result<usize> {
    let exact = body.size_hint().exact();
    let len = exact.map_or(MAX_BODY, |len| usize::try_from(len).unwrap_or(usize::MAX));
    match len > MAX_BODY {
        true => Err(too_large()),
        false => Ok(len),
    }
}

impl Bodies {
    /// Memory for a body of this length, and nothing less; it is held until the request is answered.
    pub(crate) async fn reserve(&self, len: usize) -> Result<SemaphorePermit<'_>> {
        let units = u32::try_from(len.div_ceil(UNIT)).unwrap_or(u32::MAX);
        match tokio::time::timeout(PATIENCE, self.0.acquire_many(units)).await {
            Ok(Ok(memory)) => Ok(memory),
            Ok(Err(_)) => Err(ApiError::unavailable("the server is stopping")),
            Err(_) => Err(ApiError::too_many_requests(
                "the server holds too many large requests, try again later",
                1,
            )),
        }
    }
}

/// Reads a body of at most this length; what memory it turns out not to need is given back.
pub(crate) async fn read<B>(
    mut body: B,
    len: usize,
    memory: &mut SemaphorePermit<'_>,
) -> Result<Bytes>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let started = Instant::now();
    let mut buffer = BytesMut::new();
    loop {
        let came = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let until = started + PROMPT + Duration::from_secs(1) * came / BYTES_PER_SECOND;
        let next = tokio::time::timeout_at(until, body.frame()).await;
        let Some(frame) = next.map_err(|_| too_slow())? else {
            break;
        };
        let frame = frame.map_err(|e| {
            ApiError::bad_request(format!("the request body could not be read: {e}"))
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if buffer.len() + data.len() > len {
            return Err(too_large());
        }
        buffer.extend_from_slice(&data);
    }
    let needed = buffer.len().div_ceil(UNIT);
    drop(memory.split(memory.num_permits().saturating_sub(needed)));
    Ok(buffer.freeze())
}

fn too_large() -> ApiError {
    ApiError::too_large(format!("Request entity too large: limit is {MAX_BODY}"))
}

fn too_slow() -> ApiError {
    ApiError::bad_request("the request body could not be read: it comes too slowly")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use http_body_util::StreamBody;

    async fn taken(bodies: &Bodies, bytes: Vec<u8>) -> Result<usize> {
        let body = Full::new(Bytes::from(bytes));
        let len = declared(&body)?;
        let mut memory = bodies.reserve(len).await?;
        Ok(read(body, len, &mut memory).await?.len())
    }

    #[tokio::test]
    async fn bodies_up_to_the_limit_are_read_and_larger_ones_refused() {
        let bodies = Bodies::default();
        let fits = taken(&bodies, vec![b'x'; MAX_BODY]).await;
        assert_eq!(fits.expect("fits"), MAX_BODY);
        let refused = taken(&bodies, vec![b'x'; MAX_BODY + 1]).await;
        assert_eq!(refused.expect_err("too large").code.as_u16(), 413);
        assert_eq!(bodies.0.available_permits(), UNITS);
    }

    /// Pieces of this size, so far apart, without a length.
    fn drip(bytes: usize, apart: Duration) -> impl Body<Data = Bytes, Error = String> + Unpin {
        let pieces = futures::stream::unfold((), move |()| async move {
            tokio::time::sleep(apart).await;
            let piece = Bytes::from(vec![b'x'; bytes]);
            Some((Ok(Frame::data(piece)), ()))
        });
        StreamBody::new(Box::pin(pieces))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_without_a_length_has_room_for_the_largest_and_ends_there() {
        let bodies = Bodies::default();
        let body = drip(100_000, Duration::from_millis(1));
        let len = declared(&body).expect("none is declared");
        let mut memory = bodies.reserve(len).await.expect("free");
        assert_eq!(memory.num_permits(), MAX_BODY / UNIT);
        let refused = read(body, len, &mut memory).await.expect_err("endless");
        assert_eq!(refused.code.as_u16(), 413);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_hardly_comes_is_given_up() {
        let bodies = Bodies::default();
        for (bytes, apart) in [(1, 1), (1_000, 4)] {
            let body = drip(bytes, Duration::from_secs(apart));
            let mut memory = bodies.reserve(MAX_BODY).await.expect("free");
            let started = Instant::now();
            let refused = read(body, MAX_BODY, &mut memory).await.expect_err("slow");
            assert_eq!(refused.code.as_u16(), 400);
            assert!(started.elapsed() < 2 * PROMPT);
        }
        let slow = drip(17 * 1024, Duration::from_secs(1));
        let mut memory = bodies.reserve(MAX_BODY).await.expect("free");
        let whole = read(slow, MAX_BODY, &mut memory)
            .await
            .expect_err("endless");
        assert_eq!(whole.code.as_u16(), 413, "a slow line is quick enough");
    }

    #[tokio::test(start_paused = true)]
    async fn many_large_bodies_all_come_through_and_small_ones_are_counted() {
        let bodies = std::sync::Arc::new(Bodies::default());
        let all = (0..100).map(|_| {
            let bodies = std::sync::Arc::clone(&bodies);
            async move {
                let mut memory = bodies.reserve(2_900_000).await?;
                let body = drip(290_000, Duration::from_millis(10));
                read(body, 2_900_000, &mut memory).await
            }
        });
        for outcome in futures::future::join_all(all).await {
            // Each got as far as its own end: memory never ran out halfway.
            assert_eq!(outcome.expect_err("endless").code.as_u16(), 413);
        }
        let held = bodies.reserve(1).await.expect("free");
        assert_eq!(
            (held.num_permits(), bodies.0.available_permits()),
            (1, UNITS - 1)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_memory_the_client_is_told_to_come_again() {
        let bodies = Bodies::default();
        let all = bodies.reserve(UNITS * UNIT).await.expect("free");
        assert!(
            bodies.reserve(0).now_or_never().is_some(),
            "a GET needs none"
        );
        let refused = bodies.reserve(1).await.expect_err("none is left");
        assert_eq!((refused.code.as_u16(), refused.retry_after), (429, Some(1)));
        drop(all);
    }
}
