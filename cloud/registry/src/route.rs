//! What a request is about: the paths of the specification.

use std::fmt;

use http::Method;

use crate::refusal::{Code, Refusal};

/// The digest of something, as `sha256:…`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(String);

impl Digest {
    /// Reads a digest; other algorithms than SHA-256 are not done here.
    pub fn parse(text: &str) -> Result<Digest, Refusal> {
        let hash = text.strip_prefix("sha256:").unwrap_or_default();
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match hash.len() == 64 && hash.bytes().all(is_hex) {
            true => Ok(Digest(hash.to_owned())),
            false => Err(Refusal::new(
                Code::DigestInvalid,
                format!("`{text}` is not `sha256:` and 64 hexadecimal digits"),
            )),
        }
    }

    /// The digest with this hash, in hexadecimal.
    pub(crate) fn of_hash(hash: String) -> Digest {
        Digest(hash)
    }

    /// The hash alone.
    pub fn hash(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

/// How a manifest is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// By what it is.
    Digest(Digest),
    /// By what it is called.
    Tag(String),
}

/// What a path is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The registry itself.
    Registry,
    /// The list of repositories.
    Catalog,
    /// A blob.
    Blob(Digest),
    /// Uploads to be begun.
    Uploads,
    /// An upload that was begun.
    Upload(String),
    /// A manifest.
    Manifest(Reference),
    /// The tags of a repository.
    Tags,
    /// The manifests that are about another one.
    Referrers(Digest),
}

/// A repository, or none, and what of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The repository.
    pub name: String,
    /// What of it.
    pub subject: Subject,
}

/// Reads a path.
pub fn route(path: &str) -> Result<Route, Refusal> {
    let nowhere = || Refusal::new(Code::NameUnknown, format!("nothing is at {path}"));
    let rest = path.strip_prefix("/v2").ok_or_else(nowhere)?;
    let rest = rest.trim_matches('/');
    let parts: Vec<&str> = rest.split('/').collect();
    let (name, subject) = match parts.as_slice() {
        [""] => (&[][..], Subject::Registry),
        ["_catalog"] => (&[][..], Subject::Catalog),
        [name @ .., "blobs", "uploads"] => (name, Subject::Uploads),
        [name @ .., "blobs", "uploads", id] => (name, Subject::Upload(upload(id)?)),
        [name @ .., "blobs", digest] => (name, Subject::Blob(Digest::parse(digest)?)),
        [name @ .., "manifests", reference] => {
            (name, Subject::Manifest(self::reference(reference)?))
        }
        [name @ .., "tags", "list"] => (name, Subject::Tags),
        [name @ .., "referrers", digest] => (name, Subject::Referrers(Digest::parse(digest)?)),
        _ => return Err(nowhere()),
    };
    let name = name.join("/");
    let alone = matches!(subject, Subject::Registry | Subject::Catalog);
    if !alone && !is_name(&name) {
        let message = format!("`{name}` is not the name of a repository");
        return Err(Refusal::new(Code::NameInvalid, message));
    }
    Ok(Route { name, subject })
}

fn upload(id: &str) -> Result<String, Refusal> {
    let plain = id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    match plain && !id.is_empty() {
        true => Ok(id.to_owned()),
        false => Err(Refusal::new(Code::BlobUploadUnknown, "no such upload")),
    }
}

/// A tag or a digest.
pub fn reference(text: &str) -> Result<Reference, Refusal> {
    if text.contains(':') {
        return Digest::parse(text).map(Reference::Digest);
    }
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let later = |c: char| first(c) || c == '.' || c == '-';
    match text.len() <= 128 && text.starts_with(first) && text.chars().all(later) {
        true => Ok(Reference::Tag(text.to_owned())),
        false => Err(Refusal::new(
            Code::ManifestInvalid,
            format!("`{text}` is not a tag"),
        )),
    }
}

/// Whether a repository may be called so: parts of lower-case letters and digits, with single separators inside. None
/// of them begins with `_` or `.`, so names cannot leave their directory nor meet the files kept there.
pub fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let separators: Vec<&str> = part.split(alphanumeric).filter(|s| !s.is_empty()).collect();
        let allowed = |s: &&str| matches!(*s, "." | "_" | "__") || s.bytes().all(|b| b == b'-');
        part.starts_with(alphanumeric)
            && part.ends_with(alphanumeric)
            && separators.iter().all(allowed)
    };
    name.len() <= 255 && name.split('/').all(is_part)
}

/// Whether a method changes something.
pub fn writes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// The values of a query, decoded.
pub fn query(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(key, value)| (key.to_owned(), decoded(value)))
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_those_of_the_specification() {
        let hash = "a".repeat(64);
        let digest = Digest(hash.clone());
        let of = |name: &str, subject| {
            Some(Route {
                name: name.to_owned(),
                subject,
            })
        };
        for (path, expected) in [
            ("/v2/".to_owned(), of("", Subject::Registry)),
            ("/v2".to_owned(), of("", Subject::Registry)),
            ("/v2/a/b/tags/list".to_owned(), of("a/b", Subject::Tags)),
            (
                format!("/v2/a/blobs/sha256:{hash}"),
                of("a", Subject::Blob(digest.clone())),
            ),
            ("/v2/a/blobs/uploads/".to_owned(), of("a", Subject::Uploads)),
            (
                "/v2/a/blobs/uploads/12-ab".to_owned(),
                of("a", Subject::Upload("12-ab".to_owned())),
            ),
            (
                "/v2/a/manifests/v1".to_owned(),
                of("a", Subject::Manifest(Reference::Tag("v1".to_owned()))),
            ),
            (
                format!("/v2/a/referrers/sha256:{hash}"),
                of("a", Subject::Referrers(digest)),
            ),
            (
                "/v2/manifests/manifests/v1".to_owned(),
                of(
                    "manifests",
                    Subject::Manifest(Reference::Tag("v1".to_owned())),
                ),
            ),
            ("/v1/".to_owned(), None),
            ("/v2/a/blobs/uploads/..".to_owned(), None),
            ("/v2/../x/tags/list".to_owned(), None),
            ("/v2/A/tags/list".to_owned(), None),
            ("/v2/a/blobs/sha256:x".to_owned(), None),
        ] {
            assert_eq!(route(&path).ok(), expected, "{path}");
        }
    }

    #[test]
    fn names_have_single_separators_inside() {
        for (name, expected) in [
            ("a", true),
            ("a/b-c/d", true),
            ("a.b__c--d", true),
            ("", false),
            ("a//b", false),
            ("_a", false),
            ("a.", false),
            ("a..b", false),
            ("a___b", false),
            ("a/../b", false),
        ] {
            assert_eq!(is_name(name), expected, "{name}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let found = query("digest=sha256%3Aab&from=a%2fb&odd=%zz");
        let values: Vec<&str> = found.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["sha256:ab", "a/b", "%zz"]);
    }

    proptest! {
        #[test]
        fn no_path_leaves_its_directory(path in "(/v2)?(/[a-z._%/-]{0,12}){0,6}") {
            if let Ok(route) = route(&path) {
                prop_assert!(!route.name.split('/').any(|part| part == ".." || part.starts_with('_')));
            }
        }
    }
}
