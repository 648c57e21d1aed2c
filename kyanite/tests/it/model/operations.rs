//! The random operations of one client, each with the answer the model predicts.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::namespace::{Model, bare, item};
use super::reads::{SELECTORS, Selector};
use crate::harness::{JsonWatch, Random, call, version};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
const STALE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// One client, alone in its namespace.
pub(super) struct Client {
    pub(super) client: kube::Client,
    pub(super) namespace: String,
    pub(super) collection: String,
    pub(super) random: Random,
    pub(super) model: Model,
    uids: HashSet<String>,
}

impl Client {
    /// Makes the namespace and starts to watch it.
    pub(super) async fn start(client: kube::Client, namespace: &str, random: Random) -> Self {
        let body = json!({"metadata": {"name": namespace}});
        let path = ("POST", "/api/v1/namespaces");
        let (code, made) = call(&client, path, JSON, Some(&body)).await.unwrap();
        assert_eq!(code, 201, "{made}");
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let query = format!("{collection}?watch=true&resourceVersion={}", version(&made));
        let live = JsonWatch::open(&client, &query).await.unwrap();
        Self {
            client,
            namespace: namespace.to_owned(),
            collection,
            random,
            model: Model::new(version(&made), live),
            uids: HashSet::new(),
        }
    }

    /// One random operation.
    pub(super) async fn step(&mut self) {
        match self.random.below(100) {
            0..60 => self.write().await,
            60..75 => self.get().await,
            75..85 => self.list().await,
            85..92 => self.list_the_past().await,
            92..97 => self.resume_a_watch().await,
            _ => self.watch_from_the_start().await,
        }
    }

    /// One random write.
    pub(super) async fn write(&mut self) {
        match self.random.below(100) {
            0..25 => self.create().await,
            25..50 => self.update().await,
            50..65 => self.merge_patch().await,
            65..74 => self.json_patch().await,
            74..80 => self.apply().await,
            80..92 => self.delete().await,
            92..97 => self.delete_collection().await,
            _ => self.hold_and_release().await,
        }
        self.model.catch_up().await;
    }

