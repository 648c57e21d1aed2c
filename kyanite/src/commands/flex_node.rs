//! `kyanite flex-node`: the Flex Node agent's commands. What they do is in the crate of that name.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use flex_node::agent::{Agent, Metrics};
use flex_node::bundle::{self, Digest};
use flex_node::checks::{self, Finding, Severity};
use flex_node::config::{self, Problem};
use flex_node::himds::Service;
use flex_node::identity::Local;
use flex_node::journey::{Departure, Journey, Memory, Said, WORKERS, bar, upgrade};
use flex_node::steps::Wish;
use flex_node::versions::Versions;
use flex_node::{cluster, drain, identity, membership, paths, token};
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
        FlexNode::Bootstrap {
            config,
            offline_bundle,
        } => bootstrap(&config.file, offline_bundle, printer),
        FlexNode::Upgrade(flags) => upgrade(&flags, printer),
        FlexNode::Bundle(bundle) => bundles(&bundle, printer),
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
        FlexNode::Himds { config } => {
            let wish = wish(&config.file, printer)?;
            super::small_runtime()?.block_on(himds(&wish))
        }
        FlexNode::Node(node) => super::small_runtime()?.block_on(own_node(node, printer)),
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

/// Serves until it is ended.
async fn himds(wish: &Wish) -> Result<ExitCode> {
    let local = Local::here(|name| std::env::var(name).ok());
    let listener = super::serve::listen(token::HIMDS_ADDRESS.parse().expect("an address")).await?;
    let service = Service::open(&wish.config, &local.keys, flex_node::himds::proofs()).await;
    let service = Arc::new(service.map_err(refused)?);
    tokio::select! {
        () = service.serve(listener) => {}
        () = super::serve::told_to_stop() => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn own_node(node: Node, printer: &Printer) -> Result<ExitCode> {
    let kubeconfig = Path::new(paths::KUBECONFIG);
    let done = match node {
        Node::Wait {
            name,
            timeout,
            since,
        } => {
            let since = since.and_then(|second| jiff::Timestamp::from_second(second).ok());
            cluster::wait_ready(kubeconfig, &name, Duration::from_secs(timeout), since).await
        }
        Node::Cordon { name } => drain::cordon(kubeconfig, &name, true).await.map(|was| {
            let text = if was {
                "was cordoned"
            } else {
                "is cordoned now"
            };
            printer.result(text, &json!({ "was": was }));
        }),
        Node::Uncordon { name } => drain::cordon(kubeconfig, &name, false).await.map(drop),
        Node::Drain { name, timeout } => {
            let patience = Duration::from_secs(timeout);
            drain::drain(kubeconfig, &name, patience).await.map(drop)
        }
        Node::Remove {
            name,
            config: Some(file),
            ..
        } => {
            let wish = wish(&file, printer)?;
            let gone = membership::remove_node(&wish.config, &name).await;
            gone.map(drop).map_err(|refused| refused.to_string())
        }
        Node::Remove {
            name, kubeconfig, ..
        } => cluster::remove(kubeconfig, &name).await,
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
        Azure::Arc => {
            let local = Local::here(|name| std::env::var(name).ok());
            identity::machine(config, verb, &wish.name, &local).await
        }
        Azure::Conditions => identity::conditions(config).await,
        Azure::Access => membership::access(config, verb, &wish.name).await,
        Azure::Serving => membership::serving(config, verb, &wish.name).await,
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

/// The configuration, with the versions that an upgrade chose.
fn wish(file: &Path, printer: &Printer) -> Result<Wish> {
    let base = base_wish(file, printer)?;
    Ok(Versions::read(RealHost::new().files()).applied(&base))
}

/// The configuration with what is around it. Warnings are said; problems end it, all of them at once.
fn base_wish(file: &Path, printer: &Printer) -> Result<Wish> {
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
        agent: None,
        bundle: None,
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
        Said::Fetching {
            step,
            bytes,
            total,
            rate,
        } => printer.waiting(&bar(step, *bytes, *total, *rate)),
        Said::Again { step, cause } => printer.note(&format!("  {step}: {cause}; once more")),
        Said::Step { report, .. } => {
            if report.outcome != Outcome::Failed {
                printer.waiting(&format!("{} {}", report.name, report.note));
            }
        }
    }
}

/// How long an upgrade that somebody else has begun may take to be taken back.
const RECOVERY: upgrade::Manner = upgrade::Manner {
    drain: Duration::from_secs(300),
    patience: Duration::from_secs(300),
    force: false,
};

fn upgrade(flags: &flags::Upgrade, printer: &Printer) -> Result<ExitCode> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let mut base = base_wish(&flags.config.file, printer)?;
    base.bundle = bundle_of(flags.offline_bundle.as_deref());
    let host = RealHost::new();
    if Memory::read(&host).is_none() {
        return Err(Failure::new(Code::NotFound, "this machine is no node")
            .hint("make it one with `aks-flex-node bootstrap --config FILE`"));
    }
    let to = Versions {
        kubernetes: flags.kubernetes.clone(),
        containerd: flags.containerd.clone(),
        runc: flags.runc.clone(),
        agent: flags.agent.as_deref().map(staged).transpose()?,
    };
    let news = |said: &Said<'_>| tell(said, printer);
    let journey = Journey {
        host: &host,
        stop: stop_on_signals()?,
        news: &news,
        workers: WORKERS,
    };
    let manner = upgrade::Manner {
        drain: Duration::from_secs(flags.drain_timeout),
        patience: Duration::from_secs(flags.timeout),
        force: flags.force,
    };
    let upgraded = journey.upgrade(&base, &to, manner);
    let text = match &upgraded.failure {
        None => format!("node {} is upgraded", base.name),
        Some(failure) => format!("failed: {}\nhint: {}", failure.cause, failure.remedy),
    };
    printer.result(&text, &upgraded.value());
    Ok(ExitCode::from(upgraded.code))
}

/// Another build of this program, where it stays for as long as it is in use; goes with the node.
fn staged(file: &Path) -> Result<String> {
    let read = |e: std::io::Error| Failure::file("read", file, &e);
    let mut context = Digest::new();
    std::io::copy(&mut std::fs::File::open(file).map_err(read)?, &mut context).map_err(read)?;
    let directory = Path::new(bundle::CACHE).join(format!("agent-{}", &context.hex()[..16]));
    let target = directory.join("aks-flex-node");
    let failed = |e: std::io::Error| Failure::file("write", &target, &e);
    std::fs::create_dir_all(&directory).map_err(failed)?;
    std::fs::copy(file, &target).map_err(failed)?;
    Ok(target.display().to_string())
}

fn bundle_of(file: Option<&Path>) -> Option<String> {
    let file = file.map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
    file.map(|file| file.display().to_string())
}

fn bundles(command: &flags::Bundle, printer: &Printer) -> Result<ExitCode> {
    let refused = |failure: steps::engine::Failure| failed(failure.cause).hint(failure.remedy);
    let manifest = match command {
        flags::Bundle::Show { file } => bundle::show(file).map_err(refused)?,
        flags::Bundle::Create {
            config,
            output,
            image,
        } => {
            let wish = wish(&config.file, printer)?;
            let news = |said: &Said<'_>| tell(said, printer);
            let create = bundle::Create {
                wish: &wish,
                output,
                images: image,
                news: &news,
            };
            create.run(&stop_on_signals()?).map_err(refused)?
        }
    };
    let rows = manifest.files.iter();
    let rows = rows.map(|file| {
        vec![
            file.name.clone(),
            file.size.to_string(),
            file.sha256.clone(),
        ]
    });
    printer.result(
        &table(&["FILE", "BYTES", "SHA-256"], rows),
        &json!(manifest),
    );
    Ok(ExitCode::SUCCESS)
}

fn bootstrap(file: &Path, bundle: Option<PathBuf>, printer: &Printer) -> Result<ExitCode> {
    // Modes are set as asked for, not as the caller's mask would have them.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let mut wish = wish(file, printer)?;
    wish.bundle = bundle_of(bundle.as_deref());
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
    let host = RealHost::new();
    recover(&base_wish(file, printer)?, &host, printer)?;
    let wish = wish(file, printer)?;
    let runtime = super::small_runtime()?;
    let metrics = Metrics::default();
    // A loop that ends after some looks is somebody's who watches.
    if looks.is_none() && !wish.config.agent.metrics.is_empty() {
        match std::net::TcpListener::bind(&wish.config.agent.metrics) {
            Ok(listener) => metrics.serve(listener),
            Err(error) => printer.note(&format!("{}: {error}", wish.config.agent.metrics)),
        }
    }
    let agent = Agent {
        host: &host,
        stop: stop_on_signals()?,
        wish: &wish,
        ask_cluster: &|| runtime.block_on(cluster::look(Path::new(paths::KUBECONFIG), &wish.name)),
        ask_goal: &|| runtime.block_on(identity::goal(&wish.config, &wish.name)),
        metrics: &metrics,
        log: &|line| printer.note(line),
    };
    agent.run(looks);
    Ok(ExitCode::SUCCESS)
}

/// An upgrade that was killed is taken back before anything else is looked at. One that is under way holds the lock, and is left alone.
fn recover(base: &Wish, host: &RealHost, printer: &Printer) -> Result<()> {
    let journey = Journey {
        host,
        stop: stop()?,
        news: &|_| {},
        workers: WORKERS,
    };
    if journey.is_upgrading() {
        let told = journey.recover(base, RECOVERY);
        match &told.failure {
            None => printer.note("an upgrade that did not end was taken back"),
            Some(failure) => printer.note(&format!("an upgrade did not end: {}", failure.cause)),
        }
    }
    Ok(())
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
