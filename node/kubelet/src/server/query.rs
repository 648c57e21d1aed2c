//! The query of a request.

use std::str::FromStr;

/// Names and values in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part after the question mark.
    pub(super) fn parse(text: Option<&str>) -> Query {
        let pairs = text.unwrap_or_default().split('&');
        let pairs = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        Query(pairs.collect())
    }

    /// The first value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// All values of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let of_name = self.0.iter().filter(move |(n, _)| n == name);
        of_name.map(|(_, value)| value.as_str())
    }

    /// Whether a name is set: to `1` or `true`, or, as Go's decoder has it, to anything but `0` and `false`.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "0" | "false"))
    }

    /// A number, if there is one under this name.
    pub(super) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, ()> {
        let text = self.get(name).filter(|text| !text.is_empty());
        text.map(|text| text.parse().map_err(|_| ())).transpose()
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = (*first == b'%')
            .then(|| std::str::from_utf8(after.get(..2)?).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = match hex {
            Some(byte) => {
                bytes.push(byte);
                &after[2..]
            }
            None => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                after
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_go_reads_them() {
        let query = Query::parse(Some(
            "command=sh&command=-c&command=echo+a%26b&output=1&tty=false&n=5&x=%zz",
        ));
        assert_eq!(
            query.all("command").collect::<Vec<_>>(),
            ["sh", "-c", "echo a&b"]
        );
        assert!(query.flag("output") && !query.flag("tty") && !query.flag("input"));
        assert_eq!(query.number::<i64>("n"), Ok(Some(5)));
        assert_eq!(query.number::<i64>("command"), Err(()));
        assert_eq!(query.get("x"), Some("%zz"));
        assert_eq!(Query::parse(None), Query::default());
    }
}
