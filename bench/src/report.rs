//! The table: what was measured, the ratio, and the goal.

use serde_json::{Value, json};

use crate::load::{CONNECTIONS, Measures, READS_IN_FLIGHT, Size};
use crate::measure::Machine;
use crate::picture::{self, Bar};
use crate::roles;

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Better {
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
        match self.better {
            Better::More => ours / theirs,
            Better::Less => theirs / ours,
        }
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
    pub(crate) ours: Measures,
    pub(crate) upstream: Option<Upstream>,
}

/// The other server and its store.
pub(crate) struct Upstream {
    pub(crate) measures: Measures,
    pub(crate) etcd: String,
}

impl Report {
    /// For people.
    pub(crate) fn text(&self) -> String {
        format!("{}\n{}", aligned(&self.lines()), self.method().join("\n"))
    }

    /// For the repository: the same as a page that shows the picture of this name.
    pub(crate) fn page(&self, picture: &str) -> String {
        let mut lines = self.lines();
        let rule = ["---", "---:", "---:", "---:", "---:", "---"].map(str::to_owned);
        lines.insert(1, rule);
        let table: String = lines.iter().map(marked_up).collect();
        format!(
            "# Ours and upstream's\n\nThe last run of `make bench`, which writes this page and the picture.\n\n\
             ![How many times better ours is than upstream]({picture})\n\n{table}\n{}\n",
            self.method().join("\n\n")
        )
    }

    /// The measures that stand for themselves, as a picture. Those below one of them say how it came about.
    pub(crate) fn picture(&self) -> String {
        let rows = rows();
        let shown = rows.iter().filter(|row| !row.name.starts_with(' '));
        let bars: Vec<Bar> = shown.filter_map(|row| self.bar(row)).collect();
        picture::svg(
            "How many times better than upstream (a tick: our goal)",
            &bars,
        )
    }

    fn bar(&self, row: &Row) -> Option<Bar> {
        let ratio = row.ratio(self.ours(row), self.theirs(row)?);
        Some(Bar {
            name: row.name.to_owned(),
            ratio,
            goal: row.goal,
        })
    }

    fn lines(&self) -> Vec<[String; 6]> {
        let theirs = match self.upstream {
            Some(_) => "upstream",
            None => "upstream, not run here",
        };
        let header = ["measure", "ours", theirs, "ratio", "goal", ""].map(str::to_owned);
        let cells = rows().map(|row| self.cells(&row));
        std::iter::once(header).chain(cells).collect()
    }

    /// For machines.
    pub(crate) fn json(&self) -> Value {
        let rows: Vec<Value> = rows().iter().map(|row| {
            let (ours, theirs) = (self.ours(row), self.theirs(row));
            json!({"measure": row.name.trim(), "unit": row.unit, "ours": ours, "upstream": theirs,
                "ratio": theirs.map(|theirs| row.ratio(ours, theirs)), "goal": row.goal})
        }).collect();
        json!({"rows": rows, "upstreamRunHere": self.upstream.is_some(), "machine": self.machine,
            "method": self.method()})
    }

    fn cells(&self, row: &Row) -> [String; 6] {
        let (ours, theirs) = (self.ours(row), self.theirs(row));
        let ratio = theirs.map(|theirs| row.ratio(ours, theirs));
        let verdict = match (ratio, row.goal) {
            (Some(ratio), Some(goal)) if ratio >= goal => "met",
            (Some(_), Some(_)) => "missed",
            _ => "",
        };
        [
            row.name.to_owned(),
            with_unit(ours, row.unit),
            theirs.map_or_else(String::new, |value| with_unit(value, row.unit)),
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.1}x")),
            row.goal.map_or_else(String::new, |goal| format!("{goal}x")),
            verdict.to_owned(),
        ]
    }

    fn ours(&self, row: &Row) -> f64 {
        (row.value)(&self.ours)
    }

    fn theirs(&self, row: &Row) -> Option<f64> {
        match &self.upstream {
            Some(upstream) => Some((row.value)(&upstream.measures)),
            None => row.elsewhere,
        }
    }

    fn method(&self) -> [String; 4] {
        let (machine, size) = (&self.machine, self.size);
        let upstream = match &self.upstream {
            Some(upstream) => format!(
                "against kube-apiserver {} with {} in the same run",
                upstream.measures.version, upstream.etcd
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
                self.ours.version
            ),
            format!(
                "Load: one process over TLS and HTTP/2; {}+{} ConfigMaps of 1 KiB, {} gets, {} lists ({:.1} MB), {} updates to {} watchers (each on its own connection, then over {}); {} nodes ({:.1} KiB), {} pods ({:.1} KiB) on fresh data, each status patched once.",
                size.creates_alone,
                size.creates_together,
                size.gets,
                size.lists,
                self.ours.list_bytes as f64 / 1e6,
                size.updates,
                size.watchers,
                CONNECTIONS,
                size.nodes,
                self.ours.node_bytes as f64 / 1024.0,
                size.pods,
                self.ours.pod_bytes as f64 / 1024.0
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
                "Ready: median of {}, to /readyz (etcd up before). Memory: VmRSS of all server processes after 3 s of rest. CPU: theirs, user and kernel. A ratio says how many times better ours is.",
                size.starts
            ),
        ]
    }
}

// The first and the last column read from the left, numbers from the right.
fn aligned(lines: &[[String; 6]]) -> String {
    let width = |column: usize| lines.iter().map(|l| l[column].len()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for [name, numbers @ .., verdict] in lines {
        text.push_str(&format!("{name:<0$}", widths[0]));
        for (number, width) in numbers.iter().zip(&widths[1..]) {
            text.push_str(&format!("   {number:>width$}"));
        }
        text.push_str(&format!("   {verdict}"));
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

// What is indented in the table of a terminal keeps its place below what it belongs to.
fn marked_up([name, rest @ ..]: &[String; 6]) -> String {
    let name = name.replace("  ", "&nbsp;&nbsp;");
    format!("| {name} | {} |\n", rest.join(" | "))
}

fn with_unit(value: f64, unit: &str) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        3
    };
    let space = if unit.starts_with('/') { "" } else { " " };
    format!("{value:.digits$}{space}{unit}")
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

    #[test]
    fn an_indented_row_stays_indented_on_the_page() {
        let cells = ["  CPU", "1 ms", "2 ms", "2.0x", "", ""].map(str::to_owned);
        assert_eq!(
            marked_up(&cells),
            "| &nbsp;&nbsp;CPU | 1 ms | 2 ms | 2.0x |  |  |\n"
        );
    }

    #[test]
    fn numbers_keep_three_digits_or_more() {
        assert_eq!(with_unit(0.1234, "ms"), "0.123 ms");
        assert_eq!(with_unit(25.61, "MiB"), "25.6 MiB");
        assert_eq!(with_unit(5_450.2, "/s"), "5450/s");
    }
}
