//! What clients are told when something is wrong, in the words of the specification.

use http::StatusCode;
use serde_json::{Value, json};

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The specification's code.
    pub code: Code,
    /// What is wrong.
    pub message: String,
}

/// Codes of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// No such blob.
    BlobUnknown,
    /// What was sent does not go with what was there.
    BlobUploadInvalid,
    /// No such upload.
    BlobUploadUnknown,
    /// What was sent is not what its digest says.
    DigestInvalid,
    /// A manifest names a blob that is not there.
    ManifestBlobUnknown,
    /// It is not a manifest.
    ManifestInvalid,
    /// No such manifest.
    ManifestUnknown,
    /// It is not a name.
    NameInvalid,
    /// No such repository.
    NameUnknown,
    /// What was sent is longer than it may be, or not the part that comes next.
    SizeInvalid,
    /// Nobody is let in without saying who they are.
    Unauthorized,
    /// This is not done here.
    Unsupported,
    /// The disk failed.
    Unknown,
}

impl Code {
    fn of(self) -> (StatusCode, &'static str) {
        match self {
            Code::BlobUnknown => (StatusCode::NOT_FOUND, "BLOB_UNKNOWN"),
            Code::BlobUploadInvalid => (StatusCode::RANGE_NOT_SATISFIABLE, "BLOB_UPLOAD_INVALID"),
            Code::BlobUploadUnknown => (StatusCode::NOT_FOUND, "BLOB_UPLOAD_UNKNOWN"),
            Code::DigestInvalid => (StatusCode::BAD_REQUEST, "DIGEST_INVALID"),
            Code::ManifestBlobUnknown => (StatusCode::BAD_REQUEST, "MANIFEST_BLOB_UNKNOWN"),
            Code::ManifestInvalid => (StatusCode::BAD_REQUEST, "MANIFEST_INVALID"),
            Code::ManifestUnknown => (StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN"),
            Code::NameInvalid => (StatusCode::BAD_REQUEST, "NAME_INVALID"),
            Code::NameUnknown => (StatusCode::NOT_FOUND, "NAME_UNKNOWN"),
            Code::SizeInvalid => (StatusCode::PAYLOAD_TOO_LARGE, "SIZE_INVALID"),
            Code::Unauthorized => (StatusCode::UNAUTHORIZED, "UNAUTHORIZED"),
            Code::Unsupported => (StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED"),
            Code::Unknown => (StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN"),
        }
    }
}

impl Refusal {
    /// A refusal with a message.
    pub fn new(code: Code, message: impl Into<String>) -> Refusal {
        Refusal {
            code,
            message: message.into(),
        }
    }

    /// The status it is answered with.
    pub fn status(&self) -> StatusCode {
        self.code.of().0
    }

    /// The object it is answered with.
    pub fn to_json(&self) -> Value {
        json!({"errors": [{"code": self.code.of().1, "message": self.message}]})
    }
}

impl From<std::io::Error> for Refusal {
    fn from(cause: std::io::Error) -> Refusal {
        Refusal::new(
            Code::Unknown,
            format!("the registry's disk failed: {cause}"),
        )
    }
}
