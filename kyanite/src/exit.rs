//! How a command ends: exit codes are an interface, so they are a table.

/// Exit codes, as `kyanite --help` documents them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    Failure = 1,
    Usage = 2,
    NotFound = 3,
    Conflict = 4,
    Permission = 5,
    Unavailable = 6,
    Interrupted = 130,
}

/// The table of `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
    0  done
    1  failed
    2  wrong usage
    3  not found
    4  conflict: something is in the way (a port, another server, existing data)
    5  permission denied
    6  unavailable: not running, or not reachable
  130  interrupted";

impl From<Code> for std::process::ExitCode {
    fn from(code: Code) -> Self {
        std::process::ExitCode::from(code as u8)
    }
}

/// A command that could not do its job: what, why, and what to do next.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// A failed file operation, with the code its cause deserves.
    pub(crate) fn file(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Failure {
        let code = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Code::Permission,
            std::io::ErrorKind::NotFound => Code::NotFound,
            _ => Code::Failure,
        };
        Failure::new(
            code,
            format!("cannot {doing} `{}`: {error}", path.display()),
        )
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Failure {
        let (code, hint) = match &error {
            store::Error::Corrupt { .. } => (
                Code::Failure,
                Some("restore the last backup with `kyanite store restore`"),
            ),
            store::Error::Unavailable { .. } => (Code::Unavailable, None),
            _ => (Code::Failure, None),
        };
        Failure {
            code,
            message: error.to_string(),
            hint: hint.map(str::to_owned),
        }
    }
}

/// The result of a command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;
