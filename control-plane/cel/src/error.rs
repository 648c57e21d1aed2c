//! What goes wrong while an expression is evaluated.

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What happened, in cel-go's words.
    pub message: String,
    /// Whether the expression was stopped because it cost too much.
    pub too_costly: bool,
}

/// A value, or why there is none.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error in words.
    pub fn new(message: impl Into<String>) -> Error {
        Error {
            message: message.into(),
            too_costly: false,
        }
    }

    pub(crate) fn no_overload() -> Error {
        Error::new("no such overload")
    }

    /// Functions that are called by name are named where they do not fit.
    pub(crate) fn of(self, function: &str) -> Error {
        let named = function.starts_with(|c: char| c.is_ascii_alphabetic());
        match named && self.message == "no such overload" {
            true => Error::new(format!("no such overload: {function}")),
            false => self,
        }
    }

    pub(crate) fn no_key(key: &str) -> Error {
        Error::new(format!("no such key: {key}"))
    }

    pub(crate) fn too_costly() -> Error {
        Error {
            message: "operation cancelled: actual cost limit exceeded".into(),
            too_costly: true,
        }
    }
}
