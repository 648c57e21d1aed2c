//! The Pod Security Standards: which level a namespace asks for, and whether a pod keeps to it.
//!
//! A [`Policy`] is read from a namespace's labels. [`violations`] runs the checks of one level as they
//! stood in one Kubernetes version; [`checks`] holds the table of them.

mod baseline;
mod checks;
mod existing;
mod pod;
mod restricted;

pub use existing::existing_pod_warnings;
pub use pod::template_of;

use std::fmt;

use kinds::field::{Errors, Path};
use serde_json::Value;

const PREFIX: &str = "pod-security.kubernetes.io/";

/// How much a pod may do. The order is from the loosest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything.
    Privileged,
    /// No known privilege escalation.
    Baseline,
    /// Hardened as current practice asks.
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Level> {
        Some(match text {
            "privileged" => Level::Privileged,
            "baseline" => Level::Baseline,
            "restricted" => Level::Restricted,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// The Kubernetes version whose checks apply: `v1.<minor>`, or the newest ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// `v1.<minor>`.
    Minor(u32),
    /// `latest`.
    Latest,
}

impl Version {
    fn parse(text: &str) -> Option<Version> {
        if text == "latest" {
            return Some(Version::Latest);
        }
        let digits = text.strip_prefix("v1.")?;
        let plain = digits.bytes().all(|b| b.is_ascii_digit());
        let padded = digits.len() > 1 && digits.starts_with('0');
        if !plain || padded {
            return None;
        }
        digits.parse().ok().map(Version::Minor)
    }

    fn minor(self) -> u32 {
        match self {
            Version::Minor(minor) => minor,
            Version::Latest => u32::MAX,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Version::Minor(minor) => write!(f, "v1.{minor}"),
            Version::Latest => f.write_str("latest"),
        }
    }
}

/// A level as of a version, printed `restricted:latest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standard {
    /// The level.
    pub level: Level,
    /// The version.
    pub version: Version,
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.name(), self.version)
    }
}

/// What a namespace's labels ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Pods that violate this are refused.
    pub enforce: Standard,
    /// Violations of this are noted in the audit log.
    pub audit: Standard,
    /// Violations of this are told to the client.
    pub warn: Standard,
}

impl Policy {
    /// Reads a namespace's labels. A policy always comes out; labels that say nothing sensible are
    /// reported and read as the strictest for `enforce` and as nothing for the other two.
    pub fn of_labels(labels: &Value) -> (Policy, Errors) {
        let mut errors = Errors::default();
        let mut read = |mode| Mode::read(labels, mode, &mut errors);
        let (enforce, audit, mut warn) = (read("enforce"), read("audit"), read("warn"));
        // Who enforces without saying what to warn of wants the warnings of templates, too.
        let implied =
            enforce.level == Some(Level::Restricted) || enforce.level == Some(Level::Baseline);
        if !warn.labelled && implied {
            warn.level = enforce.level;
            warn.version = warn.version.or(enforce.version);
        }
        let policy = Policy {
            enforce: enforce.standard(Level::Restricted),
            audit: audit.standard(Level::Privileged),
            warn: warn.standard(Level::Privileged),
        };
        (policy, errors)
    }

    /// Whether nothing is enforced, noted or told.
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn]
            .iter()
            .all(|standard| standard.level == Level::Privileged)
    }

    /// Whether pods that exist should be looked at again because this policy replaces `old`.
    pub fn tightens(&self, old: &Policy) -> bool {
        self.enforce != old.enforce
            && self.enforce.level != Level::Privileged
            && (self.enforce.version != old.enforce.version
                || self.enforce.level > old.enforce.level)
    }
}

/// The two labels of one mode.
#[derive(Debug, Clone, Copy)]
struct Mode {
    /// Whether the level's label is there at all.
    labelled: bool,
    level: Option<Level>,
    version: Option<Version>,
}

impl Mode {
    fn read(labels: &Value, mode: &str, errors: &mut Errors) -> Mode {
        let level_label = format!("{PREFIX}{mode}");
        let version_label = format!("{level_label}-version");
        let text = labels.get(&level_label).and_then(Value::as_str);
        let level = text.and_then(Level::parse);
        if let (Some(text), None) = (text, level) {
            let why = "must be one of privileged, baseline, restricted";
            complain(errors, &level_label, text, why);
        }
        let labelled = text.is_some();
        let text = labels.get(&version_label).and_then(Value::as_str);
        let version = text.map(|text| {
            Version::parse(text).unwrap_or_else(|| {
                complain(
                    errors,
                    &version_label,
                    text,
                    "must be \"latest\" or \"v1.x\"",
                );
                Version::Latest
            })
        });
        Mode {
            labelled,
            level,
            version,
        }
    }

    fn standard(self, when_unreadable: Level) -> Standard {
        let unreadable = self.labelled && self.level.is_none();
        Standard {
            level: match unreadable {
                true => when_unreadable,
                false => self.level.unwrap_or(Level::Privileged),
            },
            version: self.version.unwrap_or(Version::Latest),
        }
    }
}

fn complain(errors: &mut Errors, label: &str, value: &str, why: &str) {
    let metadata = Path::root("metadata");
    let labels = metadata.child("labels");
    errors.invalid(&labels.key(label), &value.into(), why);
}

/// One way in which a pod goes beyond a standard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What, in a few words.
    pub reason: &'static str,
    /// Which containers, volumes or values.
    pub detail: String,
}

/// Everything in which a pod (or a template with `metadata` and `spec`) goes beyond a standard.
pub fn violations(standard: Standard, pod: &Value) -> Vec<Violation> {
    let pod = pod::Pod::of(pod);
    checks::active(standard)
        .filter_map(|check| check(&pod))
        .collect()
}

/// Violations as a sentence: `reason (detail), reason (detail)`.
pub fn sentence(violations: &[Violation]) -> String {
    let parts: Vec<String> = violations
        .iter()
        .map(|v| format!("{} ({})", v.reason, v.detail))
        .collect();
    parts.join(", ")
}

/// Whether an update changes what the standards look at and pods may change: images, and which
/// containers there are.
pub fn is_significant_update(new: &Value, old: &Value) -> bool {
    let list = |pod: &Value, name: &str| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        pod["spec"][name]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| (text(&c["name"]), text(&c["image"])))
            .collect()
    };
    let images = |pod: &Value, name| -> Vec<String> {
        list(pod, name)
            .into_iter()
            .map(|(_, image)| image)
            .collect()
    };
    let replaced = ["containers", "initContainers"]
        .iter()
        .any(|name| images(new, name) != images(old, name));
    let before = list(old, "ephemeralContainers");
    let joined = list(new, "ephemeralContainers")
        .iter()
        .any(|container| !before.contains(container));
    replaced || joined
}

#[cfg(test)]
mod tests;
