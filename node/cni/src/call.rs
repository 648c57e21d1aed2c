//! A runtime's call: the verb and the variables that come with it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::{Code, Error};

/// The verbs of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Attach a container.
    Add,
    /// Detach it.
    Del,
    /// Compare an attachment with what was made.
    Check,
    /// Say whether containers can be attached.
    Status,
    /// Take away what belongs to no container.
    Gc,
    /// Say which versions are spoken.
    Version,
}

/// Verbs by name, and what they need to know: container and interface, and the namespace.
const VERBS: [(&str, Verb, bool, bool); 6] = [
    ("ADD", Verb::Add, true, true),
    ("DEL", Verb::Del, true, false),
    ("CHECK", Verb::Check, true, true),
    ("STATUS", Verb::Status, false, false),
    ("GC", Verb::Gc, false, false),
    ("VERSION", Verb::Version, false, false),
];

/// A call with its variables checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What is asked.
    pub verb: Verb,
    /// The container; empty for verbs without one.
    pub container: String,
    /// The interface inside the container.
    pub interface: String,
    /// The container's network namespace; a DEL may come without.
    pub namespace: Option<PathBuf>,
    /// `CNI_ARGS`.
    pub arguments: BTreeMap<String, String>,
}

impl Call {
    /// Reads a call from the environment; `get` finds a variable.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Call, Error> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let wrong = |message: String| Error::new(Code::InvalidEnvironment, message);
        let name = get("CNI_COMMAND").unwrap_or_default();
        let Some((_, verb, container, namespace)) = VERBS.into_iter().find(|row| row.0 == name)
        else {
            return Err(wrong(format!("unknown CNI_COMMAND: {name}")));
        };
        let mut missing = Vec::new();
        for (needed, variable) in [
            (container, "CNI_CONTAINERID"),
            (namespace, "CNI_NETNS"),
            (container, "CNI_IFNAME"),
        ] {
            if needed && get(variable).is_none() {
                missing.push(variable);
            }
        }
        if !missing.is_empty() {
            let missing = missing.join(",");
            return Err(wrong(format!("required env variables [{missing}] missing")));
        }
        let call = Call {
            verb,
            container: get("CNI_CONTAINERID").unwrap_or_default(),
            interface: get("CNI_IFNAME").unwrap_or_default(),
            namespace: get("CNI_NETNS").map(PathBuf::from),
            arguments: arguments(&get("CNI_ARGS").unwrap_or_default()),
        };
        if container {
            call.check_names().map_err(wrong)?;
        }
        Ok(call)
    }

    fn check_names(&self) -> Result<(), String> {
        if !is_identifier(&self.container) {
            return Err(format!(
                "invalid characters in containerID `{}`",
                self.container
            ));
        }
        let name = &self.interface;
        let bad = |c: char| c == '/' || c == ':' || c.is_whitespace();
        match name.as_str() {
            "." | ".." => Err(format!("interface name is `{name}`")),
            _ if name.len() > 15 => Err(format!(
                "interface name `{name}` is longer than 15 characters"
            )),
            _ if name.contains(bad) => Err(format!(
                "interface name `{name}` contains / or : or whitespace characters"
            )),
            _ => Ok(()),
        }
    }
}

/// Letters and digits, and after the first also `_`, `.` and `-`.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut rest = name.chars();
    rest.next().is_some_and(|c| c.is_ascii_alphanumeric())
        && rest.all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

fn arguments(text: &str) -> BTreeMap<String, String> {
    text.split(';')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Call, Error> {
        Call::read(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn verbs_say_which_variables_they_lack() {
        for (verb, expected) in [
            (
                "ADD",
                "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME] missing",
            ),
            (
                "DEL",
                "required env variables [CNI_CONTAINERID,CNI_IFNAME] missing",
            ),
            ("NONE", "unknown CNI_COMMAND: NONE"),
        ] {
            let error = read(&[("CNI_COMMAND", verb)]).expect_err(verb);
            assert_eq!(
                (error.code, error.message.as_str()),
                (Code::InvalidEnvironment, expected)
            );
        }
        for verb in ["STATUS", "GC", "VERSION"] {
            assert!(read(&[("CNI_COMMAND", verb)]).is_ok(), "{verb}");
        }
    }

    #[test]
    fn names_that_could_harm_are_refused() {
        for (container, interface) in [
            ("../x", "eth0"),
            ("-x", "eth0"),
            ("x", ".."),
            ("x", "a/b"),
            ("x", "a b"),
            ("x", "sixteen-letters-"),
        ] {
            let variables = [
                ("CNI_COMMAND", "DEL"),
                ("CNI_CONTAINERID", container),
                ("CNI_IFNAME", interface),
            ];
            assert!(read(&variables).is_err(), "{container} {interface}");
        }
    }

    #[test]
    fn arguments_are_pairs() {
        let found = arguments("IgnoreUnknown=1;K8S_POD_NAME=web-0;odd");
        assert_eq!(found.len(), 2);
        assert_eq!(found["K8S_POD_NAME"], "web-0");
    }
}
