//! EncryptionConfiguration (apiserver.config.k8s.io/v1): which resources are encrypted, and how.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

use crate::kms::{Plugin, Settings};
use crate::providers::{Cipher, Provider, Transformer};

/// How long a call to a service may take, unless a configuration says otherwise (upstream's).
const KMS_TIMEOUT: Duration = Duration::from_secs(3);

/// Gives the service that settings describe.
pub(crate) type Services<'a> = &'a dyn Fn(Settings) -> Arc<Plugin>;

/// Go's `StdEncoding`, which does not mind bits left over at the end.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Group and plural of a resource.
pub type Resource<'a> = (&'a str, &'a str);

/// A configuration, ready to be used.
#[derive(Debug)]
pub(crate) struct Configuration {
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
    kms: Option<Kms>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Kms {
    api_version: Option<String>,
    name: String,
    cachesize: Option<i64>,
    endpoint: String,
    timeout: Option<String>,
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
    pub(crate) fn parse(text: &[u8], services: Services<'_>) -> Result<Configuration, String> {
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
        let mut names = HashSet::new();
        for (index, rule) in file.resources.iter().enumerate() {
            let at = format!("resources[{index}]");
            check_resources(&rule.resources, &at, &mut errors);
            check_masked(&rule.resources, &rules, &mut errors);
            let mut known = Known {
                names: &mut names,
                services,
            };
            let providers = providers(&rule.providers, &at, &mut known, &mut errors);
            rules.push((rule.resources.clone(), Transformer::new(providers)));
        }
        match errors.is_empty() {
            true => Ok(Configuration { rules }),
            false => Err(errors.join(", ")),
        }
    }

    /// The services that are asked for keys.
    pub(crate) fn plugins(&self) -> impl Iterator<Item = &Arc<Plugin>> {
        self.rules.iter().flat_map(|(_, rule)| rule.plugins())
    }

    /// How a resource is encrypted; the first rule that names it decides.
    pub(crate) fn of(&self, resource: Resource<'_>) -> Option<&Transformer> {
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

/// What is known of services while a configuration is read: names taken, and where to get them.
struct Known<'a> {
    names: &'a mut HashSet<String>,
    services: Services<'a>,
}

fn providers(
    rows: &[Row],
    at: &str,
    known: &mut Known<'_>,
    errors: &mut Vec<String>,
) -> Vec<Provider> {
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
        if let Some(kms) = &row.kms {
            let settings = service(kms, &format!("{at}.kms"), known.names, errors);
            all.extend(settings.map(|settings| Provider::Kms((known.services)(settings))));
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

// Upstream's rules and words. Version 1 of the protocol is off there too, unless somebody asks for it.
fn service(
    kms: &Kms,
    at: &str,
    names: &mut HashSet<String>,
    errors: &mut Vec<String>,
) -> Option<Settings> {
    let before = errors.len();
    let mut wrong = |field: &str, value: &str, why: String| {
        errors.push(format!("{at}.{field}: Invalid value: {value:?}: {why}"));
    };
    let name = kms.name.as_str();
    if name.contains(':') {
        let why = format!("invalid KMS provider name {name}, must not contain ':'");
        wrong("name", name, why);
    }
    if !name.is_empty() && !names.insert(name.to_owned()) {
        let why = format!("duplicate KMS provider name {name}, names must be unique");
        wrong("name", name, why);
    }
    let timeout = kms
        .timeout
        .as_deref()
        .map(kube_kit::duration::go::parse_unsigned);
    let timeout = match timeout {
        None => Some(KMS_TIMEOUT),
        Some(Ok(timeout)) if !timeout.is_zero() => Some(timeout),
        Some(_) => {
            let given = kms.timeout.as_deref().unwrap_or_default();
            let why = "timeout should be a positive value".to_owned();
            wrong("timeout", given, why);
            None
        }
    };
    let scheme = kms
        .endpoint
        .split_once(':')
        .map_or("", |(scheme, _)| scheme);
    // `unix:///run/kms.sock`, and `unix:///@name` for a socket without a file.
    let path = kms.endpoint.strip_prefix("unix://");
    match (kms.endpoint.as_str(), path) {
        ("", _) => {
            let why = "endpoint is a mandatory field for a kms".to_owned();
            wrong("endpoint", "", why);
        }
        (_, Some(path)) if path.starts_with('/') && path.len() > 1 => {}
        (given, None) => {
            let why =
                format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported");
            wrong("endpoint", given, why);
        }
        (given, Some(_)) => {
            let why = "invalid endpoint for kms provider, error: a socket has an absolute path, as in unix:///run/kms.sock";
            wrong("endpoint", given, why.to_owned());
        }
    }
    if let Some(size) = kms.cachesize {
        wrong(
            "cachesize",
            &size.to_string(),
            "cachesize is not supported in v2".to_owned(),
        );
    }
    match kms.api_version.as_deref() {
        Some("v2") => {}
        Some("v1") | None => wrong(
            "apiVersion",
            "v1",
            "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead"
                .to_owned(),
        ),
        Some(other) => wrong(
            "apiVersion",
            other,
            "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"
                .to_owned(),
        ),
    }
    if name.is_empty() {
        errors.push(format!(
            "{at}.name: Required value: name is a mandatory field for a provider"
        ));
    }
    (errors.len() == before).then(|| Settings {
        name: name.to_owned(),
        socket: socket(path.unwrap_or_default()),
        timeout: timeout.unwrap_or(KMS_TIMEOUT),
    })
}

// A name in the kernel's own namespace begins with a zero byte (upstream: `unix:///@name`).
fn socket(path: &str) -> PathBuf {
    match path.strip_prefix("/@") {
        Some(name) => PathBuf::from(format!("\0{name}")),
        None => PathBuf::from(path),
    }
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
        Configuration::parse(text.as_bytes(), &|settings| {
            let well = tokio::sync::watch::Sender::new(0);
            Arc::new(Plugin::new(
                settings,
                well,
                crate::meters::Meters::default(),
            ))
        })
    }

    fn kms(fields: &str) -> String {
        format!("{{resources: [secrets], providers: [{{kms: {{{fields}}}}}]}}")
    }

    #[test]
    fn a_key_management_service_is_named_by_its_socket() {
        let found = parse(&kms(
            "apiVersion: v2, name: vault, endpoint: 'unix:///run/kms.sock', timeout: 1500ms",
        ))
        .expect("good");
        let plugin = found.plugins().next().expect("one");
        assert_eq!(
            plugin.settings,
            Settings {
                name: "vault".into(),
                socket: "/run/kms.sock".into(),
                timeout: Duration::from_millis(1500),
            }
        );
        assert_eq!(plugin.prefix(), "k8s:enc:kms:v2:vault:");
        assert_eq!(socket("/@kms"), PathBuf::from("\0kms"));
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
                kms("apiVersion: v2, endpoint: 'unix:///a'"),
                "name is a mandatory field for a provider",
            ),
            (
                kms("apiVersion: v2, name: 'a:b', endpoint: 'unix:///a'"),
                "must not contain ':'",
            ),
            (
                kms("apiVersion: v2, name: a"),
                "endpoint is a mandatory field",
            ),
            (
                kms("apiVersion: v2, name: a, endpoint: 'tcp://a'"),
                "unsupported scheme \"tcp\" for KMS provider, only unix is supported",
            ),
            (
                kms("apiVersion: v2, name: a, endpoint: 'unix://a'"),
                "invalid endpoint for kms provider",
            ),
            (
                kms("apiVersion: v2, name: a, endpoint: 'unix:///a', timeout: 0s"),
                "timeout should be a positive value",
            ),
            (
                kms("apiVersion: v2, name: a, endpoint: 'unix:///a', cachesize: 3"),
                "cachesize is not supported in v2",
            ),
            (kms("name: a, endpoint: 'unix:///a'"), "KMSv1 is deprecated"),
            (
                kms("apiVersion: v3, name: a, endpoint: 'unix:///a'"),
                "only v1 and v2 are supported",
            ),
            (
                format!(
                    "{}, {}",
                    kms("apiVersion: v2, name: a, endpoint: 'unix:///a'"),
                    kms("apiVersion: v2, name: a, endpoint: 'unix:///b'")
                        .replace("[secrets]", "[configmaps]")
                ),
                "duplicate KMS provider name a, names must be unique",
            ),
        ];
        for (rules, why) in cases {
            let said = parse(&rules).expect_err(why);
            assert!(said.contains(why), "{said}");
        }
    }
}
