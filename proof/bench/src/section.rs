//! One part of the result, and the ways to show several: as text, as a page, as a picture.

use serde_json::Value;

use crate::picture::{self, Bar};

/// A table, how its figures came about, and what of it goes into the picture.
#[derive(Debug)]
pub(crate) struct Section {
    /// What machines call it.
    pub(crate) key: &'static str,
    /// The first is the header.
    pub(crate) lines: Vec<Vec<String>>,
    pub(crate) method: Vec<String>,
    pub(crate) bars: Vec<Bar>,
    pub(crate) json: Value,
}

/// For people.
pub(crate) fn text(sections: &[Section]) -> String {
    let parts = sections
        .iter()
        .map(|section| format!("{}\n{}", aligned(&section.lines), section.method.join("\n")));
    parts.collect::<Vec<_>>().join("\n\n")
}

/// For machines.
pub(crate) fn json(sections: &[Section]) -> Value {
    let parts = sections
        .iter()
        .map(|section| (section.key.to_owned(), section.json.clone()));
    Value::Object(parts.collect())
}

/// For the repository: the same as a page that shows the picture of this name.
pub(crate) fn page(sections: &[Section], picture: &str) -> String {
    let parts = sections.iter().map(|section| {
        format!(
            "{}\n{}\n",
            marked_up(&section.lines),
            section.method.join("\n\n")
        )
    });
    format!(
        "# Ours and upstream's\n\nThe last run of `make bench`, which writes this page and the picture.\n\n\
         ![How many times better ours is than upstream]({picture})\n\n{}",
        parts.collect::<Vec<_>>().join("\n")
    )
}

/// The measures that stand for themselves, as a picture.
pub(crate) fn svg(sections: &[Section]) -> String {
    let bars: Vec<Bar> = sections.iter().flat_map(|s| s.bars.clone()).collect();
    picture::svg(
        "How many times better than upstream (a tick: our goal)",
        &bars,
    )
}

/// A value with its unit, to three digits or more.
pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        3
    };
    let space = if unit.starts_with('/') { "" } else { " " };
    format!("{value:.digits$}{space}{unit}")
}

// The first and the last column read from the left, numbers from the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().map(|l| l[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let [name, numbers @ .., verdict] = line.as_slice() else {
            continue;
        };
        text.push_str(&format!("{name:<0$}", widths[0]));
        for (number, width) in numbers.iter().zip(&widths[1..]) {
            text.push_str(&format!("   {number:>width$}"));
        }
        text.push_str(&format!("   {verdict}"));
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

// What is indented in the table of a terminal keeps its place below what it belongs to.
fn marked_up(lines: &[Vec<String>]) -> String {
    let row = |cells: &Vec<String>| {
        format!("| {} |\n", cells.join(" | ")).replace("|   ", "| &nbsp;&nbsp;")
    };
    let mut rows: Vec<String> = lines.iter().map(row).collect();
    let numbers = lines
        .first()
        .map_or(0, |header| header.len().saturating_sub(2));
    rows.insert(
        1.min(rows.len()),
        format!("|---{}|---|\n", "|---:".repeat(numbers)),
    );
    rows.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(cells: [&str; 4]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn an_indented_row_stays_indented_on_the_page() {
        let lines = [
            line(["measure", "ours", "theirs", ""]),
            line(["  CPU", "1 ms", "2 ms", "met"]),
        ];
        let wanted = "| measure | ours | theirs |  |\n|---|---:|---:|---|\n| &nbsp;&nbsp;CPU | 1 ms | 2 ms | met |\n";
        assert_eq!(marked_up(&lines), wanted);
    }

    #[test]
    fn numbers_are_aligned() {
        let lines = [
            line(["measure", "ours", "theirs", ""]),
            line(["CPU", "1 ms", "20 ms", "met"]),
        ];
        let wanted = "measure   ours   theirs\nCPU       1 ms    20 ms   met\n";
        assert_eq!(aligned(&lines), wanted);
    }

    #[test]
    fn numbers_keep_three_digits_or_more() {
        assert_eq!(with_unit(0.1234, "ms"), "0.123 ms");
        assert_eq!(with_unit(25.61, "MiB"), "25.6 MiB");
        assert_eq!(with_unit(5_450.2, "/s"), "5450/s");
    }
}
