//! The plain model: the config maps of one namespace, all their changes, and a live watch that has
//! to tell the same story.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{JsonWatch, version};

const PATIENCE: Duration = Duration::from_secs(30);

pub(super) type Objects = BTreeMap<String, Value>;

/// One change of one object. The server does not tell a deletion's version; the live watch does.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) before: Option<Value>,
    pub(super) after: Option<Value>,
    pub(super) version: Option<u64>,
}

impl Change {
    /// The event a watch with this selection sends, if it sends one: its type and its object.
    pub(super) fn event(&self, selects: impl Fn(&Value) -> bool) -> Option<(&'static str, Value)> {
        let before = self.before.as_ref().filter(|object| selects(object));
        let after = self.after.as_ref().filter(|object| selects(object));
        let (kind, object) = match (before, after) {
            (None, Some(after)) => ("ADDED", after),
            (Some(_), Some(after)) => ("MODIFIED", after),
            // What leaves the selection is shown as it last was in it.
            (Some(before), None) => ("DELETED", before),
            (None, None) => return None,
        };
        let mut object = object.clone();
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("resourceVersion");
        if let Some(version) = self.version {
            metadata.insert("resourceVersion".into(), version.to_string().into());
        }
        Some((kind, object))
    }
}

/// The objects of a namespace and how they came to be.
pub(super) struct Model {
    pub(super) objects: Objects,
    pub(super) changes: Vec<Change>,
    /// The objects at each version that a change made, the oldest first.
    pub(super) states: Vec<(u64, Objects)>,
    live: JsonWatch,
}

impl Model {
    /// An empty namespace at a version, and a watch that began there.
    pub(super) fn new(version: u64, live: JsonWatch) -> Self {
        Self {
            objects: Objects::new(),
            changes: Vec::new(),
            states: vec![(version, Objects::new())],
            live,
        }
    }

    /// The newest version known.
    pub(super) fn newest(&self) -> u64 {
        self.states.last().expect("there is a first state").0
    }

    /// The object has been created or changed to this.
    pub(super) fn put(&mut self, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let before = self.objects.insert(name, object.clone());
        self.changes.push(Change {
            before,
            version: Some(version(&object)),
            after: Some(object),
        });
    }

    /// The object is gone.
    pub(super) fn remove(&mut self, name: &str) {
        let before = self.objects.remove(name);
        assert!(before.is_some(), "{name} existed");
        self.changes.push(Change {
            before,
            after: None,
            version: None,
        });
    }

    /// Reads the live watch up to the last change and compares each event.
    pub(super) async fn catch_up(&mut self) {
        while self.states.len() <= self.changes.len() {
            let next = tokio::time::timeout(PATIENCE, self.live.next()).await;
            let event = next
                .expect("the event comes")
                .expect("the watch stays open");
            self.confirm(&event);
        }
    }

    fn confirm(&mut self, event: &Value) {
        let (newest, mut state) = self.states.last().expect("there is a first state").clone();
        let change = &mut self.changes[self.states.len() - 1];
        let seen = version(&event["object"]);
        assert!(seen > newest, "{newest}, then {event}");
        let known = *change.version.get_or_insert(seen);
        assert_eq!(known, seen, "{event}");
        assert_event(event, &change.event(|_| true).expect("selected"));
        let name = event["object"]["metadata"]["name"].as_str().unwrap();
        match &change.after {
            Some(after) => state.insert(name.to_owned(), after.clone()),
            None => state.remove(name),
        };
        self.states.push((seen, state));
    }
}

/// The event is of this type and has this object.
#[track_caller]
pub(super) fn assert_event(event: &Value, (kind, object): &(&'static str, Value)) {
    assert_eq!(event["type"], *kind, "{event}");
    assert_eq!(bare(&event["object"]), *object, "{event}");
}

/// An object without its record of managers, which the model does not keep.
pub(super) fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// An object as it stands in a list, where the list tells the kind.
pub(super) fn item(object: &Value) -> Value {
    let mut object = object.clone();
    let fields = object.as_object_mut().unwrap();
    fields.remove("kind");
    fields.remove("apiVersion");
    object
}
