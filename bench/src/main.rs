//! `kyanite-bench`: a bounded load against our server and, if it is there, against upstream's.

mod access;
mod client;
mod load;
mod measure;
mod picture;
mod pki;
mod report;
mod roles;
mod sample;
mod servers;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::measure::Machine;
use crate::report::{Report, Upstream};
use crate::servers::Kind;

/// Measure a Kyanite release build, and upstream's API server and etcd in the same run.
#[derive(Debug, Parser)]
struct Cli {
    /// The `kyanite` program to measure
    #[arg(long, value_name = "FILE")]
    kyanite: PathBuf,
    /// Directory with upstream's `kube-apiserver` and `etcd`; without it only ours is run
    #[arg(long, env = "UPSTREAM_BIN", value_name = "DIR")]
    upstream_bin: Option<PathBuf>,
    /// Where the servers write; on a disk, or syncing costs nothing
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// A tenth of the load, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Keep the result there, as a page and a picture; needs upstream's programs
    #[arg(long, value_name = "DIR", requires = "upstream_bin")]
    keep: Option<PathBuf>,
}

// One thread: the generator shall leave the rest of the machine to the server.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let cli = Cli::parse();
    let report = tokio::select! {
        report = measure(&cli) => report?,
        // Leaving here ends the servers and removes their data.
        () = told_to_stop() => bail!("interrupted"),
    };
    let text = match cli.json {
        true => serde_json::to_string_pretty(&report.json())?,
        false => report.text(),
    };
    writeln!(std::io::stdout(), "{text}")?;
    cli.keep.map_or(Ok(()), |dir| keep(&report, &dir))
}

async fn told_to_stop() {
    let mut terminate = signal(SignalKind::terminate()).expect("the runtime has signals");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

fn keep(report: &Report, dir: &Path) -> Result<()> {
    const PICTURE: &str = "result.svg";
    for (name, text) in [
        ("RESULT.md", report.page(PICTURE)),
        (PICTURE, report.picture()),
    ] {
        let file = dir.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

async fn measure(cli: &Cli) -> Result<Report> {
    std::fs::create_dir_all(&cli.dir)?;
    let size = if cli.quick { load::QUICK } else { load::FULL };
    let machine = Machine::look(&cli.dir).await?;
    let ours = Kind::Ours(cli.kyanite.clone());
    let ours = load::run(&ours, &cli.dir, size, |phase| progress("ours", phase)).await;
    let upstream = match &cli.upstream_bin {
        Some(programs) => Some(upstream(programs, cli, size).await.context("upstream")?),
        None => None,
    };
    Ok(Report {
        machine,
        size,
        ours: ours.context("ours")?,
        upstream,
    })
}

async fn upstream(programs: &Path, cli: &Cli, size: load::Size) -> Result<Upstream> {
    let kind = Kind::Upstream(programs.to_owned());
    let say = |phase: &str| progress("upstream", phase);
    Ok(Upstream {
        measures: load::run(&kind, &cli.dir, size, say).await?,
        etcd: servers::etcd_version(programs).await?,
    })
}

// Progress is for people who wait; the result alone goes to standard output.
fn progress(whose: &str, phase: &str) {
    let _ = writeln!(std::io::stderr(), "{whose}: {phase}");
}
