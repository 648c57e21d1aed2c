//! `kyanite-conformance`: upstream's conformance suite against a cluster of ours, and the scoreboard.

mod cluster;
mod images;
mod ledger;
mod plan;
mod report;
mod scoreboard;
mod specs;
mod suite;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use crate::cluster::Cluster;
use crate::images::Sources;
use crate::ledger::Ledger;
use crate::plan::Wanted;
use crate::specs::{Catalogue, Spec};
use crate::suite::Suite;

/// Run Kubernetes' conformance suite against Kyanite and say where it stands.
///
/// Results are kept: a spec that passed for this build is not run again, so that an interrupted run goes on
/// where it stopped. The exit status is 1 when a spec that is expected to pass failed.
#[derive(Debug, Parser)]
struct Cli {
    /// The `kyanite` program to examine
    #[arg(long, value_name = "FILE")]
    kyanite: PathBuf,
    /// Directory of upstream's ginkgo, e2e.test, kubectl, agnhost and sample-apiserver
    #[arg(long, env = "UPSTREAM_BIN", value_name = "DIR")]
    upstream_bin: PathBuf,
    /// The kubectl the suite calls [default: the one beside e2e.test]
    #[arg(long, value_name = "FILE")]
    kubectl: Option<PathBuf>,
    /// Directory of containerd and busybox
    #[arg(long, env = "CONTAINERD_BIN", value_name = "DIR")]
    containerd_bin: PathBuf,
    /// The etcd that an image has
    #[arg(long, env = "ETCD_BIN", value_name = "FILE")]
    etcd: Option<PathBuf>,
    /// Examine the cluster of this kubeconfig, which has the suite's images, instead of starting one
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// Only make the suite's images and write them to a file, for `kyanite image load`
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// Where results, logs and the last report are kept
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The scoreboard to write
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// What the scoreboard shall say about this build and machine
    #[arg(long, default_value = "")]
    note: String,
    /// The list of expected specs to add those to that passed
    #[arg(long, value_name = "FILE")]
    accept: Option<PathBuf>,
    /// Classes to run
    #[arg(long = "class", value_delimiter = ',', default_values_t = [1, 2, 3, 4], value_name = "1-4")]
    classes: Vec<u8>,
    /// Only the specs that are expected to pass
    #[arg(long)]
    expected: bool,
    /// Leave it at one attempt, where one that failed would be run again alone
    #[arg(long)]
    once: bool,
    /// Go by the last results of whichever build, for the scoreboard too: for work on what fails
    #[arg(long)]
    all_builds: bool,
    /// Also those that passed before
    #[arg(long)]
    all: bool,
    /// Choose no more specs than upstream does in so many seconds, and stop after that time
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Specs at the same time [default: one and a half per core]
    #[arg(long)]
    workers: Option<usize>,
    /// Specs between two entries into the ledger
    #[arg(long, default_value_t = 40)]
    slice: usize,
    /// Run nothing, only write the scoreboard
    #[arg(long)]
    dry: bool,
    /// Only specs whose name contains one of these
    names: Vec<String>,
}

// Of the user's limit, kept for what ends a run: the specs' clean-up and the report.
const CLEAN_UP: u64 = 30;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let mut cli = Cli::parse();
    fs::create_dir_all(&cli.dir)?;
    // The runner works in that directory, so a relative path would mean another one there.
    for path in [&mut cli.dir, &mut cli.upstream_bin, &mut cli.kyanite] {
        *path = path
            .canonicalize()
            .with_context(|| format!("{} is not there", path.display()))?;
    }
    if let Some(file) = &cli.images {
        make_images(&sources(&cli)?, file)?;
        return Ok(ExitCode::SUCCESS);
    }
    let catalogue = Catalogue::built_in();
    let mut ledger = Ledger::open(cli.dir.join("results.jsonl"), &cli.kyanite, cli.all_builds)?;
    let ran = match cli.dry {
        true => BTreeSet::new(),
        false => run(&cli, &catalogue, &mut ledger).await?,
    };
    publish(&cli, &catalogue, &ledger)?;
    verdict(&catalogue, &ledger, &ran)
}

