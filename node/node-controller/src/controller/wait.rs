//! `provision-wait`: sleeps until a run has ended, and says how.

use std::mem::MaybeUninit;
use std::path::Path;
use std::time::{Duration, Instant};

use ::steps::host::{Files, Host};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use serde_json::Value;

use super::progress::{Progress, RunState};
use super::{lock, paths};
use crate::config;

/// How long to wait.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the end of the run.
    pub deadline: Duration,
    /// For another run, once the process of the last has died without a result.
    pub grace: Duration,
}

impl Default for Patience {
    /// As long as the extension that waits is given itself.
    fn default() -> Patience {
        Patience {
            deadline: Duration::from_secs(90 * 60),
            grace: Duration::from_secs(30),
        }
    }
}

/// What the waiting came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waited {
    /// What to print: the result, or nothing.
    pub json: String,
    /// Why it counts as a failure.
    pub failure: Option<String>,
}

/// Waits for the end of a run and reads its result. Upstream's texts, so that those who look for them find them.
pub fn wait(host: &dyn Host, patience: Patience) -> Waited {
    match sleep_until_complete(host, patience) {
        Ok(result) => read_result(host.files(), result),
        Err(failure) => Waited {
            json: String::new(),
            failure: Some(failure),
        },
    }
}

/// Returns the path of the result. Watches first and looks then, so that nothing falls in between.
fn sleep_until_complete(host: &dyn Host, patience: Patience) -> Result<&'static str, String> {
    let files = host.files();
    let watching = |e: std::io::Error| format!("error watching file: {e}");
    let begin = Instant::now();
    let watch = Watch::new(files).map_err(watching)?;
    let mut dead_since = None;
    loop {
        if let Some(result) = complete(files) {
            return Ok(result);
        }
        let left = patience.deadline.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Err(format!(
                "context deadline exceeded waiting for provision complete: no run has ended within {} s; see `aks-node-controller status` and {}",
                patience.deadline.as_secs(),
                paths::LOG
            ));
        }
        if !died(host) {
            dead_since = None;
        } else if dead_since.get_or_insert_with(Instant::now).elapsed() >= patience.grace {
            return Err(format!(
                "the run that was under way has died without a result: look for its end in {} and in `dmesg` (out of memory?), then start it again with `systemctl restart aks-node-controller`",
                paths::LOG
            ));
        }
        watch
            .sleep(left.min(Duration::from_secs(1)))
            .map_err(watching)?;
    }
}

/// Where the result of a run that has ended is. While a run is under way, what is there is from the one before.
fn complete(files: &Files) -> Option<&'static str> {
    let result = if files.exists(paths::VOLATILE_COMPLETE) {
        paths::VOLATILE_RESULT
    } else if files.exists(paths::COMPLETE) || baked(files) {
        paths::RESULT
    } else {
        return None;
    };
    (!lock::held(files)).then_some(result)
}

/// The marker of a two-stage bake counts in its first stage only: the node that is made of the image has it from the start.
fn baked(files: &Files) -> bool {
    let first_stage = || {
        let text = files.read(paths::CONFIG).ok()?;
        Some(config::read(&text).ok()?.configuration.pre_provision_only)
    };
    files.exists(paths::BASE_PREP_COMPLETE) && first_stage() == Some(true)
}

/// A run began since the machine started, did not come to its end, and nobody runs it any more.
fn died(host: &dyn Host) -> bool {
    let progress = Progress::read(host).ok().flatten();
    progress.is_some_and(|p| p.state == RunState::Died)
}

/// Wakes when anything appears or grows where sentinels and progress are.
pub(super) struct Watch(rustix::fd::OwnedFd);

impl Watch {
    pub(super) fn new(files: &Files) -> std::io::Result<Watch> {
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        for directory in [paths::CONTAINERS, paths::VOLATILE] {
            files.ensure_directory(Path::new(directory), 0o755)?;
            let place = files.locate(Path::new(directory));
            use inotify::WatchFlags;
            let news = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::MODIFY;
            inotify::add_watch(&watch, place, news)?;
        }
        Ok(Watch(watch))
    }

    pub(super) fn sleep(&self, time: Duration) -> std::io::Result<()> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec::try_from(time).ok();
        match poll(&mut fds, limit.as_ref()) {
            Err(e) if e != rustix::io::Errno::INTR => return Err(e.into()),
            _ => {}
        }
        // What happened does not matter: the loop looks for itself.
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        while reader.next().is_ok() {}
        Ok(())
    }
}

fn read_result(files: &Files, path: &str) -> Waited {
    match files.read(path) {
        Ok(bytes) => {
            let json = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            let failure = judge(&json).err();
            Waited { json, failure }
        }
        Err(e) => {
            let cause = match e.kind() {
                std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
                _ => e.to_string(),
            };
            Waited {
                json: String::new(),
                failure: Some(format!(
                    "failed to read provision.json: open {path}: {cause}. One reason could be that AKSNodeConfig is not properly set"
                )),
            }
        }
    }
}

/// Whether a result is one of success.
fn judge(json: &str) -> Result<(), String> {
    let value: Value =
        serde_json::from_str(json).map_err(|e| format!("parse provision.json: {e}"))?;
    let fields = value
        .as_object()
        .ok_or("parse provision.json: it is not an object")?;
    // As upstream's reader: the case of keys does not matter.
    let field = |name: &str| {
        let found = fields.iter().find(|(k, _)| k.eq_ignore_ascii_case(name));
        found.and_then(|(_, v)| v.as_str()).unwrap_or_default()
    };
    let code = field("ExitCode");
    match code.parse::<i32>() {
        Ok(0) => Ok(()),
        Ok(code) => Err(format!(
            "provision failed: exitCode={code} error={} output={:?}",
            field("Error"),
            field("Output")
        )),
        Err(_) if code.is_empty() => Err("missing ExitCode in provision.json".to_owned()),
        Err(_) => Err(format!("invalid ExitCode in provision.json: {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_judged_with_upstreams_words() {
        let table = [
            (r#"{"ExitCode":"0"}"#, ""),
            (r#"{"exitcode":"0","Output":"x"}"#, ""),
            (
                r#"{"ExitCode":"51","Error":"no route","Output":"a\nb"}"#,
                r#"provision failed: exitCode=51 error=no route output="a\nb""#,
            ),
            (r#"{"Output":"x"}"#, "missing ExitCode in provision.json"),
            (
                r#"{"ExitCode":"x1"}"#,
                "invalid ExitCode in provision.json: x1",
            ),
        ];
        for (json, expected) in table {
            assert_eq!(judge(json).err().unwrap_or_default(), expected, "{json}");
        }
        assert!(
            judge("{")
                .unwrap_err()
                .starts_with("parse provision.json: ")
        );
    }
}
