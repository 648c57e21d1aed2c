//! Processes that do not outlive their test.

use std::net::TcpListener;
use std::process::{Child, Command};

/// A process that ends with the test.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts it.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Process {
        match command.spawn() {
            Ok(child) => Process(child),
            Err(error) => panic!("{} cannot run: {error}", command.get_program().display()),
        }
    }

    /// For signals, and for whether it has ended.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl From<Child> for Process {
    fn from(child: Child) -> Process {
        Process(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a command prints, or prints and complains of when it fails.
pub fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// A port of loopback that was free a moment ago, for programs that cannot be told "any".
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr();
    address.expect("a bound listener has an address").port()
}
