//! `kyanite machine`, as people use it.

use std::process::Command;

use harness::{eventually, skip};
use machines::{Launcher, Namespaces};
use serde_json::{Value, json};

use crate::site::KYANITE;

struct Commands(tempfile::TempDir);

impl Commands {
    /// The exit code, and what was printed on either side.
    fn run(&self, line: &str) -> (i32, String, String) {
        let mut command = Command::new(KYANITE);
        command
            .arg("machine")
            .args(line.split(' '))
            .env("KYANITE_DATA_DIR", self.0.path());
        let output = command.output().expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().expect("an exit code");
        (code, text(&output.stdout), text(&output.stderr))
    }

    fn list(&self) -> Value {
        serde_json::from_str(&self.run("list -o json").1).expect("JSON")
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.run("off shown --now --remove");
        self.run("sweep");
    }
}

#[test]
fn a_machine_is_booted_entered_and_switched_off() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let launcher = Launcher::new(KYANITE, &["machine-launcher"]);
    let driver = Namespaces::new(&dir.path().join("machines"), launcher).expect("a driver");
    if let Some(missing) = driver.missing().first() {
        return skip(&missing.to_string());
    }
    let commands = Commands(dir);
    let (code, _, said) = commands.run("boot shown --address 10.224.0.4");
    assert_eq!(code, 0, "{said}");
    let list = commands.list();
    assert_eq!(list[0]["name"], "shown");
    assert_eq!(list[0]["state"], "running");
    assert_eq!(list[0]["address"], "10.224.0.4");
    assert_eq!(commands.run("exec shown hostname").1, "shown\n");
    assert_eq!(commands.run("exec shown sh -c exit\t7").0, 7);
    eventually("it is up", || match commands.run("console shown").1 {
        console if console.contains("Reached target kyanite-machine.target") => Ok(()),
        console => Err(console),
    });
    for (line, code, words) in [
        ("boot shown", 4, "the machine `shown` is running already"),
        ("exec nobody true", 3, "there is no machine called `nobody`"),
        ("boot other --address 10.1.0.1", 2, "10.1.0.1 is no address"),
        ("boot other --custom-data /etc/hostname", 2, "custom data"),
    ] {
        let (found, _, said) = commands.run(line);
        assert_eq!(found, code, "{line}: {said}");
        assert!(said.contains(words), "{line}: {said}");
    }
    assert_eq!(commands.run("off shown").0, 0);
    assert_eq!(commands.list()[0]["state"], "off");
    assert_eq!(commands.run("exec shown true").0, 6);
    assert_eq!(commands.run("off shown --remove").0, 0);
    let swept: Value = serde_json::from_str(&commands.run("sweep -o json").1).expect("JSON");
    assert_eq!(swept, json!({"machines": [], "networks": ["default"]}));
}