async fn run(cli: &Cli, catalogue: &Catalogue, ledger: &mut Ledger) -> Result<BTreeSet<String>> {
    let cores = std::thread::available_parallelism()?.get();
    let workers = cli.workers.unwrap_or(cores + cores / 2);
    let mut suite = Suite::find(&cli.upstream_bin, cli.kubectl.clone(), &cli.dir, workers)?;
    let wanted = Wanted {
        classes: cli.classes.clone(),
        expected_only: cli.expected,
        names: cli.names.clone(),
        limit: cli.limit.map(Duration::from_secs),
    };
    let done = if cli.all {
        BTreeSet::new()
    } else {
        ledger.passed()
    };
    let chosen = plan::choose(catalogue, &wanted, &done, workers);
    say(&format!(
        "{} specs to run with {workers} workers",
        chosen.len()
    ));
    if chosen.is_empty() {
        return Ok(BTreeSet::new());
    }
    let place = match &cli.cluster {
        Some(kubeconfig) => Place::Given(kubeconfig.canonicalize()?),
        None => tokio::select! {
            started = start(cli) => Place::Own(started?),
            // What has been started ends with the attempt, which is waited for.
            () = suite::told_to_stop() => bail!("interrupted"),
        },
    };
    let start = Instant::now();
    let mut outcome = slices(cli, &suite, &place, &chosen, (&mut *ledger, start)).await;
    if let (Ok(ran), false) = (&outcome, cli.once) {
        let failed = failed(&chosen, ran, ledger);
        if !failed.is_empty() {
            say(&format!("{} failed: once more, one by one", failed.len()));
            suite.workers = 1;
            let again = slices(cli, &suite, &place, &failed, (&mut *ledger, start)).await;
            outcome = again.and(outcome);
        }
    }
    if let Place::Own(cluster) = place {
        cluster.stop(&cli.dir)?;
    }
    outcome
}

/// What is examined.
enum Place {
    Own(Cluster),
    Given(PathBuf),
}

impl Place {
    fn kubeconfig(&self) -> PathBuf {
        match self {
            Place::Own(cluster) => cluster.kubeconfig(),
            Place::Given(file) => file.clone(),
        }
    }

    fn ended(&self) -> Option<String> {
        match self {
            Place::Own(cluster) => cluster.ended(),
            Place::Given(_) => None,
        }
    }
}

async fn start(cli: &Cli) -> Result<Cluster> {
    let sources = sources(cli)?;
    let (kyanite, images) = (cli.kyanite.clone(), cli.dir.join("images.tar"));
    let start = move || {
        make_images(&sources, &images)?;
        say("starting a cluster of two nodes");
        Cluster::start(&kyanite, &images)
    };
    tokio::task::spawn_blocking(start).await?
}

fn sources(cli: &Cli) -> Result<Sources> {
    let own = std::env::current_exe()?;
    Ok(Sources {
        upstream: cli.upstream_bin.clone(),
        containerd: cli.containerd_bin.clone(),
        own: own.parent().unwrap_or(Path::new("/")).to_owned(),
        etcd: cli.etcd.clone(),
    })
}

fn make_images(sources: &Sources, file: &Path) -> Result<()> {
    say("making the suite's images");
    for missing in sources.write(file)? {
        say(&format!("  cannot be made here: {missing}"));
    }
    Ok(())
}

// The suite's specs have time limits of their own, and several of them share the cores: the last word about one
// that failed is what it does alone. Both are said.
fn failed<'a>(chosen: &[&'a Spec], ran: &BTreeSet<String>, ledger: &Ledger) -> Vec<&'a Spec> {
    let passed = ledger.passed();
    let failed = |spec: &&&Spec| ran.contains(spec.name) && !passed.contains(spec.name);
    chosen.iter().filter(failed).copied().collect()
}

