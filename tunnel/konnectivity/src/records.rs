//! Records of TLS after a handshake: many at a read, opened where they lie.
//!
//! A connection of rustls reads a record at a time and copies each one twice before it can be used, which was up
//! to a sixth of a tunnel's CPU time with much data. Here rustls makes the handshake, keeps the keys, and seals and opens each record
//! (`rustls::kernel`, made for TLS in the kernel); what is left of RFC 8446, sections 4.6 and 5, is done here, on one
//! buffer per thread. TLS 1.2 goes the same way.

mod handshake;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks,
    OutboundPlainMessage,
};
use rustls::kernel::KernelConnection;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets,
    ProtocolVersion, SupportedCipherSuite,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http2::{Transport, with_scratch};
use crate::pieces::Pieces;

pub(crate) use handshake::{accept, connect};

/// Type, version and length.
const HEAD: usize = 5;
/// The most a record holds, and what sealing may add to it.
const MAX_PLAIN: usize = 1 << 14;
const MAX_SEALED: usize = MAX_PLAIN + 2048;
/// The longest message after the handshake: a ticket, with the client's certificates in it.
const MAX_MESSAGE: usize = 64 << 10;
/// Messages after the handshake (RFC 8446, section 4).
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
const UPDATE_NOT_REQUESTED: u8 = 0;
const UPDATE_REQUESTED: u8 = 1;
/// An alert's levels.
const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// A connection whose handshake is done.
pub(crate) struct Records<IO> {
    io: IO,
    session: Session,
    /// What came together with the handshake's end.
    early: Vec<u8>,
    /// Bytes of a record that has not arrived whole.
    held: Vec<u8>,
    /// Sealed, and on its way.
    sealed: Pieces,
}

/// Keys and numbers, both ways.
struct Session {
    suite: SupportedCipherSuite,
    version: ProtocolVersion,
    keys: Box<dyn Keys>,
    seal: Box<dyn MessageEncrypter>,
    sealed: u64,
    open: Box<dyn MessageDecrypter>,
    opened: u64,
    /// A message of the peer that has not arrived whole.
    message: Vec<u8>,
    /// The peer wants new keys before anything else.
    update_owed: bool,
}

