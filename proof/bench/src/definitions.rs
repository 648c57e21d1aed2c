//! Custom resources next to ConfigMaps, many definitions, and what a rule costs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::client::{Client, JSON, Write};
use crate::load::{self, CONNECTIONS, IN_FLIGHT, SETTLE};
use crate::measure::Cost;
use crate::report::{Better, middle, ratio};
use crate::sample;
use crate::section::{Section, with_unit};
use crate::servers::{Extent, Kind, Server};

const GROUP: &str = "bench.example.com";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WITHIN: Duration = Duration::from_secs(600);
const MIB: f64 = 1024.0 * 1024.0;

/// How much of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) objects: u32,
    pub(crate) gets: u32,
    pub(crate) lists: u32,
    pub(crate) definitions: u32,
    pub(crate) ruled: u32,
    /// Elements that a rule looks at in each object.
    pub(crate) elements: u32,
}

pub(crate) const FULL: Size = Size {
    objects: 5_000,
    gets: 3_000,
    lists: 5,
    definitions: 1_000,
    ruled: 500,
    elements: 500,
};

pub(crate) const QUICK: Size = Size {
    objects: 300,
    gets: 200,
    lists: 2,
    definitions: 50,
    ruled: 30,
    elements: 500,
};

/// Create, get and list of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Verbs {
    create: Cost,
    get: Cost,
    list: Cost,
}

/// Everything measured of one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measures {
    config_maps: Verbs,
    custom: Verbs,
    /// Of objects whose lists a rule looks over, and of the same without the rule.
    ruled: Cost,
    unruled: Cost,
    /// Until the last of many definitions is served, and what the server has grown by.
    installed: Duration,
    grown: u64,
}

/// Runs everything against one kind of server.
pub(crate) async fn run(kind: &Kind, dir: &Path, size: Size, say: fn(&str)) -> Result<Measures> {
    let server = kind.start(dir, Extent::ApiServer).await?;
    let client = Client::connect(&server.access).await?;
    client.write(&sample::namespace("bench")).await?;
    for (plural, kind, rule) in [
        ("papers", "Paper", None),
        ("ruleds", "Ruled", Some("self.all(x, x < 100000)")),
        ("unruleds", "Unruled", None),
    ] {
        client.write(&definition(plural, kind, rule)).await?;
        served(&client, plural).await?;
    }
    say("ConfigMaps");
    let maps = sample::config_maps("bench");
    let config_maps = verbs(&server, &maps, size, |n| sample::config_map("bench", n)).await?;
    say("custom resources");
    let custom = verbs(&server, &path("papers"), size, paper).await?;
    say("rules");
    let listed = |plural: &'static str, kind: &'static str| {
        (0..size.ruled)
            .map(|n| with_list(plural, kind, n, size.elements))
            .collect::<Vec<Write>>()
    };
    let clients = load::connections(&server.access, 1).await?;
    let processes = server.processes();
    let unruled = load::write_all(&processes, &clients, 1, &listed("unruleds", "Unruled")).await?;
    let ruled = load::write_all(&processes, &clients, 1, &listed("ruleds", "Ruled")).await?;
    server.stop().await?;
    say("definitions");
    let (installed, grown) = install(kind, dir, size).await?;
    Ok(Measures {
        config_maps,
        custom,
        ruled: ruled.0,
        unruled: unruled.0,
        installed,
        grown,
    })
}

async fn verbs(
    server: &Server,
    path: &str,
    size: Size,
    create: impl Fn(u32) -> Write,
) -> Result<Verbs> {
    let processes = server.processes();
    let clients = load::connections(&server.access, CONNECTIONS).await?;
    let writes: Vec<Write> = (0..size.objects).map(create).collect();
    let (create, _) = load::write_all(&processes, &clients, IN_FLIGHT, &writes).await?;
    let gets = async {
        for number in 0..size.gets {
            let number = number % size.objects;
            clients[0]
                .get(&format!("{path}/settings-{number:05}"))
                .await?;
        }
        Ok(())
    };
    let (get, ()) = processes.cost(size.gets, gets).await?;
    let lists = async {
        for _ in 0..size.lists {
            clients[0].drain(path).await?;
        }
        Ok(())
    };
    let (list, ()) = processes.cost(size.lists, lists).await?;
    Ok(Verbs { create, get, list })
}

