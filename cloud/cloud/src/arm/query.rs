//! Resource Graph: the queries that portals and scripts begin with. What is not understood is named.
//!
//! `Resources | where type =~ 'a' and location == 'b' | project name, id | order by name desc | limit 5`, `count`,
//! `summarize count() by type`, `distinct`, `extend` of plain paths.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::access;
use super::document::Document;
use super::fault::Fault;
use super::group;
use super::id::Id;
use crate::exchange::Reply;
use crate::providers::Call;
use crate::turn::Turn;

const PAGE: usize = 1000;

fn not_understood(what: &str) -> Fault {
    let message = "Please provide below info when asking for support: the query is not understood.";
    Fault::bad("BadRequest", message).detail(
        "InvalidQuery",
        format!("Query is invalid: '{what}' is not supported."),
    )
}

/// `POST /providers/Microsoft.ResourceGraph/resources`.
pub(crate) fn answer(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let body = call.body()?;
    let query = body["query"].as_str().unwrap_or_default();
    let mut stages = split(query, '|').into_iter();
    let table = stages.next().unwrap_or_default();
    let mut rows: Vec<Value> = rows(turn, call, table.trim())?;
    for stage in stages {
        rows = apply(rows, stage.trim())?;
    }
    let total = rows.len();
    let top = body["options"]["$top"]
        .as_u64()
        .map_or(PAGE, |top| top as usize)
        .min(PAGE);
    let skip = body["options"]["$skip"].as_u64().unwrap_or(0) as usize;
    let shown: Vec<Value> = rows.into_iter().skip(skip).take(top).collect();
    Ok(Reply::ok(
        json!({"totalRecords": total, "count": shown.len(), "data": shown, "facets": [],
        "resultTruncated": if total > shown.len() { "true" } else { "false" }}),
    ))
}

fn rows(turn: &Turn<'_>, call: &Call<'_>, table: &str) -> Result<Vec<Value>, Fault> {
    let subscription = &turn.settings.subscription;
    let sees = |id: &str| {
        access::may(
            turn,
            call.caller,
            "Microsoft.Resources/subscriptions/resources/read",
            id,
            false,
        )
    };
    match table.to_lowercase().as_str() {
        "resources" | "" => {
            let all = turn
                .under(&format!(
                    "arm/subscriptions/{}/",
                    subscription.to_lowercase()
                ))
                .into_iter();
            let documents = all.map(|(_, entry)| Document::read(entry));
            Ok(documents
                .filter(|d| sees(d.id()))
                .filter_map(|d| row(turn, d))
                .collect())
        }
        "resourcecontainers" => {
            let groups = group::all(turn, subscription)
                .into_iter()
                .filter(|g| sees(g.id()));
            Ok(groups
                .map(|mut g| {
                    g.body["type"] = json!("microsoft.resources/subscriptions/resourcegroups");
                    g.body
                })
                .collect())
        }
        other => Err(not_understood(other)),
    }
}

fn row(turn: &Turn<'_>, document: Document) -> Option<Value> {
    let id = Id::parse(document.id())?;
    let kind = super::kind::named(&id.kind()).filter(|kind| kind.has_location)?;
    let mut row = document.body;
    row["type"] = json!(kind.name.to_lowercase());
    row["resourceGroup"] = json!(id.group.unwrap_or_default().to_lowercase());
    row["subscriptionId"] = json!(id.subscription);
    row["tenantId"] = json!(turn.settings.tenant);
    Some(row)
}

/// Splits at a mark that does not stand in quotes.
fn split(text: &str, mark: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == mark => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("there is one").push(c);
    }
    parts
}

fn apply(mut rows: Vec<Value>, stage: &str) -> Result<Vec<Value>, Fault> {
    let (word, rest) = stage.split_once(char::is_whitespace).unwrap_or((stage, ""));
    let rest = rest.trim();
    match word.to_lowercase().as_str() {
        "where" => {
            let mut kept = Vec::new();
            for row in rows {
                if condition(&row, rest)? {
                    kept.push(row);
                }
            }
            Ok(kept)
        }
        "project" | "distinct" => {
            let mut shown: Vec<Value> = rows.iter().map(|row| project(row, rest)).collect();
            if word.eq_ignore_ascii_case("distinct") {
                let mut seen = Vec::new();
                shown.retain(|row| {
                    !seen.contains(row) && {
                        seen.push(row.clone());
                        true
                    }
                });
            }
            Ok(shown)
        }
        "extend" => Ok(rows
            .into_iter()
            .map(|mut row| {
                let more = project(&row, rest);
                super::document::overlay(&mut row, &more);
                row
            })
            .collect()),
        "limit" | "take" => {
            rows.truncate(rest.parse().map_err(|_| not_understood(stage))?);
            Ok(rows)
        }
        "order" | "sort" => {
            let rest = rest.trim_start_matches("by").trim();
            let mut words = rest.split_whitespace();
            let (path, is_down) = (
                words.next().unwrap_or_default(),
                words.next() != Some("asc"),
            );
            rows.sort_by_key(|row| plain(at(row, path)));
            if is_down {
                rows.reverse();
            }
            Ok(rows)
        }
        "count" => Ok(vec![json!({"Count": rows.len()})]),
        "summarize" => summarize(&rows, rest),
        _ => Err(not_understood(word)),
    }
}

