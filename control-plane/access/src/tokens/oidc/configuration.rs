//! AuthenticationConfiguration files: several issuers, and who may come without a credential.

mod check;
mod file;

use super::Trust;
pub(super) use check::issuer_url as check_issuer_url;

/// What a file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// The issuers.
    pub issuers: Vec<Trust>,
    /// Who may come without a credential; nothing if the file leaves it to the flag.
    pub anonymous: Option<Anonymous>,
}

/// Where requests without credentials are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anonymous {
    /// Whether at all.
    pub enabled: bool,
    /// Paths, exactly; every path if empty.
    pub paths: Vec<String>,
}

impl Anonymous {
    /// Whether a request for a path may be anonymous; one that may not is a 401.
    pub fn allows(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|allowed| allowed == path))
    }
}

/// Everything that is wrong with a configuration, each with its field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.join("\n"))]
pub struct ConfigurationError {
    /// One line per problem.
    pub problems: Vec<String>,
}

impl ConfigurationError {
    pub(super) fn new(problem: impl Into<String>) -> ConfigurationError {
        ConfigurationError {
            problems: vec![problem.into()],
        }
    }
}

impl Configuration {
    /// Reads a file, YAML or JSON. Our own issuers may not stand in it.
    pub fn parse(text: &str, own_issuers: &[String]) -> Result<Configuration, ConfigurationError> {
        let file: file::File = serde_saphyr::from_str(text).map_err(|why| {
            ConfigurationError::new(format!("not an AuthenticationConfiguration: {why}"))
        })?;
        let mut problems = Vec::new();
        let issuers = check::file(&file, own_issuers, &mut problems);
        if !problems.is_empty() {
            return Err(ConfigurationError { problems });
        }
        let anonymous = file.anonymous.map(|found| Anonymous {
            enabled: found.enabled,
            paths: found
                .conditions
                .into_iter()
                .map(|condition| condition.path)
                .collect(),
        });
        Ok(Configuration { issuers, anonymous })
    }
}
