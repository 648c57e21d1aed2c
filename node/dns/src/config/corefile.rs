//! The form of a Corefile: lines of words, some with a block of lines behind them.

use std::path::Path;

use super::ConfigError;

/// A line, and the lines of its block.
#[derive(Debug)]
pub(super) struct Directive {
    pub(super) words: Vec<String>,
    pub(super) inner: Vec<Directive>,
    pub(super) file: String,
    pub(super) line: usize,
}

impl Directive {
    pub(super) fn wrong(&self, problem: &str) -> ConfigError {
        ConfigError::Form {
            file: self.file.clone(),
            line: self.line,
            problem: problem.into(),
        }
    }
}

/// Files may import files, and no deeper: nobody can import themselves for ever.
const DEEPEST: usize = 3;

/// Reads directives, with what they import.
pub(super) fn parse(text: &str, path: &Path) -> Result<Vec<Directive>, ConfigError> {
    parse_file(text, path, 0)
}

fn parse_file(text: &str, path: &Path, depth: usize) -> Result<Vec<Directive>, ConfigError> {
    let file = path.display().to_string();
    let lines: Vec<(usize, Vec<String>)> = text
        .lines()
        .enumerate()
        .map(|(i, line)| (i + 1, words(line)))
        .filter(|(_, words)| !words.is_empty())
        .collect();
    let mut reader = Reader {
        lines: lines.into_iter(),
        file,
        path,
        depth,
    };
    reader.directives(false)
}

fn words(line: &str) -> Vec<String> {
    let code = line.split('#').next().unwrap_or_default();
    code.split_whitespace()
        .map(|word| word.trim_matches('"').to_owned())
        .collect()
}

struct Reader<'a> {
    lines: std::vec::IntoIter<(usize, Vec<String>)>,
    file: String,
    path: &'a Path,
    depth: usize,
}

impl Reader<'_> {
    fn directives(&mut self, is_inner: bool) -> Result<Vec<Directive>, ConfigError> {
        let mut all = Vec::new();
        while let Some((line, mut words)) = self.lines.next() {
            match (
                words.first().map(String::as_str),
                words.last().map(String::as_str),
            ) {
                (Some("}"), _) if is_inner => return Ok(all),
                (Some("import"), _) => all.extend(self.imported(&words)?),
                (_, Some("{")) => {
                    words.pop();
                    let inner = self.directives(true)?;
                    all.push(self.directive(words, inner, line));
                }
                _ => all.push(self.directive(words, Vec::new(), line)),
            }
        }
        match is_inner {
            true => Err(self
                .directive(Vec::new(), Vec::new(), 0)
                .wrong("a `}` is missing")),
            false => Ok(all),
        }
    }

    fn directive(&self, words: Vec<String>, inner: Vec<Directive>, line: usize) -> Directive {
        Directive {
            words,
            inner,
            file: self.file.clone(),
            line,
        }
    }

    // `import directory/*.ending`; nothing there is nothing to import, as when no ConfigMap is mounted.
    fn imported(&self, words: &[String]) -> Result<Vec<Directive>, ConfigError> {
        let mut all = Vec::new();
        if self.depth == DEEPEST {
            return Ok(all);
        }
        for pattern in &words[1..] {
            let here = self.path.parent().unwrap_or(Path::new("/"));
            for path in matching(&here.join(pattern)) {
                let text = std::fs::read_to_string(&path).map_err(|e| ConfigError::File {
                    path: path.display().to_string(),
                    cause: e.to_string(),
                })?;
                all.extend(parse_file(&text, &path, self.depth + 1)?);
            }
        }
        Ok(all)
    }
}

fn matching(pattern: &Path) -> Vec<std::path::PathBuf> {
    let name = pattern
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let Some((before, after)) = name.split_once('*') else {
        return if pattern.is_file() {
            vec![pattern.to_owned()]
        } else {
            Vec::new()
        };
    };
    let directory = pattern.parent().unwrap_or(Path::new("/"));
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<std::path::PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(before) && name.ends_with(after) && entry.path().is_file()
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}
