//! Who runs again: upstream's reinvocation. If a policy or webhook changed an object, everybody before it may want to
//! see what has become of it, once.

/// What ran in the first round, and whether something changed behind it.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Each with whether a later one changed the object.
    ran: Vec<(String, bool)>,
    changed: bool,
    second: bool,
}

impl Rounds {
    /// Which round it is, from zero.
    pub(super) fn round(&self) -> u8 {
        u8::from(self.second)
    }

    /// Whether somebody's turn has come.
    pub(super) fn may_run(&self, key: &str, again: bool) -> bool {
        match self.second {
            false => true,
            true => again && self.ran.iter().any(|(known, later)| known == key && *later),
        }
    }

    /// Somebody had a turn.
    pub(super) fn ran(&mut self, key: String, changed: bool) {
        if changed {
            self.changed = true;
            for (known, later) in &mut self.ran {
                *later |= *known != key;
            }
        }
        if !self.second {
            self.ran.push((key, false));
        }
    }

    /// Begins the second round, if there is to be one.
    pub(super) fn again(&mut self) -> bool {
        let again = self.changed && !self.second;
        self.second = true;
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_run_again_behind_whom_something_changed() {
        let mut rounds = Rounds::default();
        for (key, changed) in [("a", true), ("b", true), ("c", false)] {
            assert!(rounds.may_run(key, false));
            rounds.ran(key.into(), changed);
        }
        assert!(rounds.again());
        assert!(rounds.may_run("a", true), "b changed the object behind it");
        assert!(!rounds.may_run("a", false), "it does not want to");
        assert!(!rounds.may_run("b", true), "nobody changed it since");
        assert!(
            !rounds.may_run("new", true),
            "never first in the second round"
        );
        assert!(!rounds.again());
    }
}
