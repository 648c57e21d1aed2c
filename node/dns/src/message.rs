//! DNS messages on the wire (RFC 1035, RFC 6891): questions are read, answers are written ([`write`]).

mod write;

pub use write::{OUR_SIZE, PLAIN_SIZE, refusal};

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
