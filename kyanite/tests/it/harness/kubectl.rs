//! kubectl against one server.

use std::path::PathBuf;
use std::process::Command;

use super::{Finished, Running, Server, ServerOptions, find_program, skip};

/// A server of this test's own and the kubectl that talks to it.
pub(crate) struct Kubectl {
    program: PathBuf,
    pub(crate) server: Server,
}

impl Kubectl {
    /// Starts a server; says so and gives nothing when this machine has no kubectl.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(ServerOptions::default())
    }

    /// As [`Kubectl::start`], where nobody but the test moves deployments and jobs.
    pub(crate) fn without_workloads() -> Option<Self> {
        Self::start_with(ServerOptions {
            flags: vec![
                "--controllers=*,-deployment,-replicaset,-statefulset,-daemonset,-job,-cronjob",
            ],
        })
    }

    /// As [`Kubectl::start`], with flags of the test's choice.
    pub(crate) fn start_with(options: ServerOptions) -> Option<Self> {
        let Some(program) = find_program("KUBECTL", "kubectl") else {
            skip("kubectl not found on PATH or in KUBECTL");
            return None;
        };
        Some(Self {
            program,
            server: Server::start_with(options),
        })
    }

    /// Runs `kubectl` with these words, split at spaces.
    pub(crate) fn run(&self, words: &str) -> Finished {
        Finished::run(self.command().args(words.split_whitespace()), "")
    }

    /// Runs `kubectl` with arguments that hold spaces themselves.
    pub(crate) fn args(&self, args: &[&str]) -> Finished {
        Finished::run(self.command().args(args), "")
    }

    /// Runs `kubectl` with a YAML document on standard input.
    pub(crate) fn with_input(&self, words: &str, document: &str) -> Finished {
        // Without the marker kubectl takes a document that starts with a brace for JSON.
        let input = format!("---\n{document}");
        Finished::run(self.command().args(words.split_whitespace()), &input)
    }

    /// Runs `kubectl edit` with an editor that applies a sed script.
    pub(crate) fn edit(&self, words: &str, sed_script: &str) -> Finished {
        let editor = format!("sed -i -e {sed_script}");
        let mut command = self.command();
        command
            .arg("edit")
            .args(words.split_whitespace())
            .env("KUBE_EDITOR", editor);
        Finished::run(&mut command, "")
    }

    /// Creates the objects of a document; fails the test if that fails.
    #[track_caller]
    pub(crate) fn create(&self, document: &str) -> Finished {
        self.with_input("create -f -", document).ok()
    }

    /// One field of one object: `field("pod web", ".status.phase")`; empty when it is not set.
    #[track_caller]
    pub(crate) fn field(&self, object: &str, path: &str) -> String {
        self.run(&format!("get {object} -o jsonpath={{{path}}}"))
            .ok()
            .stdout
    }

    /// Starts a `kubectl` that goes on by itself, such as a watch.
    pub(crate) fn spawn(&self, words: &str) -> Running {
        Running::spawn(self.command().args(words.split_whitespace()))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("KUBECONFIG", self.server.kubeconfig())
            .env("HOME", self.server.home());
        command
    }
}
