//! Who is connected: strangers, and those who have said who they are.
//!
//! A connection begins as a stranger's. It becomes known with the first request that proves somebody. Strangers are
//! bounded, for each address and in all, and the bound never keeps anybody out: whoever has been silent about
//! themselves the longest is let go for the newcomer. Who has credentials shows them within the first milliseconds,
//! so a crowd of strangers competes among itself, and the rest of the room is kept for the known.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The most strangers there are at once, and of one address.
const STRANGERS: usize = 1_024;
const OF_ONE_ADDRESS: usize = 512;
/// One user's part of the room; connections beyond it stay strangers'.
const SHARE: usize = 4;

/// Everybody who is connected.
#[derive(Debug)]
pub(crate) struct Guests {
    room: usize,
    strangers: usize,
    of_one_address: usize,
    present: Mutex<Present>,
}

#[derive(Debug, Default)]
struct Present {
    all: usize,
    next: u64,
    /// In the order they came.
    strangers: BTreeMap<u64, Stranger>,
    by_address: HashMap<IpAddr, usize>,
    by_user: HashMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct Stranger {
    address: IpAddr,
    leave: Arc<Notify>,
}

impl Guests {
    /// A house with room for so many connections.
    pub(crate) fn new(room: usize) -> Arc<Guests> {
        let strangers = STRANGERS.min(room / 2).max(1);
        Arc::new(Guests {
            room: room.max(1),
            strangers,
            of_one_address: OF_ONE_ADDRESS.min(strangers / 2).max(1),
            present: Mutex::default(),
        })
    }

    /// Lets a connection in, at the cost of the oldest stranger where there is no room; nobody if all are known.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Guest> {
        let origin = origin(address);
        let mut present = lock(&self.present);
        let of_address = present.by_address.get(&origin).copied().unwrap_or(0);
        if of_address >= self.of_one_address {
            present.let_go(|stranger| stranger.address == origin);
        } else if present.strangers.len() >= self.strangers || present.all >= self.room {
            present.let_go(|_| true);
        }
        if present.all >= self.room {
            return None;
        }
        let ticket = present.next;
        present.next += 1;
        present.all += 1;
        let leave = Arc::new(Notify::new());
        present.add(ticket, origin, &leave);
        Some(Guest {
            guests: Arc::clone(self),
            ticket,
            leave,
            asked: Notify::new(),
            is_known: AtomicBool::new(false),
            known_as: Mutex::new(None),
        })
    }

    /// Lets the oldest stranger go, because files have run out.
    pub(crate) fn make_room(&self) {
        lock(&self.present).let_go(|_| true);
    }
}

impl Present {
    fn add(&mut self, ticket: u64, address: IpAddr, leave: &Arc<Notify>) {
        *self.by_address.entry(address).or_default() += 1;
        let leave = Arc::clone(leave);
        self.strangers.insert(ticket, Stranger { address, leave });
    }

    /// Its place is free at once; its end follows.
    fn let_go(&mut self, whom: impl Fn(&Stranger) -> bool) {
        let oldest = self.strangers.iter().find(|(_, stranger)| whom(stranger));
        if let Some(ticket) = oldest.map(|(ticket, _)| *ticket)
            && let Some(stranger) = self.remove(ticket)
        {
            self.all -= 1;
            stranger.leave.notify_one();
        }
    }

    fn remove(&mut self, ticket: u64) -> Option<Stranger> {
        let stranger = self.strangers.remove(&ticket)?;
        count_down(&mut self.by_address, &stranger.address);
        Some(stranger)
    }
}

/// A connection's place, until dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    guests: Arc<Guests>,
    ticket: u64,
    leave: Arc<Notify>,
    asked: Notify,
    is_known: AtomicBool,
    known_as: Mutex<Option<Arc<str>>>,
}

impl Guest {
    /// Notes that a request has come.
    pub(crate) fn asks(&self) {
        self.asked.notify_one();
    }

    /// Completes when the first request has come.
    pub(crate) async fn has_asked(&self) {
        self.asked.notified().await;
    }

    /// Completes when the place is needed for somebody else.
    pub(crate) async fn must_leave(&self) {
        self.leave.notified().await;
    }

