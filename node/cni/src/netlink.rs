//! Netlink as the kernel speaks it: messages of attributes, their answers, and batches that count as a whole.
//!
//! Written out here because a plugin is started for every pod: one thread, no runtime, a few messages, done.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
    socket_with,
};

pub(crate) const REQUEST: u16 = 0x1;
pub(crate) const ACK: u16 = 0x4;
pub(crate) const DUMP: u16 = 0x300;
pub(crate) const REPLACE: u16 = 0x100;
pub(crate) const EXCLUSIVE: u16 = 0x200;
pub(crate) const CREATE: u16 = 0x400;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const HEADER: usize = 16;
const NESTED: u16 = 0x8000;
/// The kernel answers at once; silence this long means that it never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// Attributes, one after the other, as they stand in a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    pub(crate) fn put(mut self, kind: u16, value: impl AsRef<[u8]>) -> Attributes {
        let value = value.as_ref();
        let length = u16::try_from(value.len() + 4).expect("attributes are short");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn text(self, kind: u16, value: &str) -> Attributes {
        self.put(kind, [value.as_bytes(), &[0]].concat())
    }

    pub(crate) fn number(self, kind: u16, value: u32) -> Attributes {
        self.put(kind, value.to_ne_bytes())
    }

    /// A number as netfilter has them: the most significant byte first.
    pub(crate) fn network_number(self, kind: u16, value: u32) -> Attributes {
        self.put(kind, value.to_be_bytes())
    }

    pub(crate) fn nest(self, kind: u16, inner: Attributes) -> Attributes {
        self.put(kind | NESTED, inner.0)
    }

    /// For the few attributes that begin with a structure.
    pub(crate) fn nest_after(self, kind: u16, header: &[u8], inner: Attributes) -> Attributes {
        self.put(kind, [header, &inner.0].concat())
    }

    pub(crate) fn maybe(
        self,
        condition: bool,
        more: impl FnOnce(Self) -> Attributes,
    ) -> Attributes {
        if condition { more(self) } else { self }
    }
}

/// The attributes that follow a structure of `skip` bytes: kind and value.
pub(crate) fn attributes(body: &[u8], skip: usize) -> Vec<(u16, &[u8])> {
    let mut rest = body.get(skip..).unwrap_or_default();
    let mut found = Vec::new();
    while let Some((length, kind)) = two(rest) {
        let (length, kind) = (usize::from(length), kind & !NESTED);
        let Some(value) = rest.get(4..length) else {
            break;
        };
        found.push((kind, value));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn two(bytes: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = bytes.first_chunk::<4>()?;
    Some((u16::from_ne_bytes([*a, *b]), u16::from_ne_bytes([*c, *d])))
}

/// A number out of an attribute or a structure.
pub(crate) fn number(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk::<4>()
        .map_or(0, |b| u32::from_ne_bytes(*b))
}

/// A text out of an attribute, without the zero at its end.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// What is asked of the kernel.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    body: Vec<u8>,
}

impl Message {
    pub(crate) fn new(kind: u16, flags: u16, header: &[u8], attributes: Attributes) -> Message {
        let body = [header, &attributes.0].concat();
        Message { kind, flags, body }
    }

    fn encode(&self, sequence: u32, out: &mut Vec<u8>) {
        let length = u32::try_from(HEADER + self.body.len()).expect("messages are short");
        out.extend(length.to_ne_bytes());
        out.extend(self.kind.to_ne_bytes());
        out.extend((self.flags | REQUEST).to_ne_bytes());
        out.extend(sequence.to_ne_bytes());
        out.extend([0; 4]);
        out.extend(&self.body);
        out.resize(out.len().next_multiple_of(4), 0);
    }
}

/// A conversation with the kernel about the network namespace in which it was begun.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: AtomicU32,
}

struct Answer {
    kind: u16,
    sequence: u32,
    body: Vec<u8>,
}

impl Socket {
    pub(crate) fn route() -> io::Result<Socket> {
        Socket::open(None)
    }

