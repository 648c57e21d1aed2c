//! Which requests are recorded, and how much of them: audit.k8s.io/v1 Policy.
//!
//! The rules are `apiserver/pkg/audit/policy/checker.go`'s: the first rule that matches decides, and nothing is recorded
//! where none does.

use serde::{Deserialize, Serialize};

/// How much is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum Level {
    /// Nothing.
    None,
    /// Who, what and when.
    Metadata,
    /// Also what was sent.
    Request,
    /// Also what was answered.
    RequestResponse,
}

impl Level {
    /// Upstream's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// When a record is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum Stage {
    /// Somebody known has asked.
    RequestReceived,
    /// An answer that takes long has begun.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The server has a bug.
    Panic,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Policy {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde_json::Value,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<Resources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Resources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// A request, as rules look at it.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The user's name.
    pub user: &'a str,
    /// Their groups.
    pub groups: &'a [String],
    /// The verb.
    pub verb: &'a str,
    /// What it is about.
    pub target: Target<'a>,
}

/// What a request is about.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// A resource.
    Resource {
        /// Group, empty for the core.
        group: &'a str,
        /// Plural.
        resource: &'a str,
        /// Subresource, or empty.
        subresource: &'a str,
        /// Name, or empty.
        name: &'a str,
        /// Namespace, or empty.
        namespace: &'a str,
    },
    /// A path.
    Path(&'a str),
}

/// What a policy says about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// How much is recorded.
    pub level: Level,
    /// Whether objects are recorded without their managers.
    pub omit_managed_fields: bool,
    omit_stages: Vec<Stage>,
}

impl Decision {
    /// Whether a stage is recorded.
    pub fn wants(&self, stage: Stage) -> bool {
        self.level > Level::None && !self.omit_stages.contains(&stage)
    }
}

/// AKS's categories of diagnostics, ready to be used in the place of a file.
pub const READY_MADE: [(&str, &str); 2] = [
    ("kube-audit", include_str!("../data/kube-audit.yaml")),
    (
        "kube-audit-admin",
        include_str!("../data/kube-audit-admin.yaml"),
    ),
];

impl Policy {
    /// Reads a policy, YAML or JSON; says what is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Policy, String> {
        let parsed = objects::yaml::parse(text).map_err(|error| error.to_string())?;
        if let Some(twice) = parsed.strict.first() {
            return Err(format!("strict decoding error: {twice}"));
        }
        let policy: Policy = serde_json::from_value(parsed.value)
            .map_err(|error| format!("strict decoding error: {error}"))?;
        if policy.kind != "Policy" || policy.api_version != "audit.k8s.io/v1" {
            return Err(format!(
                "unknown group version field {:?} in policy; use Policy of audit.k8s.io/v1",
                policy.api_version
            ));
        }
        if policy.rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".into());
        }
        let wrong: Vec<String> = policy.rules.iter().enumerate().flat_map(problems).collect();
        match wrong.is_empty() {
            true => Ok(policy),
            false => Err(wrong.join(", ")),
        }
    }

    /// What is recorded of a request.
    pub fn decide(&self, asked: &Question<'_>) -> Decision {
        let rule = self.rules.iter().find(|rule| rule.matches(asked));
        let Some(rule) = rule else {
            return Decision {
                level: Level::None,
                omit_managed_fields: self.omit_managed_fields,
                omit_stages: Vec::new(),
            };
        };
        let mut omit_stages = self.omit_stages.clone();
        omit_stages.extend(&rule.omit_stages);
        Decision {
            level: rule.level,
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
            omit_stages,
        }
    }
}

fn problems((index, rule): (usize, &Rule)) -> Vec<String> {
    let at = format!("rules[{index}]");
    let mut found = Vec::new();
    if !rule.non_resource_urls.is_empty()
        && (!rule.resources.is_empty() || !rule.namespaces.is_empty())
    {
        let why = "rules cannot apply to both regular resources and non-resource URLs";
        let shown = rule.non_resource_urls.join(" ");
        found.push(format!(
            "{at}.nonResourceURLs: Invalid value: \"[{shown}]\": {why}"
        ));
    }
    for url in &rule.non_resource_urls {
        let bad = url != "*" && !url.starts_with('/');
        let starred = url.trim_end_matches('*').contains('*');
        if bad {
            let why = "non-resource URL rules must begin with a '/' character";
            found.push(format!(
                "{at}.nonResourceURLs: Invalid value: {url:?}: {why}"
            ));
        }
        if starred {
            let why = "non-resource URL wildcards '*' must be the final character of the rule";
            found.push(format!(
                "{at}.nonResourceURLs: Invalid value: {url:?}: {why}"
            ));
        }
    }
    for resources in &rule.resources {
        if !resources.resource_names.is_empty() && resources.resources.is_empty() {
            let why = "using resourceNames requires at least one resource";
            found.push(format!(
                "{at}.resources.resourceNames: Invalid value: {why}"
            ));
        }
    }
    found
}