async fn slices(
    cli: &Cli,
    suite: &Suite,
    place: &Place,
    chosen: &[&Spec],
    (ledger, start): (&mut Ledger, Instant),
) -> Result<BTreeSet<String>> {
    let mut ran = BTreeSet::new();
    for slice in chosen.chunks(cli.slice.max(1)) {
        let Some(limit) = time_left(cli, start, plan::patience(slice, suite.workers)) else {
            break;
        };
        say(&format!(
            "running {} specs (output: {})",
            slice.len(),
            cli.dir.join("suite.log").display()
        ));
        let ended = suite.run(slice, &place.kubeconfig(), limit).await?;
        tell(&ended.report);
        let nothing_ran = ended.report.outcomes.is_empty();
        let mut outcomes = ended.report.outcomes;
        // Whom the user's limit cut off has not failed.
        outcomes.retain(|o| cli.limit.is_none() || !o.failure.starts_with(report::CUT_OFF));
        ran.extend(outcomes.iter().map(|outcome| outcome.spec.clone()));
        ledger.add(outcomes)?;
        if let Some(why) = place.ended() {
            bail!("{why}");
        }
        if ended.interrupted {
            break;
        }
        if nothing_ran {
            bail!(
                "the suite ran nothing: {}",
                ended.report.troubles.join("; ")
            );
        }
    }
    Ok(ran)
}

fn time_left(cli: &Cli, start: Instant, patience: Duration) -> Option<Duration> {
    let Some(limit) = cli.limit else {
        return Some(patience);
    };
    let limit = Duration::from_secs(limit.saturating_sub(CLEAN_UP));
    let left = limit.checked_sub(start.elapsed())?;
    (!left.is_zero()).then_some(left.min(patience))
}

fn tell(report: &report::Report) {
    let passed = report
        .outcomes
        .iter()
        .filter(|outcome| outcome.passed)
        .count();
    say(&format!("{passed} of {} passed", report.outcomes.len()));
    for outcome in report.outcomes.iter().filter(|outcome| !outcome.passed) {
        say(&format!(
            "  failed: {}\n    {}",
            outcome.spec, outcome.failure
        ));
    }
    for trouble in &report.troubles {
        say(&format!("  the suite: {trouble}"));
    }
}

fn publish(cli: &Cli, catalogue: &Catalogue, ledger: &Ledger) -> Result<()> {
    if let Some(page) = &cli.page {
        let about = format!("{} {}", cluster::ABOUT, cli.note);
        let text = scoreboard::page(catalogue, &ledger.outcomes, &about);
        fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))?;
        say(&format!("scoreboard: {}", page.display()));
    }
    match &cli.accept {
        Some(file) => accept(file, catalogue, ledger),
        None => Ok(()),
    }
}

/// The list only grows: what stands in it stays.
fn accept(file: &Path, catalogue: &Catalogue, ledger: &Ledger) -> Result<()> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let (comments, names): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with('#'));
    let mut names: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
    names.extend(
        ledger
            .passed()
            .into_iter()
            .filter(|name| catalogue.find(name).is_some()),
    );
    let lines = comments.into_iter().map(str::to_owned).chain(names);
    let text: String = lines.map(|line| line + "\n").collect();
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn verdict(catalogue: &Catalogue, ledger: &Ledger, ran: &BTreeSet<String>) -> Result<ExitCode> {
    let passed = ledger.passed();
    let lost: Vec<&String> = ran
        .iter()
        .filter(|name| catalogue.expected.contains(name.as_str()) && !passed.contains(*name))
        .collect();
    say(&format!("{} specs passed with this build", passed.len()));
    for name in &lost {
        say(&format!("expected to pass, and failed: {name}"));
    }
    Ok(if lost.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "conformance: {line}");
}
