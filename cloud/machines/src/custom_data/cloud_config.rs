//! The parts of a cloud-config that make files and run commands.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{Error, WrittenFile, gunzip, unbase64};
use crate::User;

/// What a cloud-config asks for.
#[derive(Debug, Default)]
pub(super) struct CloudConfig {
    pub(super) files: Vec<WrittenFile>,
    /// One shell script that has every command of `runcmd`.
    pub(super) commands: Option<Vec<u8>>,
    pub(super) users: Vec<User>,
    pub(super) keys: Vec<String>,
    pub(super) ignored: Vec<String>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    users: Vec<Value>,
    #[serde(default)]
    ssh_authorized_keys: Vec<String>,
    #[serde(default)]
    write_files: Vec<Entry>,
    #[serde(default)]
    runcmd: Vec<Value>,
    #[serde(flatten)]
    rest: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
struct Entry {
    path: String,
    /// Text; of `!!binary` the text that it stands for.
    #[serde(default)]
    content: String,
    /// The base64 of a `!!binary` that stands for no text.
    #[serde(rename = "!!binary")]
    bytes: Option<String>,
    #[serde(default)]
    encoding: String,
    #[serde(default)]
    owner: Option<String>,
    #[serde(default)]
    permissions: Option<Permissions>,
    #[serde(default)]
    append: bool,
}

/// People write `0644` with and without quotes; YAML makes a number of the latter.
#[derive(Deserialize)]
#[serde(untagged)]
enum Permissions {
    Number(u32),
    Text(String),
}

/// Reads a cloud-config.
pub(super) fn read(bytes: &[u8]) -> Result<CloudConfig, Error> {
    let text = std::str::from_utf8(bytes).map_err(|e| Error::CloudConfig(e.to_string()))?;
    let document = parse(text).map_err(|e| Error::CloudConfig(e.to_string()))?;
    let Some(document) = document else {
        return Ok(CloudConfig::default());
    };
    let files: Result<_, _> = document.write_files.into_iter().map(Entry::file).collect();
    let mut ignored: Vec<String> = document.rest.into_keys().collect();
    let commands = match script(&document.runcmd) {
        Some(script) => (!document.runcmd.is_empty()).then_some(script),
        // A colon in a command makes a mapping of it; cloud-init then runs none of them.
        None => {
            ignored.push("runcmd, which has an entry that is neither text nor a list".to_owned());
            None
        }
    };
    Ok(CloudConfig {
        files: files?,
        commands,
        users: document.users.iter().filter_map(user).collect(),
        keys: document.ssh_authorized_keys,
        ignored,
    })
}

// A name, or an object with one. The default user is whoever the machine's owner named.
fn user(entry: &Value) -> Option<User> {
    let name = entry.as_str().or_else(|| entry["name"].as_str())?;
    let keys = entry["ssh_authorized_keys"]
        .as_array()
        .into_iter()
        .flatten();
    (name != "default").then(|| User {
        name: name.to_owned(),
        keys: keys.filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

// The parser gives `!!binary` as text and refuses it where it is none. Only then the key of such a content
// is changed so that the base64 itself comes through.
fn parse(text: &str) -> Result<Option<Document>, serde_saphyr::Error> {
    let parsed = serde_saphyr::from_str(text);
    match parsed {
        Err(
            serde_saphyr::Error::WithSnippet { .. } | serde_saphyr::Error::BinaryNotUtf8 { .. },
        ) if text.contains("content: !!binary") => {
            serde_saphyr::from_str(&text.replace("content: !!binary", "\"!!binary\":"))
        }
        parsed => parsed,
    }
}

impl Entry {
    fn file(self) -> Result<WrittenFile, Error> {
        let invalid =
            |what: &str| Error::CloudConfig(format!("write_files: `{}`: {what}", self.path));
        if !self.path.starts_with('/') {
            return Err(invalid("the path is not absolute"));
        }
        let mode = match &self.permissions {
            None => Some(0o644),
            // What stood there was octal; YAML has read 0644 as octal and 644 as decimal.
            Some(Permissions::Number(number)) => Some(*number),
            Some(Permissions::Text(text)) => u32::from_str_radix(text.trim(), 8).ok(),
        };
        let mode = mode.filter(|mode| *mode <= 0o7777);
        let content = match &self.bytes {
            Some(base64) => &unbase64(
                base64.as_bytes(),
                &format!("the content of `{}`", self.path),
            )?,
            None => self.content.as_bytes(),
        };
        Ok(WrittenFile {
            mode: mode.ok_or_else(|| invalid("the permissions are not octal"))?,
            content: decoded(content, &self.encoding, &self.path)?,
            owner: self.owner.as_deref().and_then(owner),
            append: self.append,
            path: self.path.into(),
        })
    }
}

fn owner(text: &str) -> Option<(String, String)> {
    let (user, group) = text.split_once(':').unwrap_or((text, text));
    let root = |name: &str| name.is_empty() || name == "root";
    (!root(user) || !root(group)).then(|| (user.to_owned(), group.to_owned()))
}

// cloud-init's names of encodings; one that it does not know is text to it too.
fn decoded(content: &[u8], encoding: &str, path: &str) -> Result<Vec<u8>, Error> {
    let what = format!("the content of `{path}`");
    match encoding.trim().to_ascii_lowercase().as_str() {
        "gz" | "gzip" => gunzip(content, &what),
        "gz+base64" | "gzip+base64" | "gz+b64" | "gzip+b64" => {
            gunzip(&unbase64(content, &what)?, &what)
        }
        "b64" | "base64" => unbase64(content, &what),
        _ => Ok(content.to_vec()),
    }
}

fn script(commands: &[Value]) -> Option<Vec<u8>> {
    let lines: Option<Vec<String>> = commands.iter().map(line).collect();
    Some(format!("#!/bin/sh\n{}\n", lines?.join("\n")).into_bytes())
}

// Text is the shell's, words of a list are quoted.
fn line(command: &Value) -> Option<String> {
    let words = match command {
        Value::String(line) => return Some(line.clone()),
        Value::Array(words) => words,
        _ => return None,
    };
    let quoted: Option<Vec<String>> = words.iter().map(quoted).collect();
    Some(quoted?.join(" "))
}

fn quoted(word: &Value) -> Option<String> {
    let text = match word {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    Some(format!("'{}'", text.replace('\'', r"'\''")))
}
