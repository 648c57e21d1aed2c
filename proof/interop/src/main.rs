//! Swaps upstream's programs in for ours, contract by contract, and writes down what happened.

mod cloud;
mod cluster;
mod hollow_node;
mod interruption;
mod kubectl;
mod outcome;
mod pki;
mod process;
mod programs;
mod report;
mod runtime;
mod scenarios;
mod table;
mod wait;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;

use crate::interruption::INTERRUPTION;
use crate::outcome::Outcome;
use crate::programs::Programs;
use crate::report::Line;
use crate::table::{COLUMNS, ROWS, Row, cell_name};

/// Runs the table of swaps and writes the report.
#[derive(Parser)]
struct Options {
    /// Our program
    #[arg(long)]
    kyanite: PathBuf,
    /// Directory with upstream's programs
    #[arg(long)]
    upstream: PathBuf,
    /// Directory with containerd, runc and busybox
    #[arg(long)]
    containerd: PathBuf,
    /// Directory of the chart that helm installs
    #[arg(long)]
    chart: PathBuf,
    /// Directory with the clients in other languages
    #[arg(long)]
    clients: PathBuf,
    /// Where the report goes
    #[arg(long)]
    report: PathBuf,
    /// Run only the rows whose name contains this; no report is written
    #[arg(long)]
    only: Option<String>,
    /// Keep the directories of cells that failed, with the logs of every program
    #[arg(long)]
    keep: bool,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    INTERRUPTION.listen()?;
    let programs = Programs::new(
        options.kyanite,
        options.upstream,
        options.containerd,
        options.chart,
        options.clients,
    )?;
    let wanted = |row: &&Row| {
        options
            .only
            .as_ref()
            .is_none_or(|part| row.contract.contains(part))
    };
    let lines: Vec<Line> = ROWS
        .iter()
        .filter(wanted)
        .map(|row| run_row(row, &programs, options.keep))
        .take_while(|_| !INTERRUPTION.told())
        .collect();
    if INTERRUPTION.told() {
        say("interrupted; no report is written");
        return Ok(ExitCode::FAILURE);
    }
    if options.only.is_none() {
        let page = report::page(&lines, &programs.versions());
        std::fs::write(&options.report, page)
            .with_context(|| format!("cannot write {}", options.report.display()))?;
        say(&format!("report: {}", options.report.display()));
    }
    let failed = lines
        .iter()
        .flat_map(|line| &line.cells)
        .any(Outcome::is_failure);
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn run_row(row: &Row, programs: &Programs, keep: bool) -> Line {
    let cells = COLUMNS.map(|sides| {
        let outcome = row.run(sides, programs, keep);
        if outcome != Outcome::NoSuchSwap {
            say(&format!(
                "{}: {}: {outcome}",
                row.contract,
                cell_name(sides)
            ));
        }
        outcome
    });
    Line {
        contract: row.contract,
        about: row.about,
        cells,
    }
}

// Progress is for people who wait; the result is the report.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
