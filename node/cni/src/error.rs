//! What goes wrong, with the codes of the CNI specification.

use std::fmt::Display;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

/// The specification's error codes; those from 100 on are a plugin's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The configuration asks for a version that is not spoken here.
    IncompatibleVersion = 1,
    /// A field of the configuration is not supported.
    UnsupportedField = 2,
    /// The container is not known here.
    UnknownContainer = 3,
    /// A variable of the environment is missing or wrong.
    InvalidEnvironment = 4,
    /// Reading or writing failed.
    Io = 5,
    /// What was read is not what it should be.
    Decode = 6,
    /// The configuration is wrong.
    InvalidConfiguration = 7,
    /// The network namespace is none.
    InvalidNamespace = 8,
    /// It may work later.
    TryAgainLater = 11,
    /// No pod can be attached now.
    NotAvailable = 50,
    /// The kernel refused.
    Kernel = 100,
    /// This interface of this container is attached already.
    AlreadyAttached = 101,
    /// The attachment is not as it was made.
    Drifted = 102,
}

/// A failed call: what a runtime is told.
#[derive(Debug, thiserror::Error)]
#[error("{message}{}{details}", if details.is_empty() { "" } else { ": " })]
pub struct Error {
    /// What kind of failure.
    pub code: Code,
    /// What failed.
    pub message: String,
    /// Why, and what to do about it.
    pub details: String,
}

impl Error {
    /// A failure without more to say.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
            details: String::new(),
        }
    }

    /// Adds why, or what to do.
    pub fn because(mut self, details: impl Display) -> Error {
        self.details = details.to_string();
        self
    }

    /// The kernel would not do this.
    pub(crate) fn kernel(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        move |cause| Error::new(Code::Kernel, format!("cannot {}", doing.into())).because(cause)
    }

    /// A file could not be worked with.
    pub(crate) fn file<E: Display>(doing: &str, path: &Path) -> impl FnOnce(E) -> Error {
        let message = format!("cannot {doing} `{}`", path.display());
        move |cause| Error::new(Code::Io, message).because(cause)
    }

    /// The object that a runtime reads from standard output.
    pub fn to_json(&self, version: &str) -> Value {
        json!({
            "cniVersion": version,
            "code": self.code as u32,
            "msg": self.message,
            "details": self.details,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_reads_code_message_and_details() {
        let error = Error::new(Code::TryAgainLater, "no address").because("all are taken");
        assert_eq!(
            error.to_json("1.1.0"),
            json!({"cniVersion": "1.1.0", "code": 11, "msg": "no address", "details": "all are taken"})
        );
        assert_eq!(error.to_string(), "no address: all are taken");
    }
}
