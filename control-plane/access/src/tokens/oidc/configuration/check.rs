//! What may stand in a file, and what it comes to. Problems read as upstream's do.

use std::collections::BTreeSet;

use super::file::{ClaimRule, Extra, File, Issuer, Jwt, Source, UserRule};
use crate::certificates::Authorities;
use crate::tokens::keys::Algorithm;
use crate::tokens::oidc::{About, Expression, Mapping, Rule, Trust, Yields};

type Problems = Vec<String>;

const MOST_ISSUERS: usize = 64;
const VERSIONS: [&str; 2] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
];

/// The issuers of a file. What is wrong with it goes to `problems`; the issuers mean nothing if there are any.
pub(super) fn file(file: &File, own_issuers: &[String], problems: &mut Problems) -> Vec<Trust> {
    if file.kind != "AuthenticationConfiguration" || !VERSIONS.contains(&file.api_version.as_str())
    {
        let (kind, version) = (&file.kind, &file.api_version);
        problems.push(format!(
            "{kind} of {version} is not known\nhint: write AuthenticationConfiguration of {}",
            VERSIONS[0]
        ));
    }
    if file.jwt.len() > MOST_ISSUERS {
        problems.push(format!(
            "jwt: Too many: {}: must have at most {MOST_ISSUERS} items",
            file.jwt.len()
        ));
        return Vec::new();
    }
    if file
        .anonymous
        .as_ref()
        .is_some_and(|a| !a.enabled && !a.conditions.is_empty())
    {
        invalid(
            problems,
            "anonymous.conditions",
            "",
            "enabled should be set to true when conditions are defined",
        );
    }
    let urls: Vec<_> = file.jwt.iter().map(|jwt| jwt.issuer.url.as_str()).collect();
    duplicates(&urls, |n| format!("jwt[{n}].issuer.url"), problems);
    let discovery: Vec<_> = file
        .jwt
        .iter()
        .map(|jwt| jwt.issuer.discovery_url.as_deref().unwrap_or(""))
        .collect();
    duplicates(
        &discovery,
        |n| format!("jwt[{n}].issuer.discoveryURL"),
        problems,
    );
    let trusts = file.jwt.iter().enumerate();
    trusts
        .filter_map(|(n, jwt)| trust(&format!("jwt[{n}]"), jwt, own_issuers, problems))
        .collect()
}

fn trust(path: &str, jwt: &Jwt, own_issuers: &[String], problems: &mut Problems) -> Option<Trust> {
    issuer(
        &format!("{path}.issuer"),
        &jwt.issuer,
        own_issuers,
        problems,
    );
    let claim_rules = claim_rules(
        &format!("{path}.claimValidationRules"),
        &jwt.claim_validation_rules,
        problems,
    );
    let mappings = format!("{path}.claimMappings");
    let username = source(
        &format!("{mappings}.username"),
        &jwt.claim_mappings.username,
        true,
        problems,
    );
    if username.is_none()
        && jwt.claim_mappings.username.claim.is_empty()
        && jwt.claim_mappings.username.expression.is_empty()
    {
        problems.push(format!(
            "{mappings}.username: Required value: claim or expression is required"
        ));
    }
    let groups = source(
        &format!("{mappings}.groups"),
        &jwt.claim_mappings.groups,
        true,
        problems,
    );
    let uid = source(
        &format!("{mappings}.uid"),
        &jwt.claim_mappings.uid,
        false,
        problems,
    );
    let extra = extras(
        &format!("{mappings}.extra"),
        &jwt.claim_mappings.extra,
        problems,
    );
    let user_rules = user_rules(
        &format!("{path}.userValidationRules"),
        &jwt.user_validation_rules,
        problems,
    );
    let username = username?;
    verified_mail(&mappings, &username, &extra, &claim_rules, problems);
    let issuer = &jwt.issuer;
    Some(Trust {
        url: issuer.url.clone(),
        discovery_url: issuer.discovery_url.clone().filter(|url| !url.is_empty()),
        authority: Some(issuer.certificate_authority.clone()).filter(|pem| !pem.is_empty()),
        audiences: issuer.audiences.clone(),
        algorithms: Algorithm::all(),
        username,
        groups,
        uid,
        extra,
        claim_rules,
        user_rules,
    })
}

fn issuer(path: &str, issuer: &Issuer, own_issuers: &[String], problems: &mut Problems) {
    problems.extend(issuer_url(&format!("{path}.url"), &issuer.url));
    if own_issuers.contains(&issuer.url) {
        let overlap = format!(
            "URL must not overlap with disallowed issuers: [{}]",
            own_issuers.join(" ")
        );
        invalid(problems, &format!("{path}.url"), &issuer.url, &overlap);
    }
    if let Some(url) = issuer
        .discovery_url
        .as_deref()
        .filter(|url| !url.is_empty())
    {
        let path = format!("{path}.discoveryURL");
        if url.trim_end_matches('/') == issuer.url.trim_end_matches('/') {
            invalid(
                problems,
                &path,
                url,
                "discoveryURL must be different from URL",
            );
        }
        problems.extend(issuer_url(&path, url));
    }
    audiences(path, issuer, problems);
    if !issuer.certificate_authority.is_empty()
        && let Err(why) = Authorities::from_pem(issuer.certificate_authority.as_bytes())
    {
        invalid(
            problems,
            &format!("{path}.certificateAuthority"),
            "<omitted>",
            &why.to_string(),
        );
    }
    if !issuer.egress_selector_type.is_empty() {
        let why = "there are no egress selectors here; leave the field out";
        invalid(
            problems,
            &format!("{path}.egressSelectorType"),
            &issuer.egress_selector_type,
            why,
        );
    }
}

