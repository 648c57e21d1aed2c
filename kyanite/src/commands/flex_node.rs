//! `kyanite flex-node`: the Flex Node agent's commands. What they do is in the crate of that name.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use flex_node::agent::Agent;
use flex_node::checks::{self, Finding, Severity};
use flex_node::config::{self, Problem};
use flex_node::journey::{Departure, Journey, Memory, Said, WORKERS};
use flex_node::steps::Wish;
use flex_node::{cluster, identity, paths, token};
use serde_json::json;
use steps::engine::{Outcome, Stop};
use steps::host::{Host, RealHost};

use super::node_controller::machine::{plan_text, stop_on_signals};
use crate::cli::flex_node::{self as flags, Azure, FlexNode, Node, Pods, Verb};
use crate::exit::{Code, Failure, Result};
use crate::printer::{Printer, table};

/// Runs a command. Exit codes are those of `flex_node::codes`.
pub(super) fn run(command: FlexNode, printer: &Printer) -> Result<ExitCode> {
    match command {
        FlexNode::Bootstrap { config } => bootstrap(&config.file, printer),
        FlexNode::Unbootstrap { kubeconfig, .. } => unbootstrap(kubeconfig.as_deref(), printer),
        FlexNode::Agent { config, looks } => agent(&config.file, looks, printer),
        FlexNode::Plan { config } => plan(&config.file, printer),
        FlexNode::Preflight {
            config,
            ignore_preflight_errors,
            fail_on_warnings,
        } => {
            let wish = wish(&config.file, printer)?;
            let findings = checks::preflight(&wish, &RealHost::new(), &stop()?);
            report(&findings, printer);
            let code = checks::code(&findings, &ignore_preflight_errors, fail_on_warnings);
            Ok(ExitCode::from(code))
        }
        FlexNode::Doctor { config } => {
            let wish = wish(&config.file, printer)?;
            let findings = checks::doctor(&wish, &RealHost::new(), &stop()?);
            report(&findings, printer);
            Ok(ExitCode::from(checks::code(&findings, &[], false)))
        }
        FlexNode::Token(flags) => super::small_runtime()?.block_on(token(&flags, printer)),
        FlexNode::Azure { what, verb, config } => {
            let wish = wish(&config.file, printer)?;
            super::small_runtime()?.block_on(azure(what, verb, &wish, printer))
        }
        FlexNode::Status => status(printer),
        FlexNode::Version => version(printer),
        FlexNode::Node(node) => super::small_runtime()?.block_on(own_node(node)),
        FlexNode::Pods(Pods::Stop) => super::small_runtime()?.block_on(async {
            let count = cluster::stop_pods().await.map_err(failed)?;
            printer.result(&format!("{count} pods ended"), &json!({"pods": count}));
            Ok(ExitCode::SUCCESS)
        }),
    }
}

fn failed(cause: String) -> Failure {
    Failure::new(Code::Failure, cause)
}

async fn own_node(node: Node) -> Result<ExitCode> {
    let done = match node {
        Node::Wait { name, timeout } => {
            let kubeconfig = Path::new(paths::KUBECONFIG);
            cluster::wait_ready(kubeconfig, &name, Duration::from_secs(timeout)).await
        }
        Node::Remove { name, kubeconfig } => cluster::remove(kubeconfig, &name).await,
    };
    done.map_err(failed).map(|()| ExitCode::SUCCESS)
}

/// The contract of exec plugins: one object on standard output, whatever `--output` says, and nothing else.
async fn token(flags: &flags::Token, printer: &Printer) -> Result<ExitCode> {
    let wish = wish(&flags.config.file, &Printer::new(crate::cli::Output::Json))?;
    let environment = |name: &str| std::env::var(name).ok();
    let now = jiff::Timestamp::now();
    let cache = token::cache(environment);
    let lease = token::lease(&wish.config, &flags.server_id, &cache, &environment, now).await;
    let lease = lease.map_err(refused)?;
    let value = token::credential(
        &lease,
        &token::wanted_version(environment("KUBERNETES_EXEC_INFO").as_deref()),
    );
    match flags.check {
        true => printer.result(
            &format!("a token until {}", lease.until),
            &json!({"until": lease.until.to_string()}),
        ),
        false => printer.result(&value.to_string(), &value),
    }
    Ok(ExitCode::SUCCESS)
}

