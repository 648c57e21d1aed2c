//! From messages to JSON, as protobuf writes it: what is zero and not `optional` is left out, fields in the
//! order of the table, maps in the order of their keys. Upstream's writer adds spaces by chance; this one does not.

use super::declare::{Message, View};

/// How JSON is laid out.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Whether names are the proto's (`snake_case`) or JSON's.
    pub proto_names: bool,
    /// Spaces per level.
    pub indent: usize,
    /// Whether `<`, `>`, `&` and Unicode's line separators are escaped, as Go's own JSON does.
    pub html_safe: bool,
}

/// The file that a node is sent: upstream's `MarshalConfigurationV1`.
pub const NODE_CONFIG: Style = Style {
    proto_names: true,
    indent: 2,
    html_safe: false,
};

/// The kubelet's configuration file.
pub const KUBELET_FILE: Style = Style {
    proto_names: false,
    indent: 4,
    html_safe: true,
};

/// The message as JSON; secrets included.
pub fn encode(message: &dyn Message, style: Style) -> String {
    let mut writer = Writer {
        style,
        depth: 0,
        out: String::new(),
    };
    writer.message(message);
    writer.out
}

struct Writer {
    style: Style,
    depth: usize,
    out: String,
}

impl Writer {
    fn message(&mut self, message: &dyn Message) {
        let rows = message.rows().iter();
        let fields = rows.filter_map(|row| {
            let value = message.value(row.name).filter(|value| value.is_set())?;
            Some((self.name(row), value.view()))
        });
        self.object(fields.collect());
    }

    fn name(&self, row: &super::declare::Row) -> String {
        if self.style.proto_names {
            row.name.to_owned()
        } else {
            row.json_name()
        }
    }

    fn object(&mut self, fields: Vec<(String, View<'_>)>) {
        self.bracketed('{', '}', fields, |writer, (name, view)| {
            writer.text(&name);
            writer.out.push_str(": ");
            writer.view(view);
        });
    }

    fn view(&mut self, view: View<'_>) {
        match view {
            View::Absent => self.out.push_str("null"),
            View::Text(text) | View::Secret(text) => self.text(text),
            View::Flag(flag) => self.out.push_str(&flag.to_string()),
            View::Number(number) => self.out.push_str(&number.to_string()),
            View::Real(real) => self.out.push_str(&json_real(real)),
            View::Choice(_, Some(name)) => self.text(name),
            View::Choice(number, None) => self.out.push_str(&number.to_string()),
            View::Message(message) => self.message(message),
            View::List(items) => self.bracketed('[', ']', items.to_vec(), |w, item| w.text(&item)),
            View::Map(entries) => {
                let owned = |(key, view): (&str, _)| (key.to_owned(), view);
                self.object(entries.into_iter().map(owned).collect());
            }
        }
    }

    fn bracketed<T>(&mut self, open: char, close: char, items: Vec<T>, write: fn(&mut Self, T)) {
        self.out.push(open);
        self.depth += 1;
        let any = !items.is_empty();
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.line();
            write(self, item);
        }
        self.depth -= 1;
        if any {
            self.line();
        }
        self.out.push(close);
    }

    fn line(&mut self) {
        self.out.push('\n');
        let spaces = self.depth * self.style.indent;
        self.out.extend(std::iter::repeat_n(' ', spaces));
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' | '\\' => self.out.extend(['\\', c]),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                _ if c < ' ' || (self.style.html_safe && is_html_unsafe(c)) => {
                    self.out.push_str(&format!("\\u{:04x}", u32::from(c)));
                }
                _ => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn is_html_unsafe(c: char) -> bool {
    matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}')
}

fn json_real(real: f64) -> String {
    if real.is_nan() {
        "\"NaN\"".into()
    } else if real.is_infinite() {
        format!("\"{}Infinity\"", if real < 0.0 { "-" } else { "" })
    } else if real != 0.0 && !(1e-6..1e21).contains(&real.abs()) {
        // Go writes the sign of a positive exponent.
        let text = format!("{real:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                format!("{digits}e+{exponent}")
            }
            _ => text,
        }
    } else {
        real.to_string()
    }
}
