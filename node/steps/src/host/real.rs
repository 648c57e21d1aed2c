//! This machine.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::{
    Body, Command, CommandError, Files, Finished, Host, NetworkError, Request, Response, dialler,
    process,
};
use crate::engine::Stop;

/// This machine, from `/`.
pub struct RealHost {
    files: Files,
    start: Instant,
}

impl RealHost {
    /// This machine.
    pub fn new() -> RealHost {
        RealHost {
            files: Files::under("/"),
            start: Instant::now(),
        }
    }
}

impl Default for RealHost {
    fn default() -> RealHost {
        RealHost::new()
    }
}

impl Host for RealHost {
    fn files(&self) -> &Files {
        &self.files
    }

    fn run(&self, command: &Command, stop: &Stop) -> Result<Finished, CommandError> {
        process::run(command, stop)
    }

    fn resolve(&self, name: &str, timeout: Duration) -> Result<Vec<IpAddr>, NetworkError> {
        dialler::resolve(name, timeout)
    }

    fn connect(&self, name: &str, port: u16, timeout: Duration) -> Result<(), NetworkError> {
        dialler::connect(name, port, timeout)
    }

    fn http(
        &self,
        request: &Request,
        body: &mut dyn Body,
        stop: &Stop,
    ) -> Result<Response, NetworkError> {
        dialler::http(request, body, stop)
    }

    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, time: Duration, stop: &Stop) {
        stop.sleep(time);
    }

    fn boot_id(&self) -> String {
        let id = self.files.text("/proc/sys/kernel/random/boot_id");
        id.ok()
            .flatten()
            .map(|t| t.trim().to_owned())
            .unwrap_or_default()
    }
}
