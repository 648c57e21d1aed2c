//! systemd units: what they are, what they should be, and the calls in between.

use super::change::{Goal, Unit};
use super::step::{Failure, Scene};
use crate::host::Command;

/// How a unit is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct State {
    /// systemd knows no such unit.
    pub(super) missing: bool,
    /// Active, or on the way there.
    pub(super) active: bool,
    /// Its last start failed.
    pub(super) failed: bool,
    /// Starts at boot.
    pub(super) enabled: bool,
    /// Has no [Install] section of its own: enabling it changes nothing.
    pub(super) fixed: bool,
    /// Its files changed since systemd read them.
    pub(super) outdated: bool,
}

/// One call of `systemctl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Reload,
    Enable,
    Disable,
    ResetFailed,
    Start,
    Restart,
    Stop,
}

impl Action {
    pub(super) fn verb(self) -> &'static str {
        match self {
            Action::Reload => "daemon-reload",
            Action::Enable => "enable",
            Action::Disable => "disable",
            Action::ResetFailed => "reset-failed",
            Action::Start => "start",
            Action::Restart => "restart",
            Action::Stop => "stop",
        }
    }

    /// The command for a unit.
    pub(super) fn command(self, unit: &Unit) -> Command {
        let mut words = vec![self.verb()];
        if unit.no_block && matches!(self, Action::Start | Action::Restart) {
            words.push("--no-block");
        }
        if self != Action::Reload {
            words.push(&unit.name);
        }
        Command::new("systemctl", &words).at_most(std::time::Duration::from_secs(240))
    }
}

/// The stamp of a unit's last start.
pub(super) fn stamp_name(unit: &str) -> String {
    format!("unit {unit}")
}

/// Asks systemd about a unit.
pub(super) fn look(scene: &Scene<'_>, name: &str) -> Result<State, Failure> {
    const PROPERTIES: &str = "--property=LoadState,ActiveState,UnitFileState,NeedDaemonReload";
    let command = Command::new("systemctl", &["show", PROPERTIES, name]);
    let finished = scene.run(&command)?;
    match finished.success() {
        true => Ok(parse(&finished.text())),
        false => Err(Failure::new(
            format!(
                "systemd does not answer about {name}: {}",
                finished.last_words()
            ),
            "check that systemd is PID 1 of this machine and that `systemctl list-units` works",
        )),
    }
}

fn parse(text: &str) -> State {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .unwrap_or_default()
    };
    State {
        missing: value("LoadState") == "not-found",
        active: matches!(value("ActiveState"), "active" | "activating" | "reloading"),
        failed: value("ActiveState") == "failed",
        enabled: matches!(value("UnitFileState"), "enabled" | "enabled-runtime"),
        fixed: matches!(
            value("UnitFileState"),
            "static" | "indirect" | "generated" | "transient" | "alias"
        ),
        outdated: value("NeedDaemonReload") == "yes",
    }
}

/// The calls that bring a unit from what it is to what it should be. `current`: it last started with its inputs as they
/// are now.
pub(super) fn steps(unit: &Unit, found: &State, current: bool) -> Vec<Action> {
    let mut steps = Vec::new();
    let stops = unit.goal == Goal::Stopped && unit.enabled != Some(true);
    if found.missing && stops {
        return steps;
    }
    if found.outdated || found.missing {
        steps.push(Action::Reload);
    }
    match unit.enabled {
        Some(true) if !found.enabled && !found.fixed => steps.push(Action::Enable),
        Some(false) if found.enabled => steps.push(Action::Disable),
        _ => {}
    }
    // Else systemd may count the starts that failed, and refuse another.
    if found.failed && matches!(unit.goal, Goal::Running | Goal::Ran) {
        steps.push(Action::ResetFailed);
    }
    match unit.goal {
        Goal::Running if !found.active => steps.push(Action::Start),
        Goal::Running if !current || found.outdated => steps.push(Action::Restart),
        Goal::Ran if !current => steps.push(Action::Restart),
        Goal::Stopped if found.active => steps.push(Action::Stop),
        _ => {}
    }
    steps
}

/// The calls, for people.
pub(super) fn sentence(steps: &[Action]) -> String {
    let verbs: Vec<_> = steps.iter().map(|s| s.verb()).collect();
    verbs.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(enabled: Option<bool>, goal: Goal) -> Unit {
        Unit {
            name: "a.service".to_owned(),
            enabled,
            goal,
            inputs: Vec::new(),
            no_block: true,
        }
    }

    #[test]
    fn a_unit_gets_the_calls_that_it_lacks_and_no_others() {
        use Action::*;
        let idle = State::default();
        let up = State {
            active: true,
            enabled: true,
            ..State::default()
        };
        let stale = State {
            outdated: true,
            ..up.clone()
        };
        let fixed = State {
            fixed: true,
            ..State::default()
        };
        let failed = State {
            failed: true,
            ..State::default()
        };
        let missing = State {
            missing: true,
            ..State::default()
        };
        type Row<'a> = (Option<bool>, Goal, &'a State, bool, &'a [Action]);
        let table: &[Row<'_>] = &[
            (Some(true), Goal::Running, &idle, true, &[Enable, Start]),
            (Some(true), Goal::Running, &up, true, &[]),
            (Some(true), Goal::Running, &up, false, &[Restart]),
            (Some(true), Goal::Running, &stale, true, &[Reload, Restart]),
            (
                Some(true),
                Goal::Running,
                &missing,
                true,
                &[Reload, Enable, Start],
            ),
            (None, Goal::Ran, &idle, true, &[]),
            (None, Goal::Ran, &idle, false, &[Restart]),
            (Some(false), Goal::Stopped, &up, true, &[Disable, Stop]),
            (Some(false), Goal::Stopped, &missing, true, &[]),
            (Some(true), Goal::AsIs, &idle, true, &[Enable]),
            (Some(true), Goal::AsIs, &fixed, true, &[]),
            (None, Goal::Running, &failed, true, &[ResetFailed, Start]),
            (None, Goal::Ran, &failed, false, &[ResetFailed, Restart]),
        ];
        for (enabled, goal, found, current, expected) in table {
            let steps = steps(&unit(*enabled, *goal), found, *current);
            assert_eq!(steps, *expected, "{enabled:?} {goal:?} {found:?} {current}");
        }
    }

    #[test]
    fn only_starts_do_not_block() {
        let unit = unit(Some(true), Goal::Running);
        assert_eq!(
            Action::Start.command(&unit).line(),
            "systemctl start --no-block a.service"
        );
        assert_eq!(
            Action::Enable.command(&unit).line(),
            "systemctl enable a.service"
        );
        assert_eq!(
            Action::Reload.command(&unit).line(),
            "systemctl daemon-reload"
        );
    }
}