// On a server of its own: what it grows by is theirs.
async fn install(kind: &Kind, dir: &Path, size: Size) -> Result<(Duration, u64)> {
    let server = kind.start(dir, Extent::ApiServer).await?;
    let (client, processes) = (Client::connect(&server.access).await?, server.processes());
    client.write(&large(size.definitions)).await?;
    sleep(SETTLE).await;
    let (before, start) = (processes.resident()?, Instant::now());
    for number in 0..size.definitions {
        client.write(&large(number)).await?;
    }
    served(&client, &format!("things{}", size.definitions - 1)).await?;
    let installed = start.elapsed();
    sleep(SETTLE).await;
    let grown = processes.resident()?.saturating_sub(before);
    server.stop().await?;
    Ok((installed, grown))
}

async fn served(client: &Client, plural: &str) -> Result<()> {
    let place = format!("/apis/{GROUP}/v1/{plural}");
    let start = Instant::now();
    while client.get(&place).await.is_err() {
        ensure!(start.elapsed() < WITHIN, "{plural} is not served");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn path(plural: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/bench/{plural}")
}

fn create(path: String, object: &Value) -> Write {
    Write {
        method: "POST",
        path,
        content_type: JSON,
        body: object.to_string().into_bytes(),
    }
}

fn crd(plural: &str, kind: &str, scope: &str, spec: Value) -> Write {
    let object = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {"group": GROUP, "scope": scope, "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec}}}}]}});
    create(DEFINITIONS.into(), &object)
}

fn definition(plural: &str, kind: &str, rule: Option<&str>) -> Write {
    let mut list = json!({"type": "array", "maxItems": 1000, "items": {"type": "integer"}});
    if let Some(rule) = rule {
        list["x-kubernetes-validations"] = json!([{ "rule": rule }]);
    }
    let spec = json!({"type": "object", "properties": {"payload": {"type": "string"},
        "owner": {"type": "string", "default": "nobody"}, "list": list}});
    crd(plural, kind, "Namespaced", spec)
}

// As large as the middle one of those that cloud providers bring: about 29 KiB.
fn large(number: u32) -> Write {
    let words = "what a controller is told to make of it, and what it is to do where that cannot be made, in many words";
    let leaf = json!({"type": "string", "description": words});
    let fields = |below: &Value| -> Value {
        let fields = (0..12).map(|n| (format!("field{n}"), below.clone()));
        fields.collect::<serde_json::Map<_, _>>().into()
    };
    let object = |below: &Value| json!({"type": "object", "description": words, "properties": fields(below)});
    let spec = object(&object(&leaf));
    crd(
        &format!("things{number}"),
        &format!("Thing{number}"),
        "Cluster",
        spec,
    )
}

fn paper(number: u32) -> Write {
    let payload = format!("{number:016}").repeat(64);
    let object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Paper",
        "metadata": {"name": format!("settings-{number:05}"), "labels": {"app": "bench"}},
        "spec": {"payload": payload, "owner": "somebody"}});
    create(path("papers"), &object)
}

fn with_list(plural: &str, kind: &str, number: u32, elements: u32) -> Write {
    let list: Vec<u32> = (0..elements).collect();
    let object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {"name": format!("o{number:05}")}, "spec": {"list": list}});
    create(path(plural), &object)
}

/// The rounds of both servers.
pub(crate) struct Report {
    pub(crate) size: Size,
    /// At least one.
    pub(crate) ours: Vec<Measures>,
    pub(crate) theirs: Vec<Measures>,
}

type Figure = fn(&Measures) -> f64;

