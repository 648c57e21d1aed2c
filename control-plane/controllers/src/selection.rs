//! Which controllers run: `*`, names, and names with a minus, as upstream's `--controllers`.

use crate::Controller;

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
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Selection, String> {
        let entries: Vec<String> = entries.into_iter().map(str::to_owned).collect();
        for entry in &entries {
            let name = entry.strip_prefix('-').unwrap_or(entry);
            let is_later = crate::LATER
                .iter()
                .any(|row| row.0 == name || row.1 == name);
            let is_known = is_later || crate::CONTROLLERS.iter().any(|c| c.is_called(name));
            if entry != "*" && (name.is_empty() || !is_known) {
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

    pub(crate) fn includes(&self, controller: &Controller) -> bool {
        if self.all {
            return true;
        }
        let named = self.entries.iter().find_map(|entry| {
            let (wanted, name) = match entry.strip_prefix('-') {
                Some(name) => (false, name),
                None => (true, entry.as_str()),
            };
            controller.is_called(name).then_some(wanted)
        });
        let star = self.entries.iter().any(|entry| entry == "*");
        named.unwrap_or(star && controller.on_by_default)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn chosen(list: &str) -> Vec<&'static str> {
        let selection = Selection::parse(list.split(',')).unwrap();
        let all = crate::CONTROLLERS.iter();
        all.filter(|c| selection.includes(c))
            .map(|c| c.alias)
            .collect()
    }

    #[test]
    fn a_star_means_those_that_are_on_by_default() {
        let all = chosen("*");
        assert!(all.contains(&"csrsigning") && !all.contains(&"tokencleaner"));
        assert!(chosen("*,tokencleaner").contains(&"tokencleaner"));
        assert!(!chosen("*,-csrsigning").contains(&"csrsigning"));
        assert_eq!(
            chosen("-csrsigning,token-cleaner-controller"),
            ["tokencleaner"]
        );
    }

    #[test]
    fn the_first_mention_counts_and_unknown_names_are_refused() {
        assert_eq!(chosen("-csrcleaner,csrcleaner"), [""; 0]);
        assert_eq!(
            Selection::parse(["*", "-nobody"]).unwrap_err(),
            "\"nobody\" is not in the list of known controllers"
        );
    }

    #[test]
    fn everything_includes_what_upstream_leaves_off() {
        let selection = Selection::everything();
        assert!(crate::CONTROLLERS.iter().all(|c| selection.includes(c)));
    }
}
