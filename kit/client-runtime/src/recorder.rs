//! Events: what a role tells people about an object.
//!
//! The rules are those of client-go's `EventCorrelator`: what was said before is counted instead of said again, many
//! similar events become one, and an object that never falls silent is heard only now and then. Sending is
//! best-effort: a full queue drops the newest event, because nobody waits for events.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::actor::{Actor, is_outdated};

/// How many events may wait to be sent.
const WAITING: usize = 1000;
/// How many different things are remembered; the oldest are forgotten first (client-go's `maxLruCacheEntries`).
const REMEMBERED: usize = 4096;
/// From how many similar events within [`SIMILAR_WITHIN`] on they become one.
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// What one component may say about one object at once, and how soon it may say one thing more.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);

/// Whether an event is bad news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// As it should be.
    Normal,
    /// Something a person may want to look at.
    Warning,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        }
    }
}

/// Writes events about objects.
#[derive(Clone)]
pub struct Recorder {
    waiting: mpsc::Sender<Said>,
}

/// One thing that was said.
#[derive(Debug, Clone)]
struct Said {
    about: ObjectReference,
    severity: Severity,
    reason: String,
    message: String,
    at: Timestamp,
}

impl Recorder {
    /// A recorder, and the task that sends what it is told; the task never ends by itself.
    pub fn new(
        component: &'static str,
        actor: Actor,
    ) -> (Recorder, impl Future<Output = ()> + Send + 'static) {
        let (waiting, said) = mpsc::channel(WAITING);
        // The task holds a sender too, so that it goes on when the last recorder is dropped.
        let open = waiting.clone();
        let sending = async move {
            send_all(component, actor, said).await;
            drop(open);
        };
        (Recorder { waiting }, sending)
    }

    /// Says something about an object.
    pub fn event(
        &self,
        about: ObjectReference,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) {
        let said = Said {
            about,
            severity,
            reason: reason.to_owned(),
            message: message.into(),
            at: Timestamp::now(),
        };
        if self.waiting.try_send(said).is_err() {
            tracing::debug!(reason, "too many events wait to be sent: one is dropped");
        }
    }

    /// As [`Recorder::event`], about an object at hand.
    pub fn about<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.event(object.object_ref(&()), severity, reason, message);
    }
}

async fn send_all(component: &'static str, actor: Actor, mut said: mpsc::Receiver<Said>) {
    let mut memory = Correlator::default();
    while let Some(said) = said.recv().await {
        let now = Instant::now();
        let Some((key, step)) = memory.next(component, &said, now) else {
            continue;
        };
        let sent = match step {
            Step::New(event) => create(&actor, *event).await,
            Step::Again(event) => match actor.replace(&*event).await {
                // It was deleted, by its age or a person: said anew, with its count.
                Err(error) if is_outdated(&error) => create(&actor, anew(*event)).await,
                other => other.map(Some),
            },
        };
        match sent {
            Ok(Some(event)) => memory.sent(key, event),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "an event could not be written"),
        }
    }
}

async fn create(actor: &Actor, event: Event) -> Result<Option<Event>, crate::SyncError> {
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    match actor.create(&namespace, &event).await {
        // The namespace is gone or going, or the name is taken: nothing to be mended by trying again.
        Err(error) if is_outdated(&error) || crate::is_namespace_ending(&error) => Ok(None),
        other => other.map(Some),
    }
}

fn anew(mut event: Event) -> Event {
    event.metadata.resource_version = None;
    event.metadata.uid = None;
    event.metadata.name = Some(name(&event.involved_object, Timestamp::now()));
    event
}

/// What makes two events the same: source is the same for all of one recorder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Sameness {
    about: (String, String, String, String),
    severity: Severity,
    reason: String,
    message: String,
}

/// What is to be written.
#[derive(Debug)]
enum Step {
    New(Box<Event>),
    Again(Box<Event>),
}

#[derive(Default)]
struct Correlator {
    known: HashMap<Sameness, Event>,
    /// Different messages of one reason about one object, since when.
    similar: HashMap<Sameness, (Instant, Vec<String>)>,
    /// What one object may still have said about it, as of when.
    budgets: HashMap<(String, String, String, String), (Instant, f64)>,
}

impl Correlator {
    fn next(&mut self, component: &str, said: &Said, now: Instant) -> Option<(Sameness, Step)> {
        self.forget_when_full();
        let mut key = sameness(said);
        let mut message = said.message.clone();
        if self.is_one_of_many(&key, now) {
            // client-go's `EventAggregatorByReasonMessageFunc`.
            message = format!("(combined from similar events): {message}");
            key.message = String::new();
        }
        if !self.may_speak(&key, now) {
            return None;
        }
        let step = match self.known.get(&key) {
            Some(event) => Step::Again(Box::new(again(event.clone(), message, said.at))),
            None => Step::New(Box::new(first(component, said, message))),
        };
        Some((key, step))
    }

    fn sent(&mut self, key: Sameness, event: Event) {
        self.known.insert(key, event);
    }

