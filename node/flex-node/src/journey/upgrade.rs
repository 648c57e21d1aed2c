//! Other versions on a node that works: fetched first, the node emptied, the programs swapped, and back to what worked if it does not
//! come back Ready.
//!
//! A record says how far it got, written before each part that somebody must take back if the run is killed: [`Journey::recover`] does
//! that, at the next upgrade and whenever the agent starts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::steps::engine::{Change, Content, Engine, Failure, File, Step};
use ::steps::host::{Command, Finished, Kind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::lock::Lock;
use super::telling::Telling;
use super::{Journey, Said};
use crate::codes;
use crate::steps::{Wish, prepare, steps};
use crate::versions::Versions;

pub(super) const RECORD: &str = "/var/lib/aks-flex-node/upgrade.json";
const PREVIOUS: &str = "/var/lib/aks-flex-node/previous";

/// How an upgrade is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// How long pods may take to go.
    pub drain: Duration,
    /// How long the node may take to be Ready again, before it goes back to what it was.
    pub patience: Duration,
    /// Go on when pods do not go.
    pub force: bool,
}

/// How far it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stage {
    /// Nothing is changed but that the node takes no pods.
    Cordon,
    /// Programs may be the old or the new ones.
    Swap,
}

/// What was at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Kept {
    Nothing,
    Link(PathBuf),
    Copy(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    stage: Stage,
    was_cordoned: bool,
    from: Versions,
    to: Versions,
    kept: Vec<(PathBuf, Kept)>,
}

/// How an upgrade ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Upgraded {
    /// What happened, in order, with how long it took.
    pub parts: Vec<(&'static str, String, Duration)>,
    /// What went wrong.
    pub failure: Option<Failure>,
    /// The node is what it was before.
    pub rolled_back: bool,
    /// The exit code.
    pub code: u8,
}

impl Upgraded {
    /// For machines.
    pub fn value(&self) -> Value {
        let parts: Vec<Value> = (self.parts.iter())
            .map(|(name, detail, time)| {
                json!({"part": name, "detail": detail, "milliseconds": time.as_millis() as u64})
            })
            .collect();
        json!({"success": self.code == 0, "parts": parts, "rolledBack": self.rolled_back, "code": self.code,
            "kind": codes::name(self.code), "error": self.failure.as_ref().map(|f| &f.cause),
            "remedy": self.failure.as_ref().map(|f| &f.remedy)})
    }

    fn failed(mut self, failure: Failure, code: u8) -> Upgraded {
        self.code = failure.code.unwrap_or(code);
        self.failure = Some(failure);
        self
    }
}

