//! People: who may log in, and what they read when they do.

use ::steps::engine::{Change, Check, CommandChange, Failure, Goal, Scene, Unit};
use ::steps::host::Command;

use super::{Changes, observe};
use crate::config::Configuration;
use crate::render::azure::decoded;
use crate::render::merge::without_public_keys;

const SSHD_CONFIG: &str = "/etc/ssh/sshd_config";
const SSH_UNITS: [&str; 3] = ["ssh.socket", "ssh.service", "sshd.service"];

/// The administrator's and root's passwords never expire: an expired one locks tools out too.
pub(super) fn admin_user(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let admin = match config.linux_admin_username.as_str() {
        "" => "azureuser",
        name => name,
    };
    let shadow = observe::read_text(scene, "/etc/shadow").unwrap_or_default();
    let mut changes = Vec::new();
    if expires(&shadow, admin, &[(3, "0"), (4, "99999"), (6, ""), (7, "")]) {
        let flags = ["-E", "-1", "-I", "-1", "-m", "0", "-M", "99999", admin];
        changes.push(never_expiring(&shadow, admin, &flags));
    }
    if expires(&shadow, "root", &[(4, ""), (6, "")]) {
        let flags = ["-I", "-1", "-M", "-1", "root"];
        changes.push(never_expiring(&shadow, "root", &flags));
    }
    Ok(changes)
}

/// Whether fields of a user's line (3 least age, 4 greatest age, 6 grace, 7 end of the account) are
/// others than these. Somebody who is not there does not expire.
fn expires(shadow: &str, user: &str, fields: &[(usize, &str)]) -> bool {
    let lines = shadow
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let mut lines = lines.filter(|line| line[0] == user);
    let differs = |line: Vec<&str>| fields.iter().any(|(n, want)| line.get(*n) != Some(want));
    lines.next().is_some_and(differs)
}

fn never_expiring(shadow: &str, user: &str, arguments: &[&str]) -> Change {
    Change::Command(CommandChange {
        name: format!("let {user} never expire"),
        // Whether it is needed was found out without a process.
        check: Check::Succeeds(Command::new("false", &[])),
        apply: Command::new("chage", arguments),
        undo: Some(as_before(shadow, user)),
    })
}

/// The command that brings a user's ages back to what they are now. What is empty is -1 to chage.
fn as_before(shadow: &str, user: &str) -> Command {
    let mut lines = shadow
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|line| line[0] == user).unwrap_or_default();
    let field = |number: usize| match line.get(number) {
        None | Some(&"") => "-1",
        Some(value) => value,
    };
    let ages = [
        "-E",
        field(7),
        "-I",
        field(6),
        "-m",
        field(3),
        "-M",
        field(4),
        user,
    ];
    Command::new("chage", &ages)
}

/// Whether nobody may log in over the network.
pub(super) fn disables_ssh(config: &Configuration) -> bool {
    config.enable_ssh == Some(false)
}

/// The socket too: newer Ubuntus start the server only when somebody knocks.
pub(super) fn disable_ssh(_: &Configuration, scene: &Scene<'_>) -> Changes {
    let present = SSH_UNITS
        .into_iter()
        .filter(|unit| observe::has_unit(scene, unit));
    Ok(present.map(Change::stopped_unit).collect())
}

/// Whether nobody may log in with a key.
pub(super) fn refuses_keys(config: &Configuration) -> bool {
    config.disable_pubkey_auth == Some(true) && !disables_ssh(config)
}

/// sshd judges the new configuration before it replaces the old one.
pub(super) fn refuse_keys(_: &Configuration, scene: &Scene<'_>) -> Changes {
    let present = observe::read_text(scene, SSHD_CONFIG).unwrap_or_default();
    let wanted = without_public_keys(&present);
    if wanted != present {
        let judge = Command::new("/usr/sbin/sshd", &["-t", "-f", "/dev/stdin"]);
        let verdict = scene.run(&judge.reading(wanted.clone()))?;
        if !verdict.success() {
            let cause = format!(
                "sshd refuses its new configuration: {}",
                verdict.last_words()
            );
            return Err(Failure::permanent(
                cause,
                format!("repair {SSHD_CONFIG} and run again"),
            ));
        }
    }
    let unit = if observe::has_unit(scene, "ssh.service") {
        "ssh.service"
    } else {
        "sshd.service"
    };
    let reload = Change::Unit(Unit {
        name: unit.to_owned(),
        enabled: None,
        goal: Goal::Running,
        inputs: vec![SSHD_CONFIG.into()],
        no_block: false,
    });
    Ok(vec![Change::file(SSHD_CONFIG, 0o600, wanted), reload])
}

/// Whether there is a message of the day.
pub(super) fn has_motd(config: &Configuration) -> bool {
    !config.message_of_the_day.is_empty()
}

/// Ubuntu shows only what its scripts print, so one of them prints the message.
pub(super) fn motd(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let Some(text) = decoded(&config.message_of_the_day) else {
        return Err(Failure::permanent(
            "`message_of_the_day` is not base64",
            "encode the text with base64",
        ));
    };
    let mut changes = vec![Change::file("/etc/motd", 0o644, text)];
    if observe::distribution(scene).is_ubuntu() && scene.host.files().exists("/etc/update-motd.d") {
        let script = "#!/bin/sh\ncat /etc/motd\n";
        changes.push(Change::file(
            "/etc/update-motd.d/99-aks-custom-motd",
            0o755,
            script,
        ));
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_of_passwords_come_back_as_they_were() {
        let shadow = "root:*:19000:0:90:7:::\nazureuser:!:19001:1:30:7:14:20500:\n";
        let cases = [
            ("root", "chage -E -1 -I -1 -m 0 -M 90 root"),
            ("azureuser", "chage -E 20500 -I 14 -m 1 -M 30 azureuser"),
        ];
        for (user, expected) in cases {
            assert_eq!(as_before(shadow, user).line(), expected);
        }
    }
}