fn any_of(wanted: &[String], value: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|w| w == value)
}

impl Rule {
    fn matches(&self, asked: &Question<'_>) -> bool {
        let in_group =
            |group: &String| self.user_groups.is_empty() || self.user_groups.contains(group);
        let known = any_of(&self.users, asked.user)
            && (self.user_groups.is_empty() || asked.groups.iter().any(in_group))
            && any_of(&self.verbs, asked.verb);
        known && self.is_about(&asked.target)
    }

    // What names resources or namespaces is about resources, what names URLs about the others, and the rest about both.
    fn is_about(&self, target: &Target<'_>) -> bool {
        let about_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if !about_resources && self.non_resource_urls.is_empty() {
            return true;
        }
        match *target {
            Target::Path(path) => {
                !about_resources && self.non_resource_urls.iter().any(|url| covers(url, path))
            }
            Target::Resource { namespace, .. } => {
                about_resources
                    && any_of(&self.namespaces, namespace)
                    && (self.resources.is_empty()
                        || self.resources.iter().any(|named| named.matches(target)))
            }
        }
    }
}

fn covers(url: &str, path: &str) -> bool {
    match url.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => path == url,
    }
}

impl Resources {
    fn matches(&self, target: &Target<'_>) -> bool {
        let Target::Resource {
            group,
            resource,
            subresource,
            name,
            ..
        } = *target
        else {
            return false;
        };
        if self.group != "*" && self.group != group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !any_of(&self.resource_names, name) {
            return false;
        }
        let whole = match subresource {
            "" => resource.to_owned(),
            below => format!("{resource}/{below}"),
        };
        self.resources.iter().any(|pattern| {
            *pattern == whole
                || pattern == "*"
                || match pattern.split_once('/') {
                    Some(("*", below)) => !subresource.is_empty() && below == subresource,
                    Some((above, "*")) => !subresource.is_empty() && above == resource,
                    _ => false,
                }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource<'a>(path: &'a str, name: &'a str, namespace: &'a str) -> Target<'a> {
        let (group, rest) = path.split_once(':').unwrap_or(("", path));
        let (resource, subresource) = rest.split_once('/').unwrap_or((rest, ""));
        Target::Resource {
            group,
            resource,
            subresource,
            name,
            namespace,
        }
    }

    fn level(rules: &str, verb: &str, target: Target<'_>) -> Level {
        let text =
            format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{rules}, {{level: None}}]");
        let policy = Policy::parse(text.as_bytes()).expect(rules);
        let groups = ["dev".to_owned()];
        let asked = Question {
            user: "jane",
            groups: &groups,
            verb,
            target,
        };
        policy.decide(&asked).level
    }

