//! EncryptionConfiguration (apiserver.config.k8s.io/v1): which resources are encrypted, and how.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

use crate::providers::{Cipher, Provider, Transformer};

/// Go's `StdEncoding`, which does not mind bits left over at the end.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Group and plural of a resource.
pub type Resource<'a> = (&'a str, &'a str);

/// A configuration, ready to be used.
#[derive(Debug)]
pub struct Configuration {
    rules: Vec<(Vec<String>, Transformer)>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    resources: Vec<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Rule {
    resources: Vec<String>,
    providers: Vec<Row>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Row {
    aesgcm: Option<Keys>,
    aescbc: Option<Keys>,
    secretbox: Option<Keys>,
    identity: Option<serde_json::Value>,
    kms: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Key {
    name: String,
    secret: String,
}

impl Configuration {
    /// Reads a configuration, YAML or JSON; says everything that is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Configuration, String> {
        let parsed = objects::yaml::parse(text).map_err(|error| error.to_string())?;
        if let Some(twice) = parsed.strict.first() {
            return Err(format!("strict decoding error: {twice}"));
        }
        let file: File = serde_json::from_value(parsed.value)
            .map_err(|error| format!("strict decoding error: {error}"))?;
        let known = ["apiserver.config.k8s.io/v1", "v1"];
        if file.kind != "EncryptionConfiguration" || !known.contains(&&*file.api_version) {
            return Err(format!(
                "no kind {:?} is registered for version {:?}; use EncryptionConfiguration of {}",
                file.kind, file.api_version, known[0]
            ));
        }
        let mut errors = Vec::new();
        if file.resources.is_empty() {
            errors.push("resources: Required value: at least one resource is required".to_owned());
        }
        let mut rules = Vec::new();
        for (index, rule) in file.resources.iter().enumerate() {
            let at = format!("resources[{index}]");
            check_resources(&rule.resources, &at, &mut errors);
            check_masked(&rule.resources, &rules, &mut errors);
            let providers = providers(&rule.providers, &at, &mut errors);
            rules.push((rule.resources.clone(), Transformer::new(providers)));
        }
        match errors.is_empty() {
            true => Ok(Configuration { rules }),
            false => Err(errors.join(", ")),
        }
    }

    /// How a resource is encrypted; the first rule that names it decides.
    pub fn of(&self, resource: Resource<'_>) -> Option<&Transformer> {
        let names = |patterns: &Vec<String>| patterns.iter().any(|p| covers(p, resource));
        let found = self.rules.iter().find(|(patterns, _)| names(patterns));
        found.map(|(_, transformer)| transformer)
    }
}

fn covers(pattern: &str, (group, plural): Resource<'_>) -> bool {
    match pattern.split_once('.') {
        None => group.is_empty() && pattern == plural,
        Some(("*", "*")) => true,
        Some(("*", wanted)) => wanted == group,
        Some((name, wanted)) => name == plural && wanted == group,
    }
}

fn check_resources(names: &[String], at: &str, errors: &mut Vec<String>) {
    if names.is_empty() {
        errors.push(format!(
            "{at}.resources: Required value: at least one resource is required"
        ));
    }
    for (index, name) in names.iter().enumerate() {
        let why = match name.as_str() {
            "*" => {
                "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
            }
            name if name.ends_with(".events.k8s.io") => {
                "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
            }
            name if name.chars().any(char::is_uppercase) => {
                "resource name should not contain capital letters"
            }
            name if names[..index].iter().any(|before| before == name) => {
                "the same resource cannot be specified multiple times"
            }
            name if names
                .iter()
                .any(|other| other != name && masks(other, name)) =>
            {
                "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"
            }
            _ => continue,
        };
        errors.push(format!(
            "{at}.resources[{index}]: Invalid value: {name:?}: {why}"
        ));
    }
}

fn masks(wider: &str, name: &str) -> bool {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    covers(wider, (group, plural))
}

fn check_masked(names: &[String], before: &[(Vec<String>, Transformer)], errors: &mut Vec<String>) {
    for name in names {
        let earlier = before.iter().flat_map(|(patterns, _)| patterns);
        if let Some(earlier) = { earlier }.find(|earlier| masks(earlier, name)) {
            errors.push(format!(
                "resource {name:?} is masked by earlier rule {earlier:?}"
            ));
        }
    }
}

fn providers(rows: &[Row], at: &str, errors: &mut Vec<String>) -> Vec<Provider> {
    if rows.is_empty() {
        errors.push(format!(
            "{at}.providers: Required value: at least one provider is required"
        ));
    }
    let mut all = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let at = format!("{at}.providers[{index}]");
        let keyed = [
            (&row.aesgcm, Cipher::AesGcm),
            (&row.aescbc, Cipher::AesCbc),
            (&row.secretbox, Cipher::Secretbox),
        ];
        let given = keyed.iter().filter(|(keys, _)| keys.is_some()).count()
            + usize::from(row.identity.is_some())
            + usize::from(row.kms.is_some());
        match given {
            0 => errors.push(format!(
                "{at}: Required value: provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
            )),
            1 => {}
            _ => errors.push(format!(
                "{at}: Invalid value: more than one provider specified in a single element, should split into different list elements"
            )),
        }
        if row.kms.is_some() {
            errors.push(format!(
                "{at}.kms: Invalid value: key management services are not asked here; use aesgcm, aescbc or secretbox"
            ));
        }
        if row.identity.is_some() {
            all.push(Provider::Identity);
        }
        for (keys, cipher) in keyed {
            let Some(keys) = keys else { continue };
            all.extend(provider(cipher, &keys.keys, &at, errors));
        }
    }
    all
}

fn provider(cipher: Cipher, keys: &[Key], at: &str, errors: &mut Vec<String>) -> Option<Provider> {
    let at = format!("{at}.{}.keys", cipher.name());
    if keys.is_empty() {
        errors.push(format!(
            "{at}: Required value: at least one keys is required"
        ));
    }
    let mut ready = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let at = format!("{at}[{index}]");
        if key.name.is_empty() {
            errors.push(format!(
                "{at}.name: Required value: name is a mandatory field for a key"
            ));
        }
        if key.secret.is_empty() {
            errors.push(format!(
                "{at}.secret: Required value: secret is a mandatory field for a key"
            ));
            continue;
        }
        let Ok(secret) = LENIENT.decode(&key.secret) else {
            errors.push(format!(
                "{at}.secret: Invalid value: \"REDACTED\": secrets must be base64 encoded"
            ));
            continue;
        };
        match cipher.key(&secret) {
            Some(secret) => ready.push((key.name.clone(), secret)),
            None => errors.push(format!(
                "{at}.secret: Invalid value: \"REDACTED\": secret is not of the expected length, got {}, expected one of {}",
                secret.len(),
                cipher.key_sizes()
            )),
        }
    }
    (!ready.is_empty()).then_some(Provider::Keyed(cipher, ready))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "{name: k, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}";

