//! `kyanite rehearse upgrade`: what would keep nodes from being drained, before anybody tries.

use serde_json::{Value, json};

use super::drain;
use crate::cli::doctor::{RehearseCommand, RehearseUpgrade};
use crate::client::Client;
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};
use crate::printer::Printer;

/// What would happen to a pod.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It is made again elsewhere.
    Moves,
    /// It may not be evicted, and why.
    Stays(String),
    /// Nobody makes it again.
    Lost,
}

/// Rehearses what is asked for; the exit code says whether something would stop it.
pub(super) async fn run(command: RehearseCommand, printer: &Printer) -> Result<()> {
    let RehearseCommand::Upgrade(command) = command;
    let client = match &command.kubeconfig {
        Some(file) => Client::of_file(file.clone()).await?,
        None => Client::of_running(&DataDir::find(&command.place)?).await?,
    };
    let list = async |path: &str| -> Result<Vec<Value>> {
        let mut found = client.get(path).await?;
        Ok(found["items"]
            .take()
            .as_array()
            .cloned()
            .unwrap_or_default())
    };
    let nodes = list("/api/v1/nodes").await?;
    let pods = list("/api/v1/pods").await?;
    let budgets = list("/apis/policy/v1/poddisruptionbudgets").await?;
    let rows = rehearse(&nodes, &pods, &budgets, &command);
    let (lines, blocked) = told(&rows);
    printer.result(
        &lines.join("\n"),
        &json!(rows.iter().map(value).collect::<Vec<_>>()),
    );
    match blocked {
        0 => Ok(()),
        1 => Err(Failure::new(Code::Conflict, "1 node would not be drained")),
        many => Err(Failure::new(
            Code::Conflict,
            format!("{many} nodes would not be drained"),
        )),
    }
}

/// A node, and its pods that a drain concerns.
type Row = (String, Vec<(String, Fate)>);

fn rehearse(
    nodes: &[Value],
    pods: &[Value],
    budgets: &[Value],
    asked: &RehearseUpgrade,
) -> Vec<Row> {
    let is_meant = |node: &&Value| {
        let pool = node["metadata"]["labels"]["agentpool"].as_str();
        asked.pool.is_none() || asked.pool.as_deref() == pool
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |node: &Value| {
        let own = pods
            .iter()
            .filter(|pod| pod["spec"]["nodeName"] == node["metadata"]["name"]);
        let own: Vec<Value> = own.cloned().collect();
        let fates = drain::leaving(&own).into_iter().map(|pod| {
            let meta = &pod["metadata"];
            let name = format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]));
            (name, fate(pod, budgets))
        });
        (text(&node["metadata"]["name"]), fates.collect())
    };
    nodes.iter().filter(is_meant).map(row).collect()
}

/// As the API server decides about an eviction, with budgets as they are now: pods that moved are well again elsewhere
/// before the next one is asked.
fn fate(pod: &Value, budgets: &[Value]) -> Fate {
    let own = drain::budgets_of(budgets, pod);
    let is_controlled = pod["metadata"]["ownerReferences"]
        .as_array()
        .is_some_and(|all| all.iter().any(|owner| owner["controller"] == true));
    let name = |budget: &Value| {
        budget["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    match own.as_slice() {
        [] if is_controlled => Fate::Moves,
        [] => Fate::Lost,
        [budget] => {
            let status = &budget["status"];
            let number = |field: &str| status[field].as_i64().unwrap_or(0);
            let conditions = pod["status"]["conditions"].as_array();
            let is_ready = (conditions.into_iter().flatten())
                .any(|c| c["type"] == "Ready" && c["status"] == "True");
            let is_spare = !is_ready
                && (budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
                    || number("currentHealthy") >= number("desiredHealthy"));
            match number("disruptionsAllowed") > 0 || is_spare {
                true if is_controlled => Fate::Moves,
                true => Fate::Lost,
                false => Fate::Stays(format!(
                    "the budget {} needs {} healthy pods and has {}",
                    name(budget),
                    number("desiredHealthy"),
                    number("currentHealthy")
                )),
            }
        }
        several => {
            let names: Vec<String> = several.iter().map(|budget| name(budget)).collect();
            Fate::Stays(format!(
                "it counts for several budgets: {}",
                names.join(", ")
            ))
        }
    }
}

fn told(rows: &[Row]) -> (Vec<String>, usize) {
    let (mut lines, mut blocked) = (Vec::new(), 0);
    for (node, pods) in rows {
        let stays = pods.iter().any(|(_, fate)| matches!(fate, Fate::Stays(_)));
        blocked += usize::from(stays);
        let verdict = if stays {
            "would not be drained"
        } else {
            "would be drained"
        };
        let moving = pods.iter().filter(|(_, fate)| *fate == Fate::Moves);
        lines.push(format!("{node}: {verdict}, {} pods move", moving.count()));
        lines.extend(pods.iter().filter_map(|(pod, fate)| match fate {
            Fate::Moves => None,
            Fate::Stays(why) => Some(format!("  {pod} stays: {why}")),
            Fate::Lost => Some(format!("  {pod} is lost: nobody makes it again")),
        }));
    }
    (lines, blocked)
}

fn value((node, pods): &Row) -> Value {
    let pods = pods.iter().map(|(pod, fate)| match fate {
        Fate::Moves => json!({"pod": pod, "fate": "moves"}),
        Fate::Stays(why) => json!({"pod": pod, "fate": "stays", "why": why}),
        Fate::Lost => json!({"pod": pod, "fate": "lost"}),
    });
    json!({"node": node, "pods": pods.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_happen_to_pods_in_an_upgrade() {
        let pod = |app: &str, owned: bool, ready: &str| {
            let owners = match owned {
                true => json!([{"kind": "ReplicaSet", "controller": true}]),
                false => json!([]),
            };
            json!({"metadata": {"namespace": "n", "labels": {"app": app}, "ownerReferences": owners},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let budget = |name: &str, app: &str, allowed: i64, healthy: i64| {
            json!({"metadata": {"namespace": "n", "name": name}, "spec": {"selector": {"matchLabels": {"app": app}}},
                "status": {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": 1, "expectedPods": 1}})
        };
        let budgets = [
            budget("tight", "a", 0, 1),
            budget("loose", "b", 1, 2),
            budget("one", "c", 1, 2),
            budget("two", "c", 1, 2),
        ];
        let stays = |why: &str| Fate::Stays(why.into());
        for (app, owned, ready, expected) in [
            (
                "a",
                true,
                "True",
                stays("the budget tight needs 1 healthy pods and has 1"),
            ),
            ("a", true, "False", Fate::Moves),
            ("b", true, "True", Fate::Moves),
            ("b", false, "True", Fate::Lost),
            (
                "c",
                true,
                "True",
                stays("it counts for several budgets: one, two"),
            ),
            ("d", true, "True", Fate::Moves),
            ("d", false, "True", Fate::Lost),
        ] {
            assert_eq!(
                fate(&pod(app, owned, ready), &budgets),
                expected,
                "{app} {owned} {ready}"
            );
        }
    }
}
