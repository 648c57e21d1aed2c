//! The parts of a cloud-config that make files and run commands.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Error, WrittenFile, gunzip, unbase64};

/// What a cloud-config asks for.
#[derive(Debug, Default)]
pub(super) struct CloudConfig {
    pub(super) files: Vec<WrittenFile>,
    /// One shell script that has every command of `runcmd`.
    pub(super) commands: Option<Vec<u8>>,
    pub(super) ignored: Vec<String>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    write_files: Vec<Entry>,
    #[serde(default)]
    runcmd: Vec<Run>,
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

#[derive(Deserialize)]
#[serde(untagged)]
enum Run {
    Line(String),
    Words(Vec<String>),
}

/// Reads a cloud-config.
pub(super) fn read(bytes: &[u8]) -> Result<CloudConfig, Error> {
    let text = std::str::from_utf8(bytes).map_err(|e| Error::CloudConfig(e.to_string()))?;
    let document = parse(text).map_err(|e| Error::CloudConfig(e.to_string()))?;
    let Some(document) = document else {
        return Ok(CloudConfig::default());
    };
    let files: Result<_, _> = document.write_files.into_iter().map(Entry::file).collect();
    Ok(CloudConfig {
        files: files?,
        commands: (!document.runcmd.is_empty()).then(|| script(&document.runcmd)),
        ignored: document.rest.into_keys().collect(),
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

fn script(commands: &[Run]) -> Vec<u8> {
    let mut script = String::from("#!/bin/sh\n");
    for command in commands {
        match command {
            Run::Line(line) => script.push_str(line),
            Run::Words(words) => {
                let quoted = words
                    .iter()
                    .map(|word| format!("'{}'", word.replace('\'', r"'\''")));
                script.push_str(&quoted.collect::<Vec<_>>().join(" "));
            }
        }
        script.push('\n');
    }
    script.into_bytes()
}
