//! The table: what was measured, the ratio, and the goal.

use serde_json::{Value, json};

use crate::load::{CONNECTIONS, Measures, READS_IN_FLIGHT, Size};
use crate::measure::Machine;
use crate::picture::Bar;
use crate::roles;
use crate::section::{Section, with_unit};

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

/// One line of the table.
struct Row {
    name: &'static str,
    unit: &'static str,
    better: Better,
    value: fn(&Measures) -> f64,
    /// How many times better than upstream ours shall be.
    goal: Option<f64>,
    /// Upstream 1.36 measured on another machine of two cores, for when it is not run here.
    elsewhere: Option<f64>,
}

const MIB: f64 = 1024.0 * 1024.0;

const fn row(
    name: &'static str,
    unit: &'static str,
    better: Better,
    value: fn(&Measures) -> f64,
) -> Row {
    Row {
        name,
        unit,
        better,
        value,
        goal: None,
        elsewhere: None,
    }
}

impl Row {
    const fn goal(mut self, goal: f64, elsewhere: f64) -> Row {
        self.goal = Some(goal);
        self.elsewhere = Some(elsewhere);
        self
    }

    fn ratio(&self, ours: f64, theirs: f64) -> f64 {
        ratio(self.better, ours, theirs)
    }

    /// The middle one of all rounds: a machine that others share is slow at times, and not for one server only.
    fn middle(&self, rounds: &[Measures]) -> f64 {
        middle(rounds.iter().map(self.value)).expect("there is a round")
    }
}

/// The middle one, the upper one of two.
pub(crate) fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// How many times better ours is.
pub(crate) fn ratio(better: Better, ours: f64, theirs: f64) -> f64 {
    match better {
        Better::More => ours / theirs,
        Better::Less => theirs / ours,
    }
}

#[rustfmt::skip]
fn rows() -> [Row; 21] {
    use Better::{Less, More};
    [
        row("ready after exec", "ms", Less, |m| m.ready.as_secs_f64() * 1e3).goal(20.0, 3_500.0),
        row("memory, idle", "MiB", Less, |m| m.idle_memory as f64 / MIB).goal(12.0, 318.0),
        row("create, 1 client", "/s", More, |m| m.create_alone.per_second()).goal(2.0, 263.0),
        row("  CPU per create", "ms", Less, |m| m.create_alone.cpu_millis()),
        row("create, 64 clients", "/s", More, |m| m.create_together.per_second()).goal(10.0, 545.0),
        row("  CPU per create", "ms", Less, |m| m.create_together.cpu_millis()),
        row("get, 1 client", "/s", More, |m| m.get.per_second()).goal(8.0, 525.0),
        row("  CPU per get", "ms", Less, |m| m.get.cpu_millis()),
        row("list of all those", "ms", Less, |m| m.list.wall_millis()).goal(10.0, 253.0),
        row("  CPU per list", "ms", Less, |m| m.list.cpu_millis()),
        row("fan-out, CPU per update", "ms", Less, |m| m.fan_out.cpu_millis()).goal(10.0, 9.0),
        row("  time per update", "ms", Less, |m| m.fan_out.wall_millis()),
        row("  the same, shared connections", "ms", Less, |m| m.fan_out_shared.cpu_millis()).goal(10.0, 9.0),
        row("  time per update", "ms", Less, |m| m.fan_out_shared.wall_millis()),
        row("memory after all that", "MiB", Less, |m| m.loaded_memory as f64 / MIB),
        row("memory, nodes and pods", "MiB", Less, |m| m.cluster_memory as f64 / MIB).goal(12.0, 810.0),
        row("  CPU per write of them", "ms", Less, |m| m.cluster.cpu_millis()),
        row("authorized get, few roles", "/s", More, |m| m.authorized.per_second()),
        row("  CPU per get", "ms", Less, |m| m.authorized.cpu_millis()),
        row("authorized get, many roles", "/s", More, |m| m.authorized_among_many.per_second()),
        row("  CPU per get", "ms", Less, |m| m.authorized_among_many.cpu_millis()),
    ]
}

/// Everything there is to say.
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) size: Size,
    /// Of every round; at least one.
    pub(crate) ours: Vec<Measures>,
    pub(crate) upstream: Option<Upstream>,
}

/// The other server and its store.
pub(crate) struct Upstream {
    /// Of every round; at least one.
    pub(crate) measures: Vec<Measures>,
    pub(crate) etcd: String,
}