    /// Notes that a request has proved to be a user's.
    pub(crate) fn is_user(&self, name: &str) {
        if self.is_known.load(Ordering::Relaxed) {
            return;
        }
        let guests = &self.guests;
        let mut present = lock(&guests.present);
        let of_user = present.by_user.get(name).copied().unwrap_or(0);
        if of_user >= (guests.room / SHARE).max(1) || present.remove(self.ticket).is_none() {
            return;
        }
        let name: Arc<str> = name.into();
        *present.by_user.entry(Arc::clone(&name)).or_default() += 1;
        *lock(&self.known_as) = Some(name);
        self.is_known.store(true, Ordering::Relaxed);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut present = lock(&self.guests.present);
        match lock(&self.known_as).take() {
            Some(name) => {
                count_down(&mut present.by_user, &name);
                present.all -= 1;
            }
            // One that was let go has left already.
            None if present.remove(self.ticket).is_some() => present.all -= 1,
            None => {}
        }
    }
}

// Whoever has one IPv6 address has a network of them.
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => {
            let network = u128::from(ip) >> 64 << 64;
            IpAddr::V6(network.into())
        }
        v4 => v4,
    }
}

fn count_down<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use futures::FutureExt as _;

    fn from(address: &str, guests: &Arc<Guests>) -> Option<Guest> {
        guests.admit(address.parse().unwrap())
    }

    fn left(guest: &Guest) -> bool {
        guest.must_leave().now_or_never().is_some()
    }

    #[test]
    fn of_one_address_the_oldest_stranger_goes_and_others_do_not_notice() {
        let guests = Guests::new(10_000);
        let other = from("192.0.2.2", &guests).unwrap();
        let crowd: Vec<Guest> = (0..OF_ONE_ADDRESS + 3)
            .map(|_| from("192.0.2.1", &guests).unwrap())
            .collect();
        let gone: Vec<usize> = (0..crowd.len()).filter(|n| left(&crowd[*n])).collect();
        assert_eq!(gone, [0, 1, 2]);
        assert!(!left(&other));
    }

    #[test]
    fn the_known_stay_whatever_strangers_do() {
        let guests = Guests::new(100);
        let known = from("192.0.2.1", &guests).unwrap();
        known.is_user("jane");
        let crowd: Vec<Guest> = (0..=255_u8)
            .map(|n| from(&format!("198.51.100.{n}"), &guests).unwrap())
            .collect();
        assert!(!left(&known));
        assert_eq!(crowd.iter().filter(|guest| left(guest)).count(), 256 - 50);
        drop(crowd);
        assert_eq!(lock(&guests.present).all, 1);
    }

    #[test]
    fn one_user_does_not_fill_the_house() {
        let guests = Guests::new(8);
        let of_jane: Vec<Guest> = (0..8_u8)
            .map(|n| from(&format!("192.0.2.{n}"), &guests).unwrap())
            .inspect(|guest| guest.is_user("jane"))
            .collect();
        assert_eq!(lock(&guests.present).by_user["jane"], 2);
        let john = from("192.0.2.9", &guests).unwrap();
        john.is_user("john");
        assert!(!left(&john) && of_jane.iter().any(left));
    }

    #[test]
    fn a_house_full_of_the_known_lets_nobody_in_and_all_leave_it() {
        let guests = Guests::new(4);
        let known: Vec<Guest> = (0..4_u8)
            .map(|n| from(&format!("192.0.2.{n}"), &guests).unwrap())
            .collect();
        // Each at once, or the next would take its place.
        drop(known);
        let names = ["a", "b", "c", "d"];
        let known: Vec<Guest> = names
            .iter()
            .map(|name| {
                let guest = from("192.0.2.1", &guests).unwrap();
                guest.is_user(name);
                guest
            })
            .collect();
        assert!(from("192.0.2.1", &guests).is_none());
        drop(known);
        let present = lock(&guests.present);
        assert_eq!(present.all, 0);
        assert!(present.strangers.is_empty() && present.by_user.is_empty());
        assert!(present.by_address.is_empty());
    }

    #[test]
    fn a_network_of_addresses_is_one_origin() {
        let same = |a: &str, b: &str| origin(a.parse().unwrap()) == origin(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
    }
}
