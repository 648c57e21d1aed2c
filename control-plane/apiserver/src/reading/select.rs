//! Which objects a list or watch is about: namespace, labels, fields.

use std::sync::Arc;

use kinds::resources::{self, Resource};
use kube_kit::selector::{FieldSelector, LabelSelector};

use crate::door::request::ListOptions;
use crate::reading::stored::{Index, Stored};
use crate::reading::topics::Topic;
use crate::status::{ApiError, Result};

/// A compiled selection.
#[derive(Debug)]
pub(crate) struct Selection {
    /// The resource, in its stored version.
    resource: Arc<Resource>,
    namespace: String,
    labels: LabelSelector,
    fields: Vec<FieldTest>,
    name: Option<String>,
    node: Option<String>,
}

#[derive(Debug)]
struct FieldTest {
    source: Source,
    equal: bool,
    value: String,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Name,
    Namespace,
    Indexed(usize),
}

impl Selection {
    /// Everything in a namespace, or everywhere.
    pub(crate) fn everything(resource: &Arc<Resource>, namespace: &str) -> Selection {
        Selection {
            resource: Arc::clone(resource),
            namespace: namespace.to_owned(),
            labels: LabelSelector::everything(),
            fields: Vec::new(),
            name: None,
            node: None,
        }
    }

    /// What the options select; 400 for a selector that is no selector.
    pub(crate) fn parse(
        resource: &Arc<Resource>,
        namespace: &str,
        name: Option<&str>,
        options: &ListOptions,
    ) -> Result<Selection> {
        // Versions of a custom resource agree on what their objects are selected by.
        let stored = match resource.ty.defined() {
            Some(_) => None,
            None => resources::find_kind(
                resource.stored.group,
                resource.stored.version,
                resource.kind,
            ),
        };
        let mut selection = Selection::everything(stored.unwrap_or(resource), namespace);
        selection.labels = LabelSelector::parse(&options.label_selector)
            .map_err(|e| ApiError::bad_request(e.to_string()))?;
        let fields = FieldSelector::parse(&options.field_selector)
            .map_err(|e| ApiError::bad_request(e.to_string()))?;
        for term in fields.terms() {
            let source = match term.field.as_str() {
                "metadata.name" => Source::Name,
                "metadata.namespace" => Source::Namespace,
                field => Source::Indexed(
                    // kubectl says itself what it was looking for.
                    kinds::fields::position(resource, field).ok_or_else(|| {
                        ApiError::bad_request(kinds::fields::unsupported(resource, field))
                    })?,
                ),
            };
            selection.fields.push(FieldTest {
                source,
                equal: !term.negated,
                value: term.value.clone(),
            });
        }
        selection.name = name
            .or_else(|| fields.exact_value("metadata.name"))
            .map(str::to_owned);
        if let Some(name) = name {
            let value = name.to_owned();
            selection.fields.push(FieldTest {
                source: Source::Name,
                equal: true,
                value,
            });
        }
        selection.node = fields.exact_value("spec.nodeName").map(str::to_owned);
        Ok(selection)
    }

    /// Whether only the namespace restricts it.
    pub(crate) fn is_unfiltered(&self) -> bool {
        self.labels.is_everything() && self.fields.is_empty()
    }

    /// The resource whose objects it selects.
    pub(crate) fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Whether more than an object's name decides.
    pub(crate) fn looks_inside(&self) -> bool {
        let is_inside = |test: &FieldTest| matches!(test.source, Source::Indexed(_));
        !self.labels.is_everything() || self.fields.iter().any(is_inside)
    }

    /// The prefix of the keys it can match.
    pub(crate) fn within(&self) -> String {
        if self.resource.namespaced && !self.namespace.is_empty() {
            format!("{}/", self.namespace)
        } else {
            String::new()
        }
    }

    /// The single key it can match, when it names an object.
    pub(crate) fn object_key(&self) -> Option<String> {
        let name = self.name.as_deref()?;
        match (self.resource.namespaced, self.namespace.as_str()) {
            (true, "") => None,
            (true, namespace) => Some(format!("{namespace}/{name}")),
            (false, _) => Some(name.to_owned()),
        }
    }

    /// The narrowest topic that covers it.
    pub(crate) fn topic(&self) -> Topic {
        if let Some(key) = self.object_key() {
            return Topic::Object(key.into());
        }
        match (&self.node, self.namespace.as_str()) {
            (Some(node), _) if self.resource.is("", "Pod") => Topic::Node(node.as_str().into()),
            (_, namespace) if self.resource.namespaced && !namespace.is_empty() => {
                Topic::Namespace(namespace.into())
            }
            _ => Topic::All,
        }
    }

    /// Whether an object at this key is selected.
    pub(crate) fn matches(&self, key: &str, stored: &Stored) -> bool {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        if self.resource.namespaced && !self.namespace.is_empty() && namespace != self.namespace {
            return false;
        }
        if self.is_unfiltered() {
            return true;
        }
        let (mut index, mut by_name) = (None, true);
        for test in &self.fields {
            let value = match test.source {
                Source::Name => name,
                Source::Namespace => namespace,
                Source::Indexed(i) => {
                    &index
                        .get_or_insert_with(|| stored.index(&self.resource))
                        .fields[i]
                }
            };
            by_name &= (value == test.value) == test.equal;
        }
        by_name && (self.labels.is_everything() || self.labels_match(stored.index(&self.resource)))
    }

    fn labels_match(&self, index: &Index) -> bool {
        self.labels.matches(|key| {
            let position = index
                .labels
                .binary_search_by(|(k, _)| (**k).cmp(key))
                .ok()?;
            Some(&*index.labels[position].1)
        })
    }
}
