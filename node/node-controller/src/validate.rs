//! Every problem of a configuration at once: where, what stands there, which rule it breaks, what to do.
//!
//! Upstream checks seven fields in the client and none on the node, where a mistake shows minutes later as an
//! exit code. `rules` is the table of what each field must be, `entries` of what stands in
//! maps; `together` is what fields must be together.

mod checks;
pub(crate) mod entries;
mod rules;
mod together;

use serde::Serialize;

use crate::config::declare::View;
use crate::config::lookup::{Found, lookup};
use crate::config::{Configuration, Finding, REDACTED, decode};

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The node would not come up, or not as asked.
    Error,
    /// It would come up; something said has no effect.
    Warning,
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The field, or empty for the whole text.
    pub path: String,
    /// What stands there, shortened; never a secret.
    pub value: String,
    /// The rule it breaks.
    pub rule: String,
    /// What to do.
    pub remedy: String,
    /// Line and column, where the text itself is the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<(usize, usize)>,
}

/// Every problem of the configuration in `text`, errors first.
pub fn validate(text: &[u8]) -> Vec<Problem> {
    let mut config = Configuration::default();
    let found = decode::decode(text, &mut config);
    let mut problems: Vec<_> = found.errors.iter().map(unreadable).collect();
    problems.extend(found.notices.iter().map(left_out));
    // Where the whole text cannot be read, nothing is known of its fields.
    if found.errors.iter().all(|error| !error.path.is_empty()) {
        let is_in = |path: &str, part: &str| {
            let rest = path.strip_prefix(part);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let unread = |path: &str| found.errors.iter().any(|error| is_in(path, &error.path));
        let broken = broken_rules(&config).into_iter();
        problems.extend(broken.filter(|problem| !unread(&problem.path)));
    }
    problems.sort_by_key(|problem| problem.severity);
    problems
}

/// Every rule that `config` breaks.
pub fn broken_rules(config: &Configuration) -> Vec<Problem> {
    let mut problems = rules::required(config);
    problems.extend(rules::fields(config));
    problems.extend(entries::problems(config));
    problems.extend(together::problems(config));
    problems
}

/// Upstream's own `Validate`: the fields that every client must set and this one did not.
pub fn missing_required(config: &Configuration) -> Vec<&'static str> {
    let required = rules::REQUIRED.iter().map(|(path, _)| *path);
    required
        .filter(|path| lookup(config, path).iter().any(|field| !field.is_set))
        .collect()
}

fn unreadable(finding: &Finding) -> Problem {
    Problem {
        severity: Severity::Error,
        path: finding.path.clone(),
        value: String::new(),
        rule: finding.problem.clone(),
        remedy: "correct the text at this place".into(),
        place: Some((finding.line, finding.column)),
    }
}

fn left_out(finding: &Finding) -> Problem {
    Problem {
        severity: Severity::Warning,
        remedy: "correct the spelling, or leave it out; a newer node controller may know it".into(),
        ..unreadable(finding)
    }
}

/// What of a field may be shown.
fn shown(field: &Found<'_>) -> String {
    match &field.view {
        View::Absent | View::Message(_) | View::Map(_) => String::new(),
        View::Secret("") | View::Text("") => "\"\"".into(),
        View::Secret(_) => REDACTED.into(),
        View::Text(text) => shortened(text),
        View::Flag(flag) => flag.to_string(),
        View::Number(number) | View::Choice(number, None) => number.to_string(),
        View::Real(real) => real.to_string(),
        View::Choice(_, Some(name)) => (*name).to_owned(),
        View::List(items) => format!("{} items", items.len()),
    }
}

/// The beginning of a text, without what a URL may carry of secrets: a password, a signed query.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut safe = text.to_owned();
    if let Some((scheme, rest)) = text.split_once("://") {
        let rest = rest.split(['?', '#']).next().unwrap_or(rest);
        let host = rest.rsplit('@').next().unwrap_or(rest);
        safe = format!("{scheme}://{host}");
    }
    if safe.chars().count() > LONGEST {
        safe = safe.chars().take(LONGEST).chain(['…']).collect();
    }
    format!("{safe:?}")
}

#[cfg(test)]
mod tests;
