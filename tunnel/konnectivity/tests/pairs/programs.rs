//! Where both sides' programs are.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

/// Whose program plays a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    Theirs,
}

/// The two roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Agent,
}

/// One of upstream's programs, if it is here.
pub(crate) fn upstream(name: &str) -> Option<PathBuf> {
    let given = std::env::var_os("UPSTREAM_BIN").map(PathBuf::from);
    let cache = || {
        let cache = std::env::var_os("KYANITE_CACHE").map(PathBuf::from);
        let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache/kyanite")));
        Some(cache?.join("upstream/bin"))
    };
    let path = given.or_else(cache)?.join(name);
    path.is_file().then_some(path)
}

// Cargo builds examples beside the tests.
fn ours() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/konnectivity");
    assert!(
        path.is_file(),
        "cargo builds {} with the tests",
        path.display()
    );
    path
}

fn command(whose: Whose, role: Role) -> Option<Command> {
    match (whose, role) {
        (Whose::Ours, Role::Server) => {
            let mut command = Command::new(ours());
            command.arg("server");
            Some(command)
        }
        (Whose::Ours, Role::Agent) => {
            let mut command = Command::new(ours());
            command.arg("agent");
            Some(command)
        }
        (Whose::Theirs, Role::Server) => upstream("proxy-server").map(Command::new),
        (Whose::Theirs, Role::Agent) => upstream("proxy-agent").map(Command::new),
    }
}

/// Whether a role can be played.
pub(crate) fn available(whose: Whose, role: Role) -> bool {
    command(whose, role).is_some()
}

/// A running program and what it says.
pub(crate) struct Program {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Program {
    pub(crate) fn start(whose: Whose, role: Role, flags: &[String], log: &Path) -> Program {
        let file = File::create(log).unwrap();
        let mut command = command(whose, role).expect("looked for before");
        let child = command
            .args(flags)
            .env("RUST_LOG", "info")
            .env_remove("HTTPS_PROXY")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = log.to_owned();
        Program { child, log }
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = i32::try_from(self.child.id().expect("it runs")).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
}
