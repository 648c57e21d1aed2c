//! Where a program comes from: a URL, which may say what it must be, or a file that is here.

/// A URL of the configuration, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where to get it.
    pub location: Location,
    /// The last part of its path.
    pub file_name: String,
    /// What its bytes must be, as 64 hexadecimal digits, where the URL says so: `…#sha256=<digest>`.
    pub sha256: Option<String>,
}

/// Where to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// From the network.
    Url(String),
    /// From this machine: `file:///…`, or just a path.
    File(String),
}

impl Source {
    /// Reads a URL; an empty one is none.
    pub fn parse(url: &str) -> Option<Self> {
        let (place, fragment) = url.trim().split_once('#').unwrap_or((url.trim(), ""));
        // Nothing that a quoted string could end with.
        if place.contains(['"', '\\']) || place.contains(char::is_whitespace) {
            return None;
        }
        let path = place.split('?').next().unwrap_or_default();
        let file_name = path
            .rsplit('/')
            .next()
            .filter(|name| !name.is_empty())?
            .to_owned();
        let local = place
            .strip_prefix("file://")
            .or_else(|| place.starts_with('/').then_some(place));
        Some(Self {
            location: match local {
                Some(path) => Location::File(path.to_owned()),
                None => Location::Url(place.to_owned()),
            },
            file_name,
            sha256: fragment.strip_prefix("sha256=").and_then(digest),
        })
    }
}

/// The digest in a file of checksums: its first word.
pub fn digest(text: &str) -> Option<String> {
    let word = text.split_whitespace().next()?;
    let whole = word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit());
    whole.then(|| word.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_may_say_what_they_lead_to() {
        let sum = "AB".repeat(32);
        let source = Source::parse(&format!("https://h/p/kube.tar.gz?sig=1#sha256={sum}")).unwrap();
        assert_eq!(
            source.location,
            Location::Url("https://h/p/kube.tar.gz?sig=1".to_owned())
        );
        assert_eq!(source.file_name, "kube.tar.gz");
        assert_eq!(source.sha256, Some(sum.to_lowercase()));
    }

    #[test]
    fn files_of_the_machine_are_known_as_such() {
        for url in ["file:///opt/bundle/kube.tgz", "/opt/bundle/kube.tgz"] {
            let source = Source::parse(url).unwrap();
            assert_eq!(
                source.location,
                Location::File("/opt/bundle/kube.tgz".to_owned())
            );
            assert_eq!(source.sha256, None);
        }
        assert_eq!(Source::parse(""), None);
        assert_eq!(Source::parse("https://h/"), None);
        assert_eq!(Source::parse("https://h/a\" b"), None);
    }

    #[test]
    fn a_digest_is_64_digits() {
        assert_eq!(
            digest(&format!("{}  kube.tar.gz\n", "0".repeat(64))),
            Some("0".repeat(64))
        );
        assert_eq!(digest("<html>"), None);
    }
}
