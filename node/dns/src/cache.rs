//! Answers of servers further up, for as long as they hold, and a while longer for when nobody can be asked.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::message::{Code, Query, Record, addresses_of, kind, records_of};
use crate::name::Name;

/// What makes two questions the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    name: Name,
    kind: u16,
    class: u16,
    dnssec: bool,
    checking_disabled: bool,
}

impl Question {
    /// The question of a query.
    pub(crate) fn of(query: &Query) -> Question {
        Question {
            name: query.name.clone(),
            kind: query.kind,
            class: query.class,
            dnssec: query.edns.is_some_and(|edns| edns.dnssec),
            checking_disabled: query.checking_disabled,
        }
    }
}

/// An answer of a server further up, without what belongs to the way between it and us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    bytes: Vec<u8>,
    /// Where its times to live stand.
    ttls: Vec<usize>,
    /// The shortest of them.
    lives: u32,
}

impl Answer {
    /// Reads an answer to a query; nothing if it is none.
    pub(crate) fn read(query: &Query, mut bytes: Vec<u8>) -> Option<Answer> {
        let question = query.question();
        let asked = bytes.get(12..12 + question.len())?;
        if !asked.eq_ignore_ascii_case(&question) || bytes[2] & 0x80 == 0 || bytes[4..6] != [0, 1] {
            return None;
        }
        let (main, more) = records_of(&bytes)?;
        // EDNS is between neighbours; whatever comes behind it was not asked for.
        let kept = more
            .iter()
            .take_while(|record| record.kind != kind::OPT)
            .count();
        let end = more[..kept]
            .last()
            .or(main.last())
            .map_or(12 + question.len(), |record| record.end);
        bytes.truncate(end);
        bytes[10..12].copy_from_slice(&u16::try_from(kept).ok()?.to_be_bytes());
        let records = || main.iter().chain(&more[..kept]);
        // How long there is nothing is the last number of the zone's own record (RFC 2308).
        let nothing = main
            .iter()
            .filter(|r| r.kind == kind::SOA && r.end >= r.data + 4);
        let minimum = nothing
            .filter_map(|r| Some(u32::from_be_bytes(bytes[r.end - 4..r.end].try_into().ok()?)));
        let lives = records().map(|record| record.ttl).chain(minimum).min();
        Some(Answer {
            ttls: records().map(|record| record.ttl_at).collect(),
            lives: lives.unwrap_or(5),
            bytes,
        })
    }

    /// The addresses and other names in it.
    pub(crate) fn addresses(&self) -> Vec<Record> {
        addresses_of(&self.bytes)
    }

    /// How it ends.
    pub(crate) fn code(&self) -> Code {
        Code::of(self.bytes[3] & 0xf)
    }

    /// Whether it was cut off on the way.
    pub(crate) fn is_cut(&self) -> bool {
        self.bytes[2] & 0x02 != 0
    }

    /// The message for a client, of at most `limit` bytes, after some seconds here.
    pub(crate) fn reply(&self, query: &Query, limit: usize, age: u32) -> Vec<u8> {
        let question = query.question();
        let edns: &[u8] = if query.edns.is_some() { &EDNS } else { &[] };
        let mut bytes = self.bytes.clone();
        if bytes.len() + edns.len() > limit {
            bytes.truncate(12 + question.len());
            bytes[6..12].fill(0);
            bytes[2] |= 0x02;
        } else {
            for at in &self.ttls {
                let ttl =
                    u32::from_be_bytes([bytes[*at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
                bytes[*at..at + 4].copy_from_slice(&ttl.saturating_sub(age).to_be_bytes());
            }
        }
        bytes[..2].copy_from_slice(&query.id.to_be_bytes());
        bytes[12..12 + question.len()].copy_from_slice(&question);
        // Not from whoever is responsible any more, and with recursion.
        bytes[2] = (bytes[2] & !0x05) | u8::from(query.recursion);
        bytes[3] |= 0x80;
        if !edns.is_empty() {
            let count = u16::from_be_bytes([bytes[10], bytes[11]]) + 1;
            bytes[10..12].copy_from_slice(&count.to_be_bytes());
            bytes.extend(edns);
        }
        bytes
    }
}

/// An empty EDNS record with our size of datagrams.
const EDNS: [u8; 11] = [0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0];

struct Kept {
    answer: Answer,
    since: Instant,
    until: Instant,
}

/// The cache.
pub(crate) struct Cache {
    kept: HashMap<Question, Kept>,
    capacity: usize,
    /// The longest time an answer is believed.
    longest: Duration,
}

/// How long an answer that no longer holds is better than none.
const STALE: Duration = Duration::from_secs(3600);
/// CoreDNS' number of answers.
pub(crate) const CAPACITY: usize = 9984;

impl Cache {
    /// An empty one; nothing is believed longer than `longest`.
    pub(crate) fn new(capacity: usize, longest: Duration) -> Cache {
        Cache {
            kept: HashMap::new(),
            capacity,
            longest,
        }
    }

    /// An answer that holds, with its age in seconds.
    pub(crate) fn get(&self, question: &Question, now: Instant) -> Option<(&Answer, u32)> {
        let kept = self.kept.get(question).filter(|kept| now < kept.until)?;
        let age = now.duration_since(kept.since).as_secs();
        Some((&kept.answer, u32::try_from(age).unwrap_or(u32::MAX)))
    }

    /// An answer that held not long ago; its times to live are over.
    pub(crate) fn stale(&self, question: &Question, now: Instant) -> Option<&Answer> {
        let kept = self.kept.get(question)?;
        (now < kept.until + STALE).then_some(&kept.answer)
    }

    /// Keeps an answer, unless it is a failure.
    pub(crate) fn put(&mut self, question: Question, answer: Answer, now: Instant) {
        if !matches!(answer.code(), Code::NoError | Code::NxDomain) || self.longest.is_zero() {
            return;
        }
        if self.kept.len() >= self.capacity {
            self.make_room(now);
        }
        let lives = Duration::from_secs(answer.lives.into()).min(self.longest);
        let kept = Kept {
            answer,
            since: now,
            until: now + lives,
        };
        self.kept.insert(question, kept);
    }

    // First what no longer holds, then whatever comes first: the map has no order that a client could use.
    fn make_room(&mut self, now: Instant) {
        self.kept.retain(|_, kept| now < kept.until);
        let surplus = self.kept.len().saturating_sub(self.capacity * 9 / 10);
        let some: Vec<Question> = self.kept.keys().take(surplus).cloned().collect();
        for question in some {
            self.kept.remove(&question);
        }
    }
}
