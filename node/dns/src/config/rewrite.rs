//! `rewrite name …`: a name that is asked for stands for another. Answers carry the name that was asked for, which
//! CoreDNS does where `answer` says so: resolvers refuse others.

use regex::Regex;

use super::ConfigError;
use super::corefile::Directive;
use crate::name::Name;

/// The rules of a block, in their order.
#[derive(Debug, Default)]
pub struct Rewrites(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    from: From,
    to: String,
    /// Whether the rules behind it are asked as well.
    goes_on: bool,
}

#[derive(Debug)]
enum From {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Substring(String),
    Pattern(Regex),
}

impl Rewrites {
    /// The name that another stands for, if a rule says so.
    pub(crate) fn of(&self, name: &Name) -> Option<Name> {
        if self.0.is_empty() {
            return None;
        }
        let mut text = name.to_string();
        let mut is_rewritten = false;
        for rule in &self.0 {
            if let Some(other) = rule.apply(&text) {
                text = other;
                is_rewritten = true;
                if !rule.goes_on {
                    break;
                }
            }
        }
        let other = Name::parse(&text).filter(|_| is_rewritten);
        other.filter(|other| other != name)
    }

    /// Takes a stanza; false if it is about something else than names.
    pub(super) fn take(&mut self, stanza: &Directive) -> Result<bool, ConfigError> {
        let mut words = stanza.words.iter().skip(1).map(String::as_str).peekable();
        let mode = words.next_if(|word| matches!(*word, "stop" | "continue"));
        let mut rule: Vec<&str> = words.collect();
        if rule.is_empty() {
            let mut inner = stanza.inner.iter().map(|line| &line.words);
            let named = inner.find(|words| words[0] == "name");
            rule = named.into_iter().flatten().map(String::as_str).collect();
        }
        let (kind, from, to) = match rule.as_slice() {
            [
                "name",
                kind @ ("exact" | "prefix" | "suffix" | "substring" | "regex"),
                from,
                to,
                ..,
            ] => (*kind, *from, *to),
            ["name", from, to, ..] => ("exact", *from, *to),
            _ => return Ok(false),
        };
        let lower = from.to_ascii_lowercase();
        let whole = |text: &str| format!("{}.", text.trim_end_matches('.'));
        let (from, to) = match kind {
            "prefix" => (From::Prefix(lower), to.to_owned()),
            "suffix" => (From::Suffix(whole(&lower)), whole(to)),
            "substring" => (From::Substring(lower), to.to_owned()),
            "regex" => {
                let pattern = Regex::new(from);
                let wrong = |_| stanza.wrong("this is not a regular expression");
                (From::Pattern(pattern.map_err(wrong)?), template(to))
            }
            _ => (From::Exact(whole(&lower)), whole(to)),
        };
        let goes_on = mode == Some("continue");
        self.0.push(Rule { from, to, goes_on });
        Ok(true)
    }
}

impl Rule {
    fn apply(&self, name: &str) -> Option<String> {
        let to = &self.to;
        match &self.from {
            From::Exact(from) => (name == from).then(|| to.clone()),
            From::Prefix(from) => Some(format!("{to}{}", name.strip_prefix(from.as_str())?)),
            From::Suffix(from) => Some(format!("{}{to}", name.strip_suffix(from.as_str())?)),
            From::Substring(from) => name.contains(from).then(|| name.replace(from, to)),
            From::Pattern(pattern) => {
                let found = pattern.captures(name)?;
                let mut other = String::new();
                found.expand(to, &mut other);
                Some(other)
            }
        }
    }
}

/// CoreDNS writes `{1}` where regular expressions here have `${1}`.
fn template(text: &str) -> String {
    text.replace('$', "$$").replace('{', "${")
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use std::path::Path;

    fn rewritten(rules: &str, name: &str) -> Option<String> {
        let text = format!(".:53 {{\n{rules}\n}}\n");
        let config = Config::parse(&text, Path::new("/Corefile")).unwrap();
        assert_eq!(config.warnings, [""; 0]);
        let block = &config.blocks[0];
        let other = block.rewrites.of(&Name::parse(name).unwrap())?;
        Some(other.to_string())
    }

    #[test]
    fn names_are_rewritten_as_people_write_it() {
        for (rule, name, other) in [
            ("rewrite name a.b c.d", "A.b", Some("c.d.")),
            ("rewrite name exact a.b. c.d", "x.a.b", None),
            ("rewrite name suffix .corp .svc", "x.corp", Some("x.svc.")),
            ("rewrite name prefix old- new-", "old-x.y", Some("new-x.y.")),
            ("rewrite name substring aa b", "xaay.z", Some("xby.z.")),
            // As AKS' documentation has it.
            (
                "rewrite stop {\n name regex (.*)\\.corp\\.com {1}.default.svc.cluster.local\n \
                 answer name (.*)\\.default\\.svc\\.cluster\\.local {1}.corp.com\n}",
                "web.corp.com",
                Some("web.default.svc.cluster.local."),
            ),
            (
                "rewrite continue name a b\nrewrite name b c\nrewrite name c d",
                "a",
                Some("c."),
            ),
        ] {
            assert_eq!(rewritten(rule, name).as_deref(), other, "{rule}");
        }
    }
}
