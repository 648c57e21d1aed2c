//! What changed between two values: upstream shows it where something may not change.

use serde_json::Value;

/// How many lines are shown around a change.
const AROUND: usize = 3;
/// The largest table of lines by lines that is made to find the fewest changes; beyond it the lines that differ are shown
/// as one change, so that the work stays in proportion to the object.
const LARGEST: usize = 1 << 16;

/// A line of both values, of the old one only (`-`), or of the new one only (`+`).
type Line<'t> = (char, &'t str);

/// A unified diff of two values as indented JSON. Upstream's shows the fields of its own types, this one those of the API.
pub(super) fn difference(old: &Value, new: &Value) -> String {
    let (old, new) = (indented(old), indented(new));
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    hunks(&changes(&old, &new))
}

// By one space a level, as upstream's.
fn indented(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).expect("a JSON value prints");
    let lines = text.lines().map(|line| {
        let words = line.trim_start();
        format!("{}{words}\n", " ".repeat((line.len() - words.len()) / 2))
    });
    lines.collect()
}

/// All lines of both, in order.
fn changes<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<Line<'t>> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tails = old[head..].iter().rev().zip(new[head..].iter().rev());
    let tail = tails.take_while(|(a, b)| a == b).count();
    let (old_middle, new_middle) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut lines: Vec<Line<'t>> = old[..head].iter().map(|line| (' ', *line)).collect();
    lines.extend(match old_middle.len() * new_middle.len() <= LARGEST {
        true => fewest(old_middle, new_middle),
        false => all(old_middle, new_middle),
    });
    lines.extend(old[old.len() - tail..].iter().map(|line| (' ', *line)));
    lines
}

fn all<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<Line<'t>> {
    let gone = old.iter().map(|line| ('-', *line));
    gone.chain(new.iter().map(|line| ('+', *line))).collect()
}

// By the longest common subsequence.
fn fewest<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<Line<'t>> {
    let width = new.len() + 1;
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = match old[i] == new[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < old.len() && j < new.len() {
        let (down, right) = (common[(i + 1) * width + j], common[i * width + j + 1]);
        if old[i] == new[j] {
            lines.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if down >= right {
            lines.push(('-', old[i]));
            i += 1;
        } else {
            lines.push(('+', new[j]));
            j += 1;
        }
    }
    lines.extend(all(&old[i..], &new[j..]));
    lines
}

/// The changes with the lines around them, those that meet as one.
fn hunks(lines: &[Line<'_>]) -> String {
    let changed = |line: &Line<'_>| line.0 != ' ';
    let mut out = String::new();
    let mut done = 0;
    while let Some(first) = lines[done..].iter().position(changed).map(|at| at + done) {
        let start = first.saturating_sub(AROUND).max(done);
        let mut end = first + 1;
        while let Some(next) = lines[end..].iter().take(2 * AROUND).position(changed) {
            end += next + 1;
        }
        let stop = lines.len().min(end + AROUND);
        hunk(&mut out, lines, start..stop);
        done = stop;
    }
    out
}

fn hunk(out: &mut String, lines: &[Line<'_>], range: std::ops::Range<usize>) {
    let count = |lines: &[Line<'_>], not: char| lines.iter().filter(|line| line.0 != not).count();
    let (before, shown) = (&lines[..range.start], &lines[range]);
    let place = |not: char| match (count(before, not), count(shown, not)) {
        (start, 0) => format!("{start},0"),
        (start, 1) => (start + 1).to_string(),
        (start, length) => format!("{},{length}", start + 1),
    };
    out.push_str(&format!("@@ -{} +{} @@\n", place('+'), place('-')));
    for (sign, line) in shown {
        out.push(*sign);
        out.push_str(line);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_change_is_a_hunk_with_the_lines_around_it() {
        let numbers: Vec<u32> = (0..30).collect();
        let mut other = numbers.clone();
        (other[5], other[25]) = (50, 250);
        let expected = "@@ -4,7 +4,7 @@
  2,
  3,
  4,
- 5,
+ 50,
  6,
  7,
  8,
@@ -24,7 +24,7 @@
  22,
  23,
  24,
- 25,
+ 250,
  26,
  27,
  28,
";
        assert_eq!(difference(&json!(numbers), &json!(other)), expected);
    }

    #[test]
    fn lines_that_came_are_found_between_those_that_stayed() {
        let (old, new) = (json!({"a": 1, "c": 3}), json!({"a": 1, "b": 2, "c": 3}));
        let expected = "@@ -1,4 +1,5 @@\n {\n  \"a\": 1,\n+ \"b\": 2,\n  \"c\": 3\n }\n";
        assert_eq!(difference(&old, &new), expected);
        assert_eq!(difference(&old, &old), "");
    }

    #[test]
    fn what_is_too_large_to_compare_is_one_change() {
        let (old, new): (Vec<i64>, Vec<i64>) = ((0..2000).collect(), (1..2001).rev().collect());
        let told = difference(&json!(old), &json!(new));
        assert_eq!(told.matches("@@ ").count(), 1);
    }
}
