//! Seats and queues: who goes next. Pure; whoever waits is a number here.
//!
//! Within a level, queues are served by start-time fair queueing: a queue's clock advances by the seats it
//! was given, and the queue whose clock is furthest behind is next. A queue that was empty starts at the
//! level's own clock, so nobody saves up turns by staying away.

use std::collections::VecDeque;

use crate::level::{Level, Limits, Queuing};

/// A level's place in [`Turns`].
pub(crate) type Slot = usize;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It has its seats.
    Seated,
    /// It waits in this queue of its level.
    Queued(usize),
    /// There is no seat, and its level does not queue.
    NoSeat,
    /// Its queue is full.
    QueueFull,
}

/// Every level and who sits and waits in it.
#[derive(Debug)]
pub(crate) struct Turns {
    seats: u32,
    levels: Vec<State>,
    /// Seats that levels lend, and those of them in use.
    pool: u32,
    pool_used: u32,
}

#[derive(Debug)]
struct State {
    name: std::sync::Arc<str>,
    limits: Limits,
    /// Removed from the configuration; stays until the last request has left.
    gone: bool,
    nominal: u32,
    /// Seats that are never lent.
    guaranteed: u32,
    most: u32,
    used: u32,
    waiting: usize,
    queues: Vec<Queue>,
    clock: u64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(u64, u32)>,
    seats_waiting: u32,
    clock: u64,
}

impl Turns {
    /// Turns over a number of seats.
    pub(crate) fn new(seats: u32) -> Turns {
        Turns {
            seats,
            levels: Vec::new(),
            pool: 0,
            pool_used: 0,
        }
    }

    /// Takes over a configuration. Whoever sits or waits goes on doing so.
    pub(crate) fn configure<'a>(&mut self, wanted: impl Iterator<Item = &'a Level> + Clone) {
        for state in &mut self.levels {
            state.gone = true;
        }
        let limited = || {
            wanted
                .clone()
                .filter_map(|l| l.limits.map(|limits| (l, limits)))
        };
        let shares: u64 = limited().map(|(_, limits)| u64::from(limits.shares)).sum();
        for (level, limits) in limited() {
            let slot = self.slot_for(&level.name);
            self.levels[slot].configure(limits, self.seats, shares.max(1));
        }
        self.pool = self.live().map(|l| l.nominal - l.guaranteed).sum();
        self.pool_used = self.levels.iter().map(State::borrowed).sum();
    }

    /// Where a level is; `None` for one that is not limited or not there.
    pub(crate) fn slot(&self, name: &str) -> Option<Slot> {
        self.levels.iter().position(|l| !l.gone && &*l.name == name)
    }

    /// The seats a request of this size gets: none is so large that it can never run.
    pub(crate) fn fit(&self, slot: Slot, seats: u32) -> u32 {
        seats.clamp(1, self.levels[slot].nominal)
    }

    /// A request comes; `id` is what [`Turns::next`] will give back if it has to wait.
    pub(crate) fn arrive(&mut self, slot: Slot, flow: u64, seats: u32, id: u64) -> Arrival {
        if self.levels[slot].waiting == 0 && self.has_room(slot, seats) {
            self.seat(slot, seats);
            return Arrival::Seated;
        }
        self.levels[slot].enqueue(flow, seats, id)
    }

    /// A request is done and gives its seats back.
    pub(crate) fn leave(&mut self, slot: Slot, seats: u32) {
        let level = &mut self.levels[slot];
        let before = level.borrowed();
        level.used = level.used.saturating_sub(seats);
        let returned = before - level.borrowed();
        self.pool_used = self.pool_used.saturating_sub(returned);
    }

    /// A request that waits goes away; whether it was still waiting.
    pub(crate) fn give_up(&mut self, slot: Slot, queue: usize, id: u64) -> bool {
        let level = &mut self.levels[slot];
        let Some(queue) = level.queues.get_mut(queue) else {
            return false;
        };
        let Some(place) = queue.waiting.iter().position(|(waiting, _)| *waiting == id) else {
            return false;
        };
        let (_, seats) = queue.waiting.remove(place).expect("found just now");
        queue.seats_waiting -= seats;
        level.waiting -= 1;
        true
    }

    /// The next request that gets seats, starting with a level's own.
    pub(crate) fn next(&mut self, first: Slot) -> Option<u64> {
        let count = self.levels.len();
        (0..count)
            .map(|step| (first + step) % count)
            .find_map(|slot| self.next_of(slot))
    }

    /// Seats in use and requests waiting, by level.
    pub(crate) fn counts(&self) -> Vec<(std::sync::Arc<str>, u32, usize)> {
        self.live()
            .map(|l| (l.name.clone(), l.used, l.waiting))
            .collect()
    }

    fn next_of(&mut self, slot: Slot) -> Option<u64> {
        let (queue, seats) = self.levels[slot].fairest()?;
        if !self.has_room(slot, seats) {
            return None;
        }
        self.seat(slot, seats);
        Some(self.levels[slot].serve(queue))
    }

    fn live(&self) -> impl Iterator<Item = &State> {
        self.levels.iter().filter(|l| !l.gone)
    }

    // A name keeps its slot; a slot that nobody needs any more is used again.
    fn slot_for(&mut self, name: &std::sync::Arc<str>) -> Slot {
        let same = self.levels.iter().position(|l| l.name == *name);
        let free = || {
            self.levels
                .iter()
                .position(|l| l.gone && l.used == 0 && l.waiting == 0)
        };
        let slot = same.or_else(free).unwrap_or_else(|| {
            self.levels.push(State::empty());
            self.levels.len() - 1
        });
        self.levels[slot].name = name.clone();
        slot
    }

    fn has_room(&self, slot: Slot, seats: u32) -> bool {
        let level = &self.levels[slot];
        let own = level.guaranteed.saturating_sub(level.used);
        let from_pool = seats.saturating_sub(own);
        level.used + seats <= level.most && self.pool_used + from_pool <= self.pool
    }

    fn seat(&mut self, slot: Slot, seats: u32) {
        let level = &mut self.levels[slot];
        let before = level.borrowed();
        level.used += seats;
        self.pool_used += level.borrowed() - before;
    }
}

