//! The page that says what was swapped and what came of it.

use crate::outcome::Outcome;
use crate::table::{COLUMNS, cell_name};

/// One row of the table, run.
pub(crate) struct Line {
    pub(crate) contract: &'static str,
    pub(crate) about: &'static str,
    pub(crate) cells: [Outcome; 4],
}

const INTRODUCTION: &str = "# Ours and theirs, swapped

Written by `make interop`; do not edit. A contract has two sides, `left ← right`; a column says whose program
stood on the left and whose on the right. Each row is one scenario that does not know which is which.
";

/// The whole page, as Markdown.
pub(crate) fn page(lines: &[Line], versions: &[(String, String)]) -> String {
    let mut page = format!("{INTRODUCTION}\n{}", table(lines));
    page.push_str("\n## What each row does\n\n");
    for line in lines {
        page.push_str(&format!("- **{}**: {}\n", line.contract, line.about));
    }
    page.push_str(&reasons(lines));
    page.push_str("\n## Programs\n\n| program | version |\n|---|---|\n");
    for (program, version) in versions {
        page.push_str(&format!("| {program} | {} |\n", one_cell(version)));
    }
    page
}

fn table(lines: &[Line]) -> String {
    let columns = COLUMNS.map(cell_name).join(" | ");
    let mut table = format!("| contract | {columns} |\n|---|---|---|---|---|\n");
    for line in lines {
        let cells = line.cells.each_ref().map(short).join(" | ");
        table.push_str(&format!("| {} | {cells} |\n", line.contract));
    }
    table
}

// Reasons are long; they stand below the table.
fn short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed(_) => "**failed**".into(),
        Outcome::NotAvailable(_) => "not available here".into(),
        Outcome::Passed(_) | Outcome::NoSuchSwap => outcome.to_string(),
    }
}

fn reasons(lines: &[Line]) -> String {
    let mut reasons = String::new();
    for line in lines {
        for (sides, outcome) in COLUMNS.into_iter().zip(&line.cells) {
            if matches!(outcome, Outcome::Failed(_) | Outcome::NotAvailable(_)) {
                let text = one_cell(&outcome.to_string());
                reasons.push_str(&format!(
                    "- {}, {}: {text}\n",
                    line.contract,
                    cell_name(sides)
                ));
            }
        }
    }
    if reasons.is_empty() {
        reasons
    } else {
        format!("\n## Why not\n\n{reasons}")
    }
}

// A line break or a bar would end the Markdown cell.
fn one_cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn line() -> Line {
        Line {
            contract: "API server ← kubectl",
            about: "words",
            cells: [
                Outcome::NoSuchSwap,
                Outcome::Passed(Duration::from_millis(1_250)),
                Outcome::NotAvailable("no kubectl".into()),
                Outcome::Failed("exit code 1:\na | b".into()),
            ],
        }
    }

    #[test]
    fn every_cell_says_what_came_of_it() {
        let page = page(&[line()], &[]);
        let row =
            "| API server ← kubectl | — | passed (1.2 s) | not available here | **failed** |\n";
        assert!(page.contains(row), "{page}");
    }

    #[test]
    fn reasons_stand_on_one_line_each_below_the_table() {
        let page = page(&[line()], &[]);
        assert!(
            page.contains("- API server ← kubectl, theirs/theirs: failed: exit code 1: a \\| b\n")
        );
        assert!(
            page.contains("- API server ← kubectl, theirs/ours: not available here: no kubectl\n")
        );
    }

    #[test]
    fn nothing_is_explained_when_all_is_well() {
        let mut well = line();
        well.cells = [
            Outcome::NoSuchSwap,
            Outcome::NoSuchSwap,
            Outcome::NoSuchSwap,
            Outcome::NoSuchSwap,
        ];
        assert!(!page(&[well], &[]).contains("Why not"));
    }
}