async fn azure(what: Azure, verb: Verb, wish: &Wish, printer: &Printer) -> Result<ExitCode> {
    let config = &wish.config;
    let verb = match verb {
        Verb::Check => identity::Verb::Check,
        Verb::Make => identity::Verb::Make,
        Verb::Remove => identity::Verb::Remove,
    };
    let done = match what {
        Azure::Arc => identity::machine(config, verb, &wish.name).await,
        Azure::Role => identity::role(config, verb, &wish.name).await,
        Azure::Cluster => identity::cluster(config)
            .await
            .map(|cluster| cluster.to_string()),
    };
    let done = done.map_err(refused)?;
    if what == Azure::Cluster {
        let path = Path::new(paths::CLUSTER);
        RealHost::new()
            .files()
            .replace(path, done.as_bytes(), 0o600)
            .map_err(|e| Failure::file("write", path, &e))?;
    }
    printer.result(&done, &json!({"done": done}));
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn refused(refused: identity::Refused) -> Failure {
    // On one line: the step that runs this shows the last one.
    Failure::new(Code::Failure, refused.to_string())
}

fn stop() -> Result<Stop> {
    Stop::new().map_err(|e| failed(format!("cannot make an event counter: {e}")))
}

/// The configuration with what is around it. Warnings are said; problems end it, all of them at once.
fn wish(file: &Path, printer: &Printer) -> Result<Wish> {
    let text = std::fs::read_to_string(file).map_err(|e| {
        Failure::file("read", file, &e)
            .hint("--config names another one; the README has the smallest")
    })?;
    let read_file = |path: &str| std::fs::read_to_string(path).map_err(|e| e.to_string());
    let accepted = config::read(&text, &read_file).map_err(|problems| unusable(file, &problems))?;
    for warning in &accepted.warnings {
        printer.note(&format!("warning: {warning}"));
    }
    let host_name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .to_lowercase();
    let name = match accepted.config.node.name.as_str() {
        "" => host_name,
        name => name.to_owned(),
    };
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    Ok(Wish {
        config: accepted.config,
        file: file.display().to_string(),
        program: program()?,
        name,
    })
}

/// How this program is run again: by its path, and by the word where its name is not the agent's.
fn program() -> Result<Vec<String>> {
    let path =
        std::env::current_exe().map_err(|e| failed(format!("where this program is: {e}")))?;
    let mut words = vec![path.display().to_string()];
    if path.file_name() != Some("aks-flex-node".as_ref()) {
        words.push("flex-node".to_owned());
    }
    Ok(words)
}

fn unusable(file: &Path, problems: &[Problem]) -> Failure {
    let lines: Vec<String> = problems
        .iter()
        .map(|p| format!("\n  {}: {}\n    {}", p.path, p.cause, p.remedy))
        .collect();
    let count = problems.len();
    Failure::new(
        Code::Usage,
        format!(
            "{} cannot be used, {count} problems:{}",
            file.display(),
            lines.concat()
        ),
    )
}

fn tell(said: &Said<'_>, printer: &Printer) {
    match said {
        Said::Phase { name, detail, time } => printer.stage(name, detail, time.as_millis()),
        Said::Again { step, cause } => printer.note(&format!("  {step}: {cause}; once more")),
        Said::Step { report, .. } => {
            if report.outcome != Outcome::Failed {
                printer.waiting(&format!("{} {}", report.name, report.note));
            }
        }
    }
}

fn bootstrap(file: &Path, printer: &Printer) -> Result<ExitCode> {
    // Modes are set as asked for, not as the caller's mask would have them.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let wish = wish(file, printer)?;
    let host = RealHost::new();
    let news = |said: &Said<'_>| tell(said, printer);
    let journey = Journey {
        host: &host,
        stop: stop_on_signals()?,
        news: &news,
        workers: WORKERS,
    };
    let arrival = journey.bootstrap(&wish);
    let seconds = arrival.report.duration.as_secs_f64();
    let text = match &arrival.failure {
        None => format!(
            "node {} is Ready, {seconds:.1} s after the start",
            wish.name
        ),
        Some(failure) => format!(
            "failed after {seconds:.1} s: {}\nhint: {}",
            failure.cause, failure.remedy
        ),
    };
    printer.result(&text, &arrival.value());
    Ok(ExitCode::from(arrival.code))
}

fn unbootstrap(kubeconfig: Option<&Path>, printer: &Printer) -> Result<ExitCode> {
    let host = RealHost::new();
    let news = |said: &Said<'_>| tell(said, printer);
    let journey = Journey {
        host: &host,
        stop: stop_on_signals()?,
        news: &news,
        workers: WORKERS,
    };
    let kubeconfig = kubeconfig.map(|file| file.display().to_string());
    let departure = journey.unbootstrap(kubeconfig.as_deref());
    printer.result(&departure_text(&departure), &json!(departure));
    Ok(ExitCode::from(departure.code))
}

fn departure_text(departure: &Departure) -> String {
    if departure.nothing {
        return "this machine was never bootstrapped, or everything is taken back already"
            .to_owned();
    }
    let mut text = match departure.left.is_empty() {
        true => "this machine is as it was".to_owned(),
        false => format!("{} things were left behind:", departure.left.len()),
    };
    for left in &departure.left {
        text += &format!("\n  {}", left.what);
        if !left.remedy.is_empty() {
            text += &format!("\n    hint: {}", left.remedy);
        }
    }
    for kept in &departure.kept {
        text += &format!("\n  kept {kept}: others have put files there");
    }
    text
}

fn agent(file: &Path, looks: Option<u32>, printer: &Printer) -> Result<ExitCode> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let wish = wish(file, printer)?;
    let host = RealHost::new();
    let runtime = super::small_runtime()?;
    let agent = Agent {
        host: &host,
        stop: stop_on_signals()?,
        wish: &wish,
        ask_cluster: &|| runtime.block_on(cluster::look(Path::new(paths::KUBECONFIG), &wish.name)),
        log: &|line| printer.note(line),
    };
    agent.run(looks);
    Ok(ExitCode::SUCCESS)
}

