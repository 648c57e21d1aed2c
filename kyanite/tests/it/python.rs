//! Python's official client: `tests/python/smoke.py` creates, reads, watches, patches and deletes.

use std::path::Path;
use std::process::Command;

use crate::harness::{Finished, Server, find_program, skip};

#[test]
fn pythons_official_client_works() {
    let has_client = |python: &Path| {
        Finished::run(Command::new(python).args(["-c", "import kubernetes"]), "").code == Some(0)
    };
    let Some(python) = find_program("PYTHON", "python3").filter(|python| has_client(python)) else {
        return skip("no Python with the package `kubernetes` on PATH or in PYTHON");
    };
    let server = Server::start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/smoke.py");
    let mut command = Command::new(python);
    command
        .arg(script)
        .env("KUBECONFIG", server.kubeconfig())
        .env("HOME", server.home());
    Finished::run(&mut command, "")
        .ok()
        .prints("every step passed");
}
