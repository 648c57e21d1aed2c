//! Speaking for somebody else: `Impersonate-*` headers, and who may use them.
//!
//! A requester needs one of the *modes* to allow it. The constrained modes (1.36) tie the permission to
//! what is then done (`impersonate-on:<mode>:<verb>`), the legacy one does not; they are tried in upstream's
//! order and the first refusal is the one that is told.

use std::collections::BTreeMap;

use crate::{Attributes, Decision, ResourceTarget, Target, User};

const NODE_PREFIX: &str = "system:node:";
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";
const NODE_NAME_KEY: &str = "authentication.kubernetes.io/node-name";

/// A check that failed: what was asked of the authorizer, and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The verb that was asked for.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Resource.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The path, when the request is not about a resource.
    pub path: Option<String>,
    /// The authorizer's reason.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

const MODES: [Mode; 5] = [
    Mode::AssociatedNode,
    Mode::ArbitraryNode,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Legacy,
];

type Check = Result<(), Box<Refusal>>;

/// The user that a requester becomes for a request, if they may. `wanted` is what the headers say.
pub fn impersonate(
    request: &Attributes<'_>,
    wanted: &User,
    authorize: &dyn Fn(&Attributes<'_>) -> Decision,
) -> Result<User, Box<Refusal>> {
    let mut refused = None;
    for mode in MODES
        .into_iter()
        .filter(|m| m.applies(wanted, request.user))
    {
        match mode.check(request, wanted, authorize) {
            Ok(()) => return Ok(mode.become_user(wanted)),
            Err(refusal) => drop(refused.get_or_insert(refusal)),
        }
    }
    Err(refused.expect("the legacy mode applies to everybody"))
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }

    fn applies(self, wanted: &User, requester: &User) -> bool {
        let name_only =
            wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (node, account) = (node_of(&wanted.name), account_of(&wanted.name));
        match self {
            Mode::AssociatedNode => {
                let own = requester.extra.get(NODE_NAME_KEY).map(Vec::as_slice);
                let is_own = matches!(own, Some([name]) if Some(name.as_str()) == node);
                name_only && is_own && account_of(&requester.name).is_some()
            }
            Mode::ArbitraryNode => name_only && node.is_some(),
            Mode::ServiceAccount => name_only && account.is_some(),
            Mode::UserInfo => node.is_none() && account.is_none(),
            Mode::Legacy => true,
        }
    }

    fn check(
        self,
        request: &Attributes<'_>,
        wanted: &User,
        authorize: &dyn Fn(&Attributes<'_>) -> Decision,
    ) -> Check {
        let verb = match self {
            Mode::Legacy => "impersonate".to_owned(),
            _ => format!("impersonate:{}", self.name()),
        };
        if self != Mode::Legacy {
            let on = format!("impersonate-on:{}:{}", self.name(), request.verb);
            ask(authorize, request.user, &on, request.target)?;
            acceptable(&verb, wanted)?;
        }
        let group = if self == Mode::Legacy {
            ""
        } else {
            "authentication.k8s.io"
        };
        let who = Asker {
            authorize,
            user: request.user,
            verb: &verb,
        };
        who.name(self, group, &wanted.name)?;
        if !wanted.uid.is_empty() {
            who.may("authentication.k8s.io", "uids", "", "", &wanted.uid)?;
        }
        who.groups(self, group, &wanted.groups)?;
        who.extra(self, &wanted.extra)
    }

    // Groups nobody has to ask for: those that come with the name.
    fn become_user(self, wanted: &User) -> User {
        let mut user = wanted.clone();
        if self != Mode::Legacy && node_of(&user.name).is_some() {
            user.groups = vec!["system:nodes".into()];
        }
        if let Some((namespace, _)) = account_of(&user.name)
            && user.groups.is_empty()
        {
            let own = format!("system:serviceaccounts:{namespace}");
            user.groups = vec!["system:serviceaccounts".into(), own];
        }
        let (known, unknown) = ("system:authenticated", "system:unauthenticated");
        let always = if user.name == "system:anonymous" {
            unknown
        } else {
            known
        };
        if !user.is_in(always) && !user.is_in(unknown) {
            user.groups.push(always.into());
        }
        user
    }
}

/// From this many checks on, a permission for all is looked for first.
const MANY: usize = 4;

struct Asker<'a> {
    authorize: &'a dyn Fn(&Attributes<'_>) -> Decision,
    user: &'a User,
    verb: &'a str,
}