fn plan(file: &Path, printer: &Printer) -> Result<ExitCode> {
    let wish = wish(file, printer)?;
    let host = RealHost::new();
    let journey = Journey {
        host: &host,
        stop: stop()?,
        news: &|_| {},
        workers: WORKERS,
    };
    let plan = journey.plan(&wish).map_err(|e| failed(e.to_string()))?;
    let value = json!({"changes": plan.changes(), "failing": plan.failing(), "steps": plan.steps});
    printer.result(&plan_text(&plan, 0), &value);
    Ok(match plan.failing() {
        0 => ExitCode::SUCCESS,
        _ => Code::Failure.into(),
    })
}

fn report(findings: &[Finding], printer: &Printer) {
    let rows = findings.iter().map(|finding| {
        let severity = match finding.severity {
            Severity::Pass => "ok",
            Severity::Warning => "warning",
            Severity::Fatal => "FATAL",
        };
        let mut what = finding.what.clone();
        if !finding.why.is_empty() {
            what += &format!("; {}", finding.why);
        }
        vec![
            finding.check.to_owned(),
            severity.to_owned(),
            what,
            finding.remedy.clone(),
        ]
    });
    let text = table(&["CHECK", "STATE", "WHAT", "REMEDY"], rows);
    printer.result(&text, &json!({"findings": findings}));
}

fn status(printer: &Printer) -> Result<ExitCode> {
    let host = RealHost::new();
    let Some(memory) = Memory::read(&host) else {
        return Err(Failure::new(Code::NotFound, "this machine is no node")
            .hint("make it one with `aks-flex-node bootstrap --config FILE`"));
    };
    let read = |path: &str| {
        let text = host.files().text(path).ok().flatten();
        text.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok())
    };
    let (last, status) = (read(paths::LAST_RUN), read(paths::STATUS));
    let look = cluster::look(Path::new(paths::KUBECONFIG), &memory.node);
    let seen = super::small_runtime()?.block_on(look);
    let ready = match &seen {
        Ok(cluster::Seen::Ready) => "Ready".to_owned(),
        Ok(cluster::Seen::NotReady(why)) => format!("NotReady: {why}"),
        Ok(cluster::Seen::Absent) => "not registered".to_owned(),
        Err(why) => format!("Unknown: {why}"),
    };
    let ended =
        last.as_ref().map_or(
            "has not ended yet".to_owned(),
            |last| match last["success"].as_bool() {
                Some(true) => format!(
                    "succeeded in {:.1} s",
                    last["duration"].as_f64().unwrap_or_default() / 1e9
                ),
                _ => format!("failed: {}", last["error"].as_str().unwrap_or_default()),
            },
        );
    let text = format!(
        "node        {}\nstate       {ready}\njoined by   {}\nconfig      {}\nbootstrap   {ended}",
        memory.node, memory.join, memory.config
    );
    printer.result(
        &text,
        &json!({"memory": memory, "state": ready, "lastRun": last, "status": status}),
    );
    Ok(match seen {
        Ok(cluster::Seen::Ready) => ExitCode::SUCCESS,
        _ => Code::Unavailable.into(),
    })
}

fn version(printer: &Printer) -> Result<ExitCode> {
    let version = env!("CARGO_PKG_VERSION");
    let text = format!(
        "AKS Flex Node Agent\nVersion: {version}\nGit Commit: unknown\nBuild Time: unknown"
    );
    printer.result(&text, &json!({"version": version, "program": "kyanite"}));
    Ok(ExitCode::SUCCESS)
}
