//! Whom a change wakes, and how often.
//!
//! Wake-ups go by topic. A topic with many watchers has a pace: a change that comes while its watchers
//! rested is told at once, those that follow closely are told together when the pace is over. A burst
//! then travels to each watcher as one write and one TLS record instead of one per change, which is
//! nearly all that a change costs when many watch. The price is latency: a change may wait
//! [`PACE_PER_WATCHER`] for each watcher of its topic and never more than [`MAX_PACE`]. A topic of a
//! few watchers has no pace at all. What is delivered, and in which order, is the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Telling one watcher on a connection of its own takes about a fifth of this, so one topic takes about a fifth of
/// one core.
const PACE_PER_WATCHER: Duration = Duration::from_micros(200);
/// What is shorter is left out: it would save little, and timers count in milliseconds.
const MIN_PACE: Duration = Duration::from_millis(2);
/// The longest that a change waits. Where so many watch the same, they are the agents of many nodes, which gather
/// changes themselves (upstream's kube-proxy: for a second).
const MAX_PACE: Duration = Duration::from_millis(20);

/// Whom a change concerns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    /// Every change.
    All,
    /// Changes in a namespace.
    Namespace(Box<str>),
    /// Changes of one object.
    Object(Arc<str>),
    /// Changes of pods on one node.
    Node(Box<str>),
}

impl Topic {
    fn is_node(&self) -> bool {
        matches!(self, Topic::Node(_))
    }
}

/// The topics somebody listens to.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    audiences: HashMap<Topic, Audience>,
    /// How many of them are of nodes: whom a pod concerns is only looked up if somebody listens.
    nodes: usize,
    /// Topics whose audience waits for its pace, and until when.
    held: Vec<(Topic, Instant)>,
}

/// The watchers of a topic.
#[derive(Debug)]
struct Audience {
    wake: watch::Sender<()>,
    last: Option<Instant>,
    is_held: bool,
}

impl Audience {
    /// When the watchers may be woken, if that is not now.
    fn not_before(&self, now: Instant) -> Option<Instant> {
        let pace = pace(self.wake.receiver_count())?;
        let free = self.last? + pace;
        (free > now).then_some(free)
    }
}

/// How long a topic of so many watchers rests after a wake-up.
fn pace(watchers: usize) -> Option<Duration> {
    let watchers = u32::try_from(watchers).unwrap_or(u32::MAX);
    let pace = PACE_PER_WATCHER.saturating_mul(watchers).min(MAX_PACE);
    (pace >= MIN_PACE).then_some(pace)
}

impl Topics {
    /// Whether nobody listens.
    pub(crate) fn is_empty(&self) -> bool {
        self.audiences.is_empty()
    }

    /// Whether somebody listens to a node.
    pub(crate) fn hear_of_nodes(&self) -> bool {
        self.nodes > 0
    }

    /// Joins the audience of a topic.
    pub(crate) fn subscribe(&mut self, topic: Topic) -> watch::Receiver<()> {
        if topic.is_node() && !self.audiences.contains_key(&topic) {
            self.nodes += 1;
        }
        let audience = self.audiences.entry(topic).or_insert_with(|| Audience {
            wake: watch::channel(()).0,
            last: None,
            is_held: false,
        });
        audience.wake.subscribe()
    }

    /// Wakes the audience of a topic, now or when its pace allows.
    pub(crate) fn wake(&mut self, topic: &Topic, now: Instant) {
        let Some(audience) = self.audiences.get_mut(topic) else {
            return;
        };
        if audience.is_held {
            return;
        }
        if let Some(due) = audience.not_before(now) {
            audience.is_held = true;
            self.held.push((topic.clone(), due));
            return;
        }
        audience.last = Some(now);
        if audience.wake.send(()).is_err() {
            self.audiences.remove(topic);
            self.nodes -= usize::from(topic.is_node());
        }
    }