impl Asker<'_> {
    fn may(
        &self,
        group: &str,
        resource: &str,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> Check {
        let target = ResourceTarget {
            namespace,
            group,
            version: "v1",
            resource,
            subresource,
            name,
            ..ResourceTarget::default()
        };
        ask(
            self.authorize,
            self.user,
            self.verb,
            Target::Resource(target),
        )
    }

    fn name(&self, mode: Mode, group: &str, name: &str) -> Check {
        match (node_of(name), account_of(name)) {
            // One permission covers the node the requester runs on, whichever that is.
            (Some(_), _) if mode == Mode::AssociatedNode => self.may(group, "nodes", "", "", "*"),
            (Some(node), _) if mode != Mode::Legacy => self.may(group, "nodes", "", "", node),
            (_, Some((namespace, name))) => self.may(group, "serviceaccounts", "", namespace, name),
            _ => self.may(group, "users", "", "", name),
        }
    }

    fn groups(&self, mode: Mode, group: &str, wanted: &[String]) -> Check {
        let all = || self.may(group, "groups", "", "", "*").is_ok();
        if mode != Mode::Legacy && wanted.len() >= MANY && all() {
            return Ok(());
        }
        wanted
            .iter()
            .try_for_each(|name| self.may(group, "groups", "", "", name))
    }

    fn extra(&self, mode: Mode, wanted: &BTreeMap<String, Vec<String>>) -> Check {
        let group = "authentication.k8s.io";
        let many = wanted.len() >= MANY || wanted.values().map(Vec::len).sum::<usize>() >= MANY;
        if mode != Mode::Legacy && many && self.may(group, "userextras", "*", "", "*").is_ok() {
            return Ok(());
        }
        let each = wanted
            .iter()
            .flat_map(|(key, values)| values.iter().map(move |v| (key, v)));
        each.into_iter()
            .try_for_each(|(key, value)| self.may(group, "userextras", key, "", value))
    }
}