impl Journey<'_> {
    /// Whether an upgrade was begun and neither ended nor taken back.
    pub fn is_upgrading(&self) -> bool {
        self.host.files().exists(RECORD)
    }

    /// Brings other versions to a node. `base` is the configuration without what upgrades chose.
    pub fn upgrade(&self, base: &Wish, to: &Versions, manner: Manner) -> Upgraded {
        let mut told = Upgraded::default();
        let lock = match Lock::take(self.host) {
            Ok(lock) => lock,
            Err(failure) => return told.failed(failure, codes::BUSY),
        };
        if let Some(record) = self.record() {
            let back = self.take_back(base, &record, manner);
            told.parts.extend(back.parts);
            if let Some(failure) = back.failure {
                return told.failed(failure, back.code);
            }
        }
        let from = Versions::read(self.host.files());
        let to = to.clone().or(&from);
        let ended = self.steps_of_upgrade(base, (&from, &to), manner, &mut told);
        drop(lock);
        match ended {
            Ok(()) => told,
            Err((failure, code)) => told.failed(failure, code),
        }
    }

    fn steps_of_upgrade(
        &self,
        base: &Wish,
        (from, to): (&Versions, &Versions),
        manner: Manner,
        told: &mut Upgraded,
    ) -> Result<(), (Failure, u8)> {
        let wish = to.applied(base);
        if self.plan(&wish).is_ok_and(|plan| plan.changes() == 0) {
            return self.part(told, "compare", || {
                Ok("it runs these versions already".to_owned())
            });
        }
        self.part(told, "fetch", || {
            self.run_steps(
                &prepare(&wish, &base.program[0]),
                manner.patience.max(Duration::from_secs(900)),
            )?;
            Ok("everything new is here and verified".to_owned())
        })?;
        let kept = self.part_with(told, "keep", || self.keep(&wish))?;
        let mut record = Record {
            stage: Stage::Cordon,
            was_cordoned: false,
            from: from.clone(),
            to: to.clone(),
            kept,
        };
        self.write_record(&record)?;
        record.was_cordoned = self.part_with(told, "cordon", || self.cordon(base))?;
        self.write_record(&record)?;
        if let Err(failed) = self.part(told, "drain", || self.drain(base, manner)) {
            let back = self.take_back(base, &record, manner);
            told.parts.extend(back.parts);
            told.rolled_back = true;
            return Err(failed);
        }
        record.stage = Stage::Swap;
        self.write_record(&record)?;
        let swapped = self.part(told, "swap", || self.converge_to(base, to, manner));
        if let Err((failure, code)) = swapped {
            let back = self.take_back(base, &record, manner);
            told.parts.extend(back.parts);
            told.rolled_back = back.failure.is_none();
            let cause = match &back.failure {
                None => format!("{}; the node is back to what worked", failure.cause),
                Some(other) => format!("{}; and it cannot go back: {}", failure.cause, other.cause),
            };
            return Err((Failure { cause, ..failure }, code));
        }
        self.part(told, "uncordon", || self.end(base, &record))
    }

    /// Takes back what an upgrade that was killed had begun. Nothing where there was none.
    pub fn recover(&self, base: &Wish, manner: Manner) -> Upgraded {
        let told = Upgraded::default();
        let _lock = match Lock::take(self.host) {
            Ok(lock) => lock,
            Err(failure) => return told.failed(failure, codes::BUSY),
        };
        match self.record() {
            Some(record) => self.take_back(base, &record, manner),
            None => told,
        }
    }

    fn take_back(&self, base: &Wish, record: &Record, manner: Manner) -> Upgraded {
        let mut told = Upgraded::default();
        let done = self.part(&mut told, "rollback", || {
            if record.stage == Stage::Swap {
                let restore = Step::changes("restore-previous", codes::HOST, {
                    let kept = record.kept.clone();
                    move |_| Ok(kept.iter().map(restored).collect())
                });
                self.run_steps(&[restore], manner.patience)?;
                self.converge_to(base, &record.from, manner)?;
            }
            self.end(base, record)
        });
        match done {
            Ok(()) => told,
            Err((failure, code)) => told.failed(failure, code),
        }
    }

    /// The node runs these versions, and says so.
    fn converge_to(
        &self,
        base: &Wish,
        versions: &Versions,
        manner: Manner,
    ) -> Result<String, (Failure, u8)> {
        let file = Path::new(crate::versions::FILE);
        let written = versions.write(self.host.files());
        written.map_err(|e| (Failure::file("write", file, &e), codes::HOST))?;
        // The cluster keeps seconds.
        let since = self.host.now().as_second().to_string();
        let wish = versions.applied(base);
        self.run_steps(&steps(&wish), manner.patience)?;
        let seconds = manner.patience.as_secs().to_string();
        let words = [
            "node",
            "wait",
            "--name",
            &wish.name,
            "--timeout",
            &seconds,
            "--since",
            &since,
        ];
        self.own(
            &wish,
            &words,
            manner.patience + Duration::from_secs(5),
            codes::CLUSTER,
        )?;
        let agent = Command::new(
            "systemctl",
            &["is-active", "--quiet", "aks-flex-node-agent.service"],
        );
        self.command(&agent, "the agent does not run", codes::HOST)?;
        Ok(format!("node {} is Ready with them", wish.name))
    }

    /// The places that an upgrade may change, with what is there now; files are copied.
    fn keep(&self, wish: &Wish) -> Result<Vec<(PathBuf, Kept)>, (Failure, u8)> {
        let files = self.host.files();
        let mut kept = Vec::new();
        for path in crate::steps::programs_of(wish) {
            let entry = files.entry(&path);
            let entry = entry.map_err(|e| (Failure::file("look at", &path, &e), codes::HOST))?;
            let name = path.display().to_string().replace('/', "-");
            let what = match entry.map(|entry| entry.kind) {
                Some(Kind::Link(target)) => Kept::Link(target),
                Some(Kind::File) => Kept::Copy(PathBuf::from(format!("{PREVIOUS}/{name}"))),
                _ => Kept::Nothing,
            };
            kept.push((path, what));
        }
        let copies = kept.clone();
        let step = Step::changes("keep-previous", codes::HOST, move |_| {
            let copies = copies.iter().filter_map(|(path, what)| match what {
                Kept::Copy(copy) => Some(Change::File(File::new(
                    copy,
                    0o755,
                    Content::CopyOf(path.clone()),
                ))),
                _ => None,
            });
            Ok(copies.collect())
        });
        self.run_steps(&[step], Duration::from_secs(300))?;
        Ok(kept)
    }

    fn cordon(&self, wish: &Wish) -> Result<bool, (Failure, u8)> {
        let words = ["node", "cordon", "--name", &wish.name];
        let finished = self.own(wish, &words, Duration::from_secs(60), codes::CLUSTER)?;
        Ok(finished.text().contains("was cordoned"))
    }

    fn drain(&self, wish: &Wish, manner: Manner) -> Result<String, (Failure, u8)> {
        let seconds = manner.drain.as_secs().to_string();
        let words = ["node", "drain", "--name", &wish.name, "--timeout", &seconds];
        let drained = self.own(
            wish,
            &words,
            manner.drain + Duration::from_secs(30),
            codes::CLUSTER,
        );
        match drained {
            Ok(_) => Ok("its pods are gone".to_owned()),
            Err((failure, _)) if manner.force => {
                Ok(format!("not all pods went: {}", failure.cause))
            }
            Err((failure, code)) => {
                let remedy =
                    "let the budget allow it, or say --force: nothing was changed".to_owned();
                Err((Failure { remedy, ..failure }, code))
            }
        }
    }

    /// It takes pods again, unless it did not before; and there is nothing left to take back.
    fn end(&self, wish: &Wish, record: &Record) -> Result<String, (Failure, u8)> {
        if !record.was_cordoned {
            let words = ["node", "uncordon", "--name", &wish.name];
            self.own(wish, &words, Duration::from_secs(60), codes::CLUSTER)?;
        }
        let path = Path::new(RECORD);
        let removed = self.host.files().remove(path);
        removed.map_err(|e| (Failure::file("remove", path, &e), codes::HOST))?;
        Ok("it takes pods as before".to_owned())
    }

    fn record(&self) -> Option<Record> {
        let text = self.host.files().text(RECORD).ok().flatten()?;
        serde_json::from_str(&text).ok()
    }

    fn write_record(&self, record: &Record) -> Result<(), (Failure, u8)> {
        let text = serde_json::to_string(record).expect("a record has string keys only");
        let path = Path::new(RECORD);
        let written = self.host.files().replace(path, text.as_bytes(), 0o600);
        written.map_err(|e| (Failure::file("write", path, &e), codes::HOST))
    }

    fn run_steps(&self, steps: &[Step], deadline: Duration) -> Result<(), (Failure, u8)> {
        let telling = Telling::new(self.news, steps);
        let engine = Engine {
            deadline,
            ..self.engine(&telling)
        };
        match engine.run(steps).failure {
            None => Ok(()),
            Some((_, code, failure)) => Err((failure, code)),
        }
    }

    fn own(
        &self,
        wish: &Wish,
        words: &[&str],
        limit: Duration,
        code: u8,
    ) -> Result<Finished, (Failure, u8)> {
        let command = wish.own(words).at_most(limit);
        self.command(&command, words[1], code)
    }

    fn command(&self, command: &Command, doing: &str, code: u8) -> Result<Finished, (Failure, u8)> {
        let finished = self.host.run(command, &self.stop);
        let finished = finished.map_err(|e| (Failure::from(e), code))?;
        match finished.success() {
            true => Ok(finished),
            false => {
                let cause = format!("{doing}: {}", finished.last_words());
                Err((Failure::new(cause, "see `aks-flex-node doctor`"), code))
            }
        }
    }

    fn part(
        &self,
        told: &mut Upgraded,
        name: &'static str,
        act: impl FnOnce() -> Result<String, (Failure, u8)>,
    ) -> Result<(), (Failure, u8)> {
        let begin = self.host.elapsed();
        let detail = act()?;
        let time = self.host.elapsed().saturating_sub(begin);
        (self.news)(&Said::Phase {
            name,
            detail: detail.clone(),
            time,
        });
        told.parts.push((name, detail, time));
        Ok(())
    }

    fn part_with<T>(
        &self,
        told: &mut Upgraded,
        name: &'static str,
        act: impl FnOnce() -> Result<T, (Failure, u8)>,
    ) -> Result<T, (Failure, u8)> {
        let mut found = None;
        self.part(told, name, || {
            found = Some(act()?);
            Ok(String::new())
        })?;
        Ok(found.expect("a part that ended well has found it"))
    }
}

fn restored((path, kept): &(PathBuf, Kept)) -> Change {
    match kept {
        Kept::Nothing => Change::absent(path),
        Kept::Link(target) => Change::link(path, target),
        Kept::Copy(copy) => Change::File(File::new(path, 0o755, Content::CopyOf(copy.clone()))),
    }
}
