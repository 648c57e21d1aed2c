//! `kyanite node-controller`: what a node is asked to be, before it is one; `machine` makes it one.

pub(super) mod machine;

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use node_controller::config::{self, Configuration, Notice, REDACTED};
use node_controller::custom_data::{self, CSE_COMMAND};
use node_controller::environment::containerd::Layout;
use node_controller::environment::gpu::DriverImages;
use node_controller::environment::{self, Host};
use node_controller::validate::{self, Problem, Severity};
use node_controller::{codes, config::Unusable};
use serde_json::json;

use crate::cli::node_controller::{CustomData, Env, Form, NodeController, Scripts};
use crate::exit::{Code, Failure, Result};
use crate::printer::Printer;

/// Runs a command of the node controller.
pub(super) fn run(command: NodeController, printer: &Printer) -> Result<ExitCode> {
    match command {
        NodeController::Provision(flags) => return machine::provision(&flags, printer),
        NodeController::ProvisionWait(flags) => return machine::wait(&flags, printer),
        NodeController::Plan { config, root } => {
            return machine::plan(&judge(&config.file, printer)?, &root, printer);
        }
        NodeController::Status { follow, root } => return machine::status(follow, &root, printer),
        NodeController::Undo { root } => machine::undo(&root, printer),
        NodeController::Version => {
            let version = env!("CARGO_PKG_VERSION");
            printer.result(version, &json!({ "version": version }));
            Ok(())
        }
        // The launcher on node images calls both and goes on whatever they say.
        NodeController::CheckHotfix { .. } | NodeController::DownloadHotfix => {
            printer.note("there are no hotfixes for this program");
            Ok(())
        }
        NodeController::Validate { config } => return check(&config.file, printer),
        NodeController::Explain { code } => explain(&code, printer),
        NodeController::CustomData(flags) => custom_data(&flags, printer),
        NodeController::Env(flags) => env(&flags, printer),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// A configuration that can be used, and everything that is wrong with it all the same.
struct Judged {
    configuration: Configuration,
    problems: Vec<Problem>,
}

fn judge(file: &Path, printer: &Printer) -> Result<Judged> {
    let text = read(file)?;
    Ok(Judged {
        configuration: accept_text(&text, file, printer)?,
        problems: validate::validate(&text),
    })
}

/// Prints every problem; fails where one is an error.
fn check(file: &Path, printer: &Printer) -> Result<ExitCode> {
    let problems = validate::validate(&read(file)?);
    let count = |severity| {
        problems
            .iter()
            .filter(|problem| problem.severity == severity)
            .count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let mut lines: Vec<String> = problems.iter().map(paragraph).collect();
    lines.push(match (errors, warnings) {
        (0, 0) => "nothing is wrong with this configuration".into(),
        _ => format!("{errors} errors, {warnings} warnings"),
    });
    let value =
        json!({"valid": errors == 0, "errors": errors, "warnings": warnings, "problems": problems});
    printer.result(&lines.join("\n\n"), &value);
    Ok(if errors == 0 {
        ExitCode::SUCCESS
    } else {
        Code::Failure.into()
    })
}

fn paragraph(problem: &Problem) -> String {
    let severity = match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let mut head = format!("{severity}: {}", problem.path);
    if let Some((line, column)) = problem.place {
        head += &format!(" (line {line}, column {column})");
    }
    if !problem.value.is_empty() {
        head += &format!(" = {}", problem.value);
    }
    format!("{head}\n  {}\n  hint: {}", problem.rule, problem.remedy)
}

fn explain(wanted: &str, printer: &Printer) -> Result<()> {
    let Some(code) = codes::find(wanted) else {
        let similar = codes::similar(wanted);
        let hint = match (wanted.trim().parse::<u64>(), similar.is_empty()) {
            (Ok(0..=255), _) => "no step ends with this code; a program that a step ran may have: \
                                 see `Output` in provision.json"
                .to_owned(),
            (Ok(_), _) => "exit codes are 0 to 255".to_owned(),
            (Err(_), true) => "names are as in ERR_OUTBOUND_CONN_FAIL".to_owned(),
            (Err(_), false) => format!("there are {}", similar.join(", ")),
        };
        let message = format!("`{wanted}` is no exit code of a provision");
        return Err(Failure::new(Code::NotFound, message).hint(hint));
    };
    let name = code.name().unwrap_or_else(|| "no name".into());
    let text = format!(
        "{} ({name})\n  {}\n  check: {}",
        code.number, code.meaning, code.check
    );
    let value = json!({"code": code.number, "name": code.name(), "meaning": code.meaning, "check": code.check});
    printer.result(&text, &value);
    Ok(())
}

fn custom_data(flags: &CustomData, printer: &Printer) -> Result<()> {
    let config = accept(&flags.config.file, printer)?;
    let form = match flags.form {
        Form::Boothook => custom_data::Form::Boothook,
        Form::WriteFiles => custom_data::Form::WriteFiles,
        Form::Ignition => custom_data::Form::Ignition,
    };
    let data = custom_data::custom_data(&config, form);
    let data = data.map_err(|error| Failure::new(Code::Failure, error.to_string()))?;
    printer.result(
        &data,
        &json!({"customData": data, "commandToExecute": CSE_COMMAND}),
    );
    Ok(())
}

fn env(flags: &Env, printer: &Printer) -> Result<()> {
    let config = accept(&flags.config.file, printer)?;
    let scripts = match flags.scripts {
        Scripts::Waiting => environment::Scripts::Waiting,
        Scripts::Early => environment::Scripts::Early,
        Scripts::Located => environment::Scripts::Located,
        Scripts::Current => environment::Scripts::Current,
    };
    let mut variables = environment::variables(&config, &host(flags)?);
    for variable in &mut variables {
        if variable.is_secret && !variable.value.is_empty() && !flags.show_secrets {
            variable.value = REDACTED.into();
        }
    }
    let lines: Vec<_> = variables
        .iter()
        .map(|v| format!("{}={}", v.name, quoted(&v.value)))
        .collect();
    let map: serde_json::Map<_, _> = variables
        .into_iter()
        .map(|v| (v.name, v.value.into()))
        .collect();
    let command = [
        "/bin/bash".to_owned(),
        "-c".to_owned(),
        environment::command(&config, scripts),
    ];
    printer.result(
        &lines.join("\n"),
        &json!({"command": command, "environment": map}),
    );
    Ok(())
}

/// A value as a shell reads it, and nothing but a value: the lines may be sourced.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-[]".contains(c);
    match value.chars().all(plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', "'\\''")),
    }
}

/// What of the node decides values, from here where nothing was said.
fn host(flags: &Env) -> Result<Host> {
    let printed = flags.containerd_version.clone().unwrap_or_else(|| {
        let asked = std::process::Command::new("containerd")
            .arg("--version")
            .output();
        asked
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default()
    });
    let drivers = match std::fs::read(&flags.components) {
        Ok(components) => DriverImages::parse(&components).map_err(|error| {
            let message = format!("cannot read `{}`: {error}", flags.components.display());
            Failure::new(Code::Failure, message).hint("name another list with --components")
        })?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => DriverImages::default(),
        Err(error) => return Err(Failure::file("read", &flags.components, &error)),
    };
    Ok(Host {
        containerd: Layout::of(&printed),
        drivers,
    })
}

/// A configuration that can be used; what was left out of it is said.
fn accept(file: &Path, printer: &Printer) -> Result<Configuration> {
    accept_text(&read(file)?, file, printer)
}

fn accept_text(text: &[u8], file: &Path, printer: &Printer) -> Result<Configuration> {
    let accepted = config::read(text).map_err(|unusable| unusable_file(file, &unusable))?;
    for notice in &accepted.notices {
        let what = match notice {
            Notice::Deprecated => "note",
            Notice::LeftOut(_) => "left out",
        };
        printer.note(&format!("{what}: {notice}"));
    }
    Ok(accepted.configuration)
}

fn unusable_file(file: &Path, unusable: &Unusable) -> Failure {
    let message = format!("cannot use `{}`: {unusable}", file.display());
    Failure::new(Code::Failure, message)
        .hint("`kyanite node-controller validate` shows every problem at once")
}

fn read(file: &Path) -> Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut text = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut text);
        return read
            .map(|_| text)
            .map_err(|error| Failure::file("read", file, &error));
    }
    std::fs::read(file).map_err(|error| Failure::file("read", file, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_nothing_but_values_to_a_shell() {
        let cases = [
            ("", ""),
            ("a.b/c=1,2", "a.b/c=1,2"),
            ("[redacted]", "[redacted]"),
            ("a b", "'a b'"),
            ("$(touch /x)", "'$(touch /x)'"),
            ("it's;x", "'it'\\''s;x'"),
            ("a\nb", "'a\nb'"),
        ];
        for (value, expected) in cases {
            assert_eq!(quoted(value), expected);
            let script = format!("A={expected}; printf %s \"$A\"");
            let printed = std::process::Command::new("sh")
                .args(["-c", &script])
                .output();
            let printed = printed.expect("every machine has a shell").stdout;
            assert_eq!(String::from_utf8_lossy(&printed), value);
        }
    }
}
