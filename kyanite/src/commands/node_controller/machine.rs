//! The commands that touch the machine: provision, wait, plan, status, undo.

use std::process::ExitCode;
use std::time::Duration;

use node_controller::controller::{
    self, Log, Patience, Progress, Provision, RunState, Script, StepProgress, paths,
};
use node_controller::steps::steps;
use node_controller::validate::Severity;
use serde_json::json;
use steps::engine::{self, Difference, Engine, Plan, Reason, Stop};
use steps::host::{Host, RealHost, SimulatedHost};

use super::Judged;
use crate::cli::node_controller as flags;
use crate::exit::{Code, Failure, Result};
use crate::printer::{Printer, table};

/// Runs a provision to its end. The exit code is that of the step that failed.
pub(super) fn provision(flags: &flags::Provision, printer: &Printer) -> Result<ExitCode> {
    // Modes are set as asked for, not as the caller's mask would have them.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let host = host(&flags.root);
    let log = Log::new(&*host, std::io::stderr());
    let stop = stop_on_signals()?;
    let ended = match (&flags.provision_config, &flags.nbc_cmd) {
        (None, None) => {
            let message = "--provision-config or --nbc-cmd is required";
            return Err(Failure::new(Code::Failure, message));
        }
        (_, Some(file)) => controller::run_script(
            &*host,
            &Script::File(file.clone()),
            flags.dry_run,
            &stop,
            &log,
        ),
        (Some(file), None) if flags.env => controller::run_script(
            &*host,
            &Script::Config(file.clone()),
            flags.dry_run,
            &stop,
            &log,
        ),
        (Some(file), None) if flags.dry_run => {
            return plan(&super::judge(file, printer)?, &flags.root, printer);
        }
        (Some(file), None) => Provision {
            host: &*host,
            config: file.clone(),
            steps: &steps,
            stop,
            log: &log,
        }
        .run(),
    };
    Ok(ExitCode::from(ended.exit))
}

/// Prints the result and nothing else: the guest agent takes standard output for it.
pub(super) fn wait(flags: &flags::ProvisionWait, printer: &Printer) -> Result<ExitCode> {
    let patience = Patience {
        deadline: Duration::from_secs(flags.timeout),
        ..Patience::default()
    };
    let waited = controller::wait(&*host(&flags.root), patience);
    let value = serde_json::from_str(&waited.json).unwrap_or_default();
    printer.result(&waited.json, &value);
    match waited.failure {
        None => Ok(ExitCode::SUCCESS),
        Some(message) => {
            printer.note(&message);
            Ok(Code::Failure.into())
        }
    }
}

/// Prints what a provision would change; fails where it would, and where `validate` would.
pub(super) fn plan(judged: &Judged, root: &flags::Root, printer: &Printer) -> Result<ExitCode> {
    let host = host(root);
    let plan = engine(&*host)?
        .plan(&steps(&judged.configuration))
        .map_err(|e| Failure::new(Code::Failure, e.to_string()))?;
    let problems = &judged.problems;
    let errors = problems.iter().filter(|p| p.severity == Severity::Error);
    let errors = errors.count();
    let value = json!({"changes": plan.changes(), "failing": plan.failing(), "errors": errors,
        "problems": problems, "steps": plan.steps});
    let mut paragraphs: Vec<String> = problems.iter().map(super::paragraph).collect();
    paragraphs.push(plan_text(&plan, errors));
    printer.result(&paragraphs.join("\n\n"), &value);
    Ok(match errors + plan.failing() {
        0 => ExitCode::SUCCESS,
        _ => Code::Failure.into(),
    })
}

pub(in crate::commands) fn plan_text(plan: &Plan, errors: usize) -> String {
    let row = |step: &str, d: &Difference| {
        vec![
            step.to_owned(),
            d.action.to_owned(),
            d.subject.clone(),
            d.detail.clone(),
        ]
    };
    let mut rows = Vec::new();
    for step in &plan.steps {
        rows.extend(step.changes.iter().map(|d| row(&step.name, d)));
        if step.probe {
            rows.push(vec![step.name.clone(), "check".to_owned()]);
        }
        if let Some(problem) = &step.problem {
            let remedy = step.remedy.clone().unwrap_or_default();
            rows.push(vec![
                step.name.clone(),
                "fail".to_owned(),
                problem.clone(),
                remedy,
            ]);
        }
    }
    let table = table(&["STEP", "ACTION", "WHAT", "HOW"], rows);
    let mut end = format!("{table}\n\n{} changes", plan.changes());
    if plan.failing() > 0 {
        end += &format!("; {} steps would fail", plan.failing());
    }
    if errors > 0 {
        end += &format!("; {errors} errors in the configuration");
    }
    end
}

