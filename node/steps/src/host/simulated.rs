//! A machine for tests: a directory for a root, commands by script, its own systemd, network and clock, faults to order.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::simulated_systemd::{Systemd, UnitRecord};
use super::{
    Body, Command, CommandError, Entry, Files, Finished, Host, Kind, NetworkError, Operation,
    Request, Response,
};
use crate::engine::Stop;

/// Something that goes wrong on a simulated machine. Points are changes of the disk, and beginnings and ends of commands,
/// counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Every change of the disk fails with EROFS; /run is no disk.
    ReadOnly,
    /// New data fails with ENOSPC from this point on.
    NoSpaceFrom(u64),
    /// At this point everything stops: nothing that comes after has any effect.
    CrashAt(u64),
    /// At this point this very process is killed with SIGKILL.
    KillAt(u64),
    /// There is no `systemctl`.
    NoSystemd,
    /// No DNS server answers.
    NoResolver,
}

/// What a scripted command does.
#[derive(Clone)]
pub enum Answer {
    /// Ends so.
    Ends(Finished),
    /// Takes this long, then ends well.
    Takes(Duration),
    /// Is not installed.
    Missing,
    /// Does something to the machine's files first.
    Does(Arc<Deed>),
}

/// What a scripted command does to the files.
pub type Deed = dyn Fn(&Files, &Command) -> Finished + Send + Sync;

type Page = Result<(u16, Vec<u8>), NetworkError>;

/// A machine for tests.
pub struct SimulatedHost {
    files: Files,
    trouble: Arc<Trouble>,
    systemd: Mutex<Systemd>,
    answers: Vec<(String, Answer)>,
    names: BTreeMap<String, Vec<IpAddr>>,
    pages: Vec<(String, Page)>,
    commands: Mutex<Vec<String>>,
    wall: jiff::Timestamp,
    boot: String,
    /// Nanoseconds that have passed on this machine without anybody waiting for them.
    passed: AtomicU64,
    /// Time also passes by itself, since then.
    start: Option<Instant>,
}

/// The faults and the count of points, shared with the gate of the files.
#[derive(Default)]
struct Trouble {
    faults: Mutex<Vec<Fault>>,
    points: AtomicU64,
    crashed: AtomicBool,
}

impl Trouble {
    /// One more point; may be the last.
    fn point(&self) -> io::Result<u64> {
        let n = self.points.fetch_add(1, Ordering::SeqCst) + 1;
        for fault in lock(&self.faults).iter() {
            match fault {
                Fault::CrashAt(at) if *at <= n => self.crashed.store(true, Ordering::SeqCst),
                Fault::KillAt(at) if *at == n => kill_self(),
                _ => {}
            }
        }
        match self.crashed.load(Ordering::SeqCst) {
            true => Err(io::Error::other("the machine has stopped")),
            false => Ok(n),
        }
    }

