//! Identity: the Arc machine, its roles, and whether its token can be had. The calls are made by this program's own
//! commands, so that the journal has their opposites and no secret is in an argument.

use ::steps::engine::{Change, Check, CommandChange, Failure, Scene};
use std::time::Duration;

use super::{Changes, Finding, Wish};

/// The machine's resource, made unless it is there, gone on undo if it was made here.
pub(super) fn arc(wish: &Wish, _: &Scene<'_>) -> Changes {
    Ok(vec![azure(wish, "the machine in Azure Arc", "arc")])
}

/// The role of the machine's identity at the cluster.
pub(super) fn roles(wish: &Wish, _: &Scene<'_>) -> Changes {
    Ok(vec![azure(
        wish,
        "the role of the machine's identity",
        "role",
    )])
}

fn azure(wish: &Wish, name: &str, what: &str) -> Change {
    let command = |verb: &str| {
        let words = ["azure", what, verb, "--config", &wish.file];
        wish.own(&words).at_most(Duration::from_secs(120))
    };
    Change::Command(CommandChange {
        name: name.to_owned(),
        check: Check::Succeeds(command("check")),
        apply: command("make"),
        undo: Some(command("remove")),
    })
}

/// The kubelet will ask for a token the same way.
pub(super) fn token(wish: &Wish, scene: &Scene<'_>) -> Finding {
    let ask = wish.own(&["token", "--config", &wish.file, "--check"]);
    let answer = scene.run(&ask.at_most(Duration::from_secs(30)))?;
    match answer.success() {
        true => Ok(format!("{} gives tokens", wish.config.join.name())),
        false => Err(Failure::new(
            format!(
                "no token by {}: {}",
                wish.config.join.name(),
                answer.last_words()
            ),
            "see all of it with `aks-flex-node token --check`",
        )),
    }
}
