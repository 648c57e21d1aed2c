//! Varints, tags and lengths.

/// Why bytes are not a protobuf message; the first four read like upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A length or number runs past the end.
    #[error("unexpected EOF")]
    Truncated,
    /// A varint of more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field number or wire type that does not exist.
    #[error("proto: illegal tag {0} (wire type {1})")]
    Tag(u64, u8),
    /// A field encoded as something else than its type.
    #[error("proto: wrong wireType = {found} for field {field}")]
    WireType {
        /// The wire type on the wire.
        found: u8,
        /// The field's JSON name.
        field: String,
    },
    /// A message of too many fields, elements and entries.
    #[error("proto: the message has more than {0} parts")]
    Parts(usize),
    /// Messages nested too deeply.
    #[error("proto: messages are nested deeper than {0}")]
    Depth(usize),
    /// Text that is not UTF-8.
    #[error("proto: invalid UTF-8 in a string")]
    Utf8,
    /// Raw bytes that are not JSON.
    #[error("proto: field {field} does not hold JSON: {reason}")]
    Json {
        /// The field's JSON name.
        field: String,
        /// The parser's words.
        reason: String,
    },
    /// A value that has no JSON form.
    #[error("proto: field {0} holds a value without JSON form")]
    Value(String),
}

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const DELIMITED: u8 = 2;
const GROUP_START: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// Writes a message back to front, so that every length is known when it is written; the caller
/// therefore emits fields in descending order, and a field's value before its tag.
#[derive(Default)]
pub(super) struct Writer {
    reversed: Vec<u8>,
}

impl Writer {
    pub(super) fn len(&self) -> usize {
        self.reversed.len()
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.reversed.extend(bytes.iter().rev());
    }

    pub(super) fn varint(&mut self, mut value: u64) {
        let mut encoded = [0u8; 10];
        let mut length = 0;
        loop {
            let low = (value & 0x7f) as u8;
            value >>= 7;
            encoded[length] = if value == 0 { low } else { low | 0x80 };
            length += 1;
            if value == 0 {
                break;
            }
        }
        self.bytes(&encoded[..length]);
    }

    pub(super) fn tag(&mut self, number: u32, wire: u8) {
        self.varint(u64::from(number) << 3 | u64::from(wire));
    }

    pub(super) fn varint_field(&mut self, number: u32, value: u64) {
        self.varint(value);
        self.tag(number, VARINT);
    }

    pub(super) fn bytes_field(&mut self, number: u32, bytes: &[u8]) {
        self.bytes(bytes);
        self.varint(bytes.len() as u64);
        self.tag(number, DELIMITED);
    }

    /// A sub-message whose fields `body` writes.
    pub(super) fn delimited<E>(
        &mut self,
        number: u32,
        body: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let before = self.len();
        body(self)?;
        self.varint((self.len() - before) as u64);
        self.tag(number, DELIMITED);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.reversed.reverse();
        self.reversed
    }
}

/// Reads a message's fields. Never allocates from a length it has not checked.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(WireError::Truncated)?;
            self.rest = rest;
            // Like upstream, bits beyond the 64th are dropped and only an eleventh byte is refused.
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::Overflow)
    }

    /// The next field's number and wire type, or `None` at the end.
    pub(super) fn tag(&mut self) -> Result<Option<(u32, u8)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire = (tag & 7) as u8;
        match u32::try_from(tag >> 3) {
            Ok(number) if number > 0 && wire <= FIXED32 && wire != GROUP_END => {
                Ok(Some((number, wire)))
            }
            _ => Err(WireError::Tag(tag >> 3, wire)),
        }
    }

    /// The bytes of a length-delimited field whose tag has been read.
    pub(super) fn delimited(&mut self, wire: u8) -> Result<&'a [u8], WireError> {
        if wire != DELIMITED {
            return Err(WireError::WireType {
                found: wire,
                field: String::new(),
            });
        }
        let length = usize::try_from(self.varint()?).map_err(|_| WireError::Truncated)?;
        self.take(length)
    }

    pub(super) fn text(&mut self, wire: u8) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.delimited(wire)?).map_err(|_| WireError::Utf8)
    }

    pub(super) fn fixed64(&mut self) -> Result<[u8; 8], WireError> {
        let bytes = self.take(8)?;
        Ok(bytes.try_into().expect("took eight bytes"))
    }

    /// Skips the value of an unknown field whose tag has been read.
    pub(super) fn skip(&mut self, wire: u8) -> Result<(), WireError> {
        let mut groups = 0usize;
        let mut wire = wire;
        loop {
            match wire {
                VARINT => drop(self.varint()?),
                FIXED64 => drop(self.take(8)?),
                DELIMITED => drop(self.delimited(wire)?),
                FIXED32 => drop(self.take(4)?),
                GROUP_START => groups += 1,
                GROUP_END if groups > 0 => groups -= 1,
                _ => return Err(WireError::Tag(0, wire)),
            }
            if groups == 0 {
                return Ok(());
            }
            wire = (self.varint()? & 7) as u8;
        }
    }
}
