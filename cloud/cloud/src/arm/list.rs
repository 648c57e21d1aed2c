//! Lists: which resources, how many of them at a time.

use serde_json::{Value, json};

use super::document::{self, Document};
use super::fault::{self, Fault};
use super::id::{Id, Path};
use super::kind::Kind;
use super::{group, inner, resource};
use crate::exchange::{Asked, Reply, encode};
use crate::turn::Turn;

/// How many a page has when nobody asks for fewer.
const PAGE: usize = 1000;

/// Cuts a page out of all, with the address of the next one.
pub(crate) fn page(turn: &Turn<'_>, asked: &Asked, all: Vec<Value>) -> Result<Reply, Fault> {
    let number = |name: &str| asked.param(name).map(|text| text.parse::<usize>());
    let bad = |name: &str| {
        Fault::bad(
            "InvalidQueryParameter",
            format!("The query parameter '{name}' is no number."),
        )
    };
    let size = number("$top")
        .transpose()
        .map_err(|_| bad("$top"))?
        .unwrap_or(PAGE)
        .clamp(1, PAGE);
    let from = number("$skiptoken")
        .transpose()
        .map_err(|_| bad("$skiptoken"))?
        .unwrap_or(0);
    let left = all.len().saturating_sub(from);
    let shown: Vec<Value> = all.into_iter().skip(from).take(size).collect();
    let mut body = json!({ "value": shown });
    if left > size {
        body["nextLink"] = json!(next(turn, asked, from + size));
    }
    Ok(Reply::ok(body))
}

fn next(turn: &Turn<'_>, asked: &Asked, from: usize) -> String {
    let kept = asked
        .query
        .iter()
        .filter(|(name, _)| !name.eq_ignore_ascii_case("$skiptoken"));
    let mut query: Vec<String> = kept
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    query.push(format!("$skiptoken={from}"));
    format!("{}{}?{}", turn.settings.origin, asked.path, query.join("&"))
}

/// The resources of a type: of a subscription, of a group, or of a parent.
pub(crate) fn of_kind(
    turn: &Turn<'_>,
    asked: &Asked,
    path: &Path,
    kind: &'static Kind,
) -> Result<Reply, Fault> {
    if let Some(name) = &path.group {
        group::require(turn, path.subscription.as_deref().unwrap_or_default(), name)?;
    }
    let documents = match path.rest.len() {
        1 => document::of_kind(turn, &path.scope, kind.name),
        _ => children(turn, path, kind)?,
    };
    let bodies = documents.into_iter().map(|mut document| {
        resource::show(turn, kind, &mut document);
        crate::providers::expand(
            turn,
            kind,
            asked.param("$expand").unwrap_or_default(),
            &mut document,
        );
        document.body
    });
    let kept = crate::providers::filtered(kind, asked, bodies.collect());
    page(turn, asked, kept)
}

fn children(turn: &Turn<'_>, path: &Path, kind: &'static Kind) -> Result<Vec<Document>, Fault> {
    let mut parent = path.clone();
    let collection = parent.rest.pop().unwrap_or_default();
    let parent = parent
        .id()
        .expect("what is before a collection is a resource");
    let found = document::get(turn, &parent.to_string());
    if found.is_none() && !parent.name().eq_ignore_ascii_case("default") {
        let child = parent.child(&collection, "*");
        return match parent.parent() {
            Some(_) => Err(fault::no_parent(&child, "read", &parent.to_string())),
            None => Err(fault::no_resource(&parent)),
        };
    }
    Ok(match kind.within {
        Some(_) => found
            .map(|parent| inner::all(&parent, kind))
            .unwrap_or_default(),
        None => document::children(turn, &parent, &collection),
    })
}

/// Every resource of a scope, as `…/resources` shows them: without properties.
pub(crate) fn resources(
    turn: &Turn<'_>,
    asked: &Asked,
    scope: &str,
    may_see: impl Fn(&str) -> bool,
) -> Result<Reply, Fault> {
    let filter = Filter::parse(asked.param("$filter").unwrap_or_default())?;
    let expand = asked.param("$expand").unwrap_or_default();
    let found = turn
        .under(&format!("{}/", super::id::key(scope)))
        .into_iter();
    let mut shown = Vec::new();
    for (_, entry) in found {
        let document = Document::read(entry);
        let Some(id) = Id::parse(document.id()) else {
            continue;
        };
        // Extensions and children that nobody tracks are not resources of a group.
        let is_tracked = super::kind::named(&id.kind()).is_some_and(|kind| kind.has_location);
        if is_tracked && filter.fits(&document.body) && may_see(document.id()) {
            shown.push(summary(&document, expand));
        }
    }
    page(turn, asked, shown)
}

