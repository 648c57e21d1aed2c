//! Identity: the Arc machine, its roles, and whether its token can be had. The calls are made by this program's own
//! commands, so that the journal has their opposites and no secret is in an argument.

use std::time::Duration;

use ::steps::engine::{Change, Check, CommandChange, Failure, Scene};
use ::steps::host::Command;

use super::{Changes, Finding, Wish};
use crate::{himds, paths};

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

/// That the identity may be a node of the cluster.
pub(super) fn access(wish: &Wish, _: &Scene<'_>) -> Changes {
    Ok(vec![azure(
        wish,
        "the identity's rights in the cluster",
        "access",
    )])
}

/// What the kubelet serves with. Named as the file it is: where it differs, the node has drifted.
pub(super) fn serving(wish: &Wish, _: &Scene<'_>) -> Changes {
    Ok(vec![azure(wish, paths::SERVING_CERTIFICATE, "serving")])
}

/// The service that gives the machine its tokens, where Azure's agent is not there to do it.
pub(super) fn serve(wish: &Wish, scene: &Scene<'_>) -> Changes {
    if scene
        .host
        .files()
        .exists(crate::identity::azcmagent::PROGRAM)
    {
        return Ok(Vec::new());
    }
    let forget = format!("rm -f {}/*.key", paths::ARC_TOKENS);
    Ok(vec![
        Change::directory("/var/opt/azcmagent", 0o755),
        Change::directory(paths::ARC_TOKENS, 0o700),
        Change::Command(CommandChange {
            name: "proofs of identity".to_owned(),
            check: Check::Inputs {
                paths: Vec::new(),
                per_boot: false,
            },
            apply: Command::new("true", &[]),
            undo: Some(Command::new("sh", &["-c", &forget])),
        }),
        Change::file(paths::HIMDS_UNIT, 0o644, himds::unit(wish)),
        Change::running_unit(himds::UNIT, &[paths::HIMDS_UNIT]),
    ])
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