impl State {
    fn empty() -> State {
        State {
            name: "".into(),
            limits: Limits {
                shares: 0,
                lendable: 0,
                borrowing: None,
                queuing: None,
            },
            gone: true,
            nominal: 0,
            guaranteed: 0,
            most: 0,
            used: 0,
            waiting: 0,
            queues: Vec::new(),
            clock: 0,
        }
    }

    fn configure(&mut self, limits: Limits, seats: u32, shares: u64) {
        let part = (u64::from(seats) * u64::from(limits.shares)).div_ceil(shares);
        // A level without a single seat could never answer.
        self.nominal = u32::try_from(part).unwrap_or(seats).max(1);
        self.guaranteed = self.nominal - self.nominal * limits.lendable / 100;
        self.most = match limits.borrowing {
            Some(percent) => self.nominal.saturating_add(self.nominal * percent / 100),
            None => u32::MAX,
        };
        self.limits = limits;
        self.gone = false;
        let queues = limits.queuing.map_or(0, |q| q.queues as usize);
        // Queues that are no longer wanted stay until they are empty.
        while self.queues.len() > queues && self.queues.last().is_some_and(|q| q.waiting.is_empty())
        {
            self.queues.pop();
        }
        if self.queues.len() < queues {
            self.queues.resize_with(queues, Queue::default);
        }
    }

    fn borrowed(&self) -> u32 {
        self.used.saturating_sub(self.guaranteed)
    }

