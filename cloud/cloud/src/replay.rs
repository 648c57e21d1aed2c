//! Traffic recorded against real Azure, asked again: each answer of ours has the status, the headers that matter and
//! the shape of the recorded one. What is left differing stands in a table with its reason.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;

use crate::arena::Arena;
use crate::exchange::Reply;

#[derive(Deserialize)]
struct Recording {
    interactions: Vec<Interaction>,
}

#[derive(Deserialize)]
struct Interaction {
    request: Request,
    response: Response,
}

#[derive(Deserialize)]
struct Request {
    method: String,
    url: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    headers: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Response {
    code: u16,
    #[serde(default)]
    body: String,
    #[serde(default)]
    headers: BTreeMap<String, Vec<String>>,
}

/// Where an operation of the last answer can be asked about.
#[derive(Default)]
struct Asks {
    status: Option<String>,
    result: Option<String>,
}

fn is_operation(url: &str) -> bool {
    let lower = url.to_lowercase();
    [
        "operations/",
        "/operationresults/",
        "/asyncoperations/",
        "operationstatuses/",
    ]
    .iter()
    .any(|word| lower.contains(word))
}

/// The path to ask: the recorded one, or that of our own operation.
fn target(url: &str, asks: &Asks) -> String {
    let path = url
        .splitn(4, '/')
        .nth(3)
        .map(|rest| format!("/{rest}"))
        .unwrap_or_default();
    if !is_operation(url) {
        return path;
    }
    let is_result = url.to_lowercase().contains("result") || url.contains("monitor=true");
    let own = if is_result {
        asks.result.as_ref()
    } else {
        asks.status.as_ref()
    };
    let own = own.or(asks.status.as_ref()).or(asks.result.as_ref());
    own.map_or(path, |own| {
        own.trim_start_matches("https://localhost:8443").to_owned()
    })
}

fn remember(reply: &Reply, asks: &mut Asks) {
    let header = |name: &str| {
        reply
            .headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .map(str::to_owned)
    };
    if let Some(status) = header("azure-asyncoperation") {
        asks.status = Some(status);
        asks.result = None;
    }
    if let Some(result) = header("location") {
        asks.result = Some(result);
    }
}

/// What differs between what was recorded and what we say.
fn differences(recorded: &Response, ours: &Reply) -> Vec<String> {
    let mut found = Vec::new();
    if recorded.code != ours.status.as_u16() {
        found.push(format!(
            "status {} not {}",
            ours.status.as_u16(),
            recorded.code
        ));
        return found;
    }
    for name in ["azure-asyncoperation", "location"] {
        let was = recorded
            .headers
            .keys()
            .any(|key| key.eq_ignore_ascii_case(name));
        let is = ours.headers.contains_key(name);
        if was != is {
            found.push(format!(
                "header {name} {}",
                if is { "too many" } else { "missing" }
            ));
        }
    }
    let Ok(body) = serde_json::from_str::<Value>(&recorded.body) else {
        return found;
    };
    if recorded.code >= 400 {
        let (was, is) = (&body["error"]["code"], &ours.document()["error"]["code"]);
        if was != is {
            found.push(format!("code {is} not {was}"));
        }
        return found;
    }
    shape(&body, ours.document(), "", &mut found);
    found
}

/// Every field that was recorded is there, and of the same sort.
fn shape(was: &Value, is: &Value, path: &str, found: &mut Vec<String>) {
    const SAME: [&str; 5] = [
        "/name",
        "/type",
        "/location",
        "/properties/provisioningState",
        "/status",
    ];
    match (was, is) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in old {
                let path = format!("{path}/{key}");
                match new.get(key) {
                    Some(own) => shape(value, own, &path, found),
                    None if value.is_null() => {}
                    None => found.push(format!("{path} missing")),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) => match (old.first(), new.first()) {
            (Some(old), Some(new)) => shape(old, new, &format!("{path}/0"), found),
            (Some(_), None) => found.push(format!("{path} empty")),
            _ => {}
        },
        (old, new) if std::mem::discriminant(old) != std::mem::discriminant(new) => {
            found.push(format!("{path} of another sort"));
        }
        (old, new)
            if SAME.contains(&path) && !old.to_string().contains("00000000-0000") && old != new =>
        {
            found.push(format!("{path} is {new} not {old}"));
        }
        _ => {}
    }
}

fn replay(file: &Path) -> (usize, Vec<String>) {
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(file).unwrap();
    let recording: Recording =
        serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut arena = Arena::new();
    let mut asks = Asks::default();
    let mut found = Vec::new();
    for (at, interaction) in recording.interactions.iter().enumerate() {
        let request = &interaction.request;
        let mut headers = HeaderMap::new();
        for (key, values) in request
            .headers
            .iter()
            .filter(|(key, _)| key.to_lowercase().starts_with("if-"))
        {
            let key: http::HeaderName = key.parse().unwrap();
            headers.insert(key, values[0].parse().unwrap());
        }
        let reply = arena.ask_with(
            &request.method,
            &target(&request.url, &asks),
            headers,
            &request.body,
        );
        remember(&reply, &mut asks);
        for difference in differences(&interaction.response, &reply) {
            found.push(format!("{name} {at} {}: {difference}", request.method));
        }
        arena.settle();
    }
    (recording.interactions.len(), found)
}

/// A row of the table: which recording, a part of what differs, why.
fn reasons() -> Vec<(&'static str, &'static str, &'static str)> {
    let lines = include_str!("../data/deviations.tbl")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let mut cells = line.splitn(3, '|').map(str::trim);
            let mut cell = || cells.next().unwrap_or_default();
            (cell(), cell(), cell())
        })
        .collect()
}

#[test]
fn every_recording_is_answered_as_azure_did_but_for_what_the_table_says() {
    let Some(fixtures) = std::env::var_os("KYANITE_FIXTURES") else {
        eprintln!("SKIPPED: KYANITE_FIXTURES names no recordings");
        return;
    };
    let directory = Path::new(&fixtures).join("azure-recordings");
    let mut files: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let reasons = reasons();
    let mut used = BTreeSet::new();
    let (mut asked, mut unexplained) = (0, Vec::new());
    for file in files {
        let (count, found) = replay(&file);
        asked += count;
        for difference in found {
            let row = reasons.iter().position(|(file, part, _)| {
                (*file == "*" || difference.starts_with(&format!("{file} ")))
                    && difference.contains(part)
            });
            match row {
                Some(row) => {
                    used.insert(row);
                }
                None => unexplained.push(difference),
            }
        }
    }
    eprintln!(
        "{asked} requests asked again; {} rows of deviations used",
        used.len()
    );
    assert!(
        unexplained.is_empty(),
        "{} unexplained:\n{}",
        unexplained.len(),
        unexplained.join("\n")
    );
    let idle: Vec<_> = reasons
        .iter()
        .enumerate()
        .filter(|(at, _)| !used.contains(at))
        .map(|(_, row)| row)
        .collect();
    assert!(
        idle.is_empty(),
        "rows that explain nothing any more: {idle:?}"
    );
}
