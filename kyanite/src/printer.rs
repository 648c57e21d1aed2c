//! What people and machines see. Results go to standard output, everything else to standard error;
//! colour only on a terminal (`anstream` decides), JSON when asked for.

use std::io::{IsTerminal as _, Write as _};

use owo_colors::OwoColorize as _;
use serde_json::{Value, json};

use crate::cli::Output;
use crate::exit::Failure;

/// Empties the line of a terminal that the cursor is in.
const CLEAR: &str = "\x1b[2K";

/// Rows under a header, in columns.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let header = header.iter().map(|&name| name.to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate();
        let padded: Vec<_> = cells
            .map(|(column, cell)| format!("{cell:<width$}", width = width(column)))
            .collect();
        padded.join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Prints for the chosen kind of reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    output: Output,
}

impl Printer {
    pub(crate) fn new(output: Output) -> Printer {
        Printer { output }
    }

    /// A result: `text` for people, `value` for machines.
    pub(crate) fn result(&self, text: &str, value: &Value) {
        // A reader that has gone away is no reason to fail.
        let _ = match self.output {
            Output::Text => writeln!(anstream::stdout(), "{text}"),
            Output::Json => writeln!(anstream::stdout(), "{value}"),
        };
    }

    /// What is waited for; the next line takes its place. Nothing where nobody watches.
    pub(crate) fn waiting(&self, detail: &str) {
        if self.output == Output::Text && std::io::stderr().is_terminal() {
            let _ = write!(anstream::stderr(), "{CLEAR}  {} {detail}\r", "…".dimmed());
        }
    }

    /// A stage that is done.
    pub(crate) fn stage(&self, name: &str, detail: &str, millis: u128) {
        if self.output == Output::Text {
            let took = match millis {
                0 => String::new(),
                _ => format!("{millis} ms"),
            };
            let clear = match std::io::stderr().is_terminal() {
                true => CLEAR,
                false => "",
            };
            let _ = writeln!(
                anstream::stderr(),
                "{clear}  {} {name:<12} {detail} {}",
                "✓".green(),
                took.dimmed()
            );
        }
    }

    /// Something worth knowing on the way.
    pub(crate) fn note(&self, text: &str) {
        if self.output == Output::Text {
            let _ = writeln!(anstream::stderr(), "{text}");
        }
    }

    /// A failure with its hint.
    pub(crate) fn failure(&self, failure: &Failure) {
        let _ = match self.output {
            Output::Text => writeln!(anstream::stderr(), "{} {failure}", "error:".red().bold()),
            Output::Json => {
                let value = json!({"error": failure.message, "hint": failure.hint, "code": failure.code as u8});
                writeln!(anstream::stdout(), "{value}")
            }
        };
        if let (Some(hint), Output::Text) = (&failure.hint, self.output) {
            let _ = writeln!(anstream::stderr(), "{} {hint}", "hint:".cyan());
        }
    }
}