fn audiences(path: &str, issuer: &Issuer, problems: &mut Problems) {
    let (list, policy) = (&issuer.audiences, issuer.audience_match_policy.as_str());
    if list.is_empty() {
        problems.push(format!(
            "{path}.audiences: Required value: at least one {path}.audiences is required"
        ));
    }
    for (n, _) in list
        .iter()
        .enumerate()
        .filter(|(_, audience)| audience.is_empty())
    {
        problems.push(format!("{path}.audiences[{n}]: Required value"));
    }
    let names: Vec<_> = list.iter().map(String::as_str).collect();
    duplicates(&names, |n| format!("{path}.audiences[{n}]"), problems);
    let policy_path = format!("{path}.audienceMatchPolicy");
    if list.len() > 1 && policy != "MatchAny" {
        invalid(
            problems,
            &policy_path,
            policy,
            "audienceMatchPolicy must be MatchAny for multiple audiences",
        );
    }
    if list.len() == 1 && !policy.is_empty() && policy != "MatchAny" {
        invalid(
            problems,
            &policy_path,
            policy,
            "audienceMatchPolicy must be empty or MatchAny for single audience",
        );
    }
}

/// What is wrong with an issuer's address.
pub(in crate::tokens::oidc) fn issuer_url(path: &str, url: &str) -> Problems {
    let mut problems = Problems::new();
    if url.is_empty() {
        problems.push(format!("{path}: Required value"));
        return problems;
    }
    let Some(rest) = url.strip_prefix("https://") else {
        invalid(&mut problems, path, url, "URL scheme must be https");
        return problems;
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let faults = [
        (host.is_empty(), "URL must have a host"),
        (
            host.contains('@'),
            "URL must not contain a username or password",
        ),
        (rest.contains('?'), "URL must not contain a query"),
        (rest.contains('#'), "URL must not contain a fragment"),
        (
            rest.contains(|c: char| c.is_whitespace() || c.is_control()),
            "URL must not contain spaces",
        ),
    ];
    for (_, why) in faults.iter().filter(|(found, _)| *found) {
        invalid(&mut problems, path, url, why);
    }
    problems
}

fn source(path: &str, source: &Source, prefixed: bool, problems: &mut Problems) -> Option<Mapping> {
    match (source.claim.is_empty(), source.expression.is_empty()) {
        (false, false) => {
            invalid(problems, path, "", "claim and expression can't both be set");
            None
        }
        (true, true) => None,
        (true, false) => {
            if let Some(prefix) = &source.prefix {
                invalid(
                    problems,
                    &format!("{path}.prefix"),
                    prefix,
                    "may not be specified when expression is set",
                );
            }
            expression(
                &format!("{path}.expression"),
                &source.expression,
                (About::Claims, Yields::Anything),
                problems,
            )
            .map(Mapping::Expression)
        }
        (false, true) => {
            if prefixed && source.prefix.is_none() {
                problems.push(format!(
                    "{path}.prefix: Required value: prefix is required when claim is set. It can be set to an empty \
                     string to disable prefixing"
                ));
            }
            let prefix = source.prefix.clone().unwrap_or_default();
            Some(Mapping::Claim {
                claim: source.claim.clone(),
                prefix,
            })
        }
    }
}

fn claim_rules(path: &str, rules: &[ClaimRule], problems: &mut Problems) -> Vec<Rule> {
    let claims: Vec<_> = rules.iter().map(|rule| rule.claim.as_str()).collect();
    duplicates(&claims, |n| format!("{path}[{n}].claim"), problems);
    let expressions: Vec<_> = rules.iter().map(|rule| rule.expression.as_str()).collect();
    duplicates(
        &expressions,
        |n| format!("{path}[{n}].expression"),
        problems,
    );
    let rules = rules.iter().enumerate();
    rules
        .filter_map(|(n, rule)| claim_rule(&format!("{path}[{n}]"), rule, problems))
        .collect()
}

fn claim_rule(path: &str, rule: &ClaimRule, problems: &mut Problems) -> Option<Rule> {
    match (rule.claim.is_empty(), rule.expression.is_empty()) {
        (false, false) => invalid(
            problems,
            path,
            &rule.claim,
            "claim and expression can't both be set",
        ),
        (true, true) => problems.push(format!(
            "{path}: Required value: claim or expression is required"
        )),
        (false, true) if !rule.message.is_empty() => {
            invalid(
                problems,
                &format!("{path}.message"),
                &rule.message,
                "may not be specified when claim is set",
            );
        }
        (false, true) => {
            return Some(Rule::Required {
                claim: rule.claim.clone(),
                value: rule.required_value.clone(),
            });
        }
        (true, false) if !rule.required_value.is_empty() => {
            let why = "may not be specified when expression is set";
            invalid(
                problems,
                &format!("{path}.requiredValue"),
                &rule.required_value,
                why,
            );
        }
        (true, false) => {
            return holds(
                path,
                &rule.expression,
                &rule.message,
                About::Claims,
                problems,
            );
        }
    }
    None
}

fn user_rules(path: &str, rules: &[UserRule], problems: &mut Problems) -> Vec<Rule> {
    let expressions: Vec<_> = rules.iter().map(|rule| rule.expression.as_str()).collect();
    duplicates(
        &expressions,
        |n| format!("{path}[{n}].expression"),
        problems,
    );
    let rule = |(n, rule): (usize, &UserRule)| {
        let path = format!("{path}[{n}]");
        if rule.expression.is_empty() {
            problems.push(format!("{path}.expression: Required value"));
            return None;
        }
        holds(
            &path,
            &rule.expression,
            &rule.message,
            About::User,
            problems,
        )
    };
    rules.iter().enumerate().filter_map(rule).collect()
}

fn holds(
    path: &str,
    text: &str,
    message: &str,
    about: About,
    problems: &mut Problems,
) -> Option<Rule> {
    let path = format!("{path}.expression");
    let expression = expression(&path, text, (about, Yields::Bool), problems)?;
    Some(Rule::Holds {
        expression,
        message: message.to_owned(),
    })
}

fn extras(path: &str, extras: &[Extra], problems: &mut Problems) -> Vec<(String, Expression)> {
    let keys: Vec<_> = extras.iter().map(|extra| extra.key.as_str()).collect();
    duplicates(&keys, |n| format!("{path}[{n}].key"), problems);
    let extra = |(n, extra): (usize, &Extra)| {
        let path = format!("{path}[{n}]");
        extra_key(&format!("{path}.key"), &extra.key, problems);
        if extra.value_expression.is_empty() {
            problems.push(format!("{path}.valueExpression: Required value"));
            return None;
        }
        let value = expression(
            &format!("{path}.valueExpression"),
            &extra.value_expression,
            (About::Claims, Yields::Anything),
            problems,
        )?;
        Some((extra.key.clone(), value))
    };
    extras.iter().enumerate().filter_map(extra).collect()
}

/// Keys are paths below a domain, in lower case, and not below Kubernetes' own domains.
fn extra_key(path: &str, key: &str, problems: &mut Problems) {
    let domain = key
        .split_once('/')
        .filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty());
    let Some((domain, _)) = domain else {
        invalid(
            problems,
            path,
            key,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        );
        return;
    };
    if key.chars().any(char::is_uppercase) {
        invalid(problems, path, key, "must be lowercase");
    }
    let ours = ["k8s.io", "kubernetes.io"];
    if ours
        .iter()
        .any(|own| domain == *own || domain.ends_with(&format!(".{own}")))
    {
        let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        invalid(problems, path, key, why);
    }
}

