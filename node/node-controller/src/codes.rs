//! Exit codes of a provision: what each means and what to check. The table is `data/codes.tbl`.

const TABLE: &str = include_str!("../data/codes.tbl");

/// The configuration could not be used: the code of a provision that failed before its first step.
pub const NODE_CONTROLLER_ERROR: u8 = 240;

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The number.
    pub number: u8,
    name: &'static str,
    /// What happened.
    pub meaning: &'static str,
    /// What to look at.
    pub check: &'static str,
}

impl Code {
    /// Upstream's name, such as `ERR_OUTBOUND_CONN_FAIL`, where it has one.
    pub fn name(&self) -> Option<String> {
        (self.name != "-").then(|| format!("ERR_{}", self.name))
    }
}

/// Every code, by number.
pub fn all() -> impl Iterator<Item = Code> {
    TABLE.lines().filter_map(|line| {
        let mut cells = line.split('|');
        Some(Code {
            number: cells.next()?.parse().ok()?,
            name: cells.next()?,
            meaning: cells.next()?,
            check: cells.next()?,
        })
    })
}

/// The code with this number or name; a name may lack `ERR_` and be in any case.
pub fn find(wanted: &str) -> Option<Code> {
    let name = wanted.trim().to_ascii_uppercase();
    let name = name.strip_prefix("ERR_").unwrap_or(&name);
    let number: Option<u8> = name.parse().ok();
    all().find(|code| Some(code.number) == number || (code.name != "-" && code.name == name))
}

/// Names that contain `part`, for whoever misspelled one.
pub fn similar(part: &str) -> Vec<String> {
    let part = part.trim().to_ascii_uppercase();
    let names = all().filter_map(|code| code.name());
    names.filter(|name| name.contains(&part)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_row_is_whole_and_every_number_and_name_stands_once() {
        let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
        assert!(rows.clone().all(|row| row.split('|').count() == 4));
        assert_eq!(all().count(), rows.count());
        let mut numbers: Vec<_> = all().map(|code| code.number).collect();
        assert!(numbers.is_sorted());
        numbers.dedup();
        assert_eq!(numbers.len(), all().count());
        let mut names: Vec<_> = all().filter_map(|code| code.name()).collect();
        let named = names.len();
        names.sort();
        names.dedup();
        assert_eq!((named, names.len()), (128, 128));
        assert!(all().all(|code| !code.meaning.is_empty() && !code.check.is_empty()));
    }

    #[test]
    fn codes_are_found_by_number_and_by_name() {
        for wanted in [
            "51",
            "ERR_K8S_API_SERVER_CONN_FAIL",
            "k8s_api_server_conn_fail",
            " 51\n",
        ] {
            assert_eq!(find(wanted).unwrap().number, 51, "{wanted}");
        }
        for unknown in ["3", "999", "-", "", "ERR_", "-1"] {
            assert_eq!(find(unknown), None, "{unknown}");
        }
        assert_eq!(find("124").unwrap().name(), None);
        assert_eq!(similar("swap").len(), 2);
    }
}
