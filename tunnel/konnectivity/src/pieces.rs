//! Bytes on their way to a socket, in the pieces they came in: nothing is copied together, and one
//! write takes many.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite;

/// How many pieces one write takes at most.
const AT_ONCE: usize = 64;

/// The pieces, first to last.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Pieces {
    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether one write cannot take more pieces.
    pub(crate) fn is_long(&self) -> bool {
        self.pieces.len() >= AT_ONCE
    }

    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Writes once, and says how much that was: more than nothing.
    pub(crate) fn poll_write(
        &mut self,
        socket: &mut (impl AsyncWrite + Unpin + ?Sized),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); AT_ONCE];
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece);
        }
        let slices = &slices[..self.pieces.len().min(AT_ONCE)];
        let written = ready!(Pin::new(socket).poll_write_vectored(cx, slices))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn advance(&mut self, count: usize) {
        self.bytes -= count;
        let mut left = count;
        while let Some(piece) = self.pieces.front_mut().filter(|_| left > 0) {
            let now = left.min(piece.len());
            piece.advance(now);
            left -= now;
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
    }
}

#[cfg(test)]
impl Pieces {
    /// Everything in one.
    pub(crate) fn into_bytes(self) -> bytes::BytesMut {
        self.pieces.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Takes so many bytes at a time.
    struct Narrow(Vec<u8>, usize);

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn pieces_are_written_in_order_whatever_a_write_takes() {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for width in 1..=7 {
            let mut pieces = Pieces::default();
            for piece in ["hello", "", ", ", "world"] {
                pieces.push(piece.into());
            }
            let mut socket = Narrow(Vec::new(), width);
            while !pieces.is_empty() {
                let before = pieces.len();
                let written = pieces.poll_write(&mut socket, &mut cx);
                assert!(
                    matches!(written, Poll::Ready(Ok(count)) if count == before - pieces.len())
                );
            }
            assert_eq!(socket.0, b"hello, world", "writes of {width}");
        }
    }

    #[test]
    fn a_socket_that_takes_nothing_is_an_error() {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut pieces = Pieces::default();
        pieces.push("hello".into());
        let written = pieces.poll_write(&mut Narrow(Vec::new(), 0), &mut cx);
        assert!(matches!(written, Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::WriteZero));
    }
}
