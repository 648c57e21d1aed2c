//! The whole command against a cluster that is given to it, with stand-ins for upstream's programs: what is told to the
//! runner, what is kept, and when the exit status is a failure.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

const LEASE: &str = "[sig-node] Lease lease API should be available";

/// A directory of programs that only look like upstream's, and one for results.
struct Stage {
    dir: TempDir,
}

impl Stage {
    fn set() -> Stage {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("bin")).unwrap();
        fs::write(dir.path().join("kubeconfig"), "").unwrap();
        let stage = Stage { dir };
        for program in ["kyanite", "agnhost", "e2e.test", "kubectl"] {
            stage.program(program, "exit 9");
        }
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn program(&self, name: &str, script: &str) {
        let file = self.path("bin").join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A runner that says how the Lease spec ended.
    fn runner_that_says(&self, state: &str) {
        let report = format!(
            r#"[{{"SpecReports":[{{"ContainerHierarchyTexts":["[sig-node] Lease"],"LeafNodeType":"It",
            "LeafNodeText":"lease API should be available [Conformance]","State":"{state}","RunTime":2000000000,
            "Failure":{{"Message":"no lease\nat all"}}}}]}}]"#
        );
        self.program(
            "ginkgo",
            &format!("echo \"$@\" >> told\ncat > report.json <<'END'\n{report}\nEND"),
        );
    }

    fn run(&self) -> Output {
        Command::new(env!("CARGO_BIN_EXE_kyanite-conformance"))
            .args(["--kyanite", self.path("bin/kyanite").to_str().unwrap()])
            .args(["--cluster", self.path("kubeconfig").to_str().unwrap()])
            .args(["--upstream-bin", self.path("bin").to_str().unwrap()])
            .args(["--containerd-bin", self.path("bin").to_str().unwrap()])
            .args(["--dir", self.path("kept").to_str().unwrap()])
            .args(["--page", self.path("page.md").to_str().unwrap()])
            .args(["--workers", "2", "Lease lease API"])
            .output()
            .unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

#[test]
fn a_spec_that_passed_is_kept_shown_and_not_run_again() {
    let stage = Stage::set();
    stage.runner_that_says("passed");
    let output = stage.run();
    assert!(output.status.success(), "{output:?}");
    let told = stage.read("kept/told");
    assert!(told.contains("--procs=2"), "{told}");
    assert!(
        told.contains(
            r"--focus=(\[sig\-node\] Lease lease API should be available) \[Conformance\]"
        ),
        "{told}"
    );
    assert!(stage.read("page.md").contains("**1 passed**, 0 failed"));
    stage.runner_that_says("failed");
    assert!(stage.run().status.success());
    assert_eq!(stage.read("kept/told"), told, "it was run again");
}

#[test]
fn a_spec_that_failed_is_told_with_its_first_line_and_is_run_again_alone_and_the_next_time() {
    let stage = Stage::set();
    stage.runner_that_says("failed");
    let output = stage.run();
    assert!(!output.status.success());
    let told = stage.read("kept/told");
    let at_once: Vec<bool> = told
        .lines()
        .map(|line| line.contains("--procs=2"))
        .collect();
    assert_eq!(at_once, [true, false], "{told}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains(&format!("failed: {LEASE}\n    no lease\n")),
        "{said}"
    );
    assert!(stage.read("page.md").contains("| no lease |"));
    stage.runner_that_says("passed");
    stage.run();
    assert_eq!(stage.read("kept/told").lines().count(), 3);
    assert!(stage.read("page.md").contains("**1 passed**, 0 failed"));
}

#[test]
fn a_runner_that_ran_nothing_is_an_error() {
    let stage = Stage::set();
    stage.program("ginkgo", "echo broken; exit 1");
    let output = stage.run();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("left no report") && said.contains("broken"),
        "{said}"
    );
}
