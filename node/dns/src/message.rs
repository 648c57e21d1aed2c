//! DNS messages on the wire (RFC 1035, RFC 6891): questions are read, answers are written.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::name::{LONGEST, Name};

/// Record types that mean something here.
pub mod kind {
    #![allow(missing_docs, reason = "they are named as everybody names them")]
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const OPT: u16 = 41;
    pub const AXFR: u16 = 252;
    pub const ANY: u16 = 255;
}

/// The Internet.
pub const INTERNET: u16 = 1;

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// As asked, perhaps with nothing in it.
    NoError = 0,
    /// The question makes no sense.
    FormErr = 1,
    /// Something went wrong on this side.
    ServFail = 2,
    /// There is no such name.
    NxDomain = 3,
    /// Not done here.
    NotImp = 4,
    /// Not for you.
    Refused = 5,
}

impl Code {
    /// As CoreDNS calls it in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Code::NoError => "NOERROR",
            Code::FormErr => "FORMERR",
            Code::ServFail => "SERVFAIL",
            Code::NxDomain => "NXDOMAIN",
            Code::NotImp => "NOTIMP",
            Code::Refused => "REFUSED",
        }
    }

    /// By its number in a message; what nobody knows is a failure.
    pub fn of(number: u8) -> Code {
        let all = [
            Code::NoError,
            Code::FormErr,
            Code::ServFail,
            Code::NxDomain,
            Code::NotImp,
            Code::Refused,
        ];
        all.get(usize::from(number))
            .copied()
            .unwrap_or(Code::ServFail)
    }
}

/// A question, and how its answer is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// What connects question and answer.
    pub id: u16,
    /// Whether servers further up may be asked.
    pub recursion: bool,
    /// Whether unverified data is welcome.
    pub checking_disabled: bool,
    /// The name.
    pub name: Name,
    /// The type of record.
    pub kind: u16,
    /// The class of record.
    pub class: u16,
    /// The name as it was written, for the answer: some clients check its case.
    written: Vec<u8>,
    /// The client's size of datagrams and its flags, where it speaks EDNS.
    pub edns: Option<Edns>,
}

/// What a client that speaks EDNS says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edns {
    /// The largest datagram it takes.
    pub size: u16,
    /// Whether it wants signatures.
    pub dnssec: bool,
    /// The version it speaks.
    pub version: u8,
}

/// Why something is no question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Not to be answered: too short to be anything, or itself an answer.
    Silent,
    /// To be answered with an error.
    Answer(u16, Code),
}

const HEADER: usize = 12;

/// Reads a question.
pub fn parse_query(bytes: &[u8]) -> Result<Query, Malformed> {
    let header = bytes.get(..HEADER).ok_or(Malformed::Silent)?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (id, flags) = (word(0), word(2));
    if flags & 0x8000 != 0 {
        return Err(Malformed::Silent);
    }
    let wrong = Malformed::Answer(id, Code::FormErr);
    if flags & 0x7800 != 0 {
        return Err(Malformed::Answer(id, Code::NotImp));
    }
    if word(4) != 1 {
        return Err(wrong);
    }
    let (name, written, at) = read_name(bytes, HEADER).ok_or(wrong)?;
    let (kind, at) = read_word(bytes, at).ok_or(wrong)?;
    let (class, at) = read_word(bytes, at).ok_or(wrong)?;
    let others = usize::from(word(6)) + usize::from(word(8));
    let edns = read_edns(bytes, at, others, usize::from(word(10))).ok_or(wrong)?;
    Ok(Query {
        id,
        recursion: flags & 0x0100 != 0,
        checking_disabled: flags & 0x0010 != 0,
        name,
        kind,
        class,
        written,
        edns,
    })
}

fn read_word(bytes: &[u8], at: usize) -> Option<(u16, usize)> {
    let word = bytes.get(at..at + 2)?;
    Some((u16::from_be_bytes([word[0], word[1]]), at + 2))
}

fn read_edns(
    bytes: &[u8],
    mut at: usize,
    before: usize,
    additional: usize,
) -> Option<Option<Edns>> {
    let mut edns = None;
    for i in 0..before + additional {
        let record = read_record(bytes, at)?;
        if record.kind == kind::OPT && i >= before {
            edns = Some(Edns {
                size: record.class,
                dnssec: record.ttl & 0x8000 != 0,
                version: (record.ttl >> 16) as u8,
            });
        }
        at = record.end;
    }
    Some(edns)
}

/// Where a record's parts are in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordAt {
    /// Where it begins, with its name.
    pub start: usize,
    /// Its type.
    pub kind: u16,
    /// Its class.
    pub class: u16,
    /// Its time to live, in seconds.
    pub ttl: u32,
    /// Where the time to live stands.
    pub ttl_at: usize,
    /// Where its data begins.
    pub data: usize,
    /// Where it ends.
    pub end: usize,
}