    fn pass(&self, operation: &Operation<'_>) -> io::Result<()> {
        let n = self.point()?;
        // The memory file system of a machine works when its disk does not.
        let volatile = operation.path().starts_with("/run");
        let grows = matches!(
            operation,
            Operation::Create(_) | Operation::Append(_) | Operation::MakeDirectory(_)
        );
        for fault in lock(&self.faults).iter() {
            match fault {
                Fault::ReadOnly if !volatile => return Err(rustix::io::Errno::ROFS.into()),
                Fault::NoSpaceFrom(at) if grows && !volatile && *at <= n => {
                    return Err(rustix::io::Errno::NOSPC.into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn has(&self, fault: Fault) -> bool {
        lock(&self.faults).contains(&fault)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kill_self() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}

impl SimulatedHost {
    /// A machine whose root is `root`. Commands that nobody scripted end well and print nothing; names resolve and servers
    /// answer 200 unless told otherwise.
    pub fn new(root: impl Into<PathBuf>) -> SimulatedHost {
        let trouble = Arc::new(Trouble::default());
        let gate = Arc::clone(&trouble);
        SimulatedHost {
            files: Files::gated(root, move |operation| gate.pass(operation)),
            trouble,
            systemd: Mutex::default(),
            answers: Vec::new(),
            names: BTreeMap::new(),
            pages: Vec::new(),
            commands: Mutex::default(),
            wall: jiff::Timestamp::from_second(1_790_000_000).expect("a moment in 2026"),
            boot: "a-boot".to_owned(),
            passed: AtomicU64::new(0),
            start: None,
        }
    }

    /// Time passes as it does for everybody, and faster where somebody sleeps: for measurements.
    pub fn in_real_time(mut self) -> SimulatedHost {
        self.start = Some(Instant::now());
        self.wall = jiff::Timestamp::now();
        self
    }

    /// From now on this goes wrong.
    pub fn fault(&self, fault: Fault) {
        lock(&self.trouble.faults).push(fault);
    }

    /// Everything works again.
    pub fn repair(&self) {
        lock(&self.trouble.faults).clear();
        self.trouble.crashed.store(false, Ordering::SeqCst);
    }

    /// How many points there have been.
    pub fn points(&self) -> u64 {
        self.trouble.points.load(Ordering::SeqCst)
    }

    /// Commands whose line begins with `line` do this; the newest rule that fits counts.
    pub fn answering(mut self, line: &str, answer: Answer) -> SimulatedHost {
        self.answers.push((line.to_owned(), answer));
        self
    }

    /// There is a unit of this name.
    pub fn with_unit(self, name: &str, unit: UnitRecord) -> SimulatedHost {
        lock(&self.systemd).units.insert(name.to_owned(), unit);
        self
    }

    /// The resolver knows these names and no others, once it knows any.
    pub fn resolving(mut self, name: &str, addresses: &[IpAddr]) -> SimulatedHost {
        self.names.insert(name.to_owned(), addresses.to_vec());
        self
    }

    /// Servers whose URL (or `host:port`) begins with `prefix` answer so; the newest rule that fits counts.
    pub fn serving(
        mut self,
        prefix: &str,
        page: Result<(u16, Vec<u8>), NetworkError>,
    ) -> SimulatedHost {
        self.pages.push((prefix.to_owned(), page));
        self
    }

    /// The wall clock stands here at the beginning.
    pub fn at(mut self, wall: jiff::Timestamp) -> SimulatedHost {
        self.wall = wall;
        self
    }

    /// Another boot of the machine.
    pub fn booted(mut self, boot: &str) -> SimulatedHost {
        self.boot = boot.to_owned();
        self
    }

    /// The lines of all commands so far.
    pub fn commands(&self) -> Vec<String> {
        lock(&self.commands).clone()
    }

    /// A unit as it is now.
    pub fn unit(&self, name: &str) -> Option<UnitRecord> {
        lock(&self.systemd).units.get(name).cloned()
    }

    /// Everything under the root, with the content of files.
    pub fn tree(&self) -> io::Result<BTreeMap<PathBuf, (Entry, Vec<u8>)>> {
        let mut tree = BTreeMap::new();
        self.collect(Path::new("/"), &mut tree)?;
        Ok(tree)
    }

    fn collect(
        &self,
        directory: &Path,
        tree: &mut BTreeMap<PathBuf, (Entry, Vec<u8>)>,
    ) -> io::Result<()> {
        for name in self.files.list(directory)? {
            let path = directory.join(name);
            let Some(mut entry) = self.files.entry(&path)? else {
                continue;
            };
            let content = match entry.kind {
                Kind::File => self.files.read(&path)?,
                _ => Vec::new(),
            };
            let is_directory = entry.kind == Kind::Directory;
            if is_directory {
                // How large a directory is, is the file system's own business.
                entry.size = 0;
            }
            tree.insert(path.clone(), (entry, content));
            if is_directory {
                self.collect(&path, tree)?;
            }
        }
        Ok(())
    }

    fn pass_time(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.passed.fetch_add(nanoseconds, Ordering::SeqCst);
    }

    fn answer(&self, command: &Command) -> Result<Finished, CommandError> {
        let line = command.line();
        let rule = self
            .answers
            .iter()
            .rev()
            .find(|(l, _)| line.starts_with(l.as_str()));
        match rule.map(|(_, answer)| answer) {
            Some(Answer::Ends(finished)) => Ok(finished.clone()),
            Some(Answer::Missing) => Err(missing(command)),
            Some(Answer::Does(act)) => Ok(act(&self.files, command)),
            Some(Answer::Takes(time)) if *time > command.timeout => {
                self.pass_time(command.timeout);
                Err(CommandError::TimedOut {
                    command: command.summary(),
                    limit: command.timeout,
                })
            }
            Some(Answer::Takes(time)) => {
                self.pass_time(*time);
                Ok(Finished::default())
            }
            None if command.program == "systemctl" && self.trouble.has(Fault::NoSystemd) => {
                Err(missing(command))
            }
            None if command.program == "systemctl" => {
                Ok(lock(&self.systemd).call(&self.files, command))
            }
            None => Ok(Finished::default()),
        }
    }

    fn page(&self, place: &str) -> Page {
        let rule = self
            .pages
            .iter()
            .rev()
            .find(|(p, _)| place.starts_with(p.as_str()));
        rule.map_or_else(|| Ok((200, Vec::new())), |(_, page)| page.clone())
    }

    /// A server that does not answer takes all the time it is given.
    fn wait_for(&self, error: NetworkError, timeout: Duration) -> NetworkError {
        match error {
            NetworkError::TimedOut { server, .. } => {
                self.pass_time(timeout);
                NetworkError::TimedOut {
                    server,
                    limit: timeout,
                }
            }
            NetworkError::NoResolver { .. } => {
                self.pass_time(timeout);
                error
            }
            other => other,
        }
    }
}

fn missing(command: &Command) -> CommandError {
    CommandError::Missing {
        program: command.program.clone(),
    }
}

impl Host for SimulatedHost {
    fn files(&self) -> &Files {
        &self.files
    }

    fn run(&self, command: &Command, stop: &Stop) -> Result<Finished, CommandError> {
        let io = |source| CommandError::Io {
            program: command.program.clone(),
            source,
        };
        if stop.cancelled() {
            return Err(CommandError::Cancelled {
                command: command.summary(),
            });
        }
        self.trouble.point().map_err(io)?;
        lock(&self.commands).push(command.line());
        let outcome = self.answer(command);
        self.trouble.point().map_err(io)?;
        outcome
    }

    fn resolve(&self, name: &str, timeout: Duration) -> Result<Vec<IpAddr>, NetworkError> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let name = name.to_owned();
        if self.trouble.has(Fault::NoResolver) {
            let cause = "Temporary failure in name resolution".to_owned();
            return Err(self.wait_for(NetworkError::NoResolver { name, cause }, timeout));
        }
        match self.names.get(&name) {
            Some(addresses) => Ok(addresses.clone()),
            None if self.names.is_empty() => Ok(vec![Ipv4Addr::new(10, 0, 0, 4).into()]),
            None => Err(NetworkError::UnknownName { name }),
        }
    }

    fn connect(&self, name: &str, port: u16, timeout: Duration) -> Result<(), NetworkError> {
        self.resolve(name, timeout)?;
        let page = self.page(&format!("{name}:{port}"));
        page.map(drop).map_err(|e| self.wait_for(e, timeout))
    }

    fn http(
        &self,
        request: &Request,
        body: &mut dyn Body,
        _stop: &Stop,
    ) -> Result<Response, NetworkError> {
        let broken = |cause: String| NetworkError::Protocol {
            server: request.url.clone(),
            cause,
        };
        let uri: http::Uri = request
            .url
            .parse()
            .map_err(|_| broken("is not a URL".to_owned()))?;
        self.resolve(uri.host().unwrap_or_default(), request.timeout)?;
        let (status, content) = self
            .page(&request.url)
            .map_err(|e| self.wait_for(e, request.timeout))?;
        let length = u64::try_from(content.len()).ok();
        let wanted = body.begin(status, length);
        if wanted.map_err(|e| broken(e.to_string()))? {
            body.write_all(&content)
                .map_err(|e| broken(e.to_string()))?;
        }
        Ok(Response { status })
    }

    fn now(&self) -> jiff::Timestamp {
        self.wall + self.elapsed()
    }

    fn elapsed(&self) -> Duration {
        let real = self.start.map(|s| s.elapsed()).unwrap_or_default();
        real + Duration::from_nanos(self.passed.load(Ordering::SeqCst))
    }

    fn sleep(&self, time: Duration, stop: &Stop) {
        if stop.reason().is_none() {
            self.pass_time(time);
        }
    }

    fn boot_id(&self) -> String {
        self.boot.clone()
    }
}
