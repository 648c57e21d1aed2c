//! Several clients on the same objects: no update is lost, and a conflict is told exactly when there
//! is one.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::harness::{JsonWatch, call, version};

const COLLECTION: &str = "/api/v1/namespaces/shared/configmaps";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const CLIENTS: usize = 4;
const COUNTERS: usize = 2;
const ATTEMPTS: usize = 40;
const RACES: usize = 10;
const PATIENCE: Duration = Duration::from_secs(30);

/// Every check, in a namespace of its own.
pub(super) async fn run(client: &kube::Client) {
    let namespace = json!({"metadata": {"name": "shared"}});
    let (code, made) = send(client, ("POST", "/api/v1/namespaces"), JSON, &namespace).await;
    assert_eq!(code, 201, "{made}");
    let query = format!("{COLLECTION}?watch=true&resourceVersion={}", version(&made));
    let watch = JsonWatch::open(client, &query).await.unwrap();
    count_together(client, watch).await;
    for race in 0..RACES {
        one_creates_and_one_deletes(client, &format!("race-{race}")).await;
    }
}

async fn send(
    client: &kube::Client,
    target: (&str, &str),
    media_type: &str,
    body: &Value,
) -> (u16, Value) {
    let answer = call(client, target, media_type, Some(body)).await;
    answer.expect("the server answers")
}

fn counter(number: usize) -> (String, String) {
    let name = format!("counter-{number}");
    let path = format!("{COLLECTION}/{name}");
    (name, path)
}

/// Counters that rise by compare and swap, while everybody also patches a field of its own.
async fn count_together(client: &kube::Client, watch: JsonWatch) {
    for number in 0..COUNTERS {
        let object = json!({"metadata": {"name": counter(number).0}, "data": {"count": "0"}});
        let (code, answer) = send(client, ("POST", COLLECTION), JSON, &object).await;
        assert_eq!(code, 201, "{answer}");
    }
    let tallies = join_all((0..CLIENTS).map(|number| count(client, number))).await;
    for number in 0..COUNTERS {
        let (_, path) = counter(number);
        let (_, object) = call(client, ("GET", &path), JSON, None).await.unwrap();
        let successes: usize = tallies.iter().map(|tally| tally[number]).sum();
        assert_eq!(read(&object), successes, "no increment was lost: {object}");
        for client in 0..CLIENTS {
            let field = format!("client-{client}");
            let last = (ATTEMPTS - 1).to_string();
            assert_eq!(object["data"][field], last, "no patch was lost: {object}");
        }
    }
    let writes = COUNTERS + tallies.iter().flatten().sum::<usize>() + CLIENTS * COUNTERS * ATTEMPTS;
    check_history(watch, writes).await;
}

fn read(object: &Value) -> usize {
    let count = object["data"]["count"].as_str();
    count
        .and_then(|count| count.parse().ok())
        .expect("a number")
}

/// One client's increments; how many of them succeeded, by counter.
async fn count(client: &kube::Client, number: usize) -> [usize; COUNTERS] {
    let mut successes = [0; COUNTERS];
    for attempt in 0..ATTEMPTS {
        for (counted, success) in successes.iter_mut().enumerate() {
            let (_, path) = counter(counted);
            if increment(client, &path).await {
                *success += 1;
            }
            let patch = json!({"data": {format!("client-{number}"): attempt.to_string()}});
            let (code, answer) = send(client, ("PATCH", &path), MERGE, &patch).await;
            assert_eq!(
                code, 200,
                "a patch without a version has no conflict: {answer}"
            );
        }
    }
    successes
}

/// Reads and writes back one more; false when somebody else was quicker.
async fn increment(client: &kube::Client, path: &str) -> bool {
    let (code, mut object) = call(client, ("GET", path), JSON, None).await.unwrap();
    assert_eq!(code, 200, "{object}");
    let read_at = version(&object);
    object["data"]["count"] = (read(&object) + 1).to_string().into();
    let (code, answer) = send(client, ("PUT", path), JSON, &object).await;
    if code == 200 {
        assert!(version(&answer) > read_at, "{answer}");
        return true;
    }
    assert_eq!(
        (code, &answer["reason"]),
        (409, &json!("Conflict")),
        "{answer}"
    );
    let (_, current) = call(client, ("GET", path), JSON, None).await.unwrap();
    assert!(
        version(&current) > read_at,
        "a conflict although nobody wrote: {current}"
    );
    false
}

/// Each change shows once, in order, and changes one thing.
async fn check_history(mut watch: JsonWatch, writes: usize) {
    let mut objects: BTreeMap<String, Value> = BTreeMap::new();
    let mut newest = 0;
    for _ in 0..writes {
        let event = tokio::time::timeout(PATIENCE, watch.next()).await;
        let event = event
            .expect("every write has its event")
            .expect("the watch stays open");
        let object = &event["object"];
        assert!(version(object) > newest, "{newest}, then {event}");
        newest = version(object);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let Some(before) = objects.insert(name, object.clone()) else {
            assert_eq!(event["type"], "ADDED", "{event}");
            continue;
        };
        assert_eq!(event["type"], "MODIFIED", "{event}");
        let (old, new) = (
            before["data"].as_object().unwrap(),
            object["data"].as_object().unwrap(),
        );
        let changed = new
            .iter()
            .filter(|(key, value)| old.get(*key) != Some(value))
            .count();
        assert_eq!(
            changed, 1,
            "one write changes one thing: {before}, then {object}"
        );
        assert!(
            (0..=1).contains(&(read(object) - read(&before))),
            "{before}, then {object}"
        );
    }
}

/// Of many that create one object one succeeds, and likewise of many that delete it.
async fn one_creates_and_one_deletes(client: &kube::Client, name: &str) {
    let object = json!({"metadata": {"name": name}});
    let path = format!("{COLLECTION}/{name}");
    let creations = (0..CLIENTS).map(|_| send(client, ("POST", COLLECTION), JSON, &object));
    assert_eq!(codes(join_all(creations).await), [201, 409, 409, 409]);
    let options = json!({});
    let deletions = (0..CLIENTS).map(|_| send(client, ("DELETE", &path), JSON, &options));
    assert_eq!(codes(join_all(deletions).await), [200, 404, 404, 404]);
}

fn codes(answers: Vec<(u16, Value)>) -> Vec<u16> {
    let mut codes: Vec<u16> = answers.into_iter().map(|(code, _)| code).collect();
    codes.sort_unstable();
    codes
}
