//! Gathers small writes into large ones.
//!
//! HTTP/2 hands every frame over on its own, so that the answers of streams that share a connection, or
//! the frames of a long list, would each become a TLS record and a system call. Here they wait for each
//! other until the connection says that it has nothing more for now (`flush`).
//!
//! HTTP/2 also says so after every frame with data, because it has room for one only, and says it again when it
//! really has no more. So a flush right behind a write is put off to the next one. Where none follows in the same
//! turn of the connection, [`Owed`] says that it needs another turn.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is gathered at first, and again for a reader that did not take it all.
const FIRST: usize = 64 * 1024;
/// What is gathered at most. A reader that takes all it is given is given more at once: fewer system calls, and
/// fewer times that it sleeps in between. One that stalls then keeps so much, here and in TLS, until it goes on.
pub(crate) const MOST: usize = 256 * 1024;
/// Who writes more than a TLS record mostly writes a lot.
const RECORD: usize = 16 * 1024;
/// A buffer that has grown beyond this is given back when it is empty, because connections are many
/// and most of them are quiet.
const KEPT: usize = 4 * 1024;

/// Whether a flush was put off, for whoever gives the connection its turns; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owed(Arc<AtomicBool>);

impl Owed {
    /// Whether it was, since this was last asked.
    pub(crate) fn take(&self) -> bool {
        // One task has both ends.
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn set(&self, owed: bool) {
        self.0.store(owed, Ordering::Relaxed);
    }
}

/// A stream whose writes are gathered until it is flushed.
#[derive(Debug)]
pub(crate) struct Gather<S> {
    inner: S,
    held: Vec<u8>,
    /// How much of `held` the stream has taken already.
    sent: usize,
    /// How much may be held.
    room: usize,
    /// For a stream that flushes more often than it means to: HTTP/2.
    owed: Option<Owed>,
    /// Whether something was written since the last flush.
    fresh: bool,
}

impl<S: AsyncWrite + Unpin> Gather<S> {
    /// Gathers the writes to a stream. Flushes are put off if somebody pays for them.
    pub(crate) fn new(inner: S, owed: Option<Owed>) -> Gather<S> {
        Gather {
            inner,
            held: Vec::new(),
            sent: 0,
            room: FIRST,
            owed,
            fresh: false,
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while self.sent < self.held.len() {
            let rest = &self.held[self.sent..];
            let Poll::Ready(taken) = Pin::new(&mut self.inner).poll_write(context, rest)? else {
                self.room = FIRST;
                return Poll::Pending;
            };
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
    fn take(&mut self, parts: &[IoSlice<'_>]) -> usize {
        let room = self.room.saturating_sub(self.held.len());
        let taken = room.min(parts.iter().map(|part| part.len()).sum());
        if self.held.len() + taken > RECORD {
            // More will follow; growing in steps would copy what is there again and again.
            self.held.reserve_exact(room);
        } else {
            self.held.reserve(taken);
        }
        let mut left = taken;
        for part in parts {
            let part = &part[..part.len().min(left)];
            self.held.extend_from_slice(part);
            left -= part.len();
        }
        taken
    }

    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.sent == 0 && self.held.len() < self.room {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_send(context))?;
        self.room = (2 * self.room).min(MOST);
        Poll::Ready(Ok(()))
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
        this.fresh = true;
        Poll::Ready(Ok(this.take(&[IoSlice::new(bytes)])))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_room(context))?;
        this.fresh = true;
        Poll::Ready(Ok(this.take(parts)))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        if let Some(owed) = &this.owed {
            let put_off = std::mem::take(&mut this.fresh);
            owed.set(put_off);
            if put_off {
                return Poll::Ready(Ok(()));
            }
        }
        ready!(this.poll_send(context))?;
        if this.held.capacity() > KEPT {
            this.held = Vec::new();
        }
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
        Gather::new(sizes, Some(Owed::default()))
    }

    #[tokio::test]
    async fn a_flush_behind_a_write_waits_for_the_next_one() {
        let mut gather = gather(usize::MAX);
        let owed = gather.owed.clone().unwrap();
        for _ in 0..3 {
            // A frame comes with its start apart.
            let parts = [IoSlice::new(&[7; 200]), IoSlice::new(&[7; 800])];
            assert_eq!(gather.write_vectored(&parts).await.unwrap(), 1_000);
            gather.flush().await.unwrap();
        }
        assert!(gather.inner.sizes.is_empty() && owed.take());
        assert!(!owed.take(), "once is enough");
        gather.flush().await.unwrap();
        assert_eq!(gather.inner.sizes, [3_000]);
        assert!(!owed.take());
    }

    #[tokio::test]
    async fn where_nobody_pays_a_flush_is_a_flush() {
        let mut gather = gather(usize::MAX);
        gather.owed = None;
        gather.write_all(&[7; 100]).await.unwrap();
        gather.flush().await.unwrap();
        assert_eq!(gather.inner.sizes, [100]);
    }

    #[tokio::test]
    async fn small_writes_leave_together_when_flushed() {
        let mut gather = gather(usize::MAX);
        for _ in 0..10 {
            gather.write_all(&[7; 100]).await.unwrap();
        }
        assert!(gather.inner.sizes.is_empty());
        gather.owed = None;
        gather.flush().await.unwrap();
        assert_eq!(gather.inner.sizes, [1_000]);
    }

    #[tokio::test]
    async fn who_takes_all_is_given_more_at_once_and_the_memory_is_given_back() {
        let mut gather = gather(usize::MAX);
        for _ in 0..16 {
            gather.write_all(&[7; MOST / 8]).await.unwrap();
            assert!(gather.held.len() <= MOST);
        }
        assert_eq!(gather.inner.sizes, [FIRST, 2 * FIRST, MOST]);
        gather.flush().await.unwrap();
        gather.flush().await.unwrap();
        assert_eq!(gather.inner.bytes.len(), 2 * MOST);
        assert_eq!(gather.held.capacity(), 0);
    }

    #[tokio::test]
    async fn who_does_not_take_all_is_given_less() {
        let (near, mut far) = tokio::io::duplex(MOST);
        let mut gather = Gather::new(near, None);
        gather.write_all(&[7; MOST]).await.unwrap();
        assert_eq!(gather.room, MOST);
        let mut writing = std::pin::pin!(gather.write_all(&[7; MOST]));
        assert!(futures::poll!(&mut writing).is_pending());
        far.read_exact(&mut [0; MOST]).await.unwrap();
        writing.await.unwrap();
        assert_eq!(gather.room, 2 * FIRST);
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
            let mut gather = Gather::new(near, None);
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
