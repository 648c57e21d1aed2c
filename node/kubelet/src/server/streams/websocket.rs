//! WebSocket messages (RFC 6455), the server's side. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, BytesMut};

/// What every server appends to a client's key.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// A message that is longer breaks the connection off.
const LONGEST: u64 = 8 << 20;

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// A message, of bytes or of text.
    Data(Vec<u8>),
    /// Is anybody there?
    Ping(Vec<u8>),
    /// Goodbye.
    Close,
    /// What need not be answered.
    Other,
}

/// A client that does not speak the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nonsense;

/// Puts messages together from what arrives.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    begun: Vec<u8>,
}

impl Decoder {
    /// Takes a whole message from what has arrived, if there is one.
    pub(super) fn take(&mut self, arrived: &mut BytesMut) -> Result<Option<Message>, Nonsense> {
        while let Some((last, opcode, payload)) = frame(arrived)? {
            match opcode {
                0..=2 => {
                    self.begun.extend_from_slice(&payload);
                    if self.begun.len() as u64 > LONGEST {
                        return Err(Nonsense);
                    }
                    if last {
                        return Ok(Some(Message::Data(std::mem::take(&mut self.begun))));
                    }
                }
                8 => return Ok(Some(Message::Close)),
                9 => return Ok(Some(Message::Ping(payload))),
                10 => return Ok(Some(Message::Other)),
                _ => return Err(Nonsense),
            }
        }
        Ok(None)
    }
}

// Clients mask what they send.
fn frame(arrived: &mut BytesMut) -> Result<Option<(bool, u8, Vec<u8>)>, Nonsense> {
    let Some(&[first, second]) = arrived.get(..2).and_then(|two| two.first_chunk::<2>()) else {
        return Ok(None);
    };
    let (length, start) = match second & 0x7f {
        126 => match arrived.get(2..4) {
            Some(two) => (u64::from(u16::from_be_bytes([two[0], two[1]])), 4),
            None => return Ok(None),
        },
        127 => match arrived
            .get(2..10)
            .and_then(|eight| eight.first_chunk::<8>())
        {
            Some(eight) => (u64::from_be_bytes(*eight), 10),
            None => return Ok(None),
        },
        short => (u64::from(short), 2),
    };
    if second & 0x80 == 0 || length > LONGEST {
        return Err(Nonsense);
    }
    let length = usize::try_from(length).map_err(|_| Nonsense)?;
    if arrived.len() < start + 4 + length {
        return Ok(None);
    }
    arrived.advance(start);
    let mask = arrived.split_to(4);
    let mut payload = arrived.split_to(length).to_vec();
    for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    Ok(Some((first & 0x80 != 0, first & 0x0f, payload)))
}

/// A message of bytes; its first part may come from elsewhere.
pub(super) fn binary(prefix: &[u8], bytes: &[u8]) -> Vec<u8> {
    encode(2, prefix, bytes)
}

/// The answer to a ping.
pub(super) fn pong(bytes: &[u8]) -> Vec<u8> {
    encode(10, &[], bytes)
}

/// Goodbye: normal closure.
pub(super) fn close() -> Vec<u8> {
    encode(8, &[], &1000_u16.to_be_bytes())
}

fn encode(opcode: u8, prefix: &[u8], bytes: &[u8]) -> Vec<u8> {
    let length = prefix.len() + bytes.len();
    let mut frame = Vec::with_capacity(length + 10);
    frame.push(0x80 | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < 126 => frame.push(short),
        (_, Ok(length)) => {
            frame.push(126);
            frame.extend(length.to_be_bytes());
        }
        _ => {
            frame.push(127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(prefix);
    frame.extend_from_slice(bytes);
    frame
}

/// The proof that a server understood a client's key.
pub(super) fn accept(key: &str) -> String {
    let text = format!("{key}{MAGIC}");
    let digest = &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY;
    STANDARD.encode(aws_lc_rs::digest::digest(digest, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use bytes::BufMut as _;

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut frame = encode(0, &[], payload);
        frame[0] = first;
        frame[1] |= 0x80;
        let start = frame.len() - payload.len();
        let mut whole = frame[..start].to_vec();
        whole.extend(mask);
        whole.extend(payload.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m));
        whole
    }

    #[test]
    fn messages_are_put_together_from_frames_of_any_size() {
        let long = vec![7; 70_000];
        let mut all = masked(0x82, b"one");
        all.extend(masked(0x02, b"t"));
        all.extend(masked(0x89, b"ping"));
        all.extend(masked(0x80, b"wo"));
        all.extend(masked(0x82, &[5; 200]));
        all.extend(masked(0x82, &long));
        all.extend(masked(0x88, &[]));
        let mut decoder = Decoder::default();
        let mut arrived = BytesMut::new();
        let mut found = Vec::new();
        for piece in all.chunks(1000) {
            arrived.put_slice(piece);
            while let Some(message) = decoder.take(&mut arrived).unwrap() {
                found.push(message);
            }
        }
        let wanted = [
            Message::Data(b"one".to_vec()),
            Message::Ping(b"ping".to_vec()),
            Message::Data(b"two".to_vec()),
            Message::Data(vec![5; 200]),
            Message::Data(long),
            Message::Close,
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn clients_that_do_not_mask_are_refused() {
        let mut arrived = BytesMut::from(&binary(&[], b"x")[..]);
        assert_eq!(Decoder::default().take(&mut arrived), Err(Nonsense));
    }

    #[test]
    fn keys_are_answered_as_the_standard_says() {
        assert_eq!(
            accept("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }
}
