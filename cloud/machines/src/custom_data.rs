//! Custom data: what a cloud hands to a new machine, read as cloud-init reads it. Pure.
//!
//! Known are the forms that machines are made with: a `#cloud-config` with `write_files`, `runcmd`, `users` and
//! `ssh_authorized_keys`, a `#cloud-boothook`, a script, and MIME messages of such parts; each plain, compressed or in base64.

mod cloud_config;
mod mime;

use std::io::Read as _;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::User;

/// Compressed data may not become larger than this.
const LARGEST: u64 = 16 << 20;

/// Messages in messages, no deeper than anybody needs.
const DEEPEST: usize = 8;

/// What the machine is to do with its custom data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CustomData {
    /// Files to write, in this order.
    pub files: Vec<WrittenFile>,
    /// Programs to run at every start, early.
    pub boothooks: Vec<Vec<u8>>,
    /// Programs to run once, when the system is up.
    pub scripts: Vec<Vec<u8>>,
    /// Who gets an account.
    pub users: Vec<User>,
    /// Keys that let the default user in.
    pub keys: Vec<String>,
    /// What cloud-init would have done and we do not: types of parts and keys of cloud-configs.
    pub ignored: Vec<String>,
}

/// A file as `write_files` describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenFile {
    /// Where.
    pub path: PathBuf,
    /// Permissions.
    pub mode: u32,
    /// User and group, by name or number; nothing for root.
    pub owner: Option<(String, String)>,
    /// Whether it is added to what is there.
    pub append: bool,
    /// What.
    pub content: Vec<u8>,
}

/// Why custom data could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// None of the forms we know.
    #[error(
        "it starts with `{0}`, which is none of #cloud-config, #cloud-boothook, #! or a MIME message"
    )]
    UnknownForm(String),
    /// Not what its compression or encoding says.
    #[error("{what} is not valid: {cause}")]
    Encoding {
        /// Which part.
        what: String,
        /// Why not.
        cause: String,
    },
    /// YAML that is none.
    #[error("the cloud-config is not valid: {0}")]
    CloudConfig(String),
    /// A MIME message that is none.
    #[error("the MIME message is not valid: {0}")]
    Mime(&'static str),
}

impl CustomData {
    /// Reads it; nothing at all is no custom data.
    pub fn read(bytes: &[u8]) -> Result<CustomData, Error> {
        let mut found = CustomData::default();
        if !bytes.trim_ascii().is_empty() {
            found.add(bytes, None, DEEPEST)?;
        }
        Ok(found)
    }

    fn add(&mut self, bytes: &[u8], named: Option<&str>, depth: usize) -> Result<(), Error> {
        if depth == 0 {
            return Err(Error::Mime("its parts are nested too deeply"));
        }
        if let Some(inner) = unpacked(bytes)? {
            return self.add(&inner, named, depth - 1);
        }
        match Form::of(bytes, named) {
            Some(Form::CloudConfig) => {
                let config = cloud_config::read(bytes)?;
                self.files.extend(config.files);
                self.scripts.extend(config.commands);
                self.users.extend(config.users);
                self.keys.extend(config.keys);
                self.ignored.extend(config.ignored);
            }
            Some(Form::Boothook) => self.boothooks.push(boothook(bytes)),
            Some(Form::Script) => self.scripts.push(without_carriage_returns(bytes)),
            Some(Form::Message) => {
                for part in mime::parts(bytes)? {
                    self.add(&part.body, part.content_type.as_deref(), depth - 1)?;
                }
            }
            None if named.is_some() => self.ignored.extend(named.map(str::to_owned)),
            None => {
                let start = bytes.trim_ascii_start();
                let start = String::from_utf8_lossy(&start[..start.len().min(20)]);
                return Err(Error::UnknownForm(start.into_owned()));
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    CloudConfig,
    Boothook,
    Script,
    Message,
}

/// How each form starts, and its MIME type.
const FORMS: [(&str, &str, Form); 5] = [
    ("#cloud-config", "text/cloud-config", Form::CloudConfig),
    ("#cloud-boothook", "text/cloud-boothook", Form::Boothook),
    ("#!", "text/x-shellscript", Form::Script),
    ("mime-version:", "multipart/mixed", Form::Message),
    ("content-type:", "multipart/mixed", Form::Message),
];

impl Form {
    // A type that says nothing (`text/plain`) leaves it to the first line, as in cloud-init.
    fn of(bytes: &[u8], named: Option<&str>) -> Option<Form> {
        let by_type = FORMS.iter().find(|(_, mime, _)| Some(*mime) == named);
        let start = bytes.trim_ascii_start();
        let starts = |prefix: &str| {
            start.len() >= prefix.len()
                && start[..prefix.len()].eq_ignore_ascii_case(prefix.as_bytes())
        };
        let by_start = || FORMS.iter().find(|(prefix, ..)| starts(prefix));
        by_type.or_else(by_start).map(|(.., form)| *form)
    }
}

// What is inside a compressed or base64 wrapping; nothing when there is none.
fn unpacked(bytes: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return gunzip(bytes, "the compressed custom data").map(Some);
    }
    // Azure's interface carries custom data in base64, and its agents take it either way.
    let base64 = |b: &u8| b.is_ascii_alphanumeric() || b"+/=\r\n".contains(b);
    match !bytes.is_empty() && bytes.trim_ascii().iter().all(base64) {
        true => unbase64(bytes, "the base64 custom data").map(Some),
        false => Ok(None),
    }
}

fn gunzip(bytes: &[u8], what: &str) -> Result<Vec<u8>, Error> {
    let invalid = |cause: String| Error::Encoding {
        what: what.to_owned(),
        cause,
    };
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes)
        .take(LARGEST + 1)
        .read_to_end(&mut plain)
        .map_err(|e| invalid(e.to_string()))?;
    match plain.len() as u64 > LARGEST {
        true => Err(invalid(format!("it is larger than {LARGEST} bytes"))),
        false => Ok(plain),
    }
}

fn unbase64(bytes: &[u8], what: &str) -> Result<Vec<u8>, Error> {
    let dense: Vec<u8> = bytes
        .iter()
        .copied()
        .filter(|b| !b.is_ascii_whitespace())
        .collect();
    STANDARD.decode(dense).map_err(|e| Error::Encoding {
        what: what.to_owned(),
        cause: e.to_string(),
    })
}

// The first line only says what it is. What then has no interpreter gets the shell.
fn boothook(bytes: &[u8]) -> Vec<u8> {
    let text = without_carriage_returns(bytes);
    let start = text.trim_ascii_start();
    let body = match start.starts_with(b"#cloud-boothook") {
        true => start["#cloud-boothook".len()..].trim_ascii_start(),
        false => start,
    };
    match body.starts_with(b"#!") {
        true => body.to_vec(),
        false => [b"#!/bin/sh\n", body].concat(),
    }
}

fn without_carriage_returns(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split(|&b| b == b'\n');
    let lines: Vec<&[u8]> = lines
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .collect();
    lines.join(&b'\n')
}

#[cfg(test)]
mod tests;
