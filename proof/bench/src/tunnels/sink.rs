//! The far end: takes, gives or echoes bytes, on a thread of its own.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// What a connection is for: its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Use {
    /// Bytes to the sink, which says when it has them all.
    Upload = b'u',
    /// Bytes from the sink, once it is told to go.
    Download = b'd',
    /// Everything comes back.
    Echo = b'e',
    /// Nothing is read.
    Hold = b'h',
}

/// The sink; gone when dropped.
pub(super) struct Sink {
    pub(super) address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Sink {
    pub(super) fn start() -> Result<Sink> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = serve(listener) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Sink {
            address,
            _stop: stop,
        })
    }
}

async fn serve(listener: std::net::TcpListener) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        // A connection that breaks off is noticed by the load, which waits for its last byte.
        tokio::spawn(answer(stream));
    }
}

async fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let [what, left @ ..] = head;
    let mut left = u64::from_be_bytes(left);
    stream.write_u8(1).await?;
    if what == Use::Hold as u8 {
        return std::future::pending().await;
    }
    // A large one takes longer to make than the rest of a short connection.
    let is_echo = what == Use::Echo as u8;
    let mut buffer = vec![0; if is_echo { 1024 } else { 64 * 1024 }];
    if what == Use::Download as u8 {
        stream.read_u8().await?;
        while left > 0 {
            let part = left.min(buffer.len() as u64);
            stream.write_all(&buffer[..part as usize]).await?;
            left -= part;
        }
        return Ok(stream.shutdown().await?);
    }
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        match is_echo {
            true => stream.write_all(&buffer[..count]).await?,
            false => {
                left = left.saturating_sub(count as u64);
                if left == 0 {
                    stream.write_u8(1).await?;
                }
            }
        }
    }
}
