//! `kyanite-bench`: a bounded load against our server and, if it is there, against upstream's.

mod access;
mod client;
mod cloud;
mod definitions;
mod load;
mod measure;
mod node;
mod picture;
mod pki;
mod report;
mod roles;
mod sample;
mod section;
mod servers;
mod tunnels;
mod workloads;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::measure::Machine;
use crate::report::{Report, Upstream};
use crate::section::Section;
use crate::servers::Kind;

/// Measure a Kyanite release build, and upstream's programs in the same run.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    /// What this program is when it measures itself.
    #[command(subcommand)]
    relay: Option<tunnels::relay::Relay>,
    /// The `kyanite` program to measure
    #[arg(long, value_name = "FILE", required = true)]
    kyanite: Option<PathBuf>,
    /// Measure only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Directory with upstream's `kube-apiserver`, `etcd`, `proxy-server` and `proxy-agent`; without it only ours is run
    #[arg(long, env = "UPSTREAM_BIN", value_name = "DIR")]
    upstream_bin: Option<PathBuf>,
    /// Where the servers write; on a disk, or syncing costs nothing
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// A tenth of the load, once, to see that everything works
    #[arg(long)]
    quick: bool,
    /// How often each thing is measured; the middle one counts [default: 3]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..100))]
    rounds: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Keep the result there, as a page and a picture; needs upstream's programs
    #[arg(long, value_name = "DIR", requires = "upstream_bin")]
    keep: Option<PathBuf>,
    /// What else there is to know, for the end of the page
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl Cli {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 })
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The API server
    Api,
    /// Custom resources and their definitions
    Definitions,
    /// Tunnels to nodes
    Tunnels,
    /// The node controller
    Node,
    /// Controllers and scheduler at work
    Workloads,
    /// The cloud's front door
    Cloud,
}

// One thread: the generator shall leave the rest of the machine to the server.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let cli = Cli::parse();
    if let Some(relay) = cli.relay {
        return tunnels::relay::run(relay).await;
    }
    let mut sections = tokio::select! {
        sections = measure(&cli) => sections?,
        // Leaving here ends the servers and removes their data.
        () = told_to_stop() => bail!("interrupted"),
    };
    if let Some(last) = sections.last_mut() {
        last.method.extend(cli.note);
    }
    let text = match cli.json {
        true => serde_json::to_string_pretty(&section::json(&sections))?,
        false => section::text(&sections),
    };
    writeln!(std::io::stdout(), "{text}")?;
    cli.keep.map_or(Ok(()), |dir| keep(&sections, &dir))
}

async fn told_to_stop() {
    let mut terminate = signal(SignalKind::terminate()).expect("the runtime has signals");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

fn keep(sections: &[Section], dir: &Path) -> Result<()> {
    const PICTURE: &str = "result.svg";
    for (name, text) in [
        ("RESULT.md", section::page(sections, PICTURE)),
        (PICTURE, section::svg(sections)),
    ] {
        let file = dir.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

async fn measure(cli: &Cli) -> Result<Vec<Section>> {
    std::fs::create_dir_all(&cli.dir)?;
    let wanted = |part| cli.only.is_none_or(|only| only == part);
    let mut sections = Vec::new();
    if wanted(Part::Api) {
        sections.push(measure_api(cli).await?.section());
    }
    if wanted(Part::Definitions) {
        let report = measure_definitions(cli).await.context("definitions")?;
        sections.push(report.section());
    }
    if wanted(Part::Tunnels) {
        let tunnels = measure_tunnels(cli).await.context("tunnels")?;
        sections.push(tunnels.section());
    }
    if wanted(Part::Node) {
        let kyanite = cli.kyanite.as_deref().context("no --kyanite")?;
        let node = node::measure(kyanite, &cli.dir).context("node controller")?;
        sections.push(node.section());
    }
    if wanted(Part::Workloads) {
        sections.push(measure_workloads(cli).await.context("workloads")?);
    }
    if wanted(Part::Cloud) {
        let kyanite = cli.kyanite.as_deref().context("no --kyanite")?;
        let size = if cli.quick { cloud::QUICK } else { cloud::FULL };
        let say = |phase: &str| progress("cloud", phase);
        let cloud = cloud::measure(kyanite, &cli.dir, size, say).await;
        sections.push(cloud.context("the cloud")?.section());
    }
    Ok(sections)
}

async fn measure_workloads(cli: &Cli) -> Result<Section> {
    let size = if cli.quick {
        workloads::QUICK
    } else {
        workloads::FULL
    };
    let ours = Kind::Ours(cli.kyanite.clone().context("no --kyanite")?);
    let theirs = cli
        .upstream_bin
        .clone()
        .filter(|bin| bin.join("kube-scheduler").exists());
    let theirs = theirs.map(Kind::Upstream);
    let (mut our_rounds, mut their_rounds) = (Vec::new(), Vec::new());
    for _ in 0..cli.rounds() {
        our_rounds
            .push(workloads::run(&ours, &cli.dir, size, |phase| progress("ours", phase)).await?);
        if let Some(theirs) = &theirs {
            let say = |phase: &str| progress("upstream", phase);
            their_rounds.push(workloads::run(theirs, &cli.dir, size, say).await?);
        }
    }
    Ok(workloads::section(size, &our_rounds, &their_rounds))
}

async fn measure_definitions(cli: &Cli) -> Result<definitions::Report> {
    let size = if cli.quick {
        definitions::QUICK
    } else {
        definitions::FULL
    };
    let ours = Kind::Ours(cli.kyanite.clone().context("no --kyanite")?);
    let theirs = cli.upstream_bin.clone().map(Kind::Upstream);
    definitions::measure(&ours, theirs.as_ref(), &cli.dir, size, cli.rounds()).await
}

async fn measure_tunnels(cli: &Cli) -> Result<tunnels::Report> {
    let size = if cli.quick {
        tunnels::QUICK
    } else {
        tunnels::FULL
    };
    let say = |route: &str| progress("tunnels", route);
    let kyanite = cli.kyanite.as_deref().context("no --kyanite")?;
    let ways = tunnels::ways(kyanite, cli.upstream_bin.as_deref());
    tunnels::run(ways, &cli.dir, size, cli.rounds(), say).await
}

async fn measure_api(cli: &Cli) -> Result<Report> {
    let size = if cli.quick { load::QUICK } else { load::FULL };
    let machine = Machine::look(&cli.dir).await?;
    let ours = Kind::Ours(cli.kyanite.clone().context("no --kyanite")?);
    let upstream = cli.upstream_bin.clone().map(Kind::Upstream);
    let (mut our_rounds, mut their_rounds) = (Vec::new(), Vec::new());
    for _ in 0..cli.rounds() {
        let round = load::run(&ours, &cli.dir, size, |phase| progress("ours", phase)).await;
        our_rounds.push(round.context("ours")?);
        if let Some(upstream) = &upstream {
            let say = |phase: &str| progress("upstream", phase);
            let round = load::run(upstream, &cli.dir, size, say).await;
            their_rounds.push(round.context("upstream")?);
        }
    }
    let upstream = match &cli.upstream_bin {
        Some(programs) => Some(Upstream {
            measures: their_rounds,
            etcd: servers::etcd_version(programs).await?,
        }),
        None => None,
    };
    Ok(Report {
        machine,
        size,
        ours: our_rounds,
        upstream,
    })
}

// Progress is for people who wait; the result alone goes to standard output.
fn progress(whose: &str, phase: &str) {
    let _ = writeln!(std::io::stderr(), "{whose}: {phase}");
}
