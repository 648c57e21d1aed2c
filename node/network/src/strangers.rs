//! Notices when somebody else changes our tables.
//!
//! The kernel tells of every transaction: its parts, with the table each belongs to, and at its end which
//! process made it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};

/// What we have done lately, to tell it from what others do.
///
/// The kernel names the process by its number in the first pid namespace. Elsewhere, as in a machine or a pod, our own
/// numbers are others, and so transactions are counted instead: each of ours is heard of once.
#[derive(Debug, Clone)]
pub(crate) struct Ours(Arc<Mutex<Doings>>);

#[derive(Debug)]
struct Doings {
    processes: VecDeque<u32>,
    unheard: usize,
    in_first_namespace: bool,
}

const REMEMBERED: usize = 64;
/// The kernel's fixed number of the first pid namespace (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

impl Default for Ours {
    fn default() -> Ours {
        let namespace = std::fs::read_link("/proc/self/ns/pid");
        Ours::in_namespace(namespace.is_ok_and(|name| name.as_os_str() == FIRST_PID_NAMESPACE))
    }
}

impl Ours {
    fn in_namespace(first: bool) -> Ours {
        Ours(Arc::new(Mutex::new(Doings {
            processes: VecDeque::new(),
            unheard: 0,
            in_first_namespace: first,
        })))
    }

    /// A process of ours runs.
    pub(crate) fn add(&self, process: u32) {
        let mut doings = self.doings();
        if doings.processes.len() == REMEMBERED {
            doings.processes.pop_front();
        }
        doings.processes.push_back(process);
    }

    /// A transaction of ours is about to be made.
    pub(crate) fn begin(&self) {
        self.doings().unheard += 1;
    }

    /// It was not made.
    pub(crate) fn undone(&self) {
        let mut doings = self.doings();
        doings.unheard = doings.unheard.saturating_sub(1);
    }

    /// Whether the transaction that was just heard of, by this process, is ours.
    fn is(&self, process: u32) -> bool {
        let mut doings = self.doings();
        if doings.in_first_namespace {
            return doings.processes.contains(&process);
        }
        let expected = doings.unheard > 0;
        doings.unheard = doings.unheard.saturating_sub(1);
        expected
    }

    fn doings(&self) -> std::sync::MutexGuard<'_, Doings> {
        self.0
            .lock()
            .expect("nothing panics while it holds the list")
    }
}

/// Calls `damaged` whenever a transaction of somebody else's touches a table of this name; ends only with an error.
pub(crate) async fn watch(table: &str, ours: Ours, damaged: impl Fn()) -> std::io::Error {
    match follow(table, &ours, damaged).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

// The group of nftables' news, <linux/netfilter/nfnetlink.h>.
const NEWS_OF_NFTABLES: u32 = 7;

async fn follow(
    table: &str,
    ours: &Ours,
    damaged: impl Fn(),
) -> std::io::Result<std::convert::Infallible> {
    let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
    socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
    socket.socket_mut().add_membership(NEWS_OF_NFTABLES)?;
    let mut transaction = Transaction::default();
    loop {
        match socket.recv_from_full().await {
            Ok((bytes, _)) => {
                for (kind, body) in crate::conntrack::messages(&bytes) {
                    if let Some(process) = transaction.take(table, kind, body)
                        && !ours.is(process)
                    {
                        tracing::warn!(
                            table,
                            process,
                            "another program changed our rules; restoring them"
                        );
                        damaged();
                    }
                }
            }
            // More news than the socket holds: our own large transactions. What was missed is repaired by the
            // next load of everything.
            Err(error) if error.raw_os_error() == Some(NO_BUFFER_SPACE) => {
                transaction = Transaction::default()
            }
            Err(error) => return Err(error),
        }
    }
}

const NO_BUFFER_SPACE: i32 = 105;
const SUBSYSTEM: u16 = 10;
const NEW_GENERATION: u16 = (SUBSYSTEM << 8) | 15;

/// What has been heard of a transaction.
#[derive(Debug, Default)]
struct Transaction {
    touches_ours: bool,
}

impl Transaction {
    /// The process behind it, at its end, if it touched our table.
    fn take(&mut self, table: &str, kind: u16, body: &[u8]) -> Option<u32> {
        let attributes = crate::conntrack::attributes(body.get(4..)?);
        let find = |wanted: u16| {
            attributes
                .iter()
                .find(|(k, ..)| *k == wanted)
                .map(|(.., b)| *b)
        };
        if kind == NEW_GENERATION {
            let touched = std::mem::take(&mut self.touches_ours);
            let process = find(2)
                .and_then(|b| b.try_into().ok())
                .map(u32::from_be_bytes);
            return process.filter(|_| touched);
        }
        // In every other message the first attribute is the table's name, with a zero at its end.
        let name = find(1).unwrap_or_default();
        self.touches_ours |= name.strip_suffix(&[0]).unwrap_or(name) == table.as_bytes();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_first_namespace_processes_are_told_apart_by_number() {
        let ours = Ours::in_namespace(true);
        ours.add(7);
        assert!(ours.is(7));
        assert!(!ours.is(8));
    }

    #[test]
    fn elsewhere_each_transaction_of_ours_is_expected_once() {
        let ours = Ours::in_namespace(false);
        ours.add(7);
        ours.begin();
        assert!(ours.is(1007), "the kernel's number is another one");
        assert!(!ours.is(1007));
        ours.begin();
        ours.undone();
        assert!(!ours.is(1008));
    }
}
