//! The table of tunnels: every measure over every route.

use serde_json::{Value, json};

use super::Size;
use super::load::{LOOKS, Measures, WORKERS};
use super::routes::{Front, Way, Whose};
use crate::picture::Bar;
use crate::report::{Better, middle, ratio};
use crate::section::{Section, with_unit};

/// What was measured, route by route, in every round.
pub(crate) struct Report {
    size: Size,
    measured: Vec<(Way, Vec<Measures>)>,
    /// Rounds of upstream's that came to nothing, and why.
    failures: Vec<String>,
}

/// One line of the table.
struct Row {
    name: &'static str,
    unit: &'static str,
    better: Better,
    value: fn(&Measures) -> Option<f64>,
    goal: Goal,
}

/// What ours shall be.
enum Goal {
    None,
    /// So many times better than upstream's: over HTTP, over gRPC.
    Times(f64, f64),
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

const MIB: f64 = 1024.0 * 1024.0;

#[rustfmt::skip]
fn rows() -> [Row; 17] {
    use Better::{Less, More};
    use Goal::{AtLeast, AtMost, None, Times};
    let row = |name, unit, better, goal, value| Row { name, unit, better, value, goal };
    [
        row("upload, 1 stream", "MiB/s", More, Times(3.0, 2.0), |m: &Measures| Some(m.upload.rate())),
        row("  CPU of both per GiB", "s", Less, Times(4.0, 4.0), |m| Some(m.upload.cpu())),
        row("download, 1 stream", "MiB/s", More, Times(3.0, 2.0), |m| Some(m.download.rate())),
        row("  CPU of both per GiB", "s", Less, Times(4.0, 4.0), |m| Some(m.download.cpu())),
        row("upload, many streams", "MiB/s", More, None, |m| Some(m.upload_many.rate())),
        row("  CPU of both per GiB", "s", Less, None, |m| Some(m.upload_many.cpu())),
        row("download, many streams", "MiB/s", More, None, |m| Some(m.download_many.rate())),
        row("  CPU of both per GiB", "s", Less, None, |m| Some(m.download_many.cpu())),
        row("round trip, p50", "us", Less, Times(2.5, 2.5), |m| Some(m.round_trip.0)),
        row("  p99", "us", Less, None, |m| Some(m.round_trip.1)),
        row("dials, 1 at a time", "/s", More, Times(2.0, 2.0), |m| Some(m.dials_alone.per_second())),
        row("dials, many at once", "/s", More, Times(2.0, 2.0), |m| Some(m.dials_together.per_second())),
        row("speed beside stalled ones", "%", More, AtLeast(95.0), |m| Some(m.beside_stalled * 100.0)),
        row("memory of one, idle", "MiB", Less, AtMost(6.0), |m| most(m.idle.iter().map(|bytes| *bytes as f64 / MIB))),
        row("  per tunnel, server", "KiB", Less, AtMost(8.0), |m| m.per_tunnel.first().map(|bytes| bytes / 1024.0)),
        row("  per tunnel, agent", "KiB", Less, AtMost(8.0), |m| m.per_tunnel.get(1).map(|bytes| bytes / 1024.0)),
        row("  of a server, many agents", "MiB", Less, AtMost(60.0), |m| m.with_agents.map(|bytes| bytes as f64 / MIB)),
    ]
}

impl Row {
    fn middle(&self, rounds: &[Measures]) -> Option<f64> {
        middle(rounds.iter().filter_map(self.value))
    }
}

fn most(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::max)
}

impl Report {
    pub(super) fn new(
        size: Size,
        measured: Vec<(Way, Vec<Measures>)>,
        failures: Vec<String>,
    ) -> Report {
        Report {
            size,
            measured,
            failures,
        }
    }

    /// The table of tunnels.
    pub(crate) fn section(&self) -> Section {
        let mut lines = vec![self.header()];
        lines.extend(rows().iter().map(|row| self.cells(row)));
        Section {
            key: "tunnels",
            lines,
            method: [self.method()].into_iter().chain(self.failed()).collect(),
            bars: rows().iter().filter_map(|row| self.bar(row)).collect(),
            json: self.json(),
        }
    }

    // Over HTTP CONNECT, which is what API servers use with it on one machine.
    fn bar(&self, row: &Row) -> Option<Bar> {
        let stands = !row.name.starts_with(' ');
        let ratio = self.ratio(row, Front::HttpConnect).filter(|_| stands)?;
        let goal = match row.goal {
            Goal::Times(http, _) => Some(http),
            _ => None,
        };
        let name = format!("tunnel: {}", row.name);
        Some(Bar { name, ratio, goal })
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = rows().iter().map(|row| {
            let routes = self.measured.iter().map(|(way, found)| (way.name(), json!(row.middle(found))));
            json!({"measure": row.name.trim(), "unit": row.unit, "routes": routes.collect::<serde_json::Map<_, _>>()})
        }).collect();
        json!({"rows": rows, "method": self.method(), "failures": self.failures})
    }