/// Name, unit, which way is better, the figure, and how many times better than upstream ours shall be.
#[rustfmt::skip]
fn rows() -> [(&'static str, &'static str, Better, Figure, Option<f64>); 11] {
    use Better::{Less, More};
    [
        ("create custom resources, 64 clients", "/s", More, |m| m.custom.create.per_second(), Some(8.0)),
        ("  ConfigMaps", "/s", More, |m| m.config_maps.create.per_second(), None),
        ("  CPU per create", "ms", Less, |m| m.custom.create.cpu_millis(), None),
        ("  of a ConfigMap", "ms", Less, |m| m.config_maps.create.cpu_millis(), None),
        ("get custom resources, 1 client", "/s", More, |m| m.custom.get.per_second(), Some(8.0)),
        ("  ConfigMaps", "/s", More, |m| m.config_maps.get.per_second(), None),
        ("list of all custom resources", "ms", Less, |m| m.custom.list.wall_millis(), Some(8.0)),
        ("  ConfigMaps", "ms", Less, |m| m.config_maps.list.wall_millis(), None),
        ("many definitions installed", "s", Less, |m| m.installed.as_secs_f64(), Some(10.0)),
        ("memory that they take", "MiB", Less, |m| m.grown as f64 / MIB, None),
        ("  CPU of a write with a rule, beyond one without", "ms", Less,
            |m| (m.ruled.cpu_millis() - m.unruled.cpu_millis()).max(0.0), None),
    ]
}

impl Report {
    /// The table.
    pub(crate) fn section(&self) -> Section {
        let header = ["measure", "ours", "upstream", "ratio", "goal", ""];
        let mut lines = vec![header.map(str::to_owned).to_vec()];
        let mut figures = Vec::new();
        for (name, unit, better, figure, goal) in rows() {
            let of = |rounds: &[Measures]| middle(rounds.iter().map(figure));
            let ours = of(&self.ours).unwrap_or_default();
            let theirs = of(&self.theirs);
            let times = theirs.map(|theirs| ratio(better, ours, theirs));
            let verdict = match (times, goal) {
                (Some(times), Some(goal)) if times >= goal => "met",
                (Some(_), Some(_)) => "missed",
                _ => "",
            };
            lines.push(vec![
                name.to_owned(),
                with_unit(ours, unit),
                theirs.map_or_else(String::new, |value| with_unit(value, unit)),
                times.map_or_else(String::new, |times| format!("{times:.1}x")),
                goal.map_or_else(String::new, |goal| format!("{goal}x")),
                verdict.to_owned(),
            ]);
            figures.push(
                json!({"measure": name.trim(), "unit": unit, "ours": ours, "upstream": theirs,
                "ratio": times, "goal": goal}),
            );
        }
        Section {
            key: "definitions",
            lines,
            method: vec![self.method()],
            bars: Vec::new(),
            json: json!({ "rows": figures }),
        }
    }

    fn method(&self) -> String {
        let size = self.size;
        format!(
            "Custom resources with 1 KiB of data, a default and a label, {} of each kind, {} gets, {} lists; {} definitions of 29 KiB one after the other, until the last is served, on a server of its own, VmRSS after 3 s of rest; {} objects with {} numbers, each looked at by a rule (`self.all(x, x < 100000)`).",
            size.objects, size.gets, size.lists, size.definitions, size.ruled, size.elements
        )
    }
}

/// Ours and upstream's in turns.
pub(crate) async fn measure(
    ours: &Kind,
    theirs: Option<&Kind>,
    dir: &Path,
    size: Size,
    rounds: u32,
) -> Result<Report> {
    let mut report = Report {
        size,
        ours: Vec::new(),
        theirs: Vec::new(),
    };
    for _ in 0..rounds {
        let round = run(ours, dir, size, |phase| crate::progress("ours", phase)).await;
        report.ours.push(round.context("ours")?);
        if let Some(theirs) = theirs {
            let round = run(theirs, dir, size, |phase| {
                crate::progress("upstream", phase)
            })
            .await;
            report.theirs.push(round.context("upstream")?);
        }
    }
    Ok(report)
}
