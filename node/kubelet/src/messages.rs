//! The last words of containers.

use std::collections::BTreeMap;

use crate::cri::ContainerState;
use crate::seen::{Container, Seen};

/// What one container may say, and all of a pod together.
const ONE: usize = 4096;
const ALL: usize = 12 * 1024;
/// What is taken of a log.
const LOG_LINES: usize = 80;
const LOG: usize = 2048;

/// Reads what ended containers said and was not read yet, and forgets those that are gone.
pub(crate) async fn read(seen: &Seen, containers: usize, words: &mut BTreeMap<String, String>) {
    words.retain(|id, _| seen.containers.iter().any(|c| c.id == *id));
    let most = ONE.min(ALL / containers.max(1));
    for container in seen
        .containers
        .iter()
        .filter(|c| c.state == ContainerState::Exited)
    {
        if !words.contains_key(&container.id) {
            let text = of(container, most).await;
            words.insert(container.id.clone(), text);
        }
    }
}

async fn of(container: &Container, most: usize) -> String {
    let file = match container.message_file.is_empty() {
        true => Vec::new(),
        false => tokio::fs::read(&container.message_file)
            .await
            .unwrap_or_default(),
    };
    if file.is_empty() && container.message_from_log && container.exit_code != 0 {
        let log = tokio::fs::read_to_string(&container.log_path)
            .await
            .unwrap_or_default();
        return tail_of_log(&log);
    }
    tail(&String::from_utf8_lossy(&file), most)
}

fn tail(text: &str, most: usize) -> String {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_owned()
}

/// The text of the last lines of a log as CRI writes it: time, stream, whether the line is whole, text.
fn tail_of_log(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
    let mut text = String::new();
    for line in last {
        let mut words = line.splitn(4, ' ');
        let whole = words.nth(2).is_some_and(|tag| tag.starts_with('F'));
        text += words.next().unwrap_or_default();
        if whole {
            text.push('\n');
        }
    }
    tail(&text, LOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_without_its_marks() {
        let log = "2026-01-01T00:00:00.1Z stdout F one\n2026-01-01T00:00:00.2Z stderr P tw\n\
                   2026-01-01T00:00:00.3Z stderr F o\n";
        assert_eq!(tail_of_log(log), "one\ntwo\n");
    }

    #[test]
    fn only_the_end_is_kept() {
        assert_eq!(tail("abcdef", 3), "def");
        assert_eq!(tail("aäb", 2), "b");
    }
}