fn summary(document: &Document, expand: &str) -> Value {
    let mut shown = json!({});
    for field in [
        "id",
        "name",
        "type",
        "location",
        "tags",
        "kind",
        "sku",
        "identity",
        "managedBy",
        "zones",
        "plan",
    ] {
        if !document.body[field].is_null() {
            shown[field] = document.body[field].clone();
        }
    }
    for word in expand.split(',').map(str::trim) {
        match word {
            "createdTime" => shown[word] = json!(document.created),
            "changedTime" => shown[word] = json!(document.changed),
            "provisioningState" => {
                shown[word] = document.body["properties"]["provisioningState"].clone()
            }
            _ => {}
        }
    }
    shown
}

/// A filter as `…/resources` takes it: clauses joined by `and`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Filter(Vec<Clause>);

#[derive(Debug, PartialEq, Eq)]
struct Clause {
    field: String,
    is_equal: bool,
    value: String,
    is_part: bool,
}

impl Filter {
    pub(crate) fn parse(text: &str) -> Result<Filter, Fault> {
        let clauses = text
            .split(" and ")
            .map(str::trim)
            .filter(|clause| !clause.is_empty());
        clauses
            .map(Clause::parse)
            .collect::<Result<_, _>>()
            .map(Filter)
    }

    pub(crate) fn fits(&self, body: &Value) -> bool {
        let tags = body["tags"].as_object();
        let tag = self
            .0
            .iter()
            .find(|c| c.field == "tagname")
            .map(|c| c.value.as_str());
        let value_of = |name: &str| {
            let found = tags?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.and_then(|(_, value)| value.as_str())
        };
        self.0.iter().all(|clause| match clause.field.as_str() {
            "tagname" => value_of(&clause.value).is_some(),
            "tagvalue" => tag.and_then(value_of) == Some(&clause.value),
            _ => clause.fits(body),
        })
    }
}

impl Clause {
    fn parse(text: &str) -> Result<Clause, Fault> {
        let bad = || {
            Fault::bad(
                "InvalidFilterInQueryString",
                format!("Invalid $filter '{text}' specified in the query string."),
            )
        };
        let value = text.split('\'').nth(1).ok_or_else(bad)?.to_owned();
        if let Some(rest) = text.strip_prefix("substringof(") {
            let field = rest
                .rsplit(',')
                .next()
                .unwrap_or_default()
                .trim()
                .trim_end_matches(')');
            return Ok(Clause {
                field: field.to_lowercase(),
                is_equal: true,
                value,
                is_part: true,
            });
        }
        let mut words = text.split_whitespace();
        let (field, word) = (words.next().ok_or_else(bad)?, words.next().ok_or_else(bad)?);
        let is_equal = match word {
            "eq" => true,
            "ne" => false,
            _ => return Err(bad()),
        };
        Ok(Clause {
            field: field.to_lowercase(),
            is_equal,
            value,
            is_part: false,
        })
    }

    fn fits(&self, body: &Value) -> bool {
        let found = match self.field.as_str() {
            "resourcetype" => body["type"].as_str(),
            "resourcegroup" => body["id"].as_str().and_then(|id| id.split('/').nth(4)),
            "name" => body["name"].as_str(),
            "location" => body["location"].as_str(),
            "identity/principalid" => body["identity"]["principalId"].as_str(),
            _ => return true,
        };
        let (found, wanted) = (
            found.unwrap_or_default().to_lowercase(),
            self.value.to_lowercase(),
        );
        let fits = if self.is_part {
            found.contains(&wanted)
        } else {
            found == wanted
        };
        fits == self.is_equal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_fit_what_az_looks_for() {
        let body = json!({"id": "/subscriptions/s/resourceGroups/Web/providers/Microsoft.Network/loadBalancers/lb",
            "name": "lb", "type": "Microsoft.Network/loadBalancers", "tags": {"env": "Prod"}});
        for (filter, expected) in [
            ("", true),
            ("resourceType eq 'microsoft.network/loadbalancers'", true),
            ("resourceGroup eq 'web' and name eq 'LB'", true),
            ("name ne 'lb'", false),
            ("substringof('L', name)", true),
            ("tagname eq 'ENV' and tagvalue eq 'Prod'", true),
            ("tagname eq 'env' and tagvalue eq 'test'", false),
        ] {
            assert_eq!(
                Filter::parse(filter).unwrap().fits(&body),
                expected,
                "{filter}"
            );
        }
        assert!(Filter::parse("name like 'x'").is_err());
        assert!(Filter::parse("nonsense").is_err());
    }
}
