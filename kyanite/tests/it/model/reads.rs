//! Reads of one client: gets, pages, the past, and watches from anywhere.

use std::time::Duration;

use serde_json::{Value, json};

use super::namespace::{Objects, assert_event, bare, item};
use super::operations::{Client, assert_missing};
use crate::harness::{JsonWatch, version};

const JSON: &str = "application/json";
const PATIENCE: Duration = Duration::from_secs(30);

/// A label selector as it stands in a URL, and what it means.
pub(super) struct Selector {
    pub(super) query: &'static str,
    pub(super) selects: fn(&Value) -> bool,
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"][key].as_str()
}

pub(super) const SELECTORS: [Selector; 9] = [
    Selector {
        query: "app%3Da",
        selects: |object| label(object, "app") == Some("a"),
    },
    Selector {
        query: "app%3D%3Db",
        selects: |object| label(object, "app") == Some("b"),
    },
    Selector {
        query: "app%21%3Da",
        selects: |object| label(object, "app") != Some("a"),
    },
    Selector {
        query: "app%20in%20%28a%2Cb%29",
        selects: |object| matches!(label(object, "app"), Some("a" | "b")),
    },
    Selector {
        query: "app%20notin%20%28a%2Cb%29",
        selects: |object| !matches!(label(object, "app"), Some("a" | "b")),
    },
    Selector {
        query: "tier",
        selects: |object| label(object, "tier").is_some(),
    },
    Selector {
        query: "%21tier",
        selects: |object| label(object, "tier").is_none(),
    },
    Selector {
        query: "tier%3E1",
        selects: |object| matches!(label(object, "tier"), Some("2" | "3")),
    },
    Selector {
        query: "app%3Da%2Ctier%21%3D2",
        selects: |object| label(object, "app") == Some("a") && label(object, "tier") != Some("2"),
    },
];

type Selects = Box<dyn Fn(&Value) -> bool>;

/// What a list or watch asks for.
struct Question {
    query: String,
    selects: Selects,
    has_selector: bool,
}

fn selected(objects: &Objects, question: &Question) -> Vec<Value> {
    let chosen = objects.values().filter(|object| (question.selects)(object));
    chosen.map(item).collect()
}

fn items(list: &Value) -> Vec<Value> {
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("ConfigMapList"), &json!("v1"))
    );
    let items = list["items"].as_array();
    items.expect("a list has items").iter().map(bare).collect()
}

impl Client {
    fn question(&mut self) -> Question {
        let has_selector = self.random.chance(65);
        if !has_selector {
            return Question {
                query: String::new(),
                selects: Box::new(|_| true),
                has_selector,
            };
        }
        let name = self.name();
        let (query, selects): (String, Selects) = match self.random.below(4) {
            0 => (
                format!("&fieldSelector=metadata.name%3D{name}"),
                Box::new(move |object| object["metadata"]["name"] == name),
            ),
            1 => (
                format!("&fieldSelector=metadata.name%21%3D{name}"),
                Box::new(move |object| object["metadata"]["name"] != name),
            ),
            _ => {
                let Selector { query, selects } = self.random.choose(&SELECTORS);
                (format!("&labelSelector={query}"), Box::new(selects))
            }
        };
        Question {
            query,
            selects,
            has_selector,
        }
    }

    pub(super) async fn get(&mut self) {
        let name = self.name();
        let (code, answer) = self.send(("GET", &self.path(name)), JSON, None).await;
        match self.model.objects.get(name) {
            None => assert_missing((code, &answer), name),
            Some(object) => assert_eq!((code, bare(&answer)), (200, object.clone())),
        }
    }

    /// Lists, whole or in pages; what is written between two pages does not show in them.
    pub(super) async fn list(&mut self) {
        let question = self.question();
        let limit = self.random.below(5);
        let expected = selected(&self.model.objects, &question);
        let newest = self.model.newest();
        let (mut listed, mut token, mut at) = (Vec::new(), String::new(), None);
        loop {
            let path = format!(
                "{}?limit={limit}&continue={token}{}",
                self.collection, question.query
            );
            let (code, page) = self.send(("GET", &path), JSON, None).await;
            assert_eq!(code, 200, "{path}: {page}");
            let pinned = *at.get_or_insert(version(&page));
            assert!(pinned >= newest, "{path}: older than {newest}: {page}");
            assert_eq!(
                version(&page),
                pinned,
                "{path}: every page is of one version"
            );
            listed.extend(items(&page));
            token = page["metadata"]["continue"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            if token.is_empty() {
                break;
            }
            assert!(
                listed.len() % limit == 0,
                "{path}: a page but the last is full"
            );
            let remaining = page["metadata"]["remainingItemCount"].as_u64();
            let left = expected.len().saturating_sub(listed.len()) as u64;
            assert_eq!(
                remaining,
                (!question.has_selector).then_some(left),
                "{path}: {page}"
            );
            if self.random.chance(50) {
                self.write().await;
            }
        }
        assert_eq!(listed, expected, "limit {limit}, {}", question.query);
    }

    /// Lists as of an earlier version.
    pub(super) async fn list_the_past(&mut self) {
        let question = self.question();
        let (at, objects) = self.random.choose(&self.model.states).clone();
        let path = format!(
            "{}?resourceVersion={at}&resourceVersionMatch=Exact{}",
            self.collection, question.query
        );
        let (code, list) = self.send(("GET", &path), JSON, None).await;
        assert_eq!(code, 200, "{path}: {list}");
        assert_eq!(version(&list), at, "{path}");
        assert_eq!(items(&list), selected(&objects, &question), "{path}");
    }

    /// Watches from an earlier version: every later change shows, as the selection sees it.
    pub(super) async fn resume_a_watch(&mut self) {
        let question = self.question();
        let start = self.random.below(self.model.states.len());
        let at = self.model.states[start].0;
        let path = format!(
            "{}?watch=true&resourceVersion={at}{}",
            self.collection, question.query
        );
        let mut watch = JsonWatch::open(&self.client, &path).await.unwrap();
        let later = self.model.changes[start..].iter();
        for expected in later.filter_map(|change| change.event(&question.selects)) {
            assert_event(&next(&mut watch, &path).await, &expected);
        }
    }

    /// Watches with the present objects first, and a bookmark after them.
    pub(super) async fn watch_from_the_start(&mut self) {
        let question = self.question();
        let path = format!(
            "{}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true{}",
            self.collection, question.query
        );
        let mut watch = JsonWatch::open(&self.client, &path).await.unwrap();
        let present = self.model.objects.values();
        for object in present.filter(|object| (question.selects)(object)) {
            assert_event(&next(&mut watch, &path).await, &("ADDED", object.clone()));
        }
        let bookmark = next(&mut watch, &path).await;
        let metadata = &bookmark["object"]["metadata"];
        assert_eq!(bookmark["type"], "BOOKMARK", "{path}: {bookmark}");
        assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
        assert!(
            version(&bookmark["object"]) >= self.model.newest(),
            "{bookmark}"
        );
    }
}

async fn next(watch: &mut JsonWatch, path: &str) -> Value {
    let next = tokio::time::timeout(PATIENCE, watch.next()).await;
    let event = next.unwrap_or_else(|_| panic!("{path}: no event"));
    event.unwrap_or_else(|end| panic!("{path}: {end:?}"))
}
