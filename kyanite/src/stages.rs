//! Progress of a start: one line per stage, told to a person or to the parent process.

use std::io::Write as _;
use std::time::Instant;

use serde_json::{Value, json};

use crate::cli::Output;
use crate::exit::Failure;
use crate::printer::Printer;

/// Who hears about stages.
#[derive(Debug)]
pub(crate) enum Audience {
    /// A person.
    Printer(Printer),
    /// The process that started us, through our standard output.
    Parent,
    /// Whoever reads the log.
    Log,
}

/// A start under way.
#[derive(Debug)]
pub(crate) struct Stages {
    audience: Audience,
    since: Instant,
}

impl Stages {
    pub(crate) fn new(audience: Audience) -> Stages {
        Stages {
            audience,
            since: Instant::now(),
        }
    }

    /// A stage is done; the time since the last one is its own.
    pub(crate) fn done(&mut self, name: &str, detail: &str) {
        let millis = self.since.elapsed().as_millis();
        self.since = Instant::now();
        match &self.audience {
            Audience::Printer(printer) => printer.stage(name, detail, millis),
            Audience::Parent => tell(&json!({"stage": name, "detail": detail, "millis": millis})),
            Audience::Log => tracing::info!(stage = name, detail, millis = millis as u64, "done"),
        }
    }

    /// What is waited for at the moment; only the last such line counts.
    pub(crate) fn waiting(&self, detail: &str) {
        match &self.audience {
            Audience::Printer(printer) => printer.waiting(detail),
            Audience::Parent => tell(&json!({"waiting": detail})),
            Audience::Log => {}
        }
    }

    /// What runs goes on, but not all of what was asked for came.
    pub(crate) fn fail(self, failure: &Failure) {
        match &self.audience {
            Audience::Printer(printer) => printer.failure(failure),
            Audience::Parent => Printer::new(Output::Json).failure(failure),
            Audience::Log => tracing::error!(%failure, "failed"),
        }
    }

    /// Nothing more will be said, but which nodes there are.
    pub(crate) fn finish(self, nodes: &[Value]) {
        if matches!(self.audience, Audience::Parent) {
            tell(&json!({"ready": true, "nodes": nodes}));
        }
    }
}

fn tell(value: &Value) {
    // A parent that was interrupted no longer listens; the server goes on.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{value}").and_then(|()| out.flush());
}
