//! Fields by path: `cluster_config.location`, and with `*` every entry of a map, list or message.

use super::declare::{Message, View};

/// A field that was looked up.
pub struct Found<'a> {
    /// Its path, with keys and indexes in brackets.
    pub path: String,
    /// What it holds; absent where it, or a message it is in, is not there.
    pub view: View<'a>,
    /// Whether it would be written.
    pub is_set: bool,
}

/// Every field that `pattern` names. A path without `*` always names one.
pub fn lookup<'a>(message: &'a dyn Message, pattern: &str) -> Vec<Found<'a>> {
    let start = Found {
        path: String::new(),
        view: View::Message(message),
        is_set: true,
    };
    let steps = pattern.split('.');
    steps.fold(vec![start], |found, step| {
        found.into_iter().flat_map(|at| take(at, step)).collect()
    })
}

fn take<'a>(at: Found<'a>, step: &str) -> Vec<Found<'a>> {
    let path = at.path;
    let dotted = |name: &str| match path.as_str() {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    let field = |message: &'a dyn Message, name: &str| {
        let value = message.value(name)?;
        Some(Found {
            path: dotted(name),
            view: value.view(),
            is_set: value.is_set(),
        })
    };
    let entry = |(key, view): (String, View<'a>)| Found {
        path: format!("{path}[{key}]"),
        view,
        is_set: true,
    };
    match (at.view, step) {
        (View::Message(message), "*") => {
            let rows = message.rows().iter();
            rows.filter_map(|row| field(message, row.name)).collect()
        }
        (View::Message(message), name) => field(message, name).into_iter().collect(),
        (View::Map(entries), "*") => {
            let entries = entries.into_iter();
            entries
                .map(|(key, view)| entry((format!("{key:?}"), view)))
                .collect()
        }
        (View::List(items), "*") => {
            let items = items.iter().enumerate();
            items
                .map(|(index, item)| entry((index.to_string(), View::Text(item))))
                .collect()
        }
        (View::Absent, name) if name != "*" => vec![Found {
            path: dotted(name),
            view: View::Absent,
            is_set: false,
        }],
        _ => Vec::new(),
    }
}
