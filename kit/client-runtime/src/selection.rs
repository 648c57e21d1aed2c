//! Which controllers run: `*`, names, and names with a minus, as upstream's `--controllers`.

/// A choice of controllers. The first entry that names a controller decides, then `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    entries: Vec<String>,
    all: bool,
}

impl Selection {
    /// Every controller, those that upstream leaves off included.
    pub fn everything() -> Selection {
        Selection {
            entries: Vec::new(),
            all: true,
        }
    }

    /// Reads a list such as `*,-token-cleaner-controller`; a name nobody has is an error.
    pub fn parse<'a>(
        entries: impl IntoIterator<Item = &'a str>,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<Selection, String> {
        let entries: Vec<String> = entries.into_iter().map(str::to_owned).collect();
        for entry in &entries {
            let name = entry.strip_prefix('-').unwrap_or(entry);
            if entry != "*" && (name.is_empty() || !is_known(name)) {
                return Err(format!(
                    "\"{name}\" is not in the list of known controllers"
                ));
            }
        }
        Ok(Selection {
            entries,
            all: false,
        })
    }

    /// Whether a controller is to run that goes by some names.
    pub fn includes(&self, is_called: impl Fn(&str) -> bool, on_by_default: bool) -> bool {
        if self.all {
            return true;
        }
        let named = self.entries.iter().find_map(|entry| {
            let (wanted, name) = match entry.strip_prefix('-') {
                Some(name) => (false, name),
                None => (true, entry.as_str()),
            };
            is_called(name).then_some(wanted)
        });
        let star = self.entries.iter().any(|entry| entry == "*");
        named.unwrap_or(star && on_by_default)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Names, aliases, and whether each is on by default.
    const ALL: [(&str, &str, bool); 3] = [
        ("csr-signing-controller", "csrsigning", true),
        ("csr-cleaner-controller", "csrcleaner", true),
        ("token-cleaner-controller", "tokencleaner", false),
    ];

    fn parse(list: &str) -> Result<Selection, String> {
        let is_known = |name: &str| ALL.iter().any(|row| row.0 == name || row.1 == name);
        Selection::parse(list.split(','), is_known)
    }

    fn chosen(selection: &Selection) -> Vec<&'static str> {
        let included = |row: &&(&'static str, &'static str, bool)| {
            selection.includes(|name| row.0 == name || row.1 == name, row.2)
        };
        ALL.iter().filter(included).map(|row| row.1).collect()
    }

    #[test]
    fn lists_and_whom_they_choose() {
        let cases: [(&str, &[&str]); 6] = [
            ("*", &["csrsigning", "csrcleaner"]),
            (
                "*,tokencleaner",
                &["csrsigning", "csrcleaner", "tokencleaner"],
            ),
            ("*,-csrsigning", &["csrcleaner"]),
            ("-csrsigning,token-cleaner-controller", &["tokencleaner"]),
            ("-csrcleaner,csrcleaner", &[]),
            ("csrcleaner,-csrcleaner,*", &["csrsigning", "csrcleaner"]),
        ];
        for (list, expected) in cases {
            assert_eq!(chosen(&parse(list).unwrap()), expected, "{list}");
        }
        assert_eq!(chosen(&Selection::everything()).len(), ALL.len());
    }

    #[test]
    fn unknown_names_are_refused() {
        assert_eq!(
            parse("*,-nobody").unwrap_err(),
            "\"nobody\" is not in the list of known controllers"
        );
    }
}
