//! Gathers small writes into large ones.
//!
//! HTTP/2 hands every frame over on its own, so that the answers of streams that share a connection, or
//! the frames of a long list, would each become a TLS record and a system call. Here they wait for each
//! other until the connection says that it has nothing more for now (`flush`).
//!
//! The connection also says so after every full frame, because it has room for one only, and more of a long
//! answer follows at once. So a flush right behind a full frame is put off to the next turn of the connection,
//! which comes at once and ends with a flush in any case.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is gathered at most: four TLS records, which is what rustls takes at once.
const MOST: usize = 64 * 1024;
/// The payload of a full frame; who takes larger ones has them sent one by one.
const FULL_FRAME: usize = 16 * 1024;
/// A buffer that has grown beyond this is given back when it is empty, because connections are many
/// and most of them are quiet.
const KEPT: usize = 4 * 1024;

/// A stream whose writes are gathered until it is flushed.
#[derive(Debug)]
pub(crate) struct Gather<S> {
    inner: S,
    held: Vec<u8>,
    /// How much of `held` the stream has taken already.
    sent: usize,
    /// Whether the stream is HTTP/2, which flushes at every turn.
    is_http2: bool,
    /// Whether a full frame was written since the last flush: then an answer is long, and the next frame near.
    more_follows: bool,
}

impl<S: AsyncWrite + Unpin> Gather<S> {
    /// Gathers the writes to a stream.
    pub(crate) fn new(inner: S, is_http2: bool) -> Gather<S> {
        Gather {
            inner,
            held: Vec::new(),
            sent: 0,
            is_http2,
            more_follows: false,
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while self.sent < self.held.len() {
            let rest = &self.held[self.sent..];
            let taken = ready!(Pin::new(&mut self.inner).poll_write(context, rest))?;
            if taken == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.sent += taken;
        }
        self.sent = 0;
        self.held.clear();
        Poll::Ready(Ok(()))
    }

    // Takes what there is room for: full writes make full TLS records.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(MOST - self.held.len());
        if taken > KEPT {
            // More will follow; growing in steps would copy what is there again and again.
            self.held.reserve_exact(MOST - self.held.len());
        }
        self.held.extend_from_slice(&bytes[..taken]);
        taken
    }

    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.sent == 0 && self.held.len() < MOST {
            return Poll::Ready(Ok(()));
        }
        self.poll_send(context)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gather<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_room(context))?;
        Poll::Ready(Ok(this.take(bytes)))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_room(context))?;
        this.more_follows |= parts.iter().map(|part| part.len()).sum::<usize>() >= FULL_FRAME;
        Poll::Ready(Ok(parts.iter().map(|part| this.take(part)).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        if std::mem::take(&mut this.more_follows) && this.is_http2 {
            context.waker().wake_by_ref();
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_send(context))?;
        this.held.shrink_to(KEPT);
        Pin::new(&mut this.inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(context))?;
        Pin::new(&mut this.inner).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Remembers the sizes of the writes; takes at most `most` bytes at a time.
    struct Sizes {
        sizes: Vec<usize>,
        bytes: Vec<u8>,
        most: usize,
    }

    impl AsyncWrite for Sizes {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<Result<usize>> {
            let this = self.get_mut();
            let taken = bytes.len().min(this.most);
            this.sizes.push(taken);
            this.bytes.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn gather(most: usize) -> Gather<Sizes> {
        let sizes = Sizes {
            sizes: Vec::new(),
            bytes: Vec::new(),
            most,
        };
        Gather::new(sizes, true)
    }

    #[tokio::test]
    async fn a_flush_behind_a_full_frame_waits_for_the_next_turn() {
        for (is_http2, expected) in [(true, &[3 * FULL_FRAME][..]), (false, &[FULL_FRAME; 3])] {
            let mut gather = gather(usize::MAX);
            gather.is_http2 = is_http2;
            for _ in 0..3 {
                // A frame comes with its start apart.
                let parts = [
                    IoSlice::new(&[7; 256]),
                    IoSlice::new(&[7; FULL_FRAME - 256]),
                ];
                assert_eq!(gather.write_vectored(&parts).await.unwrap(), FULL_FRAME);
                gather.flush().await.unwrap();
            }
            // The turn that was asked for brings nothing new.
            gather.flush().await.unwrap();
            assert_eq!(gather.inner.sizes, expected);
        }
    }

    #[tokio::test]
    async fn small_writes_leave_together_when_flushed() {
        let mut gather = gather(usize::MAX);
        for _ in 0..10 {
            gather.write_all(&[7; 100]).await.unwrap();
        }
        assert!(gather.inner.sizes.is_empty());
        gather.flush().await.unwrap();
        assert_eq!(gather.inner.sizes, [1_000]);
    }

    #[tokio::test]
    async fn no_more_than_the_bound_is_held_and_the_memory_is_given_back() {
        let mut gather = gather(usize::MAX);
        for _ in 0..10 {
            gather.write_all(&[7; MOST / 4]).await.unwrap();
            assert!(gather.held.len() <= MOST);
        }
        gather.write_all(&[7; MOST]).await.unwrap();
        assert_eq!(gather.inner.sizes, [MOST, MOST, MOST]);
        gather.flush().await.unwrap();
        assert_eq!(gather.inner.bytes.len(), MOST / 4 * 10 + MOST);
        assert!(gather.held.capacity() <= KEPT);
    }

    #[tokio::test]
    async fn order_survives_a_stream_that_takes_little_at_a_time() {
        let mut gather = gather(777);
        let text: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        for (n, part) in text.chunks(9_973).enumerate() {
            gather.write_all(part).await.unwrap();
            if n % 3 == 0 {
                gather.flush().await.unwrap();
            }
        }
        gather.shutdown().await.unwrap();
        assert_eq!(gather.inner.bytes, text);
    }

    #[tokio::test]
    async fn a_full_stream_makes_the_writer_wait_and_loses_nothing() {
        let (near, mut far) = tokio::io::duplex(1_000);
        let text: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let sent = text.clone();
        let writing = tokio::spawn(async move {
            let mut gather = Gather::new(near, false);
            for part in sent.chunks(10_000) {
                gather.write_all(part).await.unwrap();
            }
            gather.shutdown().await.unwrap();
        });
        let mut read = Vec::new();
        far.read_to_end(&mut read).await.unwrap();
        writing.await.unwrap();
        assert_eq!(read, text);
    }
}
