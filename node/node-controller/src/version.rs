//! Versions as upstream's semver reads them: `v1.2`, `1.34.0-alpha.1+meta`; missing numbers are zero.

/// A version that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    numbers: [u64; 3],
    prerelease: bool,
}

impl Version {
    /// Reads a version; anything that is none is `None`.
    pub fn parse(text: &str) -> Option<Version> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, metadata) = cut(text, '+');
        let (text, prerelease) = cut(text, '-');
        let identifiers = |text: &str| text.split('.').all(is_identifier);
        if !metadata.is_none_or(identifiers) || !prerelease.is_none_or(is_prerelease) {
            return None;
        }
        let mut numbers = [0; 3];
        for (index, part) in text.split('.').enumerate() {
            let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            *numbers.get_mut(index)? = part.parse().ok().filter(|_| digits)?;
        }
        let prerelease = prerelease.is_some();
        Some(Version {
            numbers,
            prerelease,
        })
    }

    /// Whether it is this release or a later one; a prerelease comes before its release.
    pub fn is_at_least(&self, release: [u64; 3]) -> bool {
        self.numbers > release || (self.numbers == release && !self.prerelease)
    }
}

/// Whether `text` is a version, and this release or later.
pub fn at_least(text: &str, release: [u64; 3]) -> bool {
    Version::parse(text).is_some_and(|version| version.is_at_least(release))
}

fn cut(text: &str, mark: char) -> (&str, Option<&str>) {
    match text.split_once(mark) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn is_prerelease(text: &str) -> bool {
    let padded = |part: &str| {
        part.len() > 1 && part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit())
    };
    text.split('.')
        .all(|part| is_identifier(part) && !padded(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_releases_and_prereleases() {
        for later in [
            "1.34.0",
            "v1.34",
            "1.34.8",
            "2",
            "1.34.0+x.1",
            "1.35.0-alpha.1",
            "01.34.0",
        ] {
            assert!(at_least(later, [1, 34, 0]), "{later}");
        }
        for not in [
            "1.33.9",
            "1.34.0-rc.1",
            "",
            "1.34.",
            "1.34.0.1",
            "x",
            "1.35.0-01",
            "1.35+",
            "-1.35",
        ] {
            assert!(!at_least(not, [1, 34, 0]), "{not}");
        }
    }
}
