//! Between a client's WebSocket and a runtime's SPDY.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
};
use tokio::sync::Mutex;

use super::Wants;
use super::spdy::{self, Frame};
use super::websocket::{self, Decoder, Message};

/// Channels of version 5 by their numbers.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// `[255, n]` says that channel n has ended.
const CLOSE: u8 = 255;
/// How much is read at once.
const CHUNK: usize = 32 * 1024;

type Shared<S> = Arc<Mutex<WriteHalf<S>>>;

/// A channel, its SPDY stream, and the stream's type.
type Channel = (u8, u32, &'static str);

fn channels(wants: Wants) -> Vec<Channel> {
    let all = [
        (ERROR, "error", true),
        (STDIN, "stdin", wants.stdin),
        (STDOUT, "stdout", wants.stdout),
        (STDERR, "stderr", wants.stderr),
        (RESIZE, "resize", wants.tty),
    ];
    let wanted = all.into_iter().filter(|(.., wanted)| *wanted);
    // Streams of clients have odd numbers.
    let numbered = wanted.zip((1..).step_by(2));
    numbered
        .map(|((channel, kind, _), stream)| (channel, stream, kind))
        .collect()
}

/// A command's streams, until the runtime has ended them all or the client is gone.
pub(super) async fn commands<C, R>(client: C, runtime: R, wants: Wants) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite + Unpin,
{
    let channels = channels(wants);
    let (from_client, to_client) = tokio::io::split(client);
    let (from_runtime, to_runtime) = tokio::io::split(runtime);
    let to_client = Arc::new(Mutex::new(to_client));
    let to_runtime = Arc::new(Mutex::new(to_runtime));
    let mut encoder = spdy::Encoder::default();
    for (_, stream, kind) in &channels {
        send(&to_runtime, &encoder.open(*stream, &[("streamtype", kind)])).await?;
    }
    // Says that all is connected, on the first channel that the client reads.
    let first = [
        (STDOUT, wants.stdout),
        (STDERR, wants.stderr),
        (ERROR, true),
    ];
    if let Some((channel, _)) = first.into_iter().find(|(_, wanted)| *wanted) {
        send(&to_client, &websocket::binary(&[channel], &[])).await?;
    }
    let down = outputs(from_runtime, &to_client, &to_runtime, &channels);
    let up = inputs(from_client, &to_client, &to_runtime, &channels);
    tokio::select! {
        ended = down => ended?,
        ended = up => ended?,
    }
    send(&to_client, &websocket::close()).await?;
    to_client.lock().await.shutdown().await
}

async fn send<S: AsyncWrite>(to: &Shared<S>, bytes: &[u8]) -> io::Result<()> {
    let mut to = to.lock().await;
    to.write_all(bytes).await?;
    to.flush().await
}

async fn more<S: AsyncRead>(from: &mut ReadHalf<S>, arrived: &mut BytesMut) -> io::Result<bool> {
    arrived.reserve(CHUNK);
    Ok(from.read_buf(arrived).await? > 0)
}

async fn outputs<C, R>(
    mut from: ReadHalf<R>,
    to_client: &Shared<C>,
    to_runtime: &Shared<R>,
    channels: &[Channel],
) -> io::Result<()>
where
    C: AsyncWrite,
    R: AsyncRead + AsyncWrite,
{
    let is_output = |channel: &&Channel| matches!(channel.0, STDOUT | STDERR | ERROR);
    let mut open: Vec<u32> = channels.iter().filter(is_output).map(|c| c.1).collect();
    let mut arrived = BytesMut::new();
    while !open.is_empty() && more(&mut from, &mut arrived).await? {
        while let Some(frame) = spdy::take(&mut arrived) {
            match frame {
                Frame::Data {
                    stream,
                    last,
                    bytes,
                } => {
                    let channel = channels.iter().find(|channel| channel.1 == stream);
                    if let Some(channel) = channel.filter(|_| !bytes.is_empty()) {
                        send(to_client, &websocket::binary(&[channel.0], &bytes)).await?;
                    }
                    open.retain(|other| !last || *other != stream);
                }
                Frame::Reset { stream } => open.retain(|other| *other != stream),
                // The server's own have even numbers; odd ones are answers.
                Frame::Ping { id } if id % 2 == 0 => send(to_runtime, &spdy::pong(id)).await?,
                Frame::GoAway => return Ok(()),
                Frame::Ping { .. } | Frame::Other => {}
            }
        }
    }
    Ok(())
}

async fn inputs<C, R>(
    mut from: ReadHalf<C>,
    to_client: &Shared<C>,
    to_runtime: &Shared<R>,
    channels: &[Channel],
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
    R: AsyncWrite,
{
    let stream = |number: u8| {
        let found = channels.iter().find(|channel| channel.0 == number);
        found.map(|channel| channel.1)
    };
    let mut decoder = Decoder::default();
    let mut arrived = BytesMut::new();
    while more(&mut from, &mut arrived).await? {
        while let Some(message) = take(&mut decoder, &mut arrived)? {
            match message {
                Message::Data(message) => match message.as_slice() {
                    [CLOSE, number] => {
                        if let Some(stream) = stream(*number) {
                            send(to_runtime, &spdy::data(stream, &[], true)).await?;
                        }
                    }
                    [number @ (STDIN | RESIZE), bytes @ ..] if !bytes.is_empty() => {
                        if let Some(stream) = stream(*number) {
                            send(to_runtime, &spdy::data(stream, bytes, false)).await?;
                        }
                    }
                    _ => {}
                },
                Message::Ping(bytes) => send(to_client, &websocket::pong(&bytes)).await?,
                Message::Close => return Ok(()),
                Message::Other => {}
            }
        }
    }
    Ok(())
}

fn take(decoder: &mut Decoder, arrived: &mut BytesMut) -> io::Result<Option<Message>> {
    let broken = |_| io::Error::other("the client does not speak WebSocket");
    decoder.take(arrived).map_err(broken)
}

/// Bytes in messages on the client's side, bare on the runtime's.
pub(super) async fn tunnel<C, R>(client: C, runtime: R) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite + Unpin,
{
    let (mut from_client, to_client) = tokio::io::split(client);
    let (mut from_runtime, mut to_runtime) = tokio::io::split(runtime);
    let to_client = Arc::new(Mutex::new(to_client));
    let up = async {
        let mut decoder = Decoder::default();
        let mut arrived = BytesMut::new();
        while more(&mut from_client, &mut arrived).await? {
            while let Some(message) = take(&mut decoder, &mut arrived)? {
                match message {
                    Message::Data(bytes) => {
                        to_runtime.write_all(&bytes).await?;
                        to_runtime.flush().await?;
                    }
                    Message::Ping(bytes) => send(&to_client, &websocket::pong(&bytes)).await?,
                    Message::Close => return Ok(()),
                    Message::Other => {}
                }
            }
        }
        Ok::<_, io::Error>(())
    };
    let down = async {
        let mut arrived = BytesMut::new();
        while more(&mut from_runtime, &mut arrived).await? {
            send(&to_client, &websocket::binary(&[], &arrived.split())).await?;
        }
        Ok::<_, io::Error>(())
    };
    tokio::select! {
        ended = up => ended?,
        ended = down => ended?,
    }
    send(&to_client, &websocket::close()).await?;
    to_client.lock().await.shutdown().await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use bytes::{BufMut as _, Bytes};
    use tokio::io::DuplexStream;

    fn masked(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x82, 0x80 | u8::try_from(payload.len()).unwrap()];
        frame.extend([0; 4]);
        frame.extend(payload);
        frame
    }

    async fn frame(runtime: &mut DuplexStream, arrived: &mut BytesMut) -> Frame {
        loop {
            if let Some(frame) = spdy::take(arrived) {
                if frame != Frame::Other {
                    return frame;
                }
                continue;
            }
            assert!(runtime.read_buf(arrived).await.unwrap() > 0);
        }
    }

    #[tokio::test]
    async fn a_commands_streams_cross_in_both_directions_with_their_ends() {
        let (mut client, ours) = tokio::io::duplex(1 << 16);
        let (theirs, mut runtime) = tokio::io::duplex(1 << 16);
        let wants = Wants {
            stdin: true,
            stdout: true,
            stderr: true,
            tty: false,
        };
        let translation = tokio::spawn(commands(ours, theirs, wants));
        client
            .write_all(&masked(&[STDIN, b'i', b'n']))
            .await
            .unwrap();
        client.write_all(&masked(&[CLOSE, STDIN])).await.unwrap();
        let mut arrived = BytesMut::new();
        let data = |stream, text: &'static [u8], last| Frame::Data {
            stream,
            last,
            bytes: Bytes::from_static(text),
        };
        assert_eq!(
            frame(&mut runtime, &mut arrived).await,
            data(3, b"in", false)
        );
        assert_eq!(frame(&mut runtime, &mut arrived).await, data(3, b"", true));
        let mut output = Vec::new();
        output.put_slice(&spdy::data(5, b"out", true));
        output.put_slice(&spdy::data(7, b"", true));
        output.put_slice(&spdy::data(1, b"{}", true));
        runtime.write_all(&output).await.unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        let mut wanted = websocket::binary(&[STDOUT], b"");
        wanted.extend(websocket::binary(&[STDOUT], b"out"));
        wanted.extend(websocket::binary(&[ERROR], b"{}"));
        wanted.extend(websocket::close());
        assert_eq!(heard, wanted);
        translation.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_tunnel_carries_bytes_in_messages() {
        let (mut client, ours) = tokio::io::duplex(1 << 16);
        let (theirs, mut runtime) = tokio::io::duplex(1 << 16);
        let tunnel = tokio::spawn(tunnel(ours, theirs));
        client.write_all(&masked(b"up")).await.unwrap();
        let mut two = [0; 2];
        runtime.read_exact(&mut two).await.unwrap();
        assert_eq!(&two, b"up");
        runtime.write_all(b"down").await.unwrap();
        drop(runtime);
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        let mut wanted = websocket::binary(&[], b"down");
        wanted.extend(websocket::close());
        assert_eq!(heard, wanted);
        tunnel.await.unwrap().unwrap();
    }
}