    fn is_one_of_many(&mut self, key: &Sameness, now: Instant) -> bool {
        let group = Sameness {
            message: String::new(),
            ..key.clone()
        };
        let (since, messages) = self
            .similar
            .entry(group)
            .or_insert_with(|| (now, Vec::new()));
        if now.duration_since(*since) > SIMILAR_WITHIN {
            messages.clear();
        }
        *since = now;
        if messages.len() < SIMILAR && !messages.contains(&key.message) {
            messages.push(key.message.clone());
        }
        messages.len() >= SIMILAR
    }

    fn may_speak(&mut self, key: &Sameness, now: Instant) -> bool {
        let (at, left) = self
            .budgets
            .entry(key.about.clone())
            .or_insert((now, BURST));
        let earned = now.duration_since(*at).as_secs_f64() / REFILL.as_secs_f64();
        (*at, *left) = (now, (*left + earned).min(BURST));
        if *left < 1.0 {
            return false;
        }
        *left -= 1.0;
        true
    }

    // Forgetting only means that something is said anew, so it need not be clever.
    fn forget_when_full(&mut self) {
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        if self.similar.len() >= REMEMBERED {
            self.similar.clear();
        }
        if self.budgets.len() >= REMEMBERED {
            self.budgets.clear();
        }
    }
}

fn sameness(said: &Said) -> Sameness {
    let about = &said.about;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    Sameness {
        about: (
            text(&about.kind),
            text(&about.namespace),
            text(&about.name),
            format!("{}{}", text(&about.uid), text(&about.field_path)),
        ),
        severity: said.severity,
        reason: said.reason.clone(),
        message: said.message.clone(),
    }
}

fn first(component: &str, said: &Said, message: String) -> Event {
    let namespace = said.about.namespace.clone().filter(|n| !n.is_empty());
    let mut event = Event {
        involved_object: said.about.clone(),
        type_: Some(said.severity.name().into()),
        reason: Some(said.reason.clone()),
        message: Some(message),
        count: Some(1),
        first_timestamp: Some(Time(said.at)),
        last_timestamp: Some(Time(said.at)),
        source: Some(EventSource {
            component: Some(component.into()),
            host: None,
        }),
        reporting_component: Some(component.into()),
        ..Event::default()
    };
    event.metadata.name = Some(name(&said.about, said.at));
    // Events about what has no namespace are kept in the default one.
    event.metadata.namespace = Some(namespace.unwrap_or_else(|| "default".into()));
    event
}

fn again(mut event: Event, message: String, at: Timestamp) -> Event {
    event.count = Some(event.count.unwrap_or(1) + 1);
    event.last_timestamp = Some(Time(at));
    event.message = Some(message);
    event
}

// client-go's names: the object's, and the moment in hexadecimal.
fn name(about: &ObjectReference, at: Timestamp) -> String {
    let about = about.name.as_deref().unwrap_or_default();
    format!("{about}.{:x}", at.as_nanosecond())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn said(message: &str) -> Said {
        Said {
            about: ObjectReference {
                kind: Some("Pod".into()),
                namespace: Some("default".into()),
                name: Some("web".into()),
                ..ObjectReference::default()
            },
            severity: Severity::Warning,
            reason: "BackOff".into(),
            message: message.into(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    fn say(memory: &mut Correlator, message: &str, now: Instant) -> Option<Event> {
        let (key, step) = memory.next("kubelet", &said(message), now)?;
        let (Step::New(event) | Step::Again(event)) = step;
        memory.sent(key, (*event).clone());
        Some(*event)
    }

    #[test]
    fn what_was_said_before_is_counted() {
        let (mut memory, now) = (Correlator::default(), Instant::now());
        assert_eq!(say(&mut memory, "a", now).unwrap().count, Some(1));
        assert_eq!(say(&mut memory, "b", now).unwrap().count, Some(1));
        assert_eq!(say(&mut memory, "a", now).unwrap().count, Some(2));
    }

    #[test]
    fn many_similar_events_become_one() {
        let (mut memory, now) = (Correlator::default(), Instant::now());
        for number in 1..10 {
            let event = say(&mut memory, &number.to_string(), now).unwrap();
            assert_eq!(event.message.unwrap(), number.to_string());
        }
        let tenth = say(&mut memory, "10", now).unwrap();
        assert_eq!(tenth.message.unwrap(), "(combined from similar events): 10");
        let more = say(&mut memory, "11", now).unwrap();
        assert_eq!(more.count, Some(2));
        let later = now + SIMILAR_WITHIN * 2;
        let event = say(&mut memory, "12", later).unwrap();
        assert_eq!(event.message.unwrap(), "12");
    }

    #[test]
    fn an_object_that_never_falls_silent_is_heard_now_and_then() {
        let (mut memory, now) = (Correlator::default(), Instant::now());
        let heard = (0..100).filter(|_| say(&mut memory, "a", now).is_some());
        assert_eq!(heard.count(), 25);
        assert!(say(&mut memory, "a", now + REFILL).is_some());
        assert!(say(&mut memory, "a", now + REFILL).is_none());
    }

    #[test]
    fn what_has_no_namespace_speaks_in_the_default_one() {
        let mut node = said("a");
        node.about.namespace = None;
        let event = first("kubelet", &node, "a".into());
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(event.metadata.name.as_deref(), Some("web.0"));
    }
}
