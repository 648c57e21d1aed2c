//! Labels and taints of nodes that are there, when their pool gets others: AKS changes nodes for that, it makes none anew.

use serde_json::{Value, json};

use super::node_spec::Cluster;
use crate::client::Client;
use crate::exit::{Code, Result};
use crate::pools::{Machine, Pool, Pools};

/// How often a node is tried that others write.
const TRIES: usize = 10;

/// What a pool says of one of its nodes.
#[derive(Debug, PartialEq)]
struct Style {
    labels: Value,
    taints: Vec<Value>,
}

impl Style {
    fn of(pools: &Pools, pool: &Pool, machine: &Machine) -> Style {
        Style {
            labels: Cluster::labels(pools, pool, machine),
            taints: pool.taints.iter().map(|text| taint(text)).collect(),
        }
    }
}

/// `key=value:Effect` as nodes have it.
fn taint(text: &str) -> Value {
    let (pair, effect) = text.rsplit_once(':').unwrap_or((text, "NoSchedule"));
    match pair.split_once('=') {
        Some((key, value)) => json!({"key": key, "value": value, "effect": effect}),
        None => json!({"key": pair, "effect": effect}),
    }
}

/// Brings nodes that stay from what their pools said to what they say now.
pub(super) async fn follow(client: &Client, before: &Pools, after: &Pools) -> Result<()> {
    for (pool, machine) in after.machines() {
        let name = pool.node_name(machine.number);
        let was =
            (before.machines()).find(|(pool, machine)| pool.node_name(machine.number) == name);
        let Some((old_pool, old)) = was.filter(|(_, old)| !old.is_stale(machine)) else {
            continue;
        };
        let styles = (
            Style::of(before, old_pool, old),
            Style::of(after, pool, machine),
        );
        if styles.0 != styles.1 {
            change(client, &name, &styles).await?;
        }
    }
    Ok(())
}

async fn change(client: &Client, name: &str, (before, after): &(Style, Style)) -> Result<()> {
    let path = format!("/api/v1/nodes/{name}");
    for _ in 0..TRIES {
        let node = match client.get(&path).await {
            Err(failure) if failure.code == Code::NotFound => return Ok(()),
            node => node?,
        };
        match client.merge(&path, &restyled(&node, before, after)).await {
            Err(failure) if failure.code == Code::Conflict => {}
            other => return other.map(drop),
        }
    }
    Ok(())
}

/// The change that takes a node from one style to another; what others gave it stays.
fn restyled(node: &Value, before: &Style, after: &Style) -> Value {
    let mut labels = after.labels.clone();
    let old = before.labels.as_object().into_iter().flatten();
    for (label, _) in old.filter(|(label, _)| after.labels.get(label).is_none()) {
        labels[label] = Value::Null;
    }
    let is_same = |a: &Value, b: &Value| a["key"] == b["key"] && a["effect"] == b["effect"];
    let ours = before.taints.iter().chain(&after.taints);
    let ours: Vec<&Value> = ours.collect();
    let present = node["spec"]["taints"].as_array().into_iter().flatten();
    let others = present.filter(|taint| !ours.iter().any(|own| is_same(own, taint)));
    let taints: Vec<&Value> = others.chain(&after.taints).collect();
    json!({"metadata": {"labels": labels, "resourceVersion": node["metadata"]["resourceVersion"]},
        "spec": {"taints": taints}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_lose_what_their_pool_no_longer_says_and_keep_what_others_gave_them() {
        let style = |labels: Value, taints: &[&str]| Style {
            labels,
            taints: taints.iter().map(|text| taint(text)).collect(),
        };
        let node = json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": [
            {"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "others", "effect": "NoExecute"}]}});
        let before = style(json!({"team": "blue", "same": "1"}), &["a=b:NoSchedule"]);
        let after = style(json!({"tier": "x", "same": "1"}), &["c:NoExecute"]);
        let patch = restyled(&node, &before, &after);
        assert_eq!(
            patch["metadata"]["labels"],
            json!({"tier": "x", "same": "1", "team": null})
        );
        assert_eq!(
            patch["spec"]["taints"],
            json!([{"key": "others", "effect": "NoExecute"}, {"key": "c", "effect": "NoExecute"}])
        );
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
    }
}
