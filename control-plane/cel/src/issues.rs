//! What is wrong with an expression, shown as cel-go shows it.

use std::fmt;

/// Problems found while compiling.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Issues {
    text: String,
    list: Vec<Issue>,
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Code points before the place it is about.
    pub at: u32,
    /// What is wrong.
    pub message: String,
}

/// Upstream stops after so many.
const SHOWN: usize = 100;

impl Issues {
    pub(crate) fn new(source: &str, mut list: Vec<Issue>) -> Issues {
        list.sort_by_key(|issue| issue.at);
        list.dedup();
        list.truncate(SHOWN);
        Issues {
            text: source.to_owned(),
            list,
        }
    }

    /// Every problem, by place.
    pub fn list(&self) -> &[Issue] {
        &self.list
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, issue) in self.list.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let (line, column, text) = place(&self.text, issue.at);
            let message = &issue.message;
            write!(f, "ERROR: <input>:{line}:{}: {message}", column + 1)?;
            // cel-go draws the line and a caret below it.
            write!(
                f,
                "\n | {}\n | {}^",
                text.replace('\t', " "),
                ".".repeat(column)
            )?;
        }
        Ok(())
    }
}

// Line (from 1), column (from 0) and the text of the line.
fn place(source: &str, at: u32) -> (usize, usize, &str) {
    let offset = source
        .char_indices()
        .nth(at as usize)
        .map_or(source.len(), |(offset, _)| offset);
    let start = source[..offset].rfind('\n').map_or(0, |found| found + 1);
    let end = source[offset..]
        .find('\n')
        .map_or(source.len(), |found| offset + found);
    let line = source[..offset].matches('\n').count() + 1;
    let column = source[start..offset].chars().count();
    (line, column, &source[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_point_at_their_place() {
        let issue = |at, message: &str| Issue {
            at,
            message: message.into(),
        };
        let issues = Issues::new("a +\n ü b", vec![issue(5, "what"), issue(0, "a")]);
        assert_eq!(
            issues.to_string(),
            "ERROR: <input>:1:1: a\n | a +\n | ^\nERROR: <input>:2:2: what\n |  ü b\n | .^"
        );
    }
}