/// Where the next keys come from.
trait Keys: Send {
    fn next_to_seal(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error>;
    fn next_to_open(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error>;
}

impl<Data: Send> Keys for KernelConnection<Data> {
    fn next_to_seal(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.update_tx_secret()
    }

    fn next_to_open(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.update_rx_secret()
    }
}

impl Session {
    fn new<Data: Send + 'static>(
        secrets: ExtractedSecrets,
        keys: KernelConnection<Data>,
    ) -> Result<Session, Error> {
        let suite = keys.negotiated_cipher_suite();
        let version = keys.protocol_version();
        let (sealed, to_seal) = secrets.tx;
        let (opened, to_open) = secrets.rx;
        let mut session = Session {
            suite,
            version,
            keys: Box::new(keys),
            seal: sealing(suite, to_seal)?,
            sealed: 0,
            open: opening(suite, to_open)?,
            opened,
            message: Vec::new(),
            update_owed: false,
        };
        if sealed > 0 {
            // aws-lc takes the first number it sees for the first of all; what is sealed here goes nowhere.
            session.seal(ContentType::ApplicationData, OutboundChunks::new_empty())?;
            session.sealed = sealed;
        }
        Ok(session)
    }

    fn is_13(&self) -> bool {
        self.version == ProtocolVersion::TLSv1_3
    }

    fn seal(&mut self, kind: ContentType, payload: OutboundChunks<'_>) -> Result<Vec<u8>, Error> {
        let message = OutboundPlainMessage {
            typ: kind,
            // In both versions, this is what stands in a record's head.
            version: ProtocolVersion::TLSv1_2,
            payload,
        };
        let record = self.seal.encrypt(message, self.sealed)?;
        self.sealed += 1;
        Ok(record.encode())
    }

    /// Seals data in as many records as it takes.
    fn seal_data(&mut self, data: OutboundChunks<'_>, out: &mut Pieces) -> Result<(), Error> {
        let mut left = data;
        while !left.is_empty() {
            self.renew(out)?;
            let (now, later) = left.split_at(MAX_PLAIN);
            let record = self.seal(ContentType::ApplicationData, now)?;
            out.push(Bytes::from(record));
            left = later;
        }
        Ok(())
    }

    // New keys before the old ones have sealed too much, or because the peer asked for it.
    fn renew(&mut self, out: &mut Pieces) -> Result<(), Error> {
        let limit = match self.suite {
            SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
            SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
        };
        if self.sealed < limit - 1 && !self.update_owed {
            return Ok(());
        }
        // TLS 1.2 has no new keys, and so ends here with an error.
        let (sealed, secrets) = self.keys.next_to_seal()?;
        let message = [KEY_UPDATE, 0, 0, 1, UPDATE_NOT_REQUESTED];
        let record = self.seal(ContentType::Handshake, OutboundChunks::Single(&message))?;
        out.push(Bytes::from(record));
        self.seal = sealing(self.suite, secrets)?;
        self.sealed = sealed;
        self.update_owed = false;
        Ok(())
    }

    /// Opens every record that is there whole and hands its data on. Says how many bytes these were, and whether more
    /// may follow.
    fn open_all(
        &mut self,
        bytes: &mut [u8],
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<(usize, bool)> {
        let mut used = 0;
        while let Some((head, rest)) = bytes[used..].split_first_chunk_mut::<HEAD>() {
            let [kind, version @ .., a, b] = *head;
            let length = usize::from(u16::from_be_bytes([a, b]));
            if length > MAX_SEALED {
                return Err(broken(Error::PeerSentOversizedRecord));
            }
            let Some(payload) = rest.get_mut(..length) else {
                break;
            };
            used += HEAD + length;
            let version = ProtocolVersion::from(u16::from_be_bytes(version));
            let record = InboundOpaqueMessage::new(ContentType::from(kind), version, payload);
            if !self.open(record, take)? {
                return Ok((used, false));
            }
        }
        Ok((used, true))
    }

    // Whether more may follow.
    fn open(
        &mut self,
        record: InboundOpaqueMessage<'_>,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        if self.is_13() && record.typ != ContentType::ApplicationData {
            return Err(broken(unexpected()));
        }
        let plain = self.open.decrypt(record, self.opened).map_err(broken)?;
        self.opened += 1;
        match plain.typ {
            ContentType::ApplicationData if self.message.is_empty() => take(plain.payload)?,
            ContentType::Alert => return self.alert(plain.payload),
            ContentType::Handshake => {
                self.message.extend_from_slice(plain.payload);
                self.messages().map_err(broken)?;
            }
            _ => return Err(broken(unexpected())),
        }
        Ok(true)
    }

    fn alert(&self, alert: &[u8]) -> io::Result<bool> {
        let &[level, description] = alert else {
            return Err(broken(unexpected()));
        };
        match AlertDescription::from(description) {
            AlertDescription::CloseNotify => Ok(false),
            // TLS 1.3 has one warning left besides the end, which says that the end will follow.
            AlertDescription::UserCanceled => Ok(true),
            _ if level == WARNING && !self.is_13() => Ok(true),
            other => Err(broken(Error::AlertReceived(other))),
        }
    }

    // Every whole message of the peer. Tickets are for coming back, which tunnels do not do.
    fn messages(&mut self) -> Result<(), Error> {
        while let Some((&[kind, a, b, c], rest)) = self.message.split_first_chunk() {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if length > MAX_MESSAGE || !self.is_13() {
                return Err(unexpected());
            }
            let Some(body) = rest.get(..length) else {
                break;
            };
            match (kind, body) {
                (NEW_SESSION_TICKET, _) => {}
                // Nothing may follow it that was sealed with the same keys.
                (KEY_UPDATE, &[asked @ UPDATE_NOT_REQUESTED..=UPDATE_REQUESTED])
                    if rest.len() == length =>
                {
                    let (opened, secrets) = self.keys.next_to_open()?;
                    self.open = opening(self.suite, secrets)?;
                    self.opened = opened;
                    self.update_owed |= asked == UPDATE_REQUESTED;
                }
                _ => return Err(unexpected()),
            }
            let whole = self.message.len() - rest.len() + length;
            self.message.drain(..whole);
        }
        Ok(())
    }
}

fn sealing(
    suite: SupportedCipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Result<Box<dyn MessageEncrypter>, Error> {
    let (key, iv) = key_and_iv(secrets)?;
    Ok(match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => {
            let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
            let (fixed, explicit) = iv.as_ref().split_at(fixed);
            suite.aead_alg.encrypter(key, fixed, explicit)
        }
    })
}

fn opening(
    suite: SupportedCipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Result<Box<dyn MessageDecrypter>, Error> {
    let (key, iv) = key_and_iv(secrets)?;
    Ok(match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.decrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => {
            let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
            suite.aead_alg.decrypter(key, &iv.as_ref()[..fixed])
        }
    })
}

fn key_and_iv(secrets: ConnectionTrafficSecrets) -> Result<(AeadKey, Iv), Error> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key, iv)),
        _ => Err(Error::General("a cipher whose keys are unknown".to_owned())),
    }
}

