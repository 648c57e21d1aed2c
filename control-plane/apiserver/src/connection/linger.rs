//! Ends a connection so that its last answer arrives.
//!
//! An answer can come before the whole question was read: a body that is too large, a credential that is not
//! believed. Closing then, with bytes of the question still on their way, makes the kernel answer them with a
//! reset, and a reset may overtake the answer. So the end is said first, and what still comes is read and thrown
//! away until the other side has ended as well; within bounds, as in Go's `closeWriteAndWait`.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long the other side may take to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// What it may send meanwhile.
const MOST: usize = 64 * 1024 * 1024;

/// A stream that waits, once its writing end is shut, for the other side's end.
#[derive(Debug)]
pub(crate) struct Linger<S> {
    inner: S,
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    until: Pin<Box<Sleep>>,
    thrown_away: usize,
}

impl<S> Linger<S> {
    pub(crate) fn new(inner: S) -> Linger<S> {
        Linger {
            inner,
            waiting: None,
        }
    }
}

impl Waiting {
    fn new() -> Waiting {
        Waiting {
            until: Box::pin(tokio::time::sleep(PATIENCE)),
            thrown_away: 0,
        }
    }

    // Ready when the other side has ended, failed, or used up its time or bytes.
    fn poll_end(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut bytes = [0; 16 * 1024];
        while self.thrown_away < MOST && self.until.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            self.thrown_away += buffer.filled().len();
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Linger<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Linger { inner, waiting } = self.get_mut();
        if waiting.is_none() {
            ready!(Pin::new(&mut *inner).poll_shutdown(context))?;
        }
        let waiting = waiting.get_or_insert_with(Waiting::new);
        waiting.poll_end(inner, context).map(Ok)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Linger<S> {
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
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    #[tokio::test]
    async fn an_answer_before_the_end_of_the_question_arrives() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asking = tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&vec![7; 8 * 1024 * 1024]).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        });
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = Linger::new(stream);
        stream.read_exact(&mut [0; 10]).await.unwrap();
        stream.write_all(b"too large").await.unwrap();
        stream.shutdown().await.unwrap();
        drop(stream);
        assert_eq!(asking.await.unwrap(), "too large");
    }

    #[tokio::test(start_paused = true)]
    async fn who_never_ends_is_left_after_a_while() {
        let (near, _far) = tokio::io::duplex(1_000);
        let started = Instant::now();
        Linger::new(near).shutdown().await.unwrap();
        assert!((PATIENCE..2 * PATIENCE).contains(&started.elapsed()));
    }

    #[tokio::test]
    async fn who_sends_without_end_is_left_after_so_much() {
        let (near, mut far) = tokio::io::duplex(1024 * 1024);
        let sending = tokio::spawn(async move {
            let block = vec![7; 1024 * 1024];
            while far.write_all(&block).await.is_ok() {}
        });
        let mut near = Linger::new(near);
        near.shutdown().await.unwrap();
        drop(near);
        sending.await.unwrap();
    }
}
