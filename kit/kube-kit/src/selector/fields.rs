//! Field selectors: `field=value`, `==` or `!=`, joined by commas.

use std::fmt;

use super::{SelectorError, check_length};

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTerm {
    /// Dotted field name, such as `spec.nodeName`.
    pub field: String,
    /// Whether the value must differ.
    pub negated: bool,
    /// The value.
    pub value: String,
}

impl fmt::Display for FieldTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = if self.negated { "!=" } else { "=" };
        write!(f, "{}{operator}", self.field)?;
        for c in self.value.chars() {
            if matches!(c, '\\' | ',' | '=') {
                f.write_str("\\")?;
            }
            write!(f, "{c}")?;
        }
        Ok(())
    }
}

/// A conjunction of conditions on fields; empty matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

impl FieldSelector {
    /// From the text of a `fieldSelector` parameter.
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        check_length(text)?;
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let terms = parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| parse_term(text, part));
        FieldSelector::collect(terms)
    }

    // As upstream, a condition that names neither field nor value restricts nothing.
    fn collect<E>(terms: impl Iterator<Item = Result<FieldTerm, E>>) -> Result<FieldSelector, E> {
        let mut terms: Vec<FieldTerm> = terms.collect::<Result<_, _>>()?;
        terms.retain(|term| !(term.field.is_empty() && term.value.is_empty()));
        Ok(FieldSelector { terms })
    }

    /// Exactly this value in exactly this field.
    pub fn equal(field: impl Into<String>, value: impl Into<String>) -> FieldSelector {
        FieldSelector {
            terms: vec![FieldTerm {
                field: field.into(),
                negated: false,
                value: value.into(),
            }],
        }
    }

    /// Whether the selector restricts nothing.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The conditions.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// Whether fields match; `lookup` gives a field's value, and a missing field is the empty text.
    pub fn matches<T: AsRef<str>>(&self, lookup: impl Fn(&str) -> Option<T>) -> bool {
        self.terms.iter().all(|term| {
            let found = lookup(&term.field);
            let value = found.as_ref().map_or("", AsRef::as_ref);
            (value == term.value) != term.negated
        })
    }

    /// The single value a field must have, when the selector says so.
    pub fn exact_value(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|t| t.field == field && !t.negated)
            .map(|t| t.value.as_str())
    }

    /// Checks and renames every condition's field (a kind's supported field labels and aliases).
    /// A condition turned into one without field and value is dropped.
    pub fn try_map<E>(
        self,
        mut map: impl FnMut(FieldTerm) -> Result<FieldTerm, E>,
    ) -> Result<FieldSelector, E> {
        FieldSelector::collect(self.terms.into_iter().map(&mut map))
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{term}")?;
        }
        Ok(())
    }
}

/// Splits at commas that no backslash escapes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    let is_separator = |c: char| {
        let separates = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        separates
    };
    text.split(is_separator).collect()
}

fn parse_term(selector: &str, part: &str) -> Result<FieldTerm, SelectorError> {
    let (field, operator, value) = split_term(part).ok_or_else(|| {
        SelectorError::new(format!(
            "invalid selector: '{selector}'; can't understand '{part}'"
        ))
    })?;
    Ok(FieldTerm {
        field: field.to_owned(),
        negated: operator == "!=",
        value: unescape(value)?,
    })
}

/// The first operator splits; `==` goes before `=` so that no `=` is left in the value.
fn split_term(part: &str) -> Option<(&str, &str, &str)> {
    part.char_indices().find_map(|(at, _)| {
        let operator = ["!=", "==", "="]
            .into_iter()
            .find(|o| part[at..].starts_with(o))?;
        Some((&part[..at], operator, &part[at + operator.len()..]))
    })
}

fn unescape(text: &str) -> Result<String, SelectorError> {
    let bad_escape = |tail: &str| {
        SelectorError::new(format!(
            "invalid field selector: invalid escape sequence: \\{tail}"
        ))
    };
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => value.push(c),
                Some(c) => return Err(bad_escape(&c.to_string())),
                None => return Err(bad_escape("")),
            },
            // Upstream prints the character's number.
            ',' | '=' => {
                let number = u32::from(c);
                let text =
                    format!("invalid field selector: unescaped character in value: {number}");
                return Err(SelectorError::new(text));
            }
            c => value.push(c),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terms_are_read_sorted_and_printed_canonically() {
        for (text, printed) in [
            ("", ""),
            (",,", ""),
            ("b=2,a==1", "a=1,b=2"),
            (
                "status.phase!=Failed,status.phase!=Succeeded",
                "status.phase!=Failed,status.phase!=Succeeded",
            ),
            (r"a=x\,y\=z\\", r"a=x\,y\=z\\"),
            ("a=", "a="),
            ("=v", "=v"),
            ("=,a=1", "a=1"),
        ] {
            assert_eq!(
                FieldSelector::parse(text).unwrap().to_string(),
                printed,
                "{text}"
            );
        }
    }

    #[test]
    fn mistakes_are_told_as_upstream_tells_them() {
        for (text, message) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("b=1,a", "invalid selector: 'b=1,a'; can't understand 'a'"),
            (
                "a=b=c",
                "invalid field selector: unescaped character in value: 61",
            ),
            (
                r"a=\x",
                r"invalid field selector: invalid escape sequence: \x",
            ),
            (
                r"a=b\",
                r"invalid field selector: invalid escape sequence: \",
            ),
        ] {
            assert_eq!(
                FieldSelector::parse(text).unwrap_err().to_string(),
                message,
                "{text}"
            );
        }
    }

    #[test]
    fn a_missing_field_is_empty() {
        let lookup = |field: &str| (field == "spec.nodeName").then_some("n1");
        for (text, expected) in [
            ("spec.nodeName=n1", true),
            ("spec.nodeName!=n1", false),
            ("spec.nodeName=n1,status.phase!=Failed", true),
            ("status.phase=", true),
            ("status.phase!=", false),
        ] {
            assert_eq!(
                FieldSelector::parse(text).unwrap().matches(lookup),
                expected,
                "{text}"
            );
        }
        assert_eq!(
            FieldSelector::parse("a!=1,b=2").unwrap().exact_value("b"),
            Some("2")
        );
        assert_eq!(
            FieldSelector::parse("a!=1,b=2").unwrap().exact_value("a"),
            None
        );
    }

    #[test]
    fn fields_can_be_renamed_and_refused() {
        let rename = |mut term: FieldTerm| {
            if term.field != "spec.host" {
                return Err(term.field);
            }
            term.field = "spec.nodeName".to_owned();
            Ok(term)
        };
        assert_eq!(
            FieldSelector::parse("spec.host=a")
                .unwrap()
                .try_map(rename)
                .unwrap()
                .to_string(),
            "spec.nodeName=a"
        );
        assert_eq!(
            FieldSelector::parse("x=a")
                .unwrap()
                .try_map(rename)
                .unwrap_err(),
            "x"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".*") {
            if let Ok(selector) = FieldSelector::parse(&text) {
                prop_assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap(), selector);
            }
        }

        #[test]
        fn printed_terms_read_back(terms in prop::collection::vec(("[a-z.]{1,8}", any::<bool>(), r"[a-z\\,=!]{0,8}"), 0..5)) {
            let terms = terms.into_iter().map(|(field, negated, value)| FieldTerm { field, negated, value });
            let text = FieldSelector { terms: terms.collect() }.to_string();
            let read = FieldSelector::parse(&text).unwrap();
            prop_assert_eq!(FieldSelector::parse(&read.to_string()).unwrap(), read);
        }
    }
}