/// An expression that takes a mail address for a name must be joined by one that asks whether it is verified.
fn verified_mail(
    path: &str,
    username: &Mapping,
    extra: &[(String, Expression)],
    rules: &[Rule],
    problems: &mut Problems,
) {
    let Mapping::Expression(name) = username else {
        return;
    };
    let of_rules = rules.iter().filter_map(|rule| match rule {
        Rule::Holds { expression, .. } => Some(expression),
        Rule::Required { .. } => None,
    });
    let mut all = extra
        .iter()
        .map(|(_, value)| value)
        .chain(of_rules)
        .chain([name]);
    if name.uses("email") && !all.any(|expression| expression.uses("email_verified")) {
        let why = "claims.email_verified must be used in claimMappings.username.expression or \
                   claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is \
                   used in claimMappings.username.expression";
        invalid(
            problems,
            &format!("{path}.username.expression"),
            name.text(),
            why,
        );
    }
}

fn expression(
    path: &str,
    text: &str,
    (about, yields): (About, Yields),
    problems: &mut Problems,
) -> Option<Expression> {
    match Expression::parse(text, about, yields) {
        Ok(expression) => Some(expression),
        Err(why) => {
            invalid(problems, path, text, &why);
            None
        }
    }
}

/// Notes every value that stood before; empty ones have their own problem.
fn duplicates(values: &[&str], path: impl Fn(usize) -> String, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for (n, value) in values
        .iter()
        .enumerate()
        .filter(|(_, value)| !value.is_empty())
    {
        if !seen.insert(*value) {
            problems.push(format!("{}: Duplicate value: {value:?}", path(n)));
        }
    }
}

fn invalid(problems: &mut Problems, path: &str, value: &str, why: &str) {
    problems.push(format!("{path}: Invalid value: {value:?}: {why}"));
}
