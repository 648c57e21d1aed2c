//! Request bodies: bounded one by one, and all together.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::status::{ApiError, Result};

/// The largest body, as upstream has it.
const MAX_BODY: usize = 3 * 1024 * 1024;
/// All bodies being held may take this many units of memory together; small ones take none.
const UNIT: usize = 64 * 1024;
const UNITS: usize = 2048;

/// The memory that request bodies share.
#[derive(Debug)]
pub(crate) struct Bodies(Semaphore);

impl Default for Bodies {
    fn default() -> Bodies {
        Bodies(Semaphore::new(UNITS))
    }
}

impl Bodies {
    /// Reads a body. The permit holds its share of the memory until the request is answered.
    pub(crate) async fn read<B>(
        &self,
        mut body: B,
        into: &mut Bytes,
    ) -> Result<Option<SemaphorePermit<'_>>>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let mut buffer = BytesMut::new();
        let mut share: Option<SemaphorePermit<'_>> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| {
                ApiError::bad_request(format!("the request body could not be read: {e}"))
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if buffer.len() + data.len() > MAX_BODY {
                return Err(ApiError::too_large(format!(
                    "Request entity too large: limit is {MAX_BODY}"
                )));
            }
            let held = share.as_ref().map_or(0, SemaphorePermit::num_permits);
            if (buffer.len() + data.len()) / UNIT > held {
                let more = (buffer.len() + data.len()) / UNIT - held;
                let more = self
                    .0
                    .acquire_many(u32::try_from(more).unwrap_or(1))
                    .await
                    .map_err(|_| ApiError::unavailable("the server is stopping"))?;
                match &mut share {
                    Some(share) => share.merge(more),
                    None => share = Some(more),
                }
            }
            buffer.extend_from_slice(&data);
        }
        *into = buffer.freeze();
        Ok(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    #[tokio::test]
    async fn bodies_up_to_the_limit_are_read_and_larger_ones_refused() {
        let bodies = Bodies::default();
        let mut read = Bytes::new();
        let share = bodies
            .read(Full::new(Bytes::from(vec![b'x'; MAX_BODY])), &mut read)
            .await
            .expect("fits");
        assert_eq!(read.len(), MAX_BODY);
        assert_eq!(share.map(|s| s.num_permits()), Some(MAX_BODY / UNIT));
        let large = Full::new(Bytes::from(vec![b'x'; MAX_BODY + 1]));
        let refused = bodies.read(large, &mut read).await.expect_err("too large");
        assert_eq!(refused.code.as_u16(), 413);
    }

    #[tokio::test]
    async fn large_bodies_wait_for_memory_and_small_ones_do_not() {
        let bodies = Bodies::default();
        let all = bodies
            .0
            .acquire_many(u32::try_from(UNITS).expect("small"))
            .await
            .expect("free");
        let mut read = Bytes::new();
        bodies
            .read(Full::new(Bytes::from_static(b"{}")), &mut read)
            .await
            .expect("small bodies pass");
        let mut other = Bytes::new();
        let large = bodies.read(Full::new(Bytes::from(vec![b'x'; UNIT])), &mut other);
        assert!(futures::FutureExt::now_or_never(large).is_none());
        drop(all);
    }
}