    fn enqueue(&mut self, flow: u64, seats: u32, id: u64) -> Arrival {
        let Some(queuing) = self.limits.queuing else {
            return Arrival::NoSeat;
        };
        let queues = &self.queues;
        let dealt = hand(flow, queuing);
        let Some(chosen) = dealt.min_by_key(|q| queues[*q].seats_waiting) else {
            return Arrival::NoSeat;
        };
        let queue = &mut self.queues[chosen];
        if queue.waiting.len() >= queuing.length as usize {
            return Arrival::QueueFull;
        }
        if queue.waiting.is_empty() {
            queue.clock = queue.clock.max(self.clock);
        }
        queue.waiting.push_back((id, seats));
        queue.seats_waiting += seats;
        self.waiting += 1;
        Arrival::Queued(chosen)
    }

    // The queue whose clock is furthest behind, and the seats its first request wants.
    fn fairest(&self) -> Option<(usize, u32)> {
        if self.waiting == 0 {
            return None;
        }
        let heads = self.queues.iter().enumerate();
        heads
            .filter_map(|(i, queue)| {
                queue
                    .waiting
                    .front()
                    .map(|(_, seats)| (queue.clock, i, *seats))
            })
            .min()
            .map(|(_, i, seats)| (i, seats))
    }

    fn serve(&mut self, queue: usize) -> u64 {
        let queue = &mut self.queues[queue];
        let (id, seats) = queue
            .waiting
            .pop_front()
            .expect("`fairest` saw a request here");
        queue.seats_waiting -= seats;
        self.waiting -= 1;
        self.clock = self.clock.max(queue.clock);
        queue.clock += u64::from(seats);
        id
    }
}

