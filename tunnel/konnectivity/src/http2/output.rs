//! What a connection writes next: heads and small things copied together, data as it came.

use bytes::{Bytes, BytesMut};

use crate::pieces::Pieces;

/// Data of less than this is copied: a piece of its own would cost more.
const SMALL: usize = 2 << 10;

/// Frames, first to last.
#[derive(Debug, Default)]
pub(super) struct Output {
    pieces: Pieces,
    /// What follows the pieces, and grows.
    end: BytesMut,
}

impl Output {
    pub(super) fn len(&self) -> usize {
        self.pieces.len() + self.end.len()
    }

    /// Where frames are appended.
    pub(super) fn end(&mut self) -> &mut BytesMut {
        &mut self.end
    }

    /// Appends a part of a frame.
    pub(super) fn put(&mut self, data: Bytes) {
        if data.len() < SMALL {
            self.end.extend_from_slice(&data);
        } else {
            self.pieces.push(self.end.split().freeze());
            self.pieces.push(data);
        }
    }

    /// Everything, for the socket.
    pub(super) fn take(&mut self) -> Pieces {
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.push(std::mem::take(&mut self.end).freeze());
        pieces
    }
}
