//! FlowSchemas: which level a request belongs to, and which flow within it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use access::{Attributes, ResourceTarget, Target, User};
use serde_json::Value;

/// One FlowSchema, compiled.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) level: Arc<str>,
    precedence: i64,
    distinguisher: Option<Distinguisher>,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distinguisher {
    User,
    Namespace,
}

#[derive(Debug, Clone)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug, Clone)]
enum Subject {
    User(String),
    Group(String),
    /// The name may be `*`.
    ServiceAccount {
        namespace: String,
        name: String,
    },
}

#[derive(Debug, Clone)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    cluster: bool,
    namespaces: Vec<String>,
}

#[derive(Debug, Clone)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

impl Schema {
    /// Reads a FlowSchema; what validation would have refused matches nothing.
    pub(crate) fn read(object: &Value) -> Schema {
        let spec = &object["spec"];
        let text = |value: &Value| Arc::from(value.as_str().unwrap_or_default());
        Schema {
            name: text(&object["metadata"]["name"]),
            uid: text(&object["metadata"]["uid"]),
            level: text(&spec["priorityLevelConfiguration"]["name"]),
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            distinguisher: match spec["distinguisherMethod"]["type"].as_str() {
                Some("ByUser") => Some(Distinguisher::User),
                Some("ByNamespace") => Some(Distinguisher::Namespace),
                _ => None,
            },
            rules: array(&spec["rules"]).map(Rule::read).collect(),
        }
    }

    /// The order in which schemas are tried: precedence, then name.
    pub(crate) fn rank(&self) -> (i64, &str) {
        (self.precedence, &self.name)
    }

    /// Whether a request belongs here.
    pub(crate) fn matches(&self, attributes: &Attributes<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(attributes))
    }

    /// The flow of a request that belongs here, as a number that deals its queues.
    pub(crate) fn flow(&self, attributes: &Attributes<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.name.hash(&mut hasher);
        match (self.distinguisher, &attributes.target) {
            (Some(Distinguisher::User), _) => attributes.user.name.hash(&mut hasher),
            (Some(Distinguisher::Namespace), Target::Resource(target)) => {
                target.namespace.hash(&mut hasher);
            }
            _ => {}
        }
        hasher.finish()
    }
}

impl Rule {
    fn read(value: &Value) -> Rule {
        Rule {
            subjects: array(&value["subjects"])
                .filter_map(Subject::read)
                .collect(),
            resources: array(&value["resourceRules"])
                .map(ResourceRule::read)
                .collect(),
            paths: array(&value["nonResourceRules"])
                .map(PathRule::read)
                .collect(),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let concerned = match &attributes.target {
            Target::Resource(target) => self
                .resources
                .iter()
                .any(|rule| rule.matches(attributes.verb, target)),
            Target::Path(path) => self
                .paths
                .iter()
                .any(|rule| rule.matches(attributes.verb, path)),
        };
        concerned
            && self
                .subjects
                .iter()
                .any(|subject| subject.is(attributes.user))
    }
}

impl Subject {
    fn read(value: &Value) -> Option<Subject> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        match value["kind"].as_str()? {
            "User" => Some(Subject::User(text(&value["user"]["name"])?)),
            "Group" => Some(Subject::Group(text(&value["group"]["name"])?)),
            "ServiceAccount" => Some(Subject::ServiceAccount {
                namespace: text(&value["serviceAccount"]["namespace"])?,
                name: text(&value["serviceAccount"]["name"])?,
            }),
            _ => None,
        }
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Subject::User(name) => name == "*" || *name == user.name,
            Subject::Group(name) => name == "*" || user.is_in(name),
            Subject::ServiceAccount { namespace, name } => {
                let account = user.name.strip_prefix("system:serviceaccount:");
                account
                    .and_then(|account| account.split_once(':'))
                    .is_some_and(|(ns, account)| {
                        ns == namespace && (name == "*" || account == name)
                    })
            }
        }
    }
}

impl ResourceRule {
    fn read(value: &Value) -> ResourceRule {
        ResourceRule {
            verbs: strings(&value["verbs"]),
            groups: strings(&value["apiGroups"]),
            resources: strings(&value["resources"]),
            cluster: value["clusterScope"].as_bool().unwrap_or(false),
            namespaces: strings(&value["namespaces"]),
        }
    }

    fn matches(&self, verb: &str, target: &ResourceTarget<'_>) -> bool {
        let in_scope = match target.namespace {
            "" => self.cluster,
            namespace => has(&self.namespaces, namespace),
        };
        in_scope
            && has(&self.verbs, verb)
            && has(&self.groups, target.group)
            && self.resources.iter().any(|r| names(r, target))
    }
}

// `*`, a resource, or `resource/subresource`.
fn names(pattern: &str, target: &ResourceTarget<'_>) -> bool {
    match pattern.split_once('/') {
        _ if pattern == "*" => true,
        None => target.subresource.is_empty() && pattern == target.resource,
        Some((resource, sub)) => resource == target.resource && sub == target.subresource,
    }
}

impl PathRule {
    fn read(value: &Value) -> PathRule {
        PathRule {
            verbs: strings(&value["verbs"]),
            paths: strings(&value["nonResourceURLs"]),
        }
    }

    fn matches(&self, verb: &str, path: &str) -> bool {
        let covers = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => pattern == path,
        };
        has(&self.verbs, verb) && self.paths.iter().any(covers)
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn strings(value: &Value) -> Vec<String> {
    array(value)
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}