    pub(super) async fn send(
        &self,
        (method, path): (&str, &str),
        media_type: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let answer = call(&self.client, (method, path), media_type, body).await;
        answer.expect("the server answers")
    }

    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.collection)
    }

    pub(super) fn name(&mut self) -> &'static str {
        NAMES[self.random.below(NAMES.len())]
    }

    fn current(&self, name: &str) -> Option<Value> {
        self.model.objects.get(name).cloned()
    }

    /// Random labels and data; an empty map is left out, as the server leaves it out.
    fn content(&mut self, name: &str) -> Value {
        let mut object = json!({"metadata": {"name": name}});
        for (key, values) in [("app", ["a", "b", "c"]), ("tier", ["1", "2", "3"])] {
            if self.random.chance(70) {
                object["metadata"]["labels"][key] = (*self.random.choose(&values)).into();
            }
        }
        for key in ["x", "y", "z"] {
            if self.random.chance(60) {
                object["data"][key] = self.value();
            }
        }
        object
    }

    fn value(&mut self) -> Value {
        format!("v{}", self.random.below(5)).into()
    }

    async fn create(&mut self) {
        if self.random.chance(20) {
            return self.create_with_a_generated_name().await;
        }
        let name = self.name();
        let body = self.content(name);
        let dry_run = self.random.chance(10);
        let query = if dry_run { "?dryRun=All" } else { "" };
        let path = format!("{}{query}", self.collection);
        let (code, answer) = self.send(("POST", &path), JSON, Some(&body)).await;
        if self.current(name).is_some() {
            let message = format!("configmaps {name:?} already exists");
            return assert_refused((code, &answer), (409, "AlreadyExists"), &message);
        }
        assert_eq!(code, 201, "{answer}");
        if !dry_run {
            self.created(body, &answer);
        }
    }

    async fn create_with_a_generated_name(&mut self) {
        let mut body = self.content("");
        body["metadata"] = json!({"generateName": "made-"});
        let (code, answer) = self
            .send(("POST", &self.collection), JSON, Some(&body))
            .await;
        assert_eq!(code, 201, "{answer}");
        let name = answer["metadata"]["name"].as_str().unwrap().to_owned();
        let suffix = name.strip_prefix("made-").unwrap_or_default();
        let legal = |c: char| "bcdfghjklmnpqrstvwxz2456789".contains(c);
        assert!(suffix.len() == 5 && suffix.chars().all(legal), "{name}");
        body["metadata"]["name"] = name.as_str().into();
        self.created(body, &answer);
        // So that there are not ever more of them.
        let (code, answer) = self.send(("DELETE", &self.path(&name)), JSON, None).await;
        assert_eq!(code, 200, "{answer}");
        self.model.remove(&name);
    }

    /// The server has made what was sent and filled in what it fills in.
    fn created(&mut self, mut sent: Value, answer: &Value) {
        sent["kind"] = "ConfigMap".into();
        sent["apiVersion"] = "v1".into();
        sent["metadata"]["namespace"] = self.namespace.as_str().into();
        for field in ["uid", "creationTimestamp", "resourceVersion"] {
            assert!(answer["metadata"][field].is_string(), "{field} of {answer}");
            sent["metadata"][field] = answer["metadata"][field].clone();
        }
        let uid = sent["metadata"]["uid"].as_str().unwrap().to_owned();
        assert!(self.uids.insert(uid), "a new uid in {answer}");
        assert!(version(answer) > self.model.newest(), "{answer}");
        assert_eq!(bare(answer), sent);
        self.model.put(sent);
    }

    /// The object that was `before` is now `expected`, with a new version if that differs.
    fn changed(&mut self, (code, answer): (u16, Value), before: &Value, mut expected: Value) {
        assert_eq!(code, 200, "{answer}");
        without_empty_maps(&mut expected);
        expected["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        if expected == *before {
            assert_eq!(
                bare(&answer),
                *before,
                "nothing changes, not even the version"
            );
            return;
        }
        assert!(version(&answer) > self.model.newest(), "{answer}");
        expected["metadata"]["resourceVersion"] = answer["metadata"]["resourceVersion"].clone();
        assert_eq!(bare(&answer), expected);
        self.model.put(expected);
    }

    async fn update(&mut self) {
        let name = self.name();
        let mut body = self.content(name);
        let before = self.current(name);
        let precondition = self.random.below(5);
        if let Some(before) = &before {
            match precondition {
                0 | 1 => {
                    body["metadata"]["resourceVersion"] =
                        before["metadata"]["resourceVersion"].clone()
                }
                2 => body["metadata"]["resourceVersion"] = self.stale_version(before).into(),
                3 => body["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into(),
                _ => {}
            }
        }
        let (code, answer) = self
            .send(("PUT", &self.path(name)), JSON, Some(&body))
            .await;
        match (before, precondition) {
            (None, _) => assert_missing((code, &answer), name),
            (Some(_), 2) => assert_conflict((code, &answer), name, STALE),
            (Some(_), 3) => {
                let key = format!("/registry/configmaps/{}/{name}", self.namespace);
                let why = format!(
                    "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, \
                     AdditionalErrorMsg: Precondition failed: UID in precondition: "
                );
                assert_conflict((code, &answer), name, &why);
            }
            (Some(before), _) => {
                let mut expected = before.clone();
                expected["data"] = body["data"].clone();
                expected["metadata"]["labels"] = body["metadata"]["labels"].clone();
                self.changed((code, answer), &before, expected);
            }
        }
    }

    /// A version the object no longer has: that of an earlier state, or of the empty namespace.
    fn stale_version(&mut self, object: &Value) -> String {
        let earlier = self.model.states.iter().map(|(version, _)| *version);
        let earlier: Vec<u64> = earlier.filter(|v| *v < version(object)).collect();
        self.random.choose(&earlier).to_string()
    }

    async fn merge_patch(&mut self) {
        let name = self.name();
        let before = self.current(name);
        let kind = *self
            .random
            .choose(&[MERGE, "application/strategic-merge-patch+json"]);
        let key = *self.random.choose(&["x", "y", "z"]);
        let value = if self.random.chance(30) {
            Value::Null
        } else {
            self.value()
        };
        let mut patch = json!({"data": {key: value}});
        if self.random.chance(50) {
            let labels = [json!("a"), json!("b"), Value::Null];
            patch["metadata"]["labels"]["app"] = self.random.choose(&labels).clone();
        }
        let stale = before.is_some() && self.random.chance(15);
        if let Some(before) = before.as_ref().filter(|_| stale) {
            patch["metadata"]["resourceVersion"] = self.stale_version(before).into();
        }
        let answer = self
            .send(("PATCH", &self.path(name)), kind, Some(&patch))
            .await;
        match before {
            None => assert_missing((answer.0, &answer.1), name),
            Some(_) if stale => assert_conflict((answer.0, &answer.1), name, STALE),
            Some(before) => {
                let mut expected = before.clone();
                merge(&mut expected, &patch);
                self.changed(answer, &before, expected);
            }
        }
    }

    async fn json_patch(&mut self) {
        let name = self.name();
        let before = self.current(name);
        let key = *self.random.choose(&["x", "y", "z"]);
        let path = format!("/data/{key}");
        let value = self.value();
        let operation = *self.random.choose(&["add", "replace", "remove", "test"]);
        let patch = json!([
            {"op": operation, "path": path, "value": value},
            {"op": "test", "path": "/metadata/name", "value": name},
        ]);
        let media_type = "application/json-patch+json";
        let answer = self
            .send(("PATCH", &self.path(name)), media_type, Some(&patch))
            .await;
        let Some(before) = before else {
            return assert_missing((answer.0, &answer.1), name);
        };
        let possible = match operation {
            // The library upstream uses lets "replace" add a missing key.
            "add" | "replace" => before["data"].is_object(),
            "remove" => before["data"][key].is_string(),
            _ => before["data"][key] == value,
        };
        if !possible {
            assert_eq!(
                (answer.0, &answer.1["reason"]),
                (422, &json!("Invalid")),
                "{patch} to {before}"
            );
            return;
        }
        let mut expected = before.clone();
        match operation {
            "test" => {}
            "remove" => merge(&mut expected, &json!({"data": {key: null}})),
            _ => merge(&mut expected, &json!({"data": {key: value}})),
        }
        self.changed(answer, &before, expected);
    }

    /// Server-side apply of one field that nothing else applies, so that it sets just that field.
    async fn apply(&mut self) {
        let name = self.name();
        let before = self.current(name);
        let value = self.value();
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"applied": value}});
        let path = format!("{}?fieldManager=model&force=true", self.path(name));
        let media_type = "application/apply-patch+yaml";
        let (code, answer) = self.send(("PATCH", &path), media_type, Some(&body)).await;
        let Some(before) = before else {
            assert_eq!(code, 201, "{answer}");
            return self.created(body, &answer);
        };
        assert_eq!(code, 200, "{answer}");
        let mut expected = before.clone();
        expected["data"]["applied"] = value;
        expected["metadata"]["resourceVersion"] = answer["metadata"]["resourceVersion"].clone();
        assert_eq!(bare(&answer), expected);
        // Taking over a field is a change although the value stays.
        if version(&answer) != version(&before) {
            assert!(version(&answer) > self.model.newest(), "{answer}");
            self.model.put(expected);
        } else {
            assert_eq!(expected, before, "a change has a new version");
        }
    }

    async fn delete(&mut self) {
        let name = self.name();
        let before = self.current(name);
        let condition = self.random.below(6);
        let options = before.as_ref().map(|before| match condition {
            0 => json!({"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}}),
            1 => json!({"preconditions": {"resourceVersion": self.stale_version(before)}}),
            2 => json!({"preconditions": {"uid": before["metadata"]["uid"], "resourceVersion": before["metadata"]["resourceVersion"]}}),
            3 => json!({"dryRun": ["All"]}),
            _ => json!({}),
        });
        let (code, answer) = self
            .send(("DELETE", &self.path(name)), JSON, options.as_ref())
            .await;
        match (before, condition) {
            (None, _) => assert_missing((code, &answer), name),
            (Some(_), 0 | 1) => {
                let field = if condition == 0 {
                    "UID"
                } else {
                    "ResourceVersion"
                };
                // Upstream tells the kind here, not the resource.
                let message = format!(
                    "Operation cannot be fulfilled on ConfigMap {name:?}: the {field} in the precondition ("
                );
                assert_refused((code, &answer), (409, "Conflict"), &message);
            }
            (Some(before), _) => {
                let expected = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": {"name": name, "kind": "configmaps", "uid": before["metadata"]["uid"]},
                });
                assert_eq!((code, answer), (200, expected));
                if condition != 3 {
                    self.model.remove(name);
                }
            }
        }
    }

    async fn delete_collection(&mut self) {
        let Selector { query, selects } = self.random.choose(&SELECTORS);
        let path = format!("{}?labelSelector={query}", self.collection);
        let (code, answer) = self.send(("DELETE", &path), JSON, None).await;
        assert_eq!(code, 200, "{answer}");
        let chosen: Vec<(String, Value)> = self
            .model
            .objects
            .clone()
            .into_iter()
            .filter(|(_, object)| selects(object))
            .collect();
        let items: Vec<Value> = answer["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(bare)
            .collect();
        let expected: Vec<Value> = chosen.iter().map(|(_, object)| item(object)).collect();
        assert_eq!(items, expected, "deleted by {query}");
        for (name, _) in chosen {
            self.model.remove(&name);
        }
    }

    /// An object with a finalizer stays, marked, until the finalizer goes.
    async fn hold_and_release(&mut self) {
        let name = "held";
        let mut body = self.content(name);
        body["metadata"]["finalizers"] = json!(["example.com/hold"]);
        let (code, answer) = self
            .send(("POST", &self.collection), JSON, Some(&body))
            .await;
        assert_eq!(code, 201, "{answer}");
        self.created(body, &answer);
        let before = self.current(name).expect("just made");
        let (code, marked) = self.send(("DELETE", &self.path(name)), JSON, None).await;
        let stamp = marked["metadata"]["deletionTimestamp"].clone();
        assert!(stamp.is_string(), "{marked}");
        let mut expected = before.clone();
        expected["metadata"]["deletionTimestamp"] = stamp;
        expected["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        self.changed((code, marked), &before, expected.clone());
        let dying = self.current(name).expect("still there");
        let again = self.send(("DELETE", &self.path(name)), JSON, None).await;
        self.changed(again, &dying, expected);
        let release = json!({"metadata": {"finalizers": null}});
        let (code, answer) = self
            .send(("PATCH", &self.path(name)), MERGE, Some(&release))
            .await;
        assert_eq!(
            (code, &answer["metadata"]["finalizers"]),
            (200, &Value::Null),
            "{answer}"
        );
        // The release itself is never stored: the event shows the object as it last was.
        self.model.remove(name);
    }
}

/// RFC 7386, which for maps of texts is the strategic merge too.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    for (key, value) in fields {
        if !value.is_null() {
            merge(&mut target[key], value);
        } else if let Some(target) = target.as_object_mut() {
            target.remove(key);
        }
    }
}