    fn header(&self) -> Vec<String> {
        let ways = self.measured.iter().map(|(way, _)| way.name());
        let fronts =
            [Front::HttpConnect, Front::Grpc].map(|front| format!("ratio, {}", front.name()));
        let mut header = vec!["tunnels".to_owned()];
        header.extend(ways.chain(fronts));
        header.extend(["goal".to_owned(), String::new()]);
        header
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let shown =
            |value: Option<f64>| value.map_or_else(String::new, |value| with_unit(value, row.unit));
        let ratios = [Front::HttpConnect, Front::Grpc].map(|front| self.ratio(row, front));
        let mut cells = vec![row.name.to_owned()];
        cells.extend(
            self.measured
                .iter()
                .map(|(way, found)| match (way, &*row.unit) {
                    // Nothing stands between the ends there.
                    (Way::Loopback, "s") => String::new(),
                    _ => shown(row.middle(found)),
                }),
        );
        cells.extend(
            ratios.map(|ratio| ratio.map_or_else(String::new, |ratio| format!("{ratio:.1}x"))),
        );
        cells.push(match row.goal {
            Goal::None => String::new(),
            Goal::Times(http, grpc) if http == grpc => format!("{http}x"),
            Goal::Times(http, grpc) => format!("{http}x, {grpc}x"),
            Goal::AtMost(most) => format!("<= {most} {}", row.unit),
            Goal::AtLeast(least) => format!(">= {least} {}", row.unit),
        });
        cells.push(self.verdict(row, ratios));
        cells
    }

    fn verdict(&self, row: &Row, ratios: [Option<f64>; 2]) -> String {
        let met = match (&row.goal, ratios) {
            (Goal::Times(http, grpc), [Some(over_http), Some(over_grpc)]) => {
                over_http >= *http && over_grpc >= *grpc
            }
            (Goal::AtMost(limit), _) => self.ours(row).all(|value| value <= *limit),
            (Goal::AtLeast(limit), _) => self.ours(row).all(|value| value >= *limit),
            _ => return String::new(),
        };
        if met { "met".into() } else { "missed".into() }
    }

    fn ours(&self, row: &Row) -> impl Iterator<Item = f64> {
        let ours = self
            .measured
            .iter()
            .filter(|(way, _)| matches!(way, Way::Tunnel(Whose::Ours(_), _)));
        ours.filter_map(|(_, found)| row.middle(found))
    }

    fn ratio(&self, row: &Row, front: Front) -> Option<f64> {
        let of = |ours: bool| {
            let mut found = self.measured.iter().filter(|(way, _)| match way {
                Way::Tunnel(Whose::Ours(_), found) => ours && *found == front,
                Way::Tunnel(Whose::Theirs(_), found) => !ours && *found == front,
                _ => false,
            });
            row.middle(&found.next()?.1)
        };
        // Nothing to compare with where upstream's comes to a standstill.
        Some(ratio(row.better, of(true)?, of(false)?)).filter(|ratio| ratio.is_finite())
    }

    fn failed(&self) -> Option<String> {
        let failures = self.failures.join("; ");
        (!failures.is_empty())
            .then(|| format!("Rounds that failed and were run again: {failures}."))
    }

    fn method(&self) -> String {
        let Size {
            upload,
            download,
            streams,
            round_trips,
            dials_alone,
            dials_together,
            tunnels,
            agents,
        } = self.size;
        let rounds = self.measured.first().map_or(0, |(_, found)| found.len());
        let mib = |bytes: u64| bytes >> 20;
        format!(
            "Tunnels: one agent, TLS with client certificates between it and the server, a Unix socket before it; one process is the client \
             (our dialer, for upstream's server too) and the far end. {} MiB up in writes of a TLS record, {} MiB down; many streams are {streams}. \
             {round_trips} round trips of 64 bytes; {dials_alone} dials one by one, {dials_together} by {WORKERS} workers, each with nine bytes out and \
             one back. Stalled: one that is not read and one whose far end does not read; the middle of {LOOKS} looks. Memory: VmRSS of the larger of server and agent with one agent, then with {tunnels} idle tunnels; of a server that was just started, with {agents} agents. The relay does the same \
             hops with a TLS connection per tunnel and multiplexes nothing. CPU: server and agent together, user and kernel. The middle one of {rounds} rounds, \
             in which the ways take turns.",
            mib(upload),
            mib(download)
        )
    }
}
