//! A request body to an object: one entry for every content type.
//!
//! Like upstream's codecs: the body names its own type, the caller may supply a default for what
//! it leaves out, the type decides how the rest is read, and what a strict decoder would refuse is
//! handed back for the caller to refuse, warn about or ignore.

use serde_json::Value;

use crate::json::{self, SyntaxError, TypeMeta};
use crate::normalize::{TypeError, normalize};
use crate::protobuf;
use crate::schema::{self, TypeRef};
use crate::yaml::{self, YamlError};

/// How a body is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentType {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// The type of an object as it is written: group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct GroupVersionKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

impl GroupVersionKind {
    /// From its three parts.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// `group/version`, or just the version for the core group.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// From `apiVersion` and `kind`; both may be empty.
    fn parse(api_version: &str, kind: String) -> Result<Self, DecodeError> {
        let (group, version) = match api_version.split_once('/') {
            Some((_, version)) if version.contains('/') => {
                return Err(DecodeError::GroupVersion(api_version.to_owned()));
            }
            Some((group, version)) => (group.to_owned(), version.to_owned()),
            None => (String::new(), api_version.to_owned()),
        };
        Ok(GroupVersionKind {
            group,
            version,
            kind,
        })
    }

    /// Fills in what is missing, by upstream's rules.
    fn or_default(mut self, default: Option<&GroupVersionKind>) -> Self {
        let Some(default) = default else { return self };
        if self.kind.is_empty() {
            self.kind.clone_from(&default.kind);
        }
        if self.version.is_empty() && self.group.is_empty() {
            self.group.clone_from(&default.group);
        }
        if self.version.is_empty() && self.group == default.group {
            self.version.clone_from(&default.version);
        }
        self
    }
}

/// How objects of a kind are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// As a built-in type.
    Typed(TypeRef),
    /// As they are: a custom resource.
    Untyped,
}

/// Resolves the built-in kinds of the table and nothing else.
pub fn builtin(gvk: &GroupVersionKind) -> Option<Target> {
    schema::kind(&gvk.group, &gvk.version, &gvk.kind).map(Target::Typed)
}

/// A decoded body.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The type the body named, or the default.
    pub gvk: GroupVersionKind,
    /// The object, in normal form when its type is built in, with `apiVersion` and `kind` set.
    pub object: Value,
    /// What a strict decoder would refuse, in upstream's words: `unknown field "spec.foo"`.
    pub strict: Vec<String>,
}

/// Why a body could not be decoded, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON, or not an object with texts for its type.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(SyntaxError),
    /// Not YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// Not the protobuf encoding.
    #[error(transparent)]
    Protobuf(#[from] protobuf::DecodeError),
    /// The body does not say what it is.
    #[error("Object 'Kind' is missing in '{0}'")]
    MissingKind(String),
    /// The body does not say which version of its kind it is.
    #[error("Object 'apiVersion' is missing in '{0}'")]
    MissingVersion(String),
    /// An `apiVersion` with more than one slash.
    #[error("unexpected GroupVersion string: {0}")]
    GroupVersion(String),
    /// A kind that nobody knows, or that has no protobuf form.
    #[error(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )]
    NotRegistered {
        /// The body's `apiVersion`.
        api_version: String,
        /// The body's kind.
        kind: String,
    },
    /// A value that does not fit its field.
    #[error("{error}")]
    Type {
        /// The type being decoded.
        gvk: Box<GroupVersionKind>,
        /// What does not fit.
        error: TypeError,
    },
}

/// Decodes a body. `default` fills in a missing type; `resolve` says how a kind is read and gives
/// `None` for kinds that are not served.
pub fn decode(
    content: ContentType,
    bytes: &[u8],
    default: Option<&GroupVersionKind>,
    resolve: impl Fn(&GroupVersionKind) -> Option<Target>,
) -> Result<Decoded, DecodeError> {
    let request = Request {
        bytes,
        default,
        resolve,
    };
    match content {
        ContentType::Json => request.json(),
        ContentType::Yaml => request.yaml(),
        ContentType::Protobuf => request.protobuf(),
    }
}

