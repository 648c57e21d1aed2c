//! A bootstrap token as its secret holds it (`cluster-bootstrap/util/secrets`).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

const PREFIX: &str = "bootstrap-token-";

/// One entry of a secret, as text; empty when it is missing or not text.
pub(crate) fn entry<'a>(secret: &'a Secret, key: &str) -> &'a str {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    value.map_or("", |value| std::str::from_utf8(&value.0).unwrap_or(""))
}

/// When a token ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Never.
    Never,
    /// Then.
    At(Timestamp),
    /// It says something that is no time, which counts as over.
    Unreadable,
}

impl Ending {
    pub(crate) fn of(secret: &Secret) -> Ending {
        match entry(secret, "expiration") {
            "" => Ending::Never,
            text => text.parse().map_or(Ending::Unreadable, Ending::At),
        }
    }

    pub(crate) fn is_over(self, now: Timestamp) -> bool {
        match self {
            Ending::Never => false,
            Ending::At(end) => end <= now,
            Ending::Unreadable => true,
        }
    }
}

/// Identifier and secret of a token that may sign cluster-info.
pub(crate) fn for_signing(secret: &Secret, now: Timestamp) -> Option<(&str, &str)> {
    let name = secret.metadata.name.as_deref()?;
    let (id, key) = (entry(secret, "token-id"), entry(secret, "token-secret"));
    let is_id = |id: &str| {
        id.len() == 6
            && id
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let is_whole = name.strip_prefix(PREFIX) == Some(id) && is_id(id) && !key.is_empty();
    let may_sign = entry(secret, "usage-bootstrap-signing") == "true";
    (is_whole && may_sign && !Ending::of(secret).is_over(now)).then_some((id, key))
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use k8s_openapi::ByteString;

    /// A token that may sign, with these entries besides or instead.
    pub(crate) fn token(id: &str, entries: &[(&str, &str)]) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.name = Some(format!("{PREFIX}{id}"));
        let usual = [
            ("token-id", id),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-signing", "true"),
        ];
        let all = usual.iter().chain(entries);
        let data = all.map(|(k, v)| ((*k).to_owned(), ByteString(v.as_bytes().to_vec())));
        secret.data = Some(data.collect());
        secret
    }

    #[test]
    fn only_whole_living_tokens_sign() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let signs = |secret: &Secret| for_signing(secret, now).is_some();
        assert!(signs(&token("abcdef", &[])));
        assert!(signs(&token(
            "abcdef",
            &[("expiration", "2026-01-01T01:00:01+01:00")]
        )));
        for wrong in [
            ("expiration", "2026-01-01T00:00:00Z"),
            ("expiration", "tomorrow"),
            ("usage-bootstrap-signing", "false"),
            ("token-secret", ""),
            ("token-id", "zzzzzz"),
        ] {
            assert!(!signs(&token("abcdef", &[wrong])), "{wrong:?}");
        }
        assert!(!signs(&token("ABCDEF", &[])), "not an identifier");
    }

    #[test]
    fn endings_are_read() {
        assert_eq!(Ending::of(&token("abcdef", &[])), Ending::Never);
        let end = "2026-01-01T00:00:00Z";
        let secret = token("abcdef", &[("expiration", end)]);
        assert_eq!(Ending::of(&secret), Ending::At(end.parse().unwrap()));
    }
}
