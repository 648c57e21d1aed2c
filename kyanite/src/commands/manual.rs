//! What the program says of itself: its version, its completions, its manual.

use std::io::Write as _;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};
use serde_json::json;

use crate::cli::Cli;
use crate::exit::{Failure, Result};
use crate::printer::Printer;

const NAME: &str = "kyanite";

/// Prints the version.
pub(super) fn version(printer: &Printer) -> Result<()> {
    let (own, kubernetes) = (env!("CARGO_PKG_VERSION"), ::apiserver::RELEASE);
    let text = format!("kyanite {own}, Kubernetes {kubernetes}");
    printer.result(&text, &json!({"version": own, "kubernetes": kubernetes}));
    Ok(())
}

/// Prints a shell's completions.
pub(super) fn completion(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    // A reader that has gone away is no reason to fail.
    let _ = anstream::stdout().write_all(&script);
    Ok(())
}

/// Writes the manual's pages.
pub(super) fn pages(directory: &Path, printer: &Printer) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(|e| Failure::file("create", directory, &e))?;
    let pages = manual(&Cli::command());
    for (name, text) in &pages {
        let path = directory.join(format!("{name}.1"));
        std::fs::write(&path, text).map_err(|e| Failure::file("write", &path, &e))?;
    }
    let text = format!("{} pages are in {}", pages.len(), directory.display());
    printer.result(
        &text,
        &json!({"pages": pages.len(), "directory": directory}),
    );
    Ok(())
}

/// A page for the program and one for each of its commands, by name.
fn manual(program: &Command) -> Vec<(String, String)> {
    let shown = program
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let commands = shown.map(|command| {
        let name = format!("{NAME}-{}", command.get_name());
        let text = page(&name, command);
        (name, text)
    });
    std::iter::once((NAME.to_owned(), page(NAME, program)))
        .chain(commands)
        .collect()
}

fn page(name: &str, command: &Command) -> String {
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut out = format!(
        ".TH {} 1\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n[options]{}\n",
        name.to_uppercase(),
        escaped(name),
        escaped(&about),
        escaped(&name.replacen('-', " ", 1)),
        if command.has_subcommands() {
            " command"
        } else {
            ""
        },
    );
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let options: String = shown.map(option).collect();
    if !options.is_empty() {
        out += &format!(".SH OPTIONS\n{options}");
    }
    let shown = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let commands: String = shown.map(subcommand).collect();
    if !commands.is_empty() {
        out += &format!(".SH COMMANDS\n{commands}");
    }
    if let Some(after) = command.get_after_help() {
        out += &format!(".SH NOTES\n.nf\n{}\n.fi\n", escaped(&after.to_string()));
    }
    out
}

fn option(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let values = arg.get_value_names().unwrap_or_default();
    let value: String = values.iter().map(|name| format!(" {name}")).collect();
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let takes = arg.get_action().takes_values() || names.is_empty();
    let head = format!(
        "{}{}",
        names.join(", "),
        if takes { value.as_str() } else { "" }
    );
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    format!(".TP\n.B {}\n{}\n", escaped(head.trim()), escaped(&help))
}

fn subcommand(command: &Command) -> String {
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    format!(
        ".TP\n.B {}\n{}\n",
        escaped(command.get_name()),
        escaped(&about)
    )
}

/// Text that the formatter shows as it is: no line begins with a request, and dashes are dashes.
fn escaped(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        match line.starts_with(['.', '\'']) {
            true => format!("\\&{line}"),
            false => line,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_flag_a_line() {
        let pages = manual(&Cli::command());
        assert!(pages.len() > 15, "{} pages", pages.len());
        assert!(!pages.iter().any(|(name, _)| name.contains("launcher")));
        let up = pages.iter().find(|(name, _)| name == "kyanite-up");
        let text = &up.expect("a page").1;
        for words in [
            ".SH NAME",
            "kyanite\\-up",
            ".B kyanite up",
            ".B \\-\\-nodes COUNT",
            ".SH OPTIONS",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }

    #[test]
    fn text_cannot_be_taken_for_requests() {
        assert_eq!(escaped(".B x\na\\b-c"), "\\&.B x\na\\eb\\-c");
    }
}
