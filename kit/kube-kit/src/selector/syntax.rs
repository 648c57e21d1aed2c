//! What a label key and a label value may be, with upstream's explanations
//! (`apimachinery/pkg/api/validate/content/kube.go`).

const NAME_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
     for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// What is wrong with a label key (`[prefix/]name`); empty when it is valid.
pub fn label_key_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            errors.extend(prefix_errors(prefix));
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_MAX {
        errors.push(format!("name part must be no more than {NAME_MAX} bytes"));
    }
    if !is_name(name) {
        errors.push(format!("name part {KEY_RULE}"));
    }
    errors
}

/// What is wrong with a label value; empty when it is valid.
pub fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > NAME_MAX {
        errors.push(format!("must be no more than {NAME_MAX} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(VALUE_RULE.to_owned());
    }
    errors
}

fn prefix_errors(prefix: &str) -> Vec<String> {
    if prefix.is_empty() {
        return vec!["prefix part must be non-empty".to_owned()];
    }
    let mut errors = Vec::new();
    if prefix.len() > SUBDOMAIN_MAX {
        errors.push(format!(
            "prefix part must be no more than {SUBDOMAIN_MAX} bytes"
        ));
    }
    if !prefix.split('.').all(is_dns_label) {
        errors.push(format!("prefix part {SUBDOMAIN_RULE}"));
    }
    errors
}

fn is_name(text: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    framed(text, |b| b.is_ascii_alphanumeric(), is_inner)
}

fn is_dns_label(text: &str) -> bool {
    let is_outer = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    framed(text, is_outer, |b| is_outer(b) || b == b'-')
}

/// Whether the first and last byte satisfy one rule and all bytes between them another.
fn framed(text: &str, outer: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [only] => outer(*only),
        [first, middle @ .., last] => {
            outer(*first) && outer(*last) && middle.iter().all(|b| inner(*b))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_follow_the_name_rules() {
        for key in ["a", "a.b_c-d", "app.kubernetes.io/name", "x.y/Z9"] {
            assert!(label_key_errors(key).is_empty(), "{key}");
        }
        for key in [
            "",
            "-a",
            "a-",
            "A/b",
            "/b",
            "a/",
            "a..b/c",
            "é",
            &"k".repeat(64),
        ] {
            assert!(!label_key_errors(key).is_empty(), "{key}");
        }
        assert!(label_value_errors("").is_empty());
        assert!(label_value_errors(&"v".repeat(63)).is_empty());
        assert_eq!(
            label_value_errors(&"v".repeat(64)),
            ["must be no more than 63 bytes"]
        );
        assert_eq!(label_value_errors("a b"), [VALUE_RULE]);
    }

    #[test]
    fn key_messages_are_those_of_upstream() {
        assert_eq!(label_key_errors("a/").len(), 2);
        assert_eq!(label_key_errors("a/")[0], "name part must be non-empty");
        assert!(
            label_key_errors("A/b")[0]
                .starts_with("prefix part a lowercase RFC 1123 subdomain must consist of")
        );
        assert!(label_key_errors("a/b/c")[0].ends_with(
            "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS \
             subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ));
    }
}
