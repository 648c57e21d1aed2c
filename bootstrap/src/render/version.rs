//! Versions as far as a node cares: three numbers.

/// Major, minor, patch; whatever a distribution appends is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Reads `v1.6.20~ds1`, `1.34.8`, `2.0.0-rc.1`; a missing patch is 0.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('v');
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let mut numbers = text[..end].trim_end_matches('.').split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        let patch = numbers.next().map_or(Some(0), |n| n.parse().ok())?;
        Some(Self(major, minor, patch))
    }

    /// The version in the third word of `containerd --version`.
    pub fn of_containerd(answer: &str) -> Option<Self> {
        Self::parse(answer.split_whitespace().nth(2)?)
    }

    /// The version in `Kubernetes v1.34.8`, the answer of `kubelet --version`.
    pub fn of_kubelet(answer: &str) -> Option<Self> {
        Self::parse(answer.split_whitespace().nth(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_of_distributions_are_cut_off() {
        for (text, want) in [
            ("1.34.8", Some(Version(1, 34, 8))),
            ("v2.0.0-rc.1", Some(Version(2, 0, 0))),
            ("1.6.20~ds1", Some(Version(1, 6, 20))),
            ("1.29", Some(Version(1, 29, 0))),
            ("1.7.", Some(Version(1, 7, 0))),
            ("", None),
            ("newest", None),
        ] {
            assert_eq!(Version::parse(text), want, "{text}");
        }
    }

    #[test]
    fn answers_of_the_programs_are_understood() {
        let debian = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1";
        let upstream = "containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b71\n";
        assert_eq!(Version::of_containerd(debian), Some(Version(1, 6, 20)));
        assert_eq!(Version::of_containerd(upstream), Some(Version(2, 1, 4)));
        assert_eq!(Version::of_containerd("containerd"), None);
        assert_eq!(Version::of_kubelet("Kubernetes v1.36.1\n"), Some(Version(1, 36, 1)));
    }

    #[test]
    fn versions_are_ordered_by_number() {
        assert!(Version(1, 9, 0) < Version(1, 34, 0));
        assert!(Version(1, 34, 0) <= Version(1, 34, 0));
    }
}