fn read_record(bytes: &[u8], start: usize) -> Option<RecordAt> {
    let at = skip_name(bytes, start)?;
    let (kind, at) = read_word(bytes, at)?;
    let (class, ttl_at) = read_word(bytes, at)?;
    let (high, at) = read_word(bytes, ttl_at)?;
    let (low, at) = read_word(bytes, at)?;
    let (length, data) = read_word(bytes, at)?;
    let end = data + usize::from(length);
    (end <= bytes.len()).then_some(RecordAt {
        start,
        kind,
        class,
        ttl: (u32::from(high) << 16) | u32::from(low),
        ttl_at,
        data,
        end,
    })
}

/// The records of an answer: those of the first two sections, then the others. Nothing if it cannot be read.
pub fn records_of(bytes: &[u8]) -> Option<(Vec<RecordAt>, Vec<RecordAt>)> {
    let word = |at: usize| read_word(bytes, at).map(|(word, _)| usize::from(word));
    let mut at = HEADER;
    for _ in 0..word(4)? {
        at = skip_name(bytes, at)? + 4;
    }
    let (main, more) = (word(6)? + word(8)?, word(10)?);
    let mut sections = (Vec::new(), Vec::new());
    for i in 0..main + more {
        let record = read_record(bytes, at)?;
        at = record.end;
        let section = if i < main {
            &mut sections.0
        } else {
            &mut sections.1
        };
        section.push(record);
    }
    Some(sections)
}

/// The addresses and other names that an answer gives, with their times to live.
pub fn addresses_of(bytes: &[u8]) -> Vec<Record> {
    let (main, _) = records_of(bytes).unwrap_or_default();
    let record = |at: &RecordAt| {
        let data = bytes.get(at.data..at.end)?;
        let data = match at.kind {
            kind::A => Data::A(<[u8; 4]>::try_from(data).ok()?.into()),
            kind::AAAA => Data::Aaaa(<[u8; 16]>::try_from(data).ok()?.into()),
            kind::CNAME => Data::Cname(read_name(bytes, at.data)?.0),
            _ => return None,
        };
        let (name, ..) = read_name(bytes, at.start)?;
        Some(Record {
            name,
            ttl: at.ttl,
            data,
        })
    };
    main.iter().filter_map(record).collect()
}

fn skip_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = usize::from(*bytes.get(at)?);
        match length {
            0 => return Some(at + 1),
            1..=63 => at += 1 + length,
            192.. => return bytes.get(at + 1).map(|_| at + 2),
            _ => return None,
        }
    }
}

/// Reads a name in lower case, the way it is written, and where it ends. Pointers lead backwards only, so that
/// reading ends.
pub fn read_name(bytes: &[u8], start: usize) -> Option<(Name, Vec<u8>, usize)> {
    let (mut at, mut end, mut limit) = (start, None, start);
    let mut written = Vec::new();
    loop {
        let length = usize::from(*bytes.get(at)?);
        match length {
            0 => break,
            1..=63 => {
                written.extend(bytes.get(at..at + 1 + length)?);
                at += 1 + length;
            }
            192.. => {
                let target = ((length & 0x3f) << 8) | usize::from(*bytes.get(at + 1)?);
                end.get_or_insert(at + 2);
                if target >= limit {
                    return None;
                }
                (at, limit) = (target, target);
            }
            _ => return None,
        }
        if written.len() >= LONGEST {
            return None;
        }
    }
    written.push(0);
    let labels = crate::name::labels_of(&written);
    Some((Name::of_labels(labels)?, written, end.unwrap_or(at + 1)))
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// Another name for the same.
    Cname(Name),
    /// The name of an address.
    Ptr(Name),
    /// A name server.
    Ns(Name),
    /// Where a service is.
    Srv {
        /// Lower is tried first.
        priority: u16,
        /// Among equals, how often.
        weight: u16,
        /// The port.
        port: u16,
        /// The host.
        target: Name,
    },
    /// Some text.
    Txt(Vec<u8>),
    /// Who is responsible for a zone.
    Soa {
        /// The first name server.
        server: Name,
        /// The mailbox of those who run it.
        contact: Name,
        /// The version.
        serial: u32,
        /// How long names that do not exist are remembered.
        minimum: u32,
    },
}

impl Data {
    /// Its type.
    pub fn kind(&self) -> u16 {
        match self {
            Data::A(_) => kind::A,
            Data::Aaaa(_) => kind::AAAA,
            Data::Cname(_) => kind::CNAME,
            Data::Ptr(_) => kind::PTR,
            Data::Ns(_) => kind::NS,
            Data::Srv { .. } => kind::SRV,
            Data::Txt(_) => kind::TXT,
            Data::Soa { .. } => kind::SOA,
        }
    }
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose.
    pub name: Name,
    /// For how many seconds it holds.
    pub ttl: u32,
    /// What it says.
    pub data: Data,
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// How it ends.
    pub code: Option<Code>,
    /// Whether it comes from whoever is responsible for the name.
    pub authoritative: bool,
    /// What was asked for.
    pub answers: Vec<Record>,
    /// Who is responsible.
    pub authority: Vec<Record>,
    /// What the client would ask next.
    pub additional: Vec<Record>,
}

impl Reply {
    /// Nothing but a code.
    pub fn of_code(code: Code) -> Reply {
        Reply {
            code: Some(code),
            ..Reply::default()
        }
    }

    /// How it ends.
    pub fn code(&self) -> Code {
        self.code.unwrap_or(Code::NoError)
    }
}

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
