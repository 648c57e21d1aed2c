//! Answers as they are written.

use std::collections::HashMap;

use super::{Code, Data, HEADER, INTERNET, Query, Record, Reply, kind};
use crate::name::Name;

/// The largest datagram a client takes that says nothing of it.
pub const PLAIN_SIZE: usize = 512;
/// The size we take and offer: it fits any path.
pub const OUR_SIZE: u16 = 1232;

impl Query {
    /// How large the answer may be in a datagram.
    pub fn size(&self) -> usize {
        let offered = self
            .edns
            .map_or(0, |edns| usize::from(edns.size.min(OUR_SIZE)));
        offered.max(PLAIN_SIZE)
    }

    /// The same question about another name.
    pub fn about(&self, name: Name) -> Query {
        Query {
            written: name.wire().to_vec(),
            name,
            ..self.clone()
        }
    }

    /// Its own question section.
    pub fn question(&self) -> Vec<u8> {
        let mut bytes = self.written.clone();
        bytes.extend(self.kind.to_be_bytes());
        bytes.extend(self.class.to_be_bytes());
        bytes
    }

    /// Writes an answer of at most `limit` bytes. Too much is cut off and marked, and the client asks by TCP.
    pub fn reply(&self, reply: &Reply, limit: usize) -> Vec<u8> {
        let mut writer = Writer::new(self);
        let edns = self.edns.map_or(0, |_| EDNS_LENGTH);
        let room = limit.saturating_sub(edns);
        let mut counts = [0u16; 3];
        let mut is_cut = false;
        for (i, section) in [&reply.answers, &reply.authority, &reply.additional]
            .into_iter()
            .enumerate()
        {
            for record in section {
                let before = writer.bytes.len();
                writer.record(record);
                if writer.bytes.len() > room {
                    writer.bytes.truncate(before);
                    writer.names.retain(|_, at| usize::from(*at) < before);
                    // Nobody misses what was not asked for.
                    is_cut |= i < 2;
                    break;
                }
                counts[i] += 1;
            }
        }
        if self.edns.is_some() {
            writer.edns();
            counts[2] += 1;
        }
        writer.finish(self, reply, counts, is_cut)
    }
}

/// An answer to something that is no question.
pub fn refusal(id: u16, code: Code) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..2].copy_from_slice(&id.to_be_bytes());
    bytes[2] = 0x80;
    bytes[3] = code as u8;
    bytes
}

const EDNS_LENGTH: usize = 11;

struct Writer {
    bytes: Vec<u8>,
    /// Where the endings of names have been written.
    names: HashMap<Vec<u8>, u16>,
}

impl Writer {
    fn new(query: &Query) -> Writer {
        let mut bytes = Vec::with_capacity(512);
        bytes.resize(HEADER, 0);
        let mut writer = Writer {
            bytes,
            names: HashMap::new(),
        };
        writer.know(query.name.wire(), HEADER);
        writer.bytes.extend(query.question());
        writer
    }

    fn know(&mut self, mut wire: &[u8], mut at: usize) {
        while let Some((length, rest)) = wire.split_first().filter(|(length, _)| **length > 0) {
            if let Ok(place) = u16::try_from(at)
                && place < 0x4000
            {
                self.names.entry(wire.to_vec()).or_insert(place);
            }
            at += 1 + usize::from(*length);
            wire = &rest[usize::from(*length)..];
        }
    }

    fn name(&mut self, name: &Name) {
        let (start, whole) = (self.bytes.len(), name.wire());
        let mut wire = whole;
        while let Some((length, rest)) = wire.split_first().filter(|(length, _)| **length > 0) {
            if let Some(place) = self.names.get(wire) {
                self.bytes.extend((0xc000 | place).to_be_bytes());
                self.know_new(whole, start, wire.len());
                return;
            }
            let label = &rest[..usize::from(*length)];
            self.bytes.push(*length);
            self.bytes.extend(label);
            wire = &rest[usize::from(*length)..];
        }
        self.bytes.push(0);
        self.know(whole, start);
    }

    // Only endings that were written here, not those a pointer stands for.
    fn know_new(&mut self, whole: &[u8], start: usize, known: usize) {
        let mut wire = whole;
        let mut at = start;
        while wire.len() > known {
            let length = usize::from(wire[0]);
            if let Ok(place) = u16::try_from(at)
                && place < 0x4000
            {
                self.names.entry(wire.to_vec()).or_insert(place);
            }
            at += 1 + length;
            wire = &wire[1 + length..];
        }
    }

    fn word(&mut self, word: u16) {
        self.bytes.extend(word.to_be_bytes());
    }

    fn record(&mut self, record: &Record) {
        self.name(&record.name);
        self.word(record.data.kind());
        self.word(INTERNET);
        self.bytes.extend(record.ttl.to_be_bytes());
        let length_at = self.bytes.len();
        self.word(0);
        self.data(&record.data);
        let length = self.bytes.len() - length_at - 2;
        let length = u16::try_from(length).unwrap_or_default().to_be_bytes();
        self.bytes[length_at..length_at + 2].copy_from_slice(&length);
    }

    fn data(&mut self, data: &Data) {
        match data {
            Data::A(ip) => self.bytes.extend(ip.octets()),
            Data::Aaaa(ip) => self.bytes.extend(ip.octets()),
            Data::Cname(name) | Data::Ptr(name) | Data::Ns(name) => self.name(name),
            Data::Srv {
                priority,
                weight,
                port,
                target,
            } => {
                self.word(*priority);
                self.word(*weight);
                self.word(*port);
                // Not shortened: RFC 2782 forbids it.
                self.bytes.extend(target.wire());
            }
            Data::Txt(text) => {
                for chunk in text.chunks(255) {
                    self.bytes
                        .push(u8::try_from(chunk.len()).unwrap_or_default());
                    self.bytes.extend(chunk);
                }
            }
            Data::Soa {
                server,
                contact,
                serial,
                minimum,
            } => {
                self.name(server);
                self.name(contact);
                for number in [*serial, 7200, 1800, 86400, *minimum] {
                    self.bytes.extend(number.to_be_bytes());
                }
            }
        }
    }

    fn edns(&mut self) {
        self.bytes.push(0);
        self.word(kind::OPT);
        self.word(OUR_SIZE);
        self.bytes.extend([0; 6]);
    }

    fn finish(mut self, query: &Query, reply: &Reply, counts: [u16; 3], is_cut: bool) -> Vec<u8> {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let flags = 0x8000
            | flag(reply.authoritative, 0x0400)
            | flag(is_cut, 0x0200)
            | flag(query.recursion, 0x0100)
            | 0x0080
            | reply.code() as u16;
        let header = [query.id, flags, 1, counts[0], counts[1], counts[2]];
        for (i, word) in header.into_iter().enumerate() {
            self.bytes[2 * i..2 * i + 2].copy_from_slice(&word.to_be_bytes());
        }
        self.bytes
    }
}