    /// Wakes everyone now and forgets topics that nobody listens to any more.
    pub(crate) fn wake_all(&mut self) {
        self.held.clear();
        self.audiences.retain(|_, audience| {
            audience.is_held = false;
            audience.wake.send(()).is_ok()
        });
        self.nodes = self.audiences.keys().filter(|t| t.is_node()).count();
    }

    /// Wakes the audiences whose pace is over.
    pub(crate) fn wake_due(&mut self, now: Instant) {
        let due: Vec<_> = self.held.extract_if(.., |(_, due)| *due <= now).collect();
        for (topic, _) in due {
            if let Some(audience) = self.audiences.get_mut(&topic) {
                audience.is_held = false;
                // Due whatever has become of the number of watchers.
                audience.last = None;
            }
            self.wake(&topic, now);
        }
    }

    /// When [`Topics::wake_due`] has something to do next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.held.iter().map(|(_, due)| *due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audience(topics: &mut Topics, number: usize) -> Vec<watch::Receiver<()>> {
        (0..number).map(|_| topics.subscribe(Topic::All)).collect()
    }

    fn woken(audience: &mut [watch::Receiver<()>]) -> bool {
        let woken = audience[0].has_changed().expect("alive");
        audience
            .iter_mut()
            .for_each(watch::Receiver::mark_unchanged);
        woken
    }

    #[test]
    fn a_few_watchers_hear_of_every_change_at_once() {
        let mut topics = Topics::default();
        let mut few = audience(&mut topics, 9);
        let now = Instant::now();
        for _ in 0..3 {
            topics.wake(&Topic::All, now);
            assert!(woken(&mut few));
        }
        assert_eq!(topics.next_due(), None);
    }

    #[test]
    fn many_watchers_hear_the_first_at_once_and_the_rest_together() {
        let mut topics = Topics::default();
        let mut many = audience(&mut topics, 1_000);
        let start = Instant::now();
        topics.wake(&Topic::All, start);
        assert!(woken(&mut many), "a lone change does not wait");
        for millis in 1..4 {
            topics.wake(&Topic::All, start + Duration::from_millis(millis));
            assert!(!woken(&mut many));
        }
        assert_eq!(topics.next_due(), Some(start + MAX_PACE));
        topics.wake_due(start + MAX_PACE - Duration::from_millis(1));
        assert!(!woken(&mut many), "too early");
        topics.wake_due(start + MAX_PACE);
        assert!(woken(&mut many));
        assert_eq!(topics.next_due(), None);
        topics.wake(&Topic::All, start + MAX_PACE * 3);
        assert!(woken(&mut many), "rested");
    }

    #[test]
    fn nodes_are_heard_of_while_somebody_listens_to_one() {
        let mut topics = Topics::default();
        let node = |name: &str| Topic::Node(name.into());
        let listeners = ["a", "a", "b"].map(|name| topics.subscribe(node(name)));
        assert!(topics.hear_of_nodes());
        drop(listeners);
        for name in ["a", "b", "c"] {
            topics.wake(&node(name), Instant::now());
        }
        assert!(!topics.hear_of_nodes());
        drop(topics.subscribe(node("a")));
        topics.wake_all();
        assert!(!topics.hear_of_nodes());
    }

    #[test]
    fn a_held_change_is_told_although_most_watchers_have_gone() {
        let mut topics = Topics::default();
        let mut many = audience(&mut topics, 100);
        let start = Instant::now();
        topics.wake(&Topic::All, start);
        topics.wake(&Topic::All, start);
        many.truncate(1);
        many[0].mark_unchanged();
        topics.wake_due(start + MAX_PACE);
        assert!(woken(&mut many));
    }

    #[test]
    fn the_pace_grows_with_the_audience_up_to_its_bound() {
        assert_eq!(pace(9), None);
        assert_eq!(pace(10), Some(MIN_PACE));
        assert_eq!(pace(50), Some(Duration::from_millis(10)));
        assert_eq!(pace(10_000), Some(MAX_PACE));
    }
}
