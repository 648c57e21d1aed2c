//! Answers of a webhook that are still believed.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;
use serde_json::Value;

/// How many answers are kept (upstream's size).
const MOST: usize = 8192;

/// Answers by question, each until its time.
#[derive(Debug, Default)]
pub struct Memory {
    answers: HashMap<String, (Value, Timestamp)>,
    /// In the order they came: the oldest goes first when there are too many.
    order: VecDeque<String>,
}

impl Memory {
    /// What was answered to a question, if it is still believed.
    pub fn recall(&self, question: &str, now: Timestamp) -> Option<Value> {
        let (answer, until) = self.answers.get(question)?;
        (now < *until).then(|| answer.clone())
    }

    /// Keeps an answer until a time.
    pub fn keep(&mut self, question: String, answer: Value, until: Timestamp) {
        if self
            .answers
            .insert(question.clone(), (answer, until))
            .is_none()
        {
            self.order.push_back(question);
        }
        while self.order.len() > MOST {
            if let Some(oldest) = self.order.pop_front() {
                self.answers.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn answers_are_believed_for_their_time_and_the_oldest_go_first() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut memory = Memory::default();
        memory.keep("a".into(), Value::Bool(true), at(10));
        assert_eq!(memory.recall("a", at(9)), Some(Value::Bool(true)));
        assert_eq!(memory.recall("a", at(10)), None);
        for n in 0..MOST {
            memory.keep(n.to_string(), Value::Null, at(10));
        }
        assert_eq!(memory.recall("a", at(0)), None);
        assert!(memory.recall("0", at(0)).is_some());
        assert_eq!(memory.answers.len(), MOST);
    }
}