struct Request<'a, R> {
    bytes: &'a [u8],
    default: Option<&'a GroupVersionKind>,
    resolve: R,
}

impl<R: Fn(&GroupVersionKind) -> Option<Target>> Request<'_, R> {
    fn json(self) -> Result<Decoded, DecodeError> {
        let meta = json::peek(self.bytes).map_err(DecodeError::Json)?;
        let (gvk, target) = match self.identify(meta, || self.body_text()) {
            Ok(found) => found,
            // Upstream reads the whole body first, so broken JSON is reported before all else.
            Err(error) => {
                json::parse(self.bytes).map_err(DecodeError::Json)?;
                return Err(error);
            }
        };
        let parsed = match target {
            Target::Typed(ty) => json::parse_as(ty, self.bytes),
            Target::Untyped => json::parse(self.bytes),
        };
        let parsed = parsed.map_err(DecodeError::Json)?;
        finish(gvk, target, parsed.value, parsed.strict)
    }

    fn yaml(self) -> Result<Decoded, DecodeError> {
        let parsed = yaml::parse(self.bytes)?;
        let meta = json::type_meta(&parsed.value).map_err(DecodeError::Json)?;
        let (gvk, target) = self.identify(meta, || self.body_text())?;
        finish(gvk, target, parsed.value, parsed.strict)
    }

    fn protobuf(self) -> Result<Decoded, DecodeError> {
        let envelope = protobuf::open(self.bytes)?;
        let protobuf::Envelope {
            api_version,
            kind,
            raw,
        } = envelope;
        let described = format!("runtime.TypeMeta{{APIVersion:{api_version:?}, Kind:{kind:?}}}");
        let (gvk, target) = self.identify(TypeMeta { api_version, kind }, || described)?;
        let Target::Typed(ty) = target else {
            return Err(not_registered(&gvk));
        };
        let object = protobuf::decode_message(ty, raw).map_err(|error| match error {
            protobuf::DecodeError::Type(error) => DecodeError::Type {
                gvk: Box::new(gvk.clone()),
                error,
            },
            other => DecodeError::Protobuf(other),
        })?;
        Ok(Decoded {
            object: named(object, &gvk),
            gvk,
            strict: Vec::new(),
        })
    }

    fn identify(
        &self,
        meta: TypeMeta,
        body: impl FnOnce() -> String,
    ) -> Result<(GroupVersionKind, Target), DecodeError> {
        let gvk = GroupVersionKind::parse(&meta.api_version, meta.kind)?.or_default(self.default);
        if gvk.kind.is_empty() {
            return Err(DecodeError::MissingKind(body()));
        }
        if gvk.version.is_empty() {
            return Err(DecodeError::MissingVersion(body()));
        }
        match (self.resolve)(&gvk) {
            Some(target) => Ok((gvk, target)),
            None => Err(not_registered(&gvk)),
        }
    }

    fn body_text(&self) -> String {
        String::from_utf8_lossy(self.bytes).into_owned()
    }
}

fn not_registered(gvk: &GroupVersionKind) -> DecodeError {
    DecodeError::NotRegistered {
        api_version: gvk.api_version(),
        kind: gvk.kind.clone(),
    }
}

fn finish(
    gvk: GroupVersionKind,
    target: Target,
    value: Value,
    mut strict: Vec<String>,
) -> Result<Decoded, DecodeError> {
    let object = match target {
        Target::Untyped => value,
        Target::Typed(ty) => {
            let normal = normalize(ty, value).map_err(|error| DecodeError::Type {
                gvk: Box::new(gvk.clone()),
                error,
            })?;
            strict.extend(normal.unknown);
            normal.value
        }
    };
    Ok(Decoded {
        object: named(object, &gvk),
        gvk,
        strict,
    })
}

/// The object with its type set; a body of `null` becomes an object here.
fn named(mut object: Value, gvk: &GroupVersionKind) -> Value {
    object["apiVersion"] = Value::String(gvk.api_version());
    object["kind"] = Value::String(gvk.kind.clone());
    object
}

#[cfg(test)]
mod tests;