/// Absent and empty are one to the server.
fn without_empty_maps(object: &mut Value) {
    let empty =
        |value: &Value| value.is_null() || value.as_object().is_some_and(|map| map.is_empty());
    for (parent, field) in [("", "data"), ("/metadata", "labels")] {
        let fields = object
            .pointer_mut(parent)
            .and_then(Value::as_object_mut)
            .unwrap();
        if fields.get(field).is_some_and(empty) {
            fields.remove(field);
        }
    }
}

#[track_caller]
pub(super) fn assert_missing(answer: (u16, &Value), name: &str) {
    assert_refused(
        answer,
        (404, "NotFound"),
        &format!("configmaps {name:?} not found"),
    );
}

#[track_caller]
fn assert_conflict(answer: (u16, &Value), name: &str, why: &str) {
    let message = format!("Operation cannot be fulfilled on configmaps {name:?}: {why}");
    assert_refused(answer, (409, "Conflict"), &message);
}

/// A Status with this code and reason, whose message begins like this.
#[track_caller]
fn assert_refused((code, answer): (u16, &Value), expected: (u16, &str), message: &str) {
    assert_eq!(
        (code, answer["reason"].as_str().unwrap_or_default()),
        expected,
        "{answer}"
    );
    assert_eq!(answer["code"], code, "{answer}");
    assert_eq!(
        (&answer["kind"], &answer["status"]),
        (&json!("Status"), &json!("Failure"))
    );
    let found = answer["message"].as_str().unwrap_or_default();
    assert!(found.starts_with(message), "not {message:?}: {answer}");
}
