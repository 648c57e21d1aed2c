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
    // The thread's, for one read at a time: connections are many and mostly idle, and hold none of their own.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; BATCH].into());
}

/// Bytes both ways.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// Reads once and hands on what came. Says whether more may come: `false` is the end.
    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Poll<io::Result<bool>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(self).poll_read(cx, &mut buffer))?;
            let read = buffer.filled();
            take(read)?;
            Poll::Ready(Ok(!read.is_empty()))
        })
    }

    /// Writes everything, and has it leave.
    fn poll_output(&mut self, pieces: &mut Pieces, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !pieces.is_empty() {
            ready!(pieces.poll_write(self, cx))?;
        }
        Pin::new(self).poll_flush(cx)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Transport for IO {}