fn summarize(rows: &[Value], rest: &str) -> Result<Vec<Value>, Fault> {
    let (what, by) = rest.split_once(" by ").unwrap_or((rest, ""));
    let name = what
        .split_once('=')
        .map_or("count_", |(name, _)| name.trim());
    if !what.replace(' ', "").ends_with("count()") {
        return Err(not_understood(what));
    }
    let mut counts: BTreeMap<String, (Value, usize)> = BTreeMap::new();
    for row in rows {
        let key = match by.trim() {
            "" => json!({}),
            by => project(row, by),
        };
        counts.entry(key.to_string()).or_insert((key, 0)).1 += 1;
    }
    Ok(counts
        .into_values()
        .map(|(mut key, count)| {
            key[name] = json!(count);
            key
        })
        .collect())
}

fn at<'v>(row: &'v Value, path: &str) -> &'v Value {
    let inner = path.trim();
    let inner = inner
        .strip_prefix("tostring(")
        .and_then(|p| p.strip_suffix(')'))
        .unwrap_or(inner);
    inner.split('.').fold(row, |value, part| {
        let (name, index) = part.split_once('[').unwrap_or((part, ""));
        let index = index.trim_end_matches(']').trim_matches(['\'', '"']);
        let found = &value[name];
        match (index, index.parse::<usize>()) {
            ("", _) => found,
            (_, Ok(number)) => &found[number],
            (key, _) => &found[key],
        }
    })
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn project(row: &Value, columns: &str) -> Value {
    let mut shown = Map::new();
    for column in split(columns, ',') {
        let (name, path) = column.split_once('=').unwrap_or((&column, &column));
        let name = name.trim().replace(['.', '['], "_").replace(']', "");
        shown.insert(name, at(row, path).clone());
    }
    Value::Object(shown)
}

/// `a == 'b' and c =~ 'd' or e contains 'f'`; `and` binds closer.
fn condition(row: &Value, text: &str) -> Result<bool, Fault> {
    for any in text.split(" or ") {
        let mut holds = true;
        for clause in any.split(" and ") {
            holds &= compare(row, clause.trim().trim_matches(['(', ')']))?;
        }
        if holds {
            return Ok(true);
        }
    }
    Ok(false)
}

fn compare(row: &Value, clause: &str) -> Result<bool, Fault> {
    let mut words = clause.splitn(3, char::is_whitespace);
    let (Some(path), Some(word), Some(value)) = (words.next(), words.next(), words.next()) else {
        return Err(not_understood(clause));
    };
    let found = plain(at(row, path));
    let bare = |text: &str| text.trim().trim_matches(['\'', '"']).to_owned();
    let wanted = bare(value);
    let (lower, wanted_lower) = (found.to_lowercase(), wanted.to_lowercase());
    Ok(match word {
        "==" => found == wanted,
        "!=" => found != wanted,
        "=~" => lower == wanted_lower,
        "!~" => lower != wanted_lower,
        "contains" | "has" => lower.contains(&wanted_lower),
        "startswith" => lower.starts_with(&wanted_lower),
        "endswith" => lower.ends_with(&wanted_lower),
        "in" | "in~" => {
            let list = value.trim().trim_matches(['(', ')']);
            split(list, ',')
                .iter()
                .any(|one| bare(one).to_lowercase() == lower)
        }
        other => return Err(not_understood(other)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_stages_one_after_the_other() {
        let rows = vec![
            json!({"name": "a", "type": "x/y", "location": "eastus", "properties": {"n": [{"v": 1}]}}),
            json!({"name": "b", "type": "x/y", "location": "westus"}),
            json!({"name": "c", "type": "z", "location": "eastus"}),
        ];
        for (stage, expected) in [
            ("where type =~ 'X/Y'", json!(["a", "b"])),
            ("where location == 'eastus' and type == 'z'", json!(["c"])),
            ("where name == 'a' or name == 'c'", json!(["a", "c"])),
            ("where name in ('a','b')", json!(["a", "b"])),
            ("order by name desc", json!(["c", "b", "a"])),
            ("limit 1", json!(["a"])),
        ] {
            let found = apply(rows.clone(), stage).unwrap();
            let names: Vec<&Value> = found.iter().map(|row| &row["name"]).collect();
            assert_eq!(json!(names), expected, "{stage}");
        }
        assert_eq!(apply(rows.clone(), "count").unwrap(), [json!({"Count": 3})]);
        assert_eq!(
            apply(rows.clone(), "project v = properties.n[0].v").unwrap()[0],
            json!({"v": 1})
        );
        assert_eq!(
            apply(rows.clone(), "summarize count() by type")
                .unwrap()
                .len(),
            2
        );
        assert!(apply(rows, "mv-expand x").is_err());
    }
}
