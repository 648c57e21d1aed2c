//! The way to the kernel: text for the `nft` program.
//!
//! A transaction is one run of `nft -f -`: the kernel takes all of it or nothing.

use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::strangers::Ours;

/// What went wrong with nftables.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The program cannot be run.
    #[error("cannot run {program}: {source}; install nftables (1.0.1 or newer)")]
    Run {
        /// Which program.
        program: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The kernel did not take a transaction.
    #[error("nftables refuses: {0}")]
    Refused(String),
    /// The answer cannot be read.
    #[error("nft's answer cannot be read: {0}")]
    Answer(String),
}

/// Runs `nft`, in this network namespace or in one that a program before it enters.
#[derive(Debug, Clone)]
pub struct Nft {
    command: Vec<String>,
    processes: Ours,
}

impl Default for Nft {
    fn default() -> Nft {
        Nft::by(["nft"])
    }
}

impl Nft {
    /// `nft`, run by these words.
    pub fn by<const N: usize>(words: [&str; N]) -> Nft {
        Nft {
            command: words.map(String::from).to_vec(),
            processes: Ours::default(),
        }
    }

    /// Which processes have been ours lately.
    pub(crate) fn processes(&self) -> Ours {
        self.processes.clone()
    }

    /// Hands over a transaction.
    pub async fn apply(&self, script: &str) -> Result<(), NftError> {
        if script.is_empty() {
            return Ok(());
        }
        self.processes.begin();
        let done = self.run(&["-f", "-"], script).await;
        if done.is_err() {
            self.processes.undone();
        }
        done.map(drop)
    }

    /// The chains of a table; none if there is no such table.
    pub async fn chains(&self, family: &str, table: &str) -> Result<Vec<String>, NftError> {
        let listed = match self.run(&["-j", "list", "chains", family], "").await {
            Ok(listed) => listed,
            Err(NftError::Refused(_)) => return Ok(Vec::new()),
            Err(other) => return Err(other),
        };
        let answer: serde_json::Value =
            serde_json::from_slice(&listed).map_err(|e| NftError::Answer(e.to_string()))?;
        let objects = answer["nftables"].as_array().cloned().unwrap_or_default();
        let ours = objects
            .iter()
            .map(|object| &object["chain"])
            .filter(|chain| chain["table"] == table);
        Ok(ours
            .filter_map(|chain| chain["name"].as_str().map(String::from))
            .collect())
    }

    /// Runs `nft` with arguments and standard input, and returns what it prints.
    pub async fn run(&self, arguments: &[&str], input: &str) -> Result<Vec<u8>, NftError> {
        let program = || self.command.join(" ");
        let failed = |source| NftError::Run {
            program: program(),
            source,
        };
        let (name, words) = self.command.split_first().expect("a command has a program");
        let mut child = Command::new(name)
            .args(words)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        child
            .id()
            .into_iter()
            .for_each(|process| self.processes.add(process));
        let mut stdin = child.stdin.take().expect("standard input is a pipe");
        let write = async {
            // A program that ends before it has read everything says why.
            let _ = stdin.write_all(input.as_bytes()).await;
            drop(stdin);
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        let output = output.map_err(failed)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(NftError::Refused(
            said.lines().take(3).collect::<Vec<_>>().join("; "),
        ))
    }
}