fn unexpected() -> Error {
    Error::General("the peer sent a message that has no place here".to_owned())
}

fn broken(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

// What the peer is told about it; nothing if it was the one who told.
fn alert_for(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref::<Error>()? {
        Error::AlertReceived(_) => None,
        Error::DecryptError => Some(AlertDescription::BadRecordMac),
        Error::PeerSentOversizedRecord => Some(AlertDescription::RecordOverflow),
        _ => Some(AlertDescription::UnexpectedMessage),
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Transport for Records<IO> {
    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Poll<io::Result<bool>> {
        if !self.early.is_empty() {
            take(&std::mem::take(&mut self.early))?;
            return Poll::Ready(Ok(true));
        }
        with_scratch(|scratch| {
            let (held, room) = scratch.split_at_mut(self.held.len());
            let mut buffer = ReadBuf::new(room);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
            let read = buffer.filled().len();
            if read == 0 {
                // Without the peer's word that this is the end, somebody else may have cut it off.
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            held.copy_from_slice(&self.held);
            let bytes = &mut scratch[..self.held.len() + read];
            let (used, more) = match self.session.open_all(bytes, take) {
                Ok(opened) => opened,
                Err(error) => {
                    self.refuse(&error, cx);
                    return Poll::Ready(Err(error));
                }
            };
            // An idle connection holds no buffer.
            self.held = bytes[used..].to_vec();
            Poll::Ready(Ok(more))
        })
    }

    fn poll_output(&mut self, pieces: &mut Pieces, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.sealed.is_empty() {
                ready!(self.sealed.poll_write(&mut self.io, cx))?;
            }
            if pieces.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let (session, out) = (&mut self.session, &mut self.sealed);
            pieces
                .drain_slices(|slices| session.seal_data(OutboundChunks::new(slices), out))
                .map_err(broken)?;
        }
    }
}

impl<IO: AsyncWrite + Unpin> Records<IO> {
    fn refuse(&mut self, error: &io::Error, cx: &mut Context<'_>) {
        let Some(alert) = alert_for(error) else {
            return;
        };
        let alert = [FATAL, alert.into()];
        if let Ok(record) = self
            .session
            .seal(ContentType::Alert, OutboundChunks::Single(&alert))
        {
            self.sealed.push(Bytes::from(record));
            // The peer may listen or not: the connection ends either way.
            let _ = self.sealed.poll_write(&mut self.io, cx);
        }
    }
}

#[cfg(test)]
mod tests;
