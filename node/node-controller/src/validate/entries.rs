//! What the entries of maps must be, key and value.

use kube_kit::selector::{label_key_errors, label_value_errors};

use super::checks::is_host;
use super::rules::problem;
use super::{Problem, Severity};
use crate::config::Configuration;
use crate::config::declare::View;
use crate::config::lookup::{Found, lookup};
use crate::custom_data::is_usable_feature;

/// A rule for the entries of maps.
struct EntryRule {
    severity: Severity,
    path: &'static str,
    holds: fn(&str, &str) -> bool,
    rule: &'static str,
    remedy: &'static str,
}

const ENTRIES: &[EntryRule] = &[
    EntryRule {
        severity: Severity::Error,
        path: "kubelet_config.kubelet_flags",
        holds: |flag, _| flag.starts_with("--") && !flag.contains([' ', '=']),
        rule: "a flag's key is the flag with its two dashes, such as --v",
        remedy: "write the dashes into the key",
    },
    // They become lines of an environment file, where another line is another setting.
    EntryRule {
        severity: Severity::Error,
        path: "kubelet_config.kubelet_flags",
        holds: |flag, value| is_one_line(flag) && is_one_line(value),
        rule: "a flag and its value are one line without control characters",
        remedy: "take the line break out",
    },
    EntryRule {
        severity: Severity::Error,
        path: "kubelet_config.kubelet_node_labels",
        holds: |key, value| is_one_line(key) && is_one_line(value),
        rule: "a label is one line without control characters",
        remedy: "take the line break out",
    },
    EntryRule {
        severity: Severity::Error,
        path: "kubelet_config.kubelet_node_labels",
        holds: |key, value| {
            label_key_errors(key).is_empty() && label_value_errors(value).is_empty()
        },
        rule: "must be a label that Kubernetes takes",
        remedy: "shorten or correct it: letters, digits, -, _ and . up to 63 characters, with an optional prefix/",
    },
    EntryRule {
        severity: Severity::Error,
        path: "local_dns_profile.vnet_dns_overrides",
        holds: |domain, _| domain == "." || is_host(domain),
        rule: DOMAIN,
        remedy: "correct the key",
    },
    EntryRule {
        severity: Severity::Error,
        path: "local_dns_profile.kube_dns_overrides",
        holds: |domain, _| domain == "." || is_host(domain),
        rule: DOMAIN,
        remedy: "correct the key",
    },
    EntryRule {
        severity: Severity::Warning,
        path: "enabled_features",
        holds: is_usable_feature,
        rule: "a feature is a name of letters, digits and _ with a value of one line; others are left out",
        remedy: "correct the name or value",
    },
];

/// Whether a text can stand in a line of a file.
pub(crate) fn is_one_line(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

const DOMAIN: &str = "an override is for a domain, or for everything as `.`";

/// Entries of maps that are not what they must be.
pub(super) fn problems(config: &Configuration) -> Vec<Problem> {
    let broken = ENTRIES.iter().flat_map(|rule| {
        let map = lookup(config, rule.path).into_iter().next();
        let entries = match map.map(|field| field.view) {
            Some(View::Map(entries)) => entries,
            _ => Vec::new(),
        };
        let text = |view: &View<'_>| match view {
            View::Text(text) => (*text).to_owned(),
            _ => String::new(),
        };
        let broken = entries
            .into_iter()
            .filter(move |(key, view)| !(rule.holds)(key, &text(view)));
        broken.map(|(key, view)| {
            let path = format!("{}[{key:?}]", rule.path);
            let field = Found {
                path,
                view,
                is_set: true,
            };
            problem(rule.severity, &field, rule.rule.to_owned(), rule.remedy)
        })
    });
    broken.collect()
}