/// Prints how a run is doing; fails as it failed.
pub(super) fn status(follow: bool, root: &flags::Root, printer: &Printer) -> Result<ExitCode> {
    let host = host(root);
    let unreadable = |e: std::io::Error| Failure::file("read", paths::PROGRESS.as_ref(), &e);
    let progress = match follow {
        false => Progress::read(&*host).map_err(unreadable)?,
        true => {
            let mut told = Vec::new();
            Progress::follow(&*host, |progress| tell(progress, &mut told, printer))
                .map_err(unreadable)?
        }
    };
    let Some(progress) = progress else {
        let hint = match host.files().exists(paths::RESULT) {
            true => format!("how the last provision ended is in {}", paths::RESULT),
            false => {
                "start one with `aks-node-controller provision --provision-config FILE`".into()
            }
        };
        let nothing = "nothing has been provisioned since this machine started";
        return Err(Failure::new(Code::NotFound, nothing).hint(hint));
    };
    printer.result(&status_text(&progress), &json!(progress));
    Ok(match progress.state {
        RunState::Failed | RunState::Died => Code::Failure.into(),
        RunState::Running | RunState::Succeeded => ExitCode::SUCCESS,
    })
}

/// Says what is new since the last time.
fn tell(progress: &Progress, told: &mut Vec<StepProgress>, printer: &Printer) {
    for step in &progress.steps {
        let same = |old: &StepProgress| {
            (&old.name, old.state, old.attempt) == (&step.name, step.state, step.attempt)
        };
        if step.attempt > 0 && !told.iter().any(same) {
            printer.note(&step_row(step).join("  "));
        }
    }
    told.clone_from(&progress.steps);
}

fn status_text(progress: &Progress) -> String {
    let table = table(
        &["STEP", "STATE", "TIME", "WHY"],
        progress.steps.iter().map(step_row),
    );
    let state = match (progress.state, progress.code) {
        (RunState::Running, _) => format!(
            "under way for {:.1} s, pid {}",
            progress.seconds, progress.pid
        ),
        (RunState::Succeeded, _) => format!("succeeded in {:.1} s", progress.seconds),
        (RunState::Died, _) => format!(
            "pid {} has died; run it again, it goes on where it stopped",
            progress.pid
        ),
        (RunState::Failed, code) => format!(
            "failed with {0} after {1:.1} s; see `aks-node-controller explain {0}`",
            code.unwrap_or_default(),
            progress.seconds
        ),
    };
    format!("{table}\n\n{state}")
}

fn step_row(step: &StepProgress) -> Vec<String> {
    let state = format!("{:?}", step.state).to_lowercase();
    let state = match step.attempt {
        0 | 1 => state,
        n => format!("{state} (attempt {n})"),
    };
    let why = match step.remedy.is_empty() {
        true => step.cause.clone(),
        false => format!("{}; hint: {}", step.cause, step.remedy),
    };
    vec![
        step.name.clone(),
        state,
        format!("{} ms", step.milliseconds),
        why,
    ]
}

/// Takes everything back, and says what could not be.
pub(super) fn undo(root: &flags::Root, printer: &Printer) -> Result<()> {
    let host = host(root);
    let undone = controller::undo(&*host, &stop_on_signals()?)
        .map_err(|f| Failure::new(Code::Conflict, f.cause.clone()).hint(f.remedy.clone()))?;
    let failures: Vec<_> = undone.failures.iter().map(|f| f.cause.as_str()).collect();
    let mut text = format!("{} things looked at", undone.restored);
    for remains in &undone.remains {
        text += &format!("\nremains: {remains}, which nothing takes back");
    }
    for kept in &undone.kept {
        text += &format!("\nkept {kept}: others have put files there");
    }
    printer.result(
        &text,
        &json!({"restored": undone.restored, "kept": undone.kept, "remains": undone.remains, "failures": failures}),
    );
    match undone.failures.first() {
        None => Ok(()),
        Some(first) => {
            Err(Failure::new(Code::Failure, failures.join("; ")).hint(first.remedy.clone()))
        }
    }
}

fn host(root: &flags::Root) -> Box<dyn Host> {
    match &root.directory {
        None => Box::new(RealHost::new()),
        Some(directory) => Box::new(SimulatedHost::new(directory).in_real_time()),
    }
}

fn engine(host: &dyn Host) -> Result<Engine<'_>> {
    Ok(Engine {
        host,
        state: paths::STATE.into(),
        stop: stop()?,
        watcher: &Deaf,
        workers: 1,
        deadline: Duration::from_secs(900),
    })
}

/// Nobody listens to a plan.
struct Deaf;

impl engine::Watcher for Deaf {
    fn event(&self, _: &engine::Event<'_>) {}
}

fn stop() -> Result<Stop> {
    Stop::new()
        .map_err(|e| Failure::new(Code::Failure, format!("cannot make an event counter: {e}")))
}

/// SIGTERM and SIGINT end the run in order: children are stopped and the result is written. The thread lives as long as
/// the process.
pub(in crate::commands) fn stop_on_signals() -> Result<Stop> {
    use tokio::signal::unix::{SignalKind, signal};
    let stop = stop()?;
    let pulled = stop.clone();
    let broken =
        |e: std::io::Error| Failure::new(Code::Failure, format!("cannot listen for signals: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(broken)?;
    let (mut term, mut int) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::terminate()).map_err(broken)?,
            signal(SignalKind::interrupt()).map_err(broken)?,
        )
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            pulled.pull(Reason::Cancelled);
        });
    });
    Ok(stop)
}
