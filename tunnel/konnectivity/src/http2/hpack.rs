//! Header compression (RFC 7541): everything a peer may send is read, the plainest form is written.

use std::collections::VecDeque;
use std::sync::LazyLock;

use super::tables::{CODE_LENGTHS, STATIC};

/// A header list as it stood on the wire.
pub(crate) type Fields = Vec<(String, Vec<u8>)>;

/// The table size both sides start with; we never announce another.
const TABLE_SIZE: usize = 4096;
/// What a field costs beside its letters, by the RFC.
const FIELD_OVERHEAD: usize = 32;

/// A header block that breaks the rules; the connection cannot go on, as the tables differ now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HpackError {
    #[error("a header block ends in the middle of a field")]
    Truncated,
    #[error("a header block has an integer that is too large")]
    Integer,
    #[error("a header block names an entry that does not exist")]
    Index,
    #[error("a header block has a wrong Huffman code")]
    Huffman,
    #[error("a header name is not text")]
    Name,
    #[error("a header list is too long")]
    TooLong,
    #[error("a header block asks for a table beyond its limit")]
    TableSize,
}

/// The reading side's table.
#[derive(Debug)]
pub(crate) struct Decoder {
    entries: VecDeque<(String, Vec<u8>)>,
    size: usize,
    limit: usize,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder {
            entries: VecDeque::new(),
            size: 0,
            limit: TABLE_SIZE,
        }
    }
}

impl Decoder {
    /// Reads one whole header block; at most `budget` bytes of fields.
    pub(crate) fn decode(&mut self, block: &[u8], budget: usize) -> Result<Fields, HpackError> {
        let mut input = Input { bytes: block };
        let mut fields = Fields::new();
        let mut left = budget;
        while let Some(first) = input.peek() {
            let Some(field) = self.representation(first, &mut input)? else {
                continue;
            };
            let cost = field.0.len() + field.1.len() + FIELD_OVERHEAD;
            left = left.checked_sub(cost).ok_or(HpackError::TooLong)?;
            fields.push(field);
        }
        Ok(fields)
    }

    fn representation(
        &mut self,
        first: u8,
        input: &mut Input<'_>,
    ) -> Result<Option<(String, Vec<u8>)>, HpackError> {
        if first & 0x80 != 0 {
            let index = input.integer(7)?;
            return self.entry(index).map(Some);
        }
        if first & 0xe0 == 0x20 {
            let limit = input.integer(5)?;
            if limit > TABLE_SIZE {
                return Err(HpackError::TableSize);
            }
            self.limit = limit;
            self.evict(0);
            return Ok(None);
        }
        let indexed = first & 0x40 != 0;
        let index = input.integer(if indexed { 6 } else { 4 })?;
        let name = match index {
            0 => String::from_utf8(input.string()?).map_err(|_| HpackError::Name)?,
            index => self.entry(index)?.0,
        };
        let value = input.string()?;
        if indexed {
            self.insert(name.clone(), value.clone());
        }
        Ok(Some((name, value)))
    }

    fn entry(&self, index: usize) -> Result<(String, Vec<u8>), HpackError> {
        let position = index.checked_sub(1).ok_or(HpackError::Index)?;
        if let Some((name, value)) = STATIC.get(position) {
            return Ok(((*name).to_owned(), value.as_bytes().to_vec()));
        }
        let found = self.entries.get(position - STATIC.len());
        found.cloned().ok_or(HpackError::Index)
    }

    fn insert(&mut self, name: String, value: Vec<u8>) {
        let cost = name.len() + value.len() + FIELD_OVERHEAD;
        self.evict(cost);
        if cost <= self.limit {
            self.size += cost;
            self.entries.push_front((name, value));
        }
    }

    fn evict(&mut self, needed: usize) {
        while self.size + needed > self.limit {
            let Some((name, value)) = self.entries.pop_back() else {
                return;
            };
            self.size -= name.len() + value.len() + FIELD_OVERHEAD;
        }
    }
}

struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    fn byte(&mut self) -> Result<u8, HpackError> {
        let (first, rest) = self.bytes.split_first().ok_or(HpackError::Truncated)?;
        self.bytes = rest;
        Ok(*first)
    }

    fn integer(&mut self, prefix: u32) -> Result<usize, HpackError> {
        let mask = (1usize << prefix) - 1;
        let mut value = usize::from(self.byte()?) & mask;
        if value < mask {
            return Ok(value);
        }
        // Four more bytes carry far more than any limit of ours.
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(HpackError::Integer)
    }

    fn string(&mut self) -> Result<Vec<u8>, HpackError> {
        let huffman = self.peek().ok_or(HpackError::Truncated)? & 0x80 != 0;
        let length = self.integer(7)?;
        if length > self.bytes.len() {
            return Err(HpackError::Truncated);
        }
        let (text, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        if huffman {
            huffman_decode(text)
        } else {
            Ok(text.to_vec())
        }
    }
}

/// One row per code length: the first code of that length, and its symbols in order.
struct Codes {
    symbols: Vec<u16>,
    rows: Vec<CodeRow>,
}

struct CodeRow {
    length: u8,
    first: u32,
    start: usize,
    count: usize,
}

static CODES: LazyLock<Codes> = LazyLock::new(|| {
    let mut codes = Codes {
        symbols: Vec::with_capacity(CODE_LENGTHS.len()),
        rows: Vec::new(),
    };
    let mut next: u32 = 0;
    for length in 5..=30u8 {
        next <<= 1;
        let start = codes.symbols.len();
        let symbols = (0u16..).zip(CODE_LENGTHS);
        let here = symbols.filter(|(_, l)| *l == length).map(|(s, _)| s);
        codes.symbols.extend(here);
        let count = codes.symbols.len() - start;
        let first = next;
        next += u32::try_from(count).expect("there are 257 symbols");
        codes.rows.push(CodeRow {
            length,
            first,
            start,
            count,
        });
    }
    codes
});

const END_MARK: u16 = 256;

fn huffman_decode(text: &[u8]) -> Result<Vec<u8>, HpackError> {
    let mut out = Vec::with_capacity(text.len() * 8 / 5);
    let mut bits: u64 = 0;
    let mut held: u8 = 0;
    let mut input = text.iter();
    loop {
        while held <= 32 {
            let Some(byte) = input.next() else { break };
            bits = bits << 8 | u64::from(*byte);
            held += 8;
        }
        let Some((symbol, length)) = next_symbol(bits, held) else {
            break;
        };
        if symbol == END_MARK {
            return Err(HpackError::Huffman);
        }
        out.push(u8::try_from(symbol).expect("all symbols but the end mark are bytes"));
        held -= length;
        bits &= (1 << held) - 1;
    }
    // What is left is padding: less than a byte, and all ones.
    if held >= 8 || bits != (1u64 << held) - 1 {
        return Err(HpackError::Huffman);
    }
    Ok(out)
}

fn next_symbol(bits: u64, held: u8) -> Option<(u16, u8)> {
    for row in &CODES.rows {
        if row.length > held {
            return None;
        }
        let code = u32::try_from(bits >> (held - row.length)).ok()?;
        if let Some(offset) = code.checked_sub(row.first)
            && (offset as usize) < row.count
        {
            return Some((CODES.symbols[row.start + offset as usize], row.length));
        }
    }
    None
}

/// Writes a header block with literals only: no state to keep, and headers are rare here.
pub(crate) fn encode<'a>(fields: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        // "Literal header field never indexed" also keeps tokens out of every table.
        block.push(0x10);
        string(&mut block, name.as_bytes());
        string(&mut block, value);
    }
    block
}

fn string(block: &mut Vec<u8>, text: &[u8]) {
    let mut rest = match text.len() {
        short @ 0..127 => {
            block.push(short as u8);
            block.extend_from_slice(text);
            return;
        }
        long => long - 127,
    };
    block.push(127);
    while rest >= 128 {
        block.push((rest % 128) as u8 | 0x80);
        rest /= 128;
    }
    block.push(rest as u8);
    block.extend_from_slice(text);
}

#[cfg(test)]
mod tests;
