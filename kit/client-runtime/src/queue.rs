//! What is to be done: a level-triggered queue of keys, each at most once in it and at most once in work.
//!
//! It needs no capacity of its own: a key names an object, so there are never more than objects.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::Meter;

/// The wait after the first failure, doubled by each further one (upstream's
/// `DefaultTypedControllerRateLimiter`).
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(1000);

/// A key of a queue.
pub trait Key: Clone + Eq + Ord + Hash + Send + Sync + std::fmt::Debug + 'static {}
impl<T: Clone + Eq + Ord + Hash + Send + Sync + std::fmt::Debug + 'static> Key for T {}

/// How the work on a key ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing more to do until something changes.
    Done,
    /// To be looked at again after this time, change or not.
    After(Duration),
    /// To be tried again, later with each failure in a row.
    Failed,
}

/// A queue shared by those who notice changes and those who work.
pub struct Queue<K> {
    schedule: Mutex<Schedule<K>>,
    changed: Notify,
    meter: OnceLock<Meter>,
}

impl<K: Key> Default for Queue<K> {
    fn default() -> Self {
        Queue::new()
    }
}

impl<K: Key> Queue<K> {
    /// An empty queue.
    pub fn new() -> Queue<K> {
        Queue {
            schedule: Mutex::new(Schedule::new()),
            changed: Notify::new(),
            meter: OnceLock::new(),
        }
    }

    /// From now on it is counted as this controller's.
    pub fn named(&self, controller: &'static str) {
        self.meter.get_or_init(|| Meter::of(controller));
        self.count(&mut self.schedule());
    }

    /// Asks for work on a key, as soon as somebody is free.
    pub fn add(&self, key: K) {
        let mut schedule = self.schedule();
        schedule.add(key);
        self.count(&mut schedule);
        drop(schedule);
        self.changed.notify_one();
    }

    /// Asks for work on several keys.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) {
        keys.into_iter().for_each(|key| self.add(key));
    }

    /// Asks for work on a key after some time; the earliest of several wishes counts.
    pub fn add_after(&self, key: &K, wait: Duration) {
        self.schedule().add_at(key, Instant::now() + wait);
        self.changed.notify_one();
    }

    /// Takes the next key, waiting for one. Nothing is lost when the future is dropped.
    pub async fn next(&self) -> K {
        loop {
            let due = match self.take() {
                Next::Key(key) => return key,
                Next::At(instant) => Some(instant),
                Next::Nothing => None,
            };
            match due {
                None => self.changed.notified().await,
                Some(due) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep_until(due) => {}
                },
            }
        }
    }

    /// Gives a key back that [`Queue::next`] gave out.
    pub fn end(&self, key: &K, end: End) {
        let now = Instant::now();
        let mut schedule = self.schedule();
        let began = schedule.end(key, end, now);
        self.count(&mut schedule);
        drop(schedule);
        if let (Some(meter), Some(began)) = (self.meter.get(), began) {
            meter
                .worked
                .observe(now.duration_since(began).as_secs_f64());
            meter.at_work.ends(began);
            if end != End::Done {
                meter.retries.inc();
            }
        }
        self.changed.notify_one();
    }

    fn take(&self) -> Next<K> {
        let now = Instant::now();
        let mut schedule = self.schedule();
        let next = schedule.next(now);
        self.count(&mut schedule);
        if let (Next::Key(_), Some(meter)) = (&next, self.meter.get()) {
            meter.waited.observe(schedule.waited.as_secs_f64());
            meter.at_work.begins(now);
        }
        next
    }

    fn count(&self, schedule: &mut Schedule<K>) {
        if let Some(meter) = self.meter.get() {
            meter.adds.inc_by(std::mem::take(&mut schedule.added));
            let depth = i64::try_from(schedule.ready.len()).unwrap_or(i64::MAX);
            meter.depth.set(depth);
        }
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule<K>> {
        self.schedule
            .lock()
            .expect("nothing panics while it holds the schedule")
    }
}

enum Next<K> {
    Key(K),
    At(Instant),
    Nothing,
}

/// The queue without its waiting.
struct Schedule<K> {
    ready: VecDeque<K>,
    /// Keys in `ready`, and keys in work that are to be worked on again, since when.
    wanted: HashMap<K, Instant>,
    /// Keys in work, since when.
    working: HashMap<K, Instant>,
    later: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
    /// How many were added and not counted yet.
    added: u64,
    /// How long the last key waited that was given out.
    waited: Duration,
}

impl<K: Key> Schedule<K> {
    fn new() -> Schedule<K> {
        Schedule {
            ready: VecDeque::new(),
            wanted: HashMap::new(),
            working: HashMap::new(),
            later: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            added: 0,
            waited: Duration::ZERO,
        }
    }