/// The queues a flow is dealt: shuffle sharding, so that two flows rarely share a whole hand.
fn hand(flow: u64, queuing: Queuing) -> impl Iterator<Item = usize> {
    let mut left: Vec<usize> = (0..queuing.queues as usize).collect();
    let mut entropy = flow;
    (0..queuing.hand.min(queuing.queues)).map(move |_| {
        let count = left.len() as u64;
        let card = usize::try_from(entropy % count).expect("smaller than the number of queues");
        entropy /= count;
        left.swap_remove(card)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::*;

    fn level(name: &str, shares: u32, lendable: u32, queuing: Option<(u32, u32, u32)>) -> Level {
        Level {
            name: name.into(),
            uid: "".into(),
            limits: Some(Limits {
                shares,
                lendable,
                borrowing: None,
                queuing: queuing.map(|(queues, hand, length)| Queuing {
                    queues,
                    hand,
                    length,
                }),
            }),
        }
    }

    fn turns(seats: u32, levels: &[Level]) -> Turns {
        let mut turns = Turns::new(seats);
        turns.configure(levels.iter());
        turns
    }

    #[test]
    fn seats_are_shared_out_by_shares_and_the_rest_is_lent() {
        let mut turns = turns(10, &[level("a", 1, 0, None), level("b", 1, 60, None)]);
        let (a, b) = (turns.slot("a").unwrap(), turns.slot("b").unwrap());
        // Five of its own and the three that b lends.
        let seated = (0..20)
            .filter(|id| turns.arrive(a, 0, 1, *id) == Arrival::Seated)
            .count();
        assert_eq!(seated, 8);
        // What b does not lend is there for b.
        assert_eq!(turns.arrive(b, 0, 1, 1), Arrival::Seated);
        assert_eq!(turns.arrive(b, 0, 1, 2), Arrival::Seated);
        assert_eq!(turns.arrive(b, 0, 1, 3), Arrival::NoSeat);
        turns.leave(a, 1);
        assert_eq!(
            turns.arrive(b, 0, 1, 4),
            Arrival::Seated,
            "a lent seat comes back"
        );
    }

    #[test]
    fn a_greedy_flow_does_not_delay_another() {
        let mut turns = turns(1, &[level("a", 1, 0, Some((128, 6, 50)))]);
        let slot = turns.slot("a").unwrap();
        assert_eq!(turns.arrive(slot, 1, 1, 0), Arrival::Seated);
        let greedy = (1..1000).filter(|id| {
            matches!(
                turns.arrive(slot, 0x1234_5678_9abc, 1, *id),
                Arrival::Queued(_)
            )
        });
        assert_eq!(greedy.count(), 300, "six queues of fifty");
        assert!(matches!(
            turns.arrive(slot, 0xfedc_ba98_7654_3210, 1, 5000),
            Arrival::Queued(_)
        ));
        let mut served = Vec::new();
        for _ in 0..10 {
            turns.leave(slot, 1);
            served.push(turns.next(slot).unwrap());
        }
        assert!(
            served.contains(&5000),
            "behind at most one request of each queue: {served:?}"
        );
    }

    #[test]
    fn a_full_queue_refuses_and_a_request_can_give_up() {
        let mut turns = turns(1, &[level("a", 1, 0, Some((1, 1, 2)))]);
        let slot = turns.slot("a").unwrap();
        assert_eq!(turns.arrive(slot, 0, 1, 0), Arrival::Seated);
        assert_eq!(turns.arrive(slot, 0, 1, 1), Arrival::Queued(0));
        assert_eq!(turns.arrive(slot, 0, 1, 2), Arrival::Queued(0));
        assert_eq!(turns.arrive(slot, 0, 1, 3), Arrival::QueueFull);
        assert!(turns.give_up(slot, 0, 1));
        assert!(!turns.give_up(slot, 0, 1));
        assert_eq!(turns.next(slot), None, "the seat is taken");
        turns.leave(slot, 1);
        assert_eq!(turns.next(slot), Some(2));
    }

    #[test]
    fn a_level_that_goes_serves_those_who_wait() {
        let mut turns = turns(1, &[level("a", 1, 0, Some((4, 2, 9)))]);
        let slot = turns.slot("a").unwrap();
        turns.arrive(slot, 0, 1, 0);
        turns.arrive(slot, 0, 1, 1);
        let other = level("b", 1, 0, None);
        turns.configure(std::iter::once(&other));
        assert_eq!(turns.slot("a"), None);
        turns.leave(slot, 1);
        assert_eq!(turns.next(slot), Some(1));
    }

    proptest! {
        #[test]
        fn no_seat_is_lost_or_made(steps in proptest::collection::vec((0_u8..3, 0_usize..3, 1_u32..4, any::<u64>()), 1..300)) {
            let levels = [level("a", 1, 50, Some((8, 2, 5))), level("b", 2, 100, Some((4, 4, 3))), level("c", 1, 0, None)];
            let mut turns = turns(12, &levels);
            let slots: Vec<Slot> = ["a", "b", "c"].map(|n| turns.slot(n).unwrap()).to_vec();
            let mut sitting: Vec<(Slot, u32)> = Vec::new();
            let mut waiting: std::collections::BTreeMap<u64, (Slot, u32, usize)> = Default::default();
            for (id, (step, level, seats, flow)) in steps.into_iter().enumerate() {
                let (slot, id) = (slots[level], id as u64);
                let seats = turns.fit(slot, seats);
                match step {
                    0 => match turns.arrive(slot, flow, seats, id) {
                        Arrival::Seated => sitting.push((slot, seats)),
                        Arrival::Queued(queue) => { waiting.insert(id, (slot, seats, queue)); }
                        Arrival::NoSeat | Arrival::QueueFull => {}
                    },
                    1 => if let Some((slot, seats)) = sitting.pop() {
                        turns.leave(slot, seats);
                        while let Some(id) = turns.next(slot) {
                            let (slot, seats, _) = waiting.remove(&id).unwrap();
                            sitting.push((slot, seats));
                        }
                    },
                    _ => if let Some((id, (slot, _, queue))) = waiting.pop_first() {
                        prop_assert!(turns.give_up(slot, queue, id));
                    },
                }
                let used: u32 = turns.counts().iter().map(|(_, used, _)| used).sum();
                let held: u32 = sitting.iter().map(|(_, seats)| seats).sum();
                prop_assert_eq!(used, held);
                prop_assert!(used <= 13, "seats are rounded up per level");
                prop_assert_eq!(turns.counts().iter().map(|c| c.2).sum::<usize>(), waiting.len());
                prop_assert_eq!(turns.pool_used, turns.levels.iter().map(State::borrowed).sum::<u32>());
            }
        }
    }
}
