//! What a connection's bytes travel on.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::pieces::Pieces;

/// What is read at once.
const BATCH: usize = 256 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; BATCH].into());
}

/// Lends the thread's buffer for one read: connections are many and mostly idle, and hold none of their own.
pub(crate) fn with_scratch<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| read(scratch))
}

/// Bytes both ways.
pub(crate) trait Transport: Unpin {
    /// Reads once and hands on what came. Says whether more may come: `false` is the end.
    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Poll<io::Result<bool>>;

    /// Writes everything, and has it leave.
    fn poll_output(&mut self, pieces: &mut Pieces, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Transport for IO {
    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Poll<io::Result<bool>> {
        with_scratch(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(self).poll_read(cx, &mut buffer))?;
            let read = buffer.filled();
            take(read)?;
            Poll::Ready(Ok(!read.is_empty()))
        })
    }

    fn poll_output(&mut self, pieces: &mut Pieces, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !pieces.is_empty() {
            ready!(pieces.poll_write(self, cx))?;
        }
        Pin::new(self).poll_flush(cx)
    }
}