    fn add(&mut self, key: K) {
        if self.wanted.contains_key(&key) {
            return;
        }
        self.wanted.insert(key.clone(), Instant::now());
        self.added += 1;
        if !self.working.contains_key(&key) {
            self.ready.push_back(key);
        }
    }

    // The earliest of several wishes counts.
    fn add_at(&mut self, key: &K, instant: Instant) {
        match self.due.get(key).copied() {
            Some(earlier) if earlier <= instant => return,
            Some(replaced) => {
                self.later.remove(&(replaced, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), instant);
        self.later.insert((instant, key.clone()));
    }

    fn next(&mut self, now: Instant) -> Next<K> {
        while let Some((due, _)) = self.later.first()
            && *due <= now
            && let Some((_, key)) = self.later.pop_first()
        {
            self.due.remove(&key);
            self.add(key);
        }
        if let Some(key) = self.ready.pop_front() {
            let since = self.wanted.remove(&key);
            self.waited = since.map_or(Duration::ZERO, |since| now.duration_since(since));
            self.working.insert(key.clone(), now);
            return Next::Key(key);
        }
        match self.later.first() {
            Some((due, _)) => Next::At(*due),
            None => Next::Nothing,
        }
    }

    /// Gives when work on it began.
    fn end(&mut self, key: &K, end: End, now: Instant) -> Option<Instant> {
        let began = self.working.remove(key);
        match end {
            End::Done => {
                self.failures.remove(key);
            }
            End::After(wait) => {
                self.failures.remove(key);
                self.add_at(key, now + wait);
            }
            End::Failed => {
                let failures = self.failures.entry(key.clone()).or_default();
                let wait = retry_after(*failures);
                *failures = failures.saturating_add(1);
                self.add_at(key, now + wait);
            }
        }
        if self.wanted.contains_key(key) {
            self.ready.push_back(key.clone());
        }
        began
    }
}

fn retry_after(failures: u32) -> Duration {
    FIRST_RETRY
        .saturating_mul(2u32.saturating_pow(failures))
        .min(LAST_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<K: Key>(schedule: &mut Schedule<K>, now: Instant) -> Option<K> {
        match schedule.next(now) {
            Next::Key(key) => Some(key),
            Next::At(_) | Next::Nothing => None,
        }
    }

    #[test]
    fn a_key_is_in_the_queue_once() {
        let now = Instant::now();
        let mut schedule = Schedule::new();
        schedule.add("a");
        schedule.add("b");
        schedule.add("a");
        assert_eq!(key(&mut schedule, now), Some("a"));
        assert_eq!(key(&mut schedule, now), Some("b"));
        assert_eq!(key(&mut schedule, now), None);
    }

    #[test]
    fn a_key_in_work_waits_for_its_end() {
        let now = Instant::now();
        let mut schedule = Schedule::new();
        schedule.add("a");
        assert_eq!(key(&mut schedule, now), Some("a"));
        schedule.add("a");
        assert_eq!(key(&mut schedule, now), None, "two workers on one key");
        schedule.end(&"a", End::Done, now);
        assert_eq!(key(&mut schedule, now), Some("a"), "the change was lost");
    }

    #[test]
    fn failures_wait_longer_and_success_forgets_them() {
        let mut now = Instant::now();
        let mut schedule = Schedule::new();
        schedule.add("a");
        for millis in [5, 10, 20, 40] {
            assert_eq!(key(&mut schedule, now), Some("a"));
            schedule.end(&"a", End::Failed, now);
            now += Duration::from_millis(millis - 1);
            assert_eq!(key(&mut schedule, now), None, "before {millis} ms");
            now += Duration::from_millis(1);
        }
        assert_eq!(key(&mut schedule, now), Some("a"));
        schedule.end(&"a", End::Done, now);
        assert!(schedule.failures.is_empty());
        assert_eq!(retry_after(40), LAST_RETRY);
    }

    #[test]
    fn the_earliest_of_two_wishes_counts() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut schedule = Schedule::new();
        schedule.add_at(&"a", now + second * 9);
        schedule.add_at(&"a", now + second);
        schedule.add_at(&"a", now + second * 5);
        assert_eq!(key(&mut schedule, now + second), Some("a"));
        schedule.end(&"a", End::Done, now + second);
        assert_eq!(key(&mut schedule, now + second * 10), None);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_when_a_key_is_due() {
        let queue = Queue::new();
        queue.add("a");
        assert_eq!(queue.next().await, "a");
        queue.end(&"a", End::After(Duration::from_secs(60)));
        let start = Instant::now();
        assert_eq!(queue.next().await, "a");
        assert!(start.elapsed() >= Duration::from_secs(60));
    }
}
