//! gRPC's messages in a stream of bytes: a flag, a length, the message.

use bytes::{Bytes, BytesMut};

/// The most upstream's programs take; they do not raise gRPC's default.
pub(crate) const MAX_MESSAGE: usize = 4 << 20;
/// Bytes before every message.
pub(crate) const PREFIX: usize = 5;
// A hostile length alone must not cost memory.
const FIRST_RESERVE: usize = 64 << 10;

/// What a peer may not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("grpc: received message larger than max ({0} vs. {MAX_MESSAGE})")]
    TooLarge(usize),
    #[error("grpc: a compressed message without a compression that was agreed on")]
    Compressed,
}

/// Puts messages together from pieces.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    prefix: [u8; PREFIX],
    prefix_held: usize,
    message: BytesMut,
    wanted: usize,
}

impl Assembler {
    /// Takes the next piece; whole messages go to `done`.
    pub(crate) fn push(
        &mut self,
        mut piece: &[u8],
        mut done: impl FnMut(Bytes),
    ) -> Result<(), MessageError> {
        while !piece.is_empty() {
            if self.prefix_held < PREFIX {
                piece = self.take_prefix(piece)?;
                if self.prefix_held < PREFIX {
                    return Ok(());
                }
            }
            let missing = self.wanted - self.message.len();
            let (now, later) = piece.split_at(missing.min(piece.len()));
            self.message.extend_from_slice(now);
            piece = later;
            if self.message.len() == self.wanted {
                done(std::mem::take(&mut self.message).freeze());
                self.prefix_held = 0;
            }
        }
        Ok(())
    }

    fn take_prefix<'a>(&mut self, piece: &'a [u8]) -> Result<&'a [u8], MessageError> {
        let (now, later) = piece.split_at((PREFIX - self.prefix_held).min(piece.len()));
        self.prefix[self.prefix_held..self.prefix_held + now.len()].copy_from_slice(now);
        self.prefix_held += now.len();
        if self.prefix_held == PREFIX {
            let [flag, length @ ..] = self.prefix;
            let length = u32::from_be_bytes(length) as usize;
            if flag != 0 {
                return Err(MessageError::Compressed);
            }
            if length > MAX_MESSAGE {
                return Err(MessageError::TooLarge(length));
            }
            self.wanted = length;
            self.message = BytesMut::with_capacity(length.min(FIRST_RESERVE));
        }
        Ok(later)
    }
}

/// The bytes that go before a message of that length.
pub(crate) fn prefix(length: usize) -> [u8; PREFIX] {
    let length = u32::try_from(length).expect("messages are at most 4 MiB");
    let [a, b, c, d] = length.to_be_bytes();
    [0, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_any_cut() {
        let wire = [
            prefix(3).as_slice(),
            b"abc",
            prefix(0).as_slice(),
            prefix(5).as_slice(),
            b"hello",
        ]
        .concat();
        for size in 1..=wire.len() {
            let mut assembler = Assembler::default();
            let mut seen = Vec::new();
            for piece in wire.chunks(size) {
                let pushed = assembler.push(piece, |message| seen.push(message));
                assert_eq!(pushed, Ok(()));
            }
            assert_eq!(seen, [&b"abc"[..], b"", b"hello"], "pieces of {size}");
        }
    }

    #[test]
    fn hostile_prefixes_are_refused() {
        let mut sink = |_| ();
        let pushed = Assembler::default().push(&[0, 0xff, 0, 0, 0], &mut sink);
        assert_eq!(pushed, Err(MessageError::TooLarge(0xff00_0000)));
        let pushed = Assembler::default().push(&[1, 0, 0, 0, 1], &mut sink);
        assert_eq!(pushed, Err(MessageError::Compressed));
    }
}