impl Report {
    /// The table of the API server.
    pub(crate) fn section(&self) -> Section {
        let theirs = match self.upstream {
            Some(_) => "upstream",
            None => "upstream, not run here",
        };
        let header = ["measure", "ours", theirs, "ratio", "goal", ""];
        let mut lines = vec![header.map(str::to_owned).to_vec()];
        lines.extend(rows().iter().map(|row| self.cells(row)));
        Section {
            key: "api",
            lines,
            method: self.method().to_vec(),
            bars: rows().iter().filter_map(|row| self.bar(row)).collect(),
            json: self.json(),
        }
    }

    // Rows below another say how it came about, and stay out of the picture.
    fn bar(&self, row: &Row) -> Option<Bar> {
        let stands = !row.name.starts_with(' ');
        let theirs = self.theirs(row).filter(|_| stands)?;
        Some(Bar {
            name: row.name.to_owned(),
            ratio: row.ratio(self.ours(row), theirs),
            goal: row.goal,
        })
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = rows().iter().map(|row| {
            let (ours, theirs) = (self.ours(row), self.theirs(row));
            json!({"measure": row.name.trim(), "unit": row.unit, "ours": ours, "upstream": theirs,
                "ratio": theirs.map(|theirs| row.ratio(ours, theirs)), "goal": row.goal})
        }).collect();
        json!({"rows": rows, "upstreamRunHere": self.upstream.is_some(), "machine": self.machine,
            "method": self.method()})
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let (ours, theirs) = (self.ours(row), self.theirs(row));
        let ratio = theirs.map(|theirs| row.ratio(ours, theirs));
        let verdict = match (ratio, row.goal) {
            (Some(ratio), Some(goal)) if ratio >= goal => "met",
            (Some(_), Some(_)) => "missed",
            _ => "",
        };
        vec![
            row.name.to_owned(),
            with_unit(ours, row.unit),
            theirs.map_or_else(String::new, |value| with_unit(value, row.unit)),
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.1}x")),
            row.goal.map_or_else(String::new, |goal| format!("{goal}x")),
            verdict.to_owned(),
        ]
    }

    fn ours(&self, row: &Row) -> f64 {
        row.middle(&self.ours)
    }

    fn theirs(&self, row: &Row) -> Option<f64> {
        match &self.upstream {
            Some(upstream) => Some(row.middle(&upstream.measures)),
            None => row.elsewhere,
        }
    }

    fn method(&self) -> [String; 4] {
        let (machine, size, ours) = (&self.machine, self.size, &self.ours[0]);
        let upstream = match &self.upstream {
            Some(upstream) => format!(
                "against kube-apiserver {} with {} in the same run",
                upstream.measures[0].version, upstream.etcd
            ),
            None => {
                "upstream's figures are from another machine of 2 cores (UPSTREAM_BIN runs it here)"
                    .into()
            }
        };
        [
            format!(
                "On {} cores ({}), Linux {}, {}; every write synced, which takes {} us here; {:.0} % busy before. Ours {}; {upstream}.",
                machine.cores,
                machine.processor,
                machine.kernel,
                machine.filesystem,
                machine.sync_micros,
                machine.busy * 100.0,
                ours.version
            ),
            format!(
                "Load: one process over TLS and HTTP/2; {}+{} ConfigMaps of 1 KiB, {} gets, {} lists ({:.1} MB), {} updates to {} watchers (each on its own connection, then over {}); {} nodes ({:.1} KiB), {} pods ({:.1} KiB) on fresh data, each status patched once.",
                size.creates_alone,
                size.creates_together,
                size.gets,
                size.lists,
                ours.list_bytes as f64 / 1e6,
                size.updates,
                size.watchers,
                CONNECTIONS,
                size.nodes,
                ours.node_bytes as f64 / 1024.0,
                size.pods,
                ours.pod_bytes as f64 / 1024.0
            ),
            format!(
                "Authorized: {} gets, {READS_IN_FLIGHT} at once over {} connections, by a user with a certificate and one RoleBinding; then the same among {} roles and {} bindings of other users, half of them of the cluster, half over {} namespaces.",
                size.authorized_gets,
                CONNECTIONS,
                size.roles,
                size.bindings,
                roles::NAMESPACES
            ),
            format!(
                "The middle one of {} rounds, in which ours and upstream take turns. Ready: median of {}, to /readyz (etcd up before). Memory: VmRSS of all server processes after 3 s of rest. CPU: theirs, user and kernel. A ratio says how many times better ours is.",
                self.ours.len(),
                size.starts
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_above_one_is_better_whatever_the_measure() {
        let faster = row("", "/s", Better::More, |_| 0.0);
        assert_eq!(faster.ratio(20.0, 10.0), 2.0);
        let smaller = row("", "MiB", Better::Less, |_| 0.0);
        assert_eq!(smaller.ratio(10.0, 20.0), 2.0);
    }
}
