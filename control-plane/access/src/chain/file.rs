//! The file as it is written, and what is wrong with it, in upstream's words.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube_kit::duration::go;
use serde::Deserialize;

use super::{Conditions, OnFailure, Stage, Webhook};

const VERSIONS: [&str; 2] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
];
const WEBHOOK: &str = "Webhook";
const MOST_CONDITIONS: usize = 64;
const LONGEST_TIMEOUT: i64 = 30_000_000_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    authorizers: Vec<Authorizer>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Authorizer {
    r#type: String,
    name: String,
    webhook: Option<Settings>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Settings {
    #[serde(rename = "authorizedTTL")]
    authorized_ttl: Option<String>,
    cache_authorized_requests: Option<bool>,
    #[serde(rename = "unauthorizedTTL")]
    unauthorized_ttl: Option<String>,
    cache_unauthorized_requests: Option<bool>,
    timeout: String,
    subject_access_review_version: String,
    match_condition_subject_access_review_version: String,
    failure_policy: String,
    connection_info: Connection,
    match_conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Connection {
    r#type: String,
    kube_config_file: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Condition {
    expression: String,
}

type Problems = Vec<String>;

/// Who is asked, in order. `known` are the authorizers of this server; `is_file` says whether a path is a regular file, or
/// why not.
pub fn parse(
    text: &str,
    known: &[&str],
    is_file: &dyn Fn(&Path) -> Result<bool, String>,
) -> Result<Vec<Stage>, String> {
    let file: File = serde_saphyr::from_str(text)
        .map_err(|why| format!("not an AuthorizationConfiguration: {why}"))?;
    if file.kind != "AuthorizationConfiguration" || !VERSIONS.contains(&&*file.api_version) {
        return Err(format!(
            "{} of {} is not known; write AuthorizationConfiguration of {}",
            file.kind, file.api_version, VERSIONS[0]
        ));
    }
    let mut problems = Problems::new();
    if file.authorizers.is_empty() {
        problems.push(
            "authorizers: Required value: at least one authorization mode must be defined".into(),
        );
    }
    let (mut types, mut names) = (BTreeSet::new(), BTreeSet::new());
    let mut stages = Vec::new();
    for (n, authorizer) in file.authorizers.into_iter().enumerate() {
        let at = format!("authorizers[{n}]");
        let kind = authorizer.r#type.as_str();
        let repeats = !types.insert(kind.to_owned()) && kind != WEBHOOK;
        match kind {
            "" => problems.push(format!("{at}.type: Required value")),
            kind if kind != WEBHOOK && !known.contains(&kind) => {
                let mut supported: Vec<&str> = known.iter().copied().chain([WEBHOOK]).collect();
                supported.sort_unstable();
                not_supported(&format!("{at}.type"), kind, &supported, &mut problems);
            }
            kind if repeats => problems.push(format!("{at}.type: Duplicate value: {kind:?}")),
            _ => {
                check_name(&at, &authorizer.name, &mut names, &mut problems);
                stages.extend(stage(&at, authorizer, is_file, &mut problems));
            }
        }
    }
    match problems.is_empty() {
        true => Ok(stages),
        false => Err(problems.join(", ")),
    }
}

fn not_supported(at: &str, value: &str, supported: &[&str], problems: &mut Problems) {
    let supported: Vec<String> = supported.iter().map(|name| format!("{name:?}")).collect();
    problems.push(format!(
        "{at}: Unsupported value: {value:?}: supported values: {}",
        supported.join(", ")
    ));
}

fn check_name(at: &str, name: &str, seen: &mut BTreeSet<String>, problems: &mut Problems) {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty()
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.is_empty() {
        problems.push(format!("{at}.name: Required value"));
    } else if !seen.insert(name.to_owned()) {
        problems.push(format!("{at}.name: Duplicate value: {name:?}"));
    } else if name.len() > 253 || !name.split('.').all(label) {
        problems.push(format!(
            "{at}.name: Invalid value: {name:?}: authorizer name is invalid: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        ));
    }
}

fn stage(
    at: &str,
    authorizer: Authorizer,
    is_file: &dyn Fn(&Path) -> Result<bool, String>,
    problems: &mut Problems,
) -> Option<Stage> {
    match (authorizer.r#type == WEBHOOK, authorizer.webhook) {
        (true, None) => problems.push(format!(
            "{at}.webhook: Required value: required when type=Webhook"
        )),
        (false, Some(_)) => problems.push(format!(
            "{at}.webhook: Invalid value: \"non-null\": may only be specified when type=Webhook"
        )),
        (false, None) => return Some(Stage::BuiltIn(authorizer.r#type)),
        (true, Some(settings)) => {
            return webhook(at, authorizer.name, &settings, is_file, problems).map(Stage::Webhook);
        }
    }
    None
}

// Upstream's paths leave `webhook` out, and so do these.
fn webhook(
    at: &str,
    name: String,
    settings: &Settings,
    is_file: &dyn Fn(&Path) -> Result<bool, String>,
    problems: &mut Problems,
) -> Option<Webhook> {
    let before = problems.len();
    let timeout = span(
        &format!("{at}.timeout"),
        &settings.timeout,
        Some(LONGEST_TIMEOUT),
        problems,
    );
    // Upstream's defaults.
    let ttl = |given: &Option<String>, usual: &str| given.clone().unwrap_or_else(|| usual.into());
    let yes = ttl(&settings.authorized_ttl, "5m");
    let yes = span(&format!("{at}.authorizedTTL"), &yes, None, problems);
    let no = ttl(&settings.unauthorized_ttl, "30s");
    let no = span(&format!("{at}.unauthorizedTTL"), &no, None, problems);
    let version = &settings.subject_access_review_version;
    one_of(
        &format!("{at}.subjectAccessReviewVersion"),
        version,
        &["v1", "v1beta1"],
        problems,
    );
    match settings.match_condition_subject_access_review_version.as_str() {
        "" if !settings.match_conditions.is_empty() => problems.push(format!(
            "{at}.matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified"
        )),
        "" | "v1" => {}
        other => not_supported(
            &format!("{at}.matchConditionSubjectAccessReviewVersion"),
            other,
            &["v1"],
            problems,
        ),
    }
    let policy = &settings.failure_policy;
    one_of(
        &format!("{at}.failurePolicy"),
        policy,
        &["NoOpinion", "Deny"],
        problems,
    );
    let kubeconfig = connection(at, &settings.connection_info, is_file, problems);
    let conditions = conditions(at, &settings.match_conditions, problems);
    if problems.len() > before {
        return None;
    }
    let kept = |kept: Option<bool>, ttl: Duration| kept.unwrap_or(true).then_some(ttl);
    Some(Webhook {
        name,
        authorized_ttl: kept(settings.cache_authorized_requests, yes?),
        unauthorized_ttl: kept(settings.cache_unauthorized_requests, no?),
        timeout: timeout?,
        version: version.clone(),
        on_failure: match policy.as_str() {
            "Deny" => OnFailure::Deny,
            _ => OnFailure::NoOpinion,
        },
        kubeconfig,
        conditions,
    })
}

fn one_of(at: &str, value: &str, known: &[&str], problems: &mut Problems) {
    match value {
        "" => problems.push(format!("{at}: Required value")),
        value if known.contains(&value) => {}
        value => not_supported(at, value, known, problems),
    }
}

fn span(at: &str, text: &str, most: Option<i64>, problems: &mut Problems) -> Option<Duration> {
    let rule = match most {
        Some(_) => "must be > 0s and <= 30s",
        None => "must be > 0s",
    };
    match go::parse(if text.is_empty() { "0" } else { text }) {
        Ok(0) => problems.push(format!("{at}: Required value")),
        Ok(nanos) if nanos > 0 && most.is_none_or(|most| nanos <= most) => {
            return u64::try_from(nanos).ok().map(Duration::from_nanos);
        }
        Ok(nanos) => problems.push(format!(
            "{at}: Invalid value: {:?}: {rule}",
            go::format(nanos)
        )),
        Err(why) => problems.push(format!("{at}: Invalid value: {text:?}: {why}")),
    }
    None
}

fn connection(
    at: &str,
    info: &Connection,
    is_file: &dyn Fn(&Path) -> Result<bool, String>,
    problems: &mut Problems,
) -> Option<PathBuf> {
    let at = format!("{at}.connectionInfo");
    let file = info.kube_config_file.as_deref();
    let mut wrong = |why: &str| {
        let file = file.unwrap_or_default();
        problems.push(format!(
            "{at}.kubeConfigFile: Invalid value: {file:?}: {why}"
        ));
    };
    match (info.r#type.as_str(), file) {
        ("InClusterConfig", None) => {}
        ("InClusterConfig", Some(_)) => wrong("can only be set when type=KubeConfigFile"),
        ("KubeConfigFile", Some(file)) if !file.is_empty() => match is_file(Path::new(file)) {
            _ if !Path::new(file).is_absolute() => wrong("must be an absolute path"),
            Err(why) => wrong(&format!("error loading file: {why}")),
            Ok(false) => wrong("must be a regular file"),
            Ok(true) => return Some(file.into()),
        },
        ("KubeConfigFile", _) => problems.push(format!("{at}.kubeConfigFile: Required value")),
        ("", _) => problems.push(format!("{at}.type: Required value")),
        (other, _) => not_supported(
            &format!("{at}.type"),
            other,
            &["InClusterConfig", "KubeConfigFile"],
            problems,
        ),
    }
    None
}

fn conditions(at: &str, all: &[Condition], problems: &mut Problems) -> Conditions {
    let mut compiled = Conditions::default();
    if all.len() > MOST_CONDITIONS {
        problems.push(format!(
            "{at}.matchConditions: Too many: {}: must have at most {MOST_CONDITIONS} items",
            all.len()
        ));
        return compiled;
    }
    let mut seen = BTreeSet::new();
    for (n, condition) in all.iter().enumerate() {
        let at = format!("{at}.matchConditions[{n}].expression");
        let text = condition.expression.as_str();
        if text.trim().is_empty() {
            problems.push(format!("{at}: Required value"));
        } else if !seen.insert(text) {
            problems.push(format!("{at}: Duplicate value: {text:?}"));
        } else if let Err(why) = compiled.add(text) {
            problems.push(format!("{at}: Invalid value: {text:?}: {why}"));
        }
    }
    compiled
}