    #[test]
    fn rules_match_as_upstreams_do() {
        let pods = "{level: Metadata, resources: [{group: '', resources: [pods]}]}";
        let logs = "{level: Metadata, resources: [{group: '', resources: ['*/log']}]}";
        let below = "{level: Metadata, resources: [{group: '', resources: ['pods/*']}]}";
        let named = "{level: Metadata, resources: [{group: '', resources: [configmaps], resourceNames: [a]}]}";
        let group = "{level: Metadata, resources: [{group: apps}]}";
        let any = "{level: Metadata, resources: [{group: '*'}]}";
        let spaces = "{level: Metadata, namespaces: [kube-system]}";
        let cluster = "{level: Metadata, namespaces: ['']}";
        let urls = "{level: Metadata, nonResourceURLs: ['/api*', /version]}";
        let jane = "{level: Metadata, users: [jane], verbs: [delete]}";
        let devs = "{level: Metadata, userGroups: [dev]}";
        let ops = "{level: Metadata, userGroups: [ops]}";
        let cases = [
            (pods, "get", resource("pods", "a", "n"), true),
            (pods, "get", resource("pods/log", "a", "n"), false),
            (pods, "get", resource("apps:pods", "a", "n"), false),
            (logs, "get", resource("pods/log", "a", "n"), true),
            (logs, "get", resource("log", "a", "n"), false),
            (below, "get", resource("pods/log", "a", "n"), true),
            (below, "get", resource("pods", "a", "n"), false),
            (named, "get", resource("configmaps", "a", "n"), true),
            (named, "get", resource("configmaps", "b", "n"), false),
            (
                group,
                "get",
                resource("apps:deployments/scale", "a", "n"),
                true,
            ),
            (group, "get", resource("pods", "a", "n"), false),
            (any, "get", resource("apps:deployments", "a", "n"), true),
            (any, "get", Target::Path("/version"), false),
            (spaces, "get", resource("pods", "a", "kube-system"), true),
            (spaces, "get", resource("pods", "a", "n"), false),
            (spaces, "get", Target::Path("/version"), false),
            (cluster, "get", resource("nodes", "a", ""), true),
            (urls, "get", Target::Path("/apis/apps"), true),
            (urls, "get", Target::Path("/version"), true),
            (urls, "get", Target::Path("/healthz"), false),
            (urls, "get", resource("pods", "a", "n"), false),
            (jane, "delete", resource("pods", "a", "n"), true),
            (jane, "get", resource("pods", "a", "n"), false),
            (devs, "get", Target::Path("/healthz"), true),
            (ops, "get", Target::Path("/healthz"), false),
        ];
        for (rules, verb, target, matches) in cases {
            let wanted = match matches {
                true => Level::Metadata,
                false => Level::None,
            };
            assert_eq!(level(rules, verb, target), wanted, "{rules} {target:?}");
        }
    }

    #[test]
    fn stages_and_managers_are_left_out_as_told() {
        let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], \
            omitManagedFields: true, rules: [{level: Request, verbs: [get], omitManagedFields: false, \
            omitStages: [ResponseStarted]}, {level: Metadata}]}";
        let policy = Policy::parse(text.as_bytes()).expect("good");
        let asked = |verb| Question {
            user: "",
            groups: &[],
            verb,
            target: Target::Path("/"),
        };
        let get = policy.decide(&asked("get"));
        assert!(!get.omit_managed_fields);
        assert!(!get.wants(Stage::RequestReceived) && !get.wants(Stage::ResponseStarted));
        assert!(get.wants(Stage::ResponseComplete));
        let other = policy.decide(&asked("list"));
        assert!(other.omit_managed_fields && other.wants(Stage::ResponseStarted));
    }

    #[test]
    fn bad_policies_are_refused() {
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        let cases = [
            (format!("{head}rules: []"), "0 rules"),
            (format!("{head}rules: [{{level: Some}}]"), "unknown variant"),
            (
                format!("{head}rules: [{{level: None, foo: 1}}]"),
                "unknown field",
            ),
            (
                format!("{head}rules: [{{level: None, namespaces: [a], nonResourceURLs: [/a]}}]"),
                "rules cannot apply to both regular resources and non-resource URLs",
            ),
            (
                format!("{head}rules: [{{level: None, nonResourceURLs: [a]}}]"),
                "must begin with a '/'",
            ),
            (
                format!("{head}rules: [{{level: None, nonResourceURLs: ['/a*b']}}]"),
                "must be the final character",
            ),
            (
                "kind: Policy\napiVersion: v1\nrules: []".into(),
                "unknown group version",
            ),
        ];
        for (text, why) in cases {
            let said = Policy::parse(text.as_bytes()).expect_err(why);
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn the_ready_made_are_good_and_differ_in_reads() {
        let decide = |name: &str, verb| {
            let text = READY_MADE.iter().find(|(known, _)| *known == name);
            let policy = Policy::parse(text.expect("there").1.as_bytes()).expect(name);
            let target = resource("secrets", "a", "n");
            let asked = Question {
                user: "jane",
                groups: &[],
                verb,
                target,
            };
            policy.decide(&asked).level
        };
        assert!(decide("kube-audit", "get") > Level::None);
        assert_eq!(decide("kube-audit-admin", "list"), Level::None);
        // What is secret stays out of both.
        assert_eq!(decide("kube-audit-admin", "create"), Level::Metadata);
    }
}
