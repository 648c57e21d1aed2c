//! Flags of upstream's programs that ours do not have: those without a meaning here are accepted with a warning, those
//! whose meaning cannot be had are refused by name. The table is `data/upstream-flags.tbl`.

use std::ffi::OsString;

use clap::CommandFactory as _;

use super::Cli;

const TABLE: &str = include_str!("../../data/upstream-flags.tbl");

/// What becomes of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ignored,
    Refused,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
struct Row {
    verdict: Verdict,
    /// It takes a value only behind `=`.
    is_bool: bool,
    programs: &'static str,
    flag: &'static str,
    why: &'static str,
}

fn rows() -> impl Iterator<Item = Row> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut cells = line.split('|');
        Some(Row {
            verdict: match cells.next()? {
                "ignored" => Verdict::Ignored,
                "refused" => Verdict::Refused,
                _ => return None,
            },
            is_bool: cells.next()? == "bool",
            programs: cells.next()?,
            flag: cells.next()?,
            why: cells.next()?,
        })
    })
}

impl Row {
    fn is_for(&self, program: &str, flag: &str) -> bool {
        let of_program = self.programs == "*" || self.programs.split(',').any(|p| p == program);
        of_program
            && match self.flag.strip_suffix('*') {
                Some(start) => flag.starts_with(start),
                None => flag == self.flag,
            }
    }
}

/// A command line without the flags that mean nothing here, and what to say about each.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sifted {
    pub(super) args: Vec<OsString>,
    pub(super) warnings: Vec<String>,
}

/// Takes out what means nothing here. An error is what to say about a flag that cannot be followed.
pub(super) fn sift(args: Vec<OsString>) -> Result<Sifted, String> {
    let program = args
        .get(1)
        .and_then(|word| word.to_str())
        .unwrap_or_default();
    let known = match program {
        "apiserver"
        | "controller-manager"
        | "cloud-controller-manager"
        | "cloud-node-manager"
        | "scheduler" => known_flags(program),
        _ => {
            let warnings = Vec::new();
            return Ok(Sifted { args, warnings });
        }
    };
    let (program, mut warnings, mut kept) = (program.to_owned(), Vec::new(), Vec::new());
    let mut words = args.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        let flag = text
            .strip_prefix("--")
            .or(text.strip_prefix('-').filter(|f| f.starts_with('v')));
        let (name, has_value) = match flag.map(|flag| flag.split_once('=')) {
            Some(Some((name, _))) => (name, true),
            Some(None) => (flag.unwrap_or_default(), false),
            None => ("", false),
        };
        let row = rows().find(|row| row.is_for(&program, name));
        match row.filter(|_| !name.is_empty() && !known.iter().any(|k| k == name)) {
            None => kept.push(word),
            Some(row) if row.verdict == Verdict::Refused => {
                return Err(format!(
                    "--{name} is upstream's, and cannot be followed here: {}",
                    row.why
                ));
            }
            Some(row) => {
                if !row.is_bool && !has_value {
                    words.next();
                }
                warnings.push(format!("--{name} has no effect here: {}", row.why));
            }
        }
    }
    Ok(Sifted {
        args: kept,
        warnings,
    })
}

fn known_flags(program: &str) -> Vec<String> {
    let mut command = Cli::command();
    // Global flags reach their commands only once it is built.
    command.build();
    let Some(command) = command.find_subcommand(program) else {
        return Vec::new();
    };
    let flags = command.get_arguments().flat_map(|argument| {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        argument
            .get_long()
            .into_iter()
            .chain(aliases)
            .map(str::to_owned)
    });
    flags.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sifted(line: &str) -> Result<(String, usize), String> {
        let sifted = sift(line.split(' ').map(OsString::from).collect())?;
        let kept: Vec<_> = sifted
            .args
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        Ok((kept.join(" "), sifted.warnings.len()))
    }

    #[test]
    fn every_row_is_whole_and_none_is_about_a_flag_we_have() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), rows().count());
        for program in ["apiserver", "controller-manager", "scheduler"] {
            let known = known_flags(program);
            assert!(known.len() > 10, "{program}: {known:?}");
            let own = rows().filter(|row| row.programs == program);
            for row in own.filter(|row| row.verdict == Verdict::Refused) {
                let ours = known.iter().find(|flag| row.flag == **flag);
                assert_eq!(ours, None, "{program}");
            }
        }
    }

    #[test]
    fn what_means_nothing_is_taken_out_with_its_value() {
        let cases = [
            (
                "k apiserver --v 2 --secure-port 1",
                "k apiserver --secure-port 1",
                1,
            ),
            (
                "k apiserver -v=2 --allow-privileged --etcd-servers x",
                "k apiserver --etcd-servers x",
                2,
            ),
            ("k apiserver --allow-privileged=true", "k apiserver", 1),
            (
                "k controller-manager --concurrent-job-syncs=5",
                "k controller-manager",
                1,
            ),
            ("k up --v 2", "k up --v 2", 0),
            (
                "k apiserver --no-such-flag",
                "k apiserver --no-such-flag",
                0,
            ),
        ];
        for (line, kept, warnings) in cases {
            assert_eq!(sifted(line), Ok((kept.to_owned(), warnings)), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_name() {
        let refused = sifted("k apiserver --token-auth-file=/x").expect_err("no such tokens");
        assert!(refused.contains("--token-auth-file") && refused.contains("static tokens"));
    }
}