    fn parse(rules: &str) -> Result<Configuration, String> {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{rules}]"
        );
        Configuration::parse(text.as_bytes())
    }

    fn rule(resources: &str) -> String {
        format!(
            "{{resources: [{resources}], providers: [{{secretbox: {{keys: [{KEY}]}}}}, {{identity: {{}}}}]}}"
        )
    }

    #[test]
    fn the_first_rule_that_names_a_resource_decides() {
        let rules = [
            rule("secrets, pandas.awesome.example"),
            rule("'*.apps'"),
            rule("'*.'"),
        ];
        let found = parse(&rules.join(", ")).expect("good");
        let cases = [
            (("", "secrets"), true),
            (("", "configmaps"), true),
            (("apps", "deployments"), true),
            (("awesome.example", "pandas"), true),
            (("awesome.example", "bears"), false),
            (("batch", "jobs"), false),
        ];
        for (resource, is_named) in cases {
            assert_eq!(found.of(resource).is_some(), is_named, "{resource:?}");
        }
        let all = parse(&rule("'*.*'")).expect("good");
        assert!(all.of(("batch", "jobs")).is_some());
    }

    #[test]
    fn mistakes_are_named() {
        let short =
            "{resources: [secrets], providers: [{aesgcm: {keys: [{name: k, secret: YQ==}]}}]}";
        let text =
            "{resources: [secrets], providers: [{aesgcm: {keys: [{name: k, secret: '*'}]}}]}";
        let both = "{resources: [secrets], providers: [{identity: {}, aesgcm: {keys: []}}]}";
        let cases = [
            (String::new(), "at least one resource is required"),
            (rule("'*'"), "use '*.' to encrypt all"),
            (rule("Secrets"), "capital letters"),
            (rule("secrets, secrets"), "multiple times"),
            (rule("secrets, '*.'"), "overlapping resources"),
            (rule("events.events.k8s.io"), "Use 'events' instead"),
            (
                format!("{}, {}", rule("'*.'"), rule("secrets")),
                "resource \"secrets\" is masked by earlier rule \"*.\"",
            ),
            (short.into(), "got 1, expected one of [16 24 32]"),
            (text.into(), "secrets must be base64 encoded"),
            (
                both.into(),
                "more than one provider specified in a single element",
            ),
            (
                "{resources: [secrets], providers: [{}]}".into(),
                "does not contain any",
            ),
            (
                "{resources: [secrets]}".into(),
                "at least one provider is required",
            ),
            (
                "{resources: [secrets], providers: [{kms: {}}]}".into(),
                "not asked here",
            ),
        ];
        for (rules, why) in cases {
            let said = parse(&rules).expect_err(why);
            assert!(said.contains(why), "{said}");
        }
    }
}