    pub(crate) fn netfilter() -> io::Result<Socket> {
        Socket::open(Some(netlink::NETFILTER))
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Socket> {
        let fd = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        set_socket_timeout(&fd, Timeout::Recv, Some(PATIENCE))?;
        Ok(Socket {
            fd,
            sequence: AtomicU32::new(1),
        })
    }

    /// Asks for something and waits until it is done.
    pub(crate) fn request(&self, message: &Message) -> io::Result<()> {
        self.batch(std::slice::from_ref(message))
    }

    /// Sends messages at once; those that ask for an acknowledgement are waited for. The first refusal is the answer.
    pub(crate) fn batch(&self, messages: &[Message]) -> io::Result<()> {
        let count = u32::try_from(messages.len()).expect("batches are short");
        let first = self.sequence.fetch_add(count, Ordering::Relaxed);
        let end = first + count;
        let mut bytes = Vec::new();
        for (message, sequence) in messages.iter().zip(first..) {
            message.encode(sequence, &mut bytes);
        }
        send(&self.fd, &bytes, SendFlags::empty())?;
        let mut waiting = messages.iter().filter(|m| m.flags & ACK != 0).count();
        while waiting > 0 {
            for answer in self.receive()? {
                if answer.kind == ERROR && (first..end).contains(&answer.sequence) {
                    refusal(&answer.body)?;
                    waiting = waiting.saturating_sub(1);
                }
            }
        }
        Ok(())
    }

    /// Asks for one thing.
    pub(crate) fn get(&self, message: &Message) -> io::Result<Vec<u8>> {
        let answers = self.answers(message, false)?;
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        answers.into_iter().next().ok_or_else(gone)
    }

    /// Asks for a list.
    pub(crate) fn list(&self, message: &Message) -> io::Result<Vec<Vec<u8>>> {
        self.answers(message, true)
    }

    fn answers(&self, message: &Message, many: bool) -> io::Result<Vec<Vec<u8>>> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let mut bytes = Vec::new();
        message.encode(sequence, &mut bytes);
        send(&self.fd, &bytes, SendFlags::empty())?;
        let mut found = Vec::new();
        loop {
            for answer in self.receive()? {
                match answer.kind {
                    _ if answer.sequence != sequence => {}
                    ERROR => {
                        refusal(&answer.body)?;
                        return Ok(found);
                    }
                    DONE => return Ok(found),
                    _ => found.push(answer.body),
                }
            }
            if !many && !found.is_empty() {
                return Ok(found);
            }
        }
    }

    fn receive(&self) -> io::Result<Vec<Answer>> {
        let mut buffer = vec![0; 64 << 10];
        let (length, _) = recv(&self.fd, buffer.as_mut_slice(), RecvFlags::empty())?;
        Ok(split(&buffer[..length]))
    }
}

fn split(mut bytes: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while bytes.len() >= HEADER {
        let length = number(bytes) as usize;
        let Some(body) = bytes.get(HEADER..length) else {
            break;
        };
        let (kind, _) = two(&bytes[4..]).unwrap_or_default();
        answers.push(Answer {
            kind,
            sequence: number(&bytes[8..]),
            body: body.to_vec(),
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    answers
}

// A code of zero is the kernel's way to say yes.
fn refusal(body: &[u8]) -> io::Result<()> {
    match number(body).cast_signed() {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(-code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let inner = Attributes::default().text(1, "veth").number(4, 1500);
        let outer = Attributes::default().put(9, [7]).nest(18, inner);
        let read = attributes(&outer.0, 0);
        assert_eq!(read[0], (9, &[7_u8][..]));
        let nested = attributes(read[1].1, 0);
        assert_eq!((read[1].0, text(nested[0].1)), (18, "veth".to_owned()));
        assert_eq!(number(nested[1].1), 1500);
    }

    #[test]
    fn cut_off_answers_are_left_alone() {
        assert_eq!(attributes(&[9, 0, 1, 0, 1], 0), []);
        assert!(split(&[40, 0, 0, 0, 2, 0]).is_empty());
    }
}