fn ask(
    authorize: &dyn Fn(&Attributes<'_>) -> Decision,
    user: &User,
    verb: &str,
    target: Target<'_>,
) -> Check {
    match authorize(&Attributes { user, verb, target }) {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(refusal(verb, target, reason)),
    }
}

// What the constrained modes never allow, whoever asks.
fn acceptable(verb: &str, wanted: &User) -> Check {
    let group = "authentication.k8s.io";
    let about = |resource, name, why: &str| {
        let target = ResourceTarget {
            group,
            resource,
            name,
            ..ResourceTarget::default()
        };
        Err(refusal(verb, Target::Resource(target), why.to_owned()))
    };
    if wanted.is_in("") {
        return about(
            "groups",
            "",
            "impersonating the empty string group is not allowed",
        );
    }
    if wanted.is_in("system:masters") {
        return about(
            "groups",
            "system:masters",
            "impersonating the system:masters group is not allowed",
        );
    }
    if wanted.extra.contains_key("") {
        return about(
            "userextras",
            "",
            "impersonating the empty string key in extra is not allowed",
        );
    }
    if wanted.extra.values().flatten().any(String::is_empty) {
        return about(
            "userextras",
            "",
            "impersonating the empty string value in extra is not allowed",
        );
    }
    Ok(())
}

fn refusal(verb: &str, target: Target<'_>, reason: String) -> Box<Refusal> {
    let mut refusal = Box::new(Refusal {
        verb: verb.to_owned(),
        group: String::new(),
        resource: String::new(),
        subresource: String::new(),
        namespace: String::new(),
        name: String::new(),
        path: None,
        reason,
    });
    match target {
        Target::Path(path) => refusal.path = Some(path.to_owned()),
        Target::Resource(target) => {
            refusal.group = target.group.to_owned();
            refusal.resource = target.resource.to_owned();
            refusal.subresource = target.subresource.to_owned();
            refusal.namespace = target.namespace.to_owned();
            refusal.name = target.name.to_owned();
        }
    }
    refusal
}

// A node's name is a DNS subdomain; anything else is just a user.
fn node_of(user: &str) -> Option<&str> {
    let name = user.strip_prefix(NODE_PREFIX)?;
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| {
        label.starts_with(ends)
            && label.ends_with(ends)
            && label.chars().all(|c| ends(c) || c == '-')
    };
    (name.len() <= 253 && name.split('.').all(label)).then_some(name)
}

fn account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(ACCOUNT_PREFIX)?.split_once(':')?;
    let whole = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
    whole.then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> User {
        User {
            name: name.into(),
            ..User::default()
        }
    }

    // Grants are lines of `verb resource[/sub] name`.
    fn attempt(requester: &User, wanted: &User, grants: &[&str]) -> Result<User, Box<Refusal>> {
        let authorize = |asked: &Attributes<'_>| {
            let Target::Resource(t) = asked.target else {
                return Decision::NoOpinion(String::new());
            };
            let slash = if t.subresource.is_empty() { "" } else { "/" };
            let line = format!(
                "{} {}{slash}{} {}",
                asked.verb, t.resource, t.subresource, t.name
            );
            match grants.iter().any(|g| *g == line.trim_end()) {
                true => Decision::Allow(String::new()),
                false => Decision::NoOpinion("no".into()),
            }
        };
        let target = ResourceTarget {
            resource: "pods",
            version: "v1",
            ..ResourceTarget::default()
        };
        let request = Attributes {
            user: requester,
            verb: "list",
            target: Target::Resource(target),
        };
        impersonate(&request, wanted, &authorize)
    }

    #[test]
    fn the_legacy_verb_lets_everything_through_that_it_names() {
        let mut wanted = user("bob");
        wanted.groups = vec!["devs".into()];
        let grants = ["impersonate users bob", "impersonate groups devs"];
        let became = attempt(&user("alice"), &wanted, &grants).expect("allowed");
        assert_eq!(became.groups, ["devs", "system:authenticated"]);
        assert!(attempt(&user("alice"), &wanted, &grants[..1]).is_err());
        let account = attempt(
            &user("alice"),
            &user("system:serviceaccount:web:app"),
            &["impersonate serviceaccounts app"],
        );
        assert_eq!(
            account.expect("allowed").groups,
            [
                "system:serviceaccounts",
                "system:serviceaccounts:web",
                "system:authenticated"
            ]
        );
        let nobody = attempt(
            &user("alice"),
            &user("system:anonymous"),
            &["impersonate users system:anonymous"],
        );
        assert_eq!(nobody.expect("allowed").groups, ["system:unauthenticated"]);
    }

    #[test]
    fn the_constrained_modes_also_need_the_verb_they_are_used_for() {
        let both = [
            "impersonate-on:user-info:list pods",
            "impersonate:user-info users bob",
        ];
        assert!(attempt(&user("alice"), &user("bob"), &both).is_ok());
        assert!(attempt(&user("alice"), &user("bob"), &both[1..]).is_err());
        let mut masters = user("bob");
        masters.groups = vec!["system:masters".into()];
        let grants = [
            both[0],
            both[1],
            "impersonate:user-info groups system:masters",
        ];
        let refused = attempt(&user("alice"), &masters, &grants).expect_err("never in this mode");
        assert_eq!(
            refused.reason,
            "impersonating the system:masters group is not allowed"
        );
        // Only the old verb reaches it.
        assert!(
            attempt(
                &user("alice"),
                &masters,
                &["impersonate users bob", "impersonate groups system:masters"]
            )
            .is_ok()
        );
    }

    #[test]
    fn an_agent_may_speak_for_the_node_it_runs_on_and_no_other() {
        let mut agent = user("system:serviceaccount:kube-system:agent");
        agent.extra.insert(NODE_NAME_KEY.into(), vec!["a".into()]);
        let grants = [
            "impersonate-on:associated-node:list pods",
            "impersonate:associated-node nodes *",
        ];
        let node = attempt(&agent, &user("system:node:a"), &grants).expect("its own node");
        assert_eq!(node.groups, ["system:nodes", "system:authenticated"]);
        assert!(attempt(&agent, &user("system:node:b"), &grants).is_err());
    }

    #[test]
    fn the_first_refusal_is_told() {
        let refused = attempt(&user("alice"), &user("bob"), &[]).expect_err("nothing is granted");
        assert_eq!(refused.verb, "impersonate-on:user-info:list");
    }
}
