//! Starts servers and clients, waits for conditions, and judges what programs print.

mod forger;
mod issuer;
mod json;
mod jwt;
mod kubectl;
mod namespace;
mod person;
mod program;
mod random;
mod raw_tls;
mod server;
mod stand_in;
mod standalone;
mod wait;

pub(crate) use forger::{Forger, certificate_request};
pub(crate) use issuer::OidcIssuer;
pub(crate) use json::{JsonWatch, WatchEnd, call, version};
pub(crate) use jwt::{TokenKey, jwt, opened};
pub(crate) use kubectl::Kubectl;
pub(crate) use namespace::{INSIDE, Namespace};
pub(crate) use person::{Answer, Credentials, Person};
pub(crate) use program::{Finished, Running};
pub(crate) use random::Random;
pub(crate) use raw_tls::RawConnection;
pub(crate) use server::{KYANITE, Server, ServerOptions, client_of, exchange};
pub(crate) use stand_in::{LOG, StandIn};
pub(crate) use standalone::{Etcd, Pki, Process, Replica, free_port};
pub(crate) use wait::{eventually, eventually_async};

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Says that the running test lacks something on this machine; `make test` collects these lines.
///
/// Written past libtest's capture, so that it shows although the test passes.
pub(crate) fn skip(what_is_missing: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("SKIPPED: {test}: {what_is_missing}\n");
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("stderr is open");
}

/// The program that `variable` names, or `name` on `PATH`.
pub(crate) fn find_program(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(variable) {
        return Some(PathBuf::from(named));
    }
    let path: OsString = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
