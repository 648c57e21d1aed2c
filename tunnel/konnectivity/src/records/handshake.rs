//! The handshake, by rustls.

use std::io;
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{ClientConfig, Error, ExtractedSecrets, ServerConfig};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{Records, Session, broken};
use crate::pieces::Pieces;

/// What is read at once.
const STEP: usize = 4 << 10;
/// The most bytes of the peer that may wait for the rest of its message: rustls takes no longer ones.
const MOST: usize = 128 << 10;

/// Connects as a client. The settings must allow secrets to be extracted.
pub(crate) async fn connect<IO: AsyncRead + AsyncWrite + Unpin>(
    socket: IO,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> io::Result<Records<IO>> {
    let side = UnbufferedClientConnection::new(config, name).map_err(broken)?;
    shake(socket, side).await
}

/// Accepts a client. The settings must allow secrets to be extracted.
pub(crate) async fn accept<IO: AsyncRead + AsyncWrite + Unpin>(
    socket: IO,
    config: Arc<ServerConfig>,
) -> io::Result<Records<IO>> {
    let side = UnbufferedServerConnection::new(config).map_err(broken)?;
    shake(socket, side).await
}

/// What the two sides have in common.
trait Side {
    type Data: Send + 'static;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    /// Whether there is something to say, whatever the peer has said.
    fn has_words(&self) -> bool;
    fn finish(self) -> Result<(ExtractedSecrets, KernelConnection<Self::Data>), Error>;
}

impl Side for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(bytes)
    }

    fn has_words(&self) -> bool {
        self.wants_write()
    }

    fn finish(self) -> Result<(ExtractedSecrets, KernelConnection<Self::Data>), Error> {
        self.dangerous_into_kernel_connection()
    }
}

impl Side for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(bytes)
    }

    fn has_words(&self) -> bool {
        self.wants_write()
    }

    fn finish(self) -> Result<(ExtractedSecrets, KernelConnection<Self::Data>), Error> {
        self.dangerous_into_kernel_connection()
    }
}

/// What is to be done next.
enum Next {
    Process,
    Send,
    Read,
    Finish,
}

async fn shake<IO: AsyncRead + AsyncWrite + Unpin>(
    mut socket: IO,
    mut side: impl Side,
) -> io::Result<Records<IO>> {
    let (mut incoming, mut outgoing, mut early) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let UnbufferedStatus { discard, state } = side.process(&mut incoming);
        let next = match state {
            Ok(ConnectionState::EncodeTlsData(data)) => {
                encode(data, &mut outgoing);
                Next::Process
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Next::Send
            }
            Ok(ConnectionState::BlockedHandshake) => Next::Read,
            // What the peer says right after its last word of the handshake.
            Ok(ConnectionState::ReadTraffic(mut data)) => {
                while let Some(record) = data.next_record() {
                    early.extend_from_slice(record.map_err(broken)?.payload);
                }
                Next::Process
            }
            Ok(ConnectionState::WriteTraffic(_)) => Next::Finish,
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => {
                complain(&mut socket, &mut side).await;
                return Err(broken(error));
            }
        };
        incoming.drain(..discard);
        match next {
            Next::Process => {}
            Next::Send => {
                socket.write_all(&outgoing).await?;
                outgoing.clear();
            }
            Next::Read => read(&mut socket, &mut incoming).await?,
            Next::Finish => break,
        }
    }
    let (secrets, keys) = side.finish().map_err(broken)?;
    Ok(Records {
        io: socket,
        session: Session::new(secrets, keys).map_err(broken)?,
        early,
        held: incoming,
        sealed: Pieces::default(),
    })
}

async fn read(socket: &mut (impl AsyncRead + Unpin), incoming: &mut Vec<u8>) -> io::Result<()> {
    if incoming.len() >= MOST {
        return Err(io::Error::other("a message of the handshake has no end"));
    }
    incoming.reserve(STEP);
    match socket.read_buf(incoming).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

fn encode<Data>(mut data: EncodeTlsData<'_, Data>, outgoing: &mut Vec<u8>) {
    let before = outgoing.len();
    let mut room = 0;
    // It says how much room it needs when there is none.
    while let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut outgoing[before..]) {
        room = needed.required_size;
        outgoing.resize(before + room, 0);
    }
    debug_assert_eq!(outgoing.len(), before + room);
}

// Tells the peer what rustls has to say about it. It may listen or not.
async fn complain(socket: &mut (impl AsyncWrite + Unpin), side: &mut impl Side) {
    let mut outgoing = Vec::new();
    // Only so long: after an error rustls may not be asked to look at anything the peer has said.
    while side.has_words()
        && let Ok(ConnectionState::EncodeTlsData(data)) = side.process(&mut []).state
    {
        encode(data, &mut outgoing);
    }
    let _ = socket.write_all(&outgoing).await;
}
